"""The graph itself, on a kitchen of four reviewers, and what must hold for any graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropg.graph import InteractionGraph, Review, UnknownItem, UnknownUser
from ropg.graph.columns import ROWS

KITCHEN = [
    Review("ann", "pan", "Fries well", "Lovely pan", 5.0, "2020-01-02"),
    Review("ann", "pot", "Boils well", "Nice pot", 4.5),
    Review("bob", "pan", "My arm hurts", "Too heavy", 2.0),
    Review("ann", "pan", "Still fries", "A year later"),
    Review("çelo", "lid", "", "Blank", 3.0, extra='{"verified": true}'),
]

_NAMES = st.sampled_from(["a", "b", "B", "é", "a#1", "", "日本"])
REVIEWS = st.lists(
    st.builds(
        Review,
        user=_NAMES,
        item=_NAMES,
        text=st.text(st.characters(codec="utf-8"), max_size=6),
        title=st.text(st.characters(codec="utf-8"), max_size=3),
        rating=st.none() | st.sampled_from([1.0, 4.5, 5.0]),
        date=st.none() | st.just("2020"),
        extra=st.none(),
    ),
    max_size=25,
)


def same(a: InteractionGraph, b: InteractionGraph) -> bool:
    """Whether two graphs answer alike, node by node and document by document."""
    assert (a.n_users, a.n_items, a.n_edges) == (b.n_users, b.n_items, b.n_edges)
    assert [a.user_name(n) for n in range(a.n_users)] == [b.user_name(n) for n in range(b.n_users)]
    assert [a.item_name(n) for n in range(a.n_items)] == [b.item_name(n) for n in range(b.n_items)]
    for name in ("edge_user", "edge_item", "rating"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert getattr(a, name).dtype == getattr(b, name).dtype
    for user in range(a.n_users):
        assert a.user_number(b.user_name(user)) == user
        assert a.user_edges(user).tolist() == b.user_edges(user).tolist()
    for item in range(a.n_items):
        assert a.item_number(b.item_name(item)) == item
        assert a.item_edges(item).tolist() == b.item_edges(item).tolist()
    assert [a.document(e) for e in range(a.n_edges)] == [b.document(e) for e in range(b.n_edges)]
    return a.fingerprint == b.fingerprint


def test_kitchen():
    graph = InteractionGraph.from_reviews(KITCHEN)
    assert (graph.n_users, graph.n_items, graph.n_edges, len(graph)) == (3, 3, 5, 5)
    assert graph.edge_user.tolist() == [0, 0, 1, 0, 2]
    assert graph.edge_item.tolist() == [0, 1, 0, 0, 2]
    assert graph.user_edges(graph.user_number("ann")).tolist() == [0, 1, 3]
    assert graph.item_edges(graph.item_number("pan")).tolist() == [0, 2, 3]
    assert graph.user_degrees.tolist() == [3, 1, 1]
    document = graph.document(3, "own")
    assert (document.id, document.author, document.item) == ("ann#2", "ann", "pan")
    assert (document.text, document.title, document.score) == ("Still fries", "A year later", None)
    assert document.provenance == "own"
    assert (graph.document(0).score, graph.document(1).score) == ("5", "4.5")
    assert (graph.document(0).date, graph.document(0).provenance) == ("2020-01-02", "neighbor")
    assert graph.document(4).fields == {"verified": True}
    assert graph.document(np.int32(2)) is graph.document(2)


def test_unknown_names_are_answered_with_the_nearest():
    graph = InteractionGraph.from_reviews(KITCHEN)
    with pytest.raises(UnknownUser, match=r"no user 'celo' among the 3 users.*did you mean 'çelo'"):
        graph.user_number("celo")
    with pytest.raises(UnknownItem, match=r"no item 'pam'.*'pan'"):
        graph.item_number("pam")
    with pytest.raises(IndexError, match="edges 0 to 4"):
        graph.document(5)
    for number in (-1, 3):
        with pytest.raises(IndexError):
            graph.user_name(number)


def test_nearest_among_very_many_names():
    reviews = [Review(f"user{n:06d}", "x", "t") for n in range(20_500)]
    with pytest.raises(UnknownUser, match="user00012"):
        InteractionGraph.from_reviews(reviews).user_number("user00012x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": None}, "review 3: user is None"),
        ({"item": 7}, "review 3: item is 7"),
        ({"text": None}, "review 3: text is None"),
        ({"title": "\ud83d"}, "review 3: title is"),
        ({"rating": "five"}, "review 3: rating is 'five'"),
        ({"rating": float("inf")}, "review 3: rating is inf"),
    ],
)
def test_what_is_no_review_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        InteractionGraph.from_reviews([*KITCHEN[:2], KITCHEN[2]._replace(**change), *KITCHEN[3:]])


def test_arrays_cannot_be_changed():
    graph = InteractionGraph.from_reviews(KITCHEN)
    with pytest.raises(ValueError, match="read-only"):
        graph.edge_user[0] = 2


def test_adding_leaves_the_graph_as_it_was():
    graph = InteractionGraph.from_reviews(KITCHEN[:2])
    before = graph.fingerprint
    more = graph.add(KITCHEN[2:])
    assert (graph.n_edges, more.n_edges) == (2, 5)
    assert InteractionGraph.from_reviews(KITCHEN[:2]).fingerprint == before


@given(REVIEWS, st.integers(0, 25), st.integers(0, 25))
@settings(deadline=None)
def test_adding_in_parts_equals_building_at_once(reviews, first, second):
    first, second = sorted((first, second))
    parts = InteractionGraph.from_reviews(reviews[:first]).add(reviews[first:second]).add(reviews[second:])
    assert same(parts, InteractionGraph.from_reviews(iter(reviews)))


def test_adding_across_batches_equals_building_at_once():
    reviews = [Review(f"u{n % 997}", f"i{n % 89}", f"text {n}") for n in range(2 * ROWS + 5)]
    parts = InteractionGraph.from_reviews(reviews[:-7]).add(reviews[-7:-2]).add(reviews[-2:])
    assert parts.fingerprint == InteractionGraph.from_reviews(reviews).fingerprint
    assert [len(batch) for batch in parts.texts.batches] == [ROWS, ROWS, 5]
    assert parts.document(2 * ROWS + 4).text == f"text {2 * ROWS + 4}"


@given(REVIEWS.filter(bool), st.data())
@settings(deadline=None)
def test_the_fingerprint_tells_graphs_apart(reviews, data):
    """Moving a letter between neighbouring fields, or one changed value, is another graph."""
    place = data.draw(st.integers(0, len(reviews) - 1))
    part = data.draw(st.sampled_from(["user", "item", "text", "title", "rating", "date"]))
    value = 2.0 if part == "rating" else "other"
    changed = [*reviews]
    changed[place] = changed[place]._replace(**{part: value})
    marks = [InteractionGraph.from_reviews(some).fingerprint for some in (reviews, changed)]
    assert marks[0] != marks[1]


def test_a_field_that_is_missing_is_not_an_empty_one():
    missing, empty = (InteractionGraph.from_reviews([Review("a", "b", "c", date=d)]) for d in (None, ""))
    assert missing.fingerprint != empty.fingerprint
    assert (missing.document(0).date, empty.document(0).date) == (None, "")


@given(REVIEWS)
@settings(deadline=None, max_examples=40)
def test_saved_equals_in_memory(tmp_path_factory, reviews):
    folder = tmp_path_factory.mktemp("graph")
    graph = InteractionGraph.from_reviews(reviews, notes={"from": "a test"})
    opened = InteractionGraph.open(graph.save(folder), verify=True)
    assert same(opened, graph)
    assert opened.notes == {"from": "a test"}
    assert same(opened.add(KITCHEN), graph.add(KITCHEN))
