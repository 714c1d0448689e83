"""What a profile holds: by hand on a small graph, and what must hold for any graph and any options."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropg.graph import GraphProfileSource, InteractionGraph, Review, UnknownItem, UnknownUser
from ropg.graph.communities import _most_frequent, label_propagation

#: ann and bob share the pan; bob and cleo the wok; ann and dan the lid; eve stands alone.
REVIEWS = [
    Review("ann", "pan", "Fries well", "Lovely"),  # 0: ann's target
    Review("ann", "lid", "Fits"),  # 1
    Review("ann", "pan", "Still fries"),  # 2: ann on the target's item again
    Review("bob", "pan", "fries  WELL!", "Same words"),  # 3: ann's text under another name
    Review("bob", "wok", "Burns"),  # 4
    Review("cleo", "wok", "Great wok"),  # 5
    Review("dan", "lid", "Too small"),  # 6
    Review("eve", "jar", "Nice jar"),  # 7
    Review("cleo", "pan", "Heavy", "LOVELY."),  # 8: ann's title
]
GRAPH = InteractionGraph.from_reviews(REVIEWS)


def _found(user="ann", item="pan", **options):
    profile = GraphProfileSource(GRAPH, **options).profile(user, item)
    return profile.own.tolist(), profile.neighbors.tolist()


@pytest.mark.parametrize(
    ("options", "own", "neighbors"),
    [
        ({}, [1], [3, 8]),
        ({"mode": "own"}, [1], []),
        ({"mode": "neighbors"}, [], [3, 8]),
        ({"neighbor_scope": "all_items"}, [1], [3, 6, 8]),
        ({"hops": 2}, [1], [3, 4, 5, 8]),
        ({"hops": 2, "neighbor_scope": "all_items", "mode": "neighbors"}, [], [3, 4, 5, 6, 8]),
        ({"hops": 2, "neighbor_scope": "all_items", "bound": 2}, [1], [3, 4, 5, 6, 8]),  # 6 is one hop away
        ({"leak_filter": "text"}, [1], [8]),
        ({"leak_filter": ["text", "title"]}, [1], []),
        ({"max_user_degree": 1}, [1], []),
        ({"max_user_degree": 2}, [1], [3, 8]),
    ],
)
def test_profiles_by_hand(options, own, neighbors):
    assert _found(**options) == (own, neighbors)


def test_documents_and_their_marks():
    profile = GraphProfileSource(GRAPH).profile("ann", "pan")
    assert [(d.id, d.provenance, d.author, d.item) for d in profile] == [
        ("ann#1", "own", "ann", "lid"),
        ("bob#0", "neighbor", "bob", "pan"),
        ("cleo#1", "neighbor", "cleo", "pan"),
    ]
    assert profile[-1] == profile[2]
    assert profile[:2] == (profile[0], profile[1])
    with pytest.raises(IndexError):
        profile[3]
    assert pickle.loads(pickle.dumps(profile)) == tuple(profile)


def test_what_is_left_out_is_counted():
    source = GraphProfileSource(GRAPH, leak_filter=("text", "title"), max_user_degree=1)
    assert source.profile("ann", "pan").left_out == {"user_degree": 2}
    assert source.profile("ann", "lid").left_out == {}
    assert source.capped_users == 3
    source = GraphProfileSource(GRAPH, leak_filter=("text", "title"))
    assert source.profile("ann", "pan").left_out == {"same_text": 1, "same_title": 1}


def test_an_empty_title_is_no_leak():
    """Reviews without a title would all leave each other out."""
    graph = InteractionGraph.from_reviews([Review("a", "x", "One"), Review("b", "x", "Two", "!")])
    assert len(GraphProfileSource(graph, leak_filter=("title", "text")).profile("a", "x")) == 1


def test_a_user_without_history_gets_neighbours():
    assert _found("dan", "lid") == ([], [1])
    assert _found("eve", "jar") == ([], [])
    assert _found("eve", "pan") == ([7], [0, 2, 3, 8])  # not reviewed yet: inference


def test_a_user_who_is_unknown_gets_neighbours():
    assert _found("zoe", "wok") == ([], [4, 5])
    assert _found("zoe", "wok", neighbor_scope="all_items") == ([], [4, 5])
    assert _found("zoe", "wok", hops=2) == ([], [3, 4, 5, 8])
    with pytest.raises(UnknownUser, match=r"'an'.*'ann'"):
        _found("an", "pan", mode="own")


def test_an_item_that_is_unknown_leaves_what_does_not_depend_on_it():
    assert _found("ann", "cup") == ([0, 1, 2], [])
    assert _found("ann", "cup", mode="own") == ([0, 1, 2], [])
    assert _found("ann", "cup", mode="neighbors", neighbor_scope="all_items") == ([], [3, 6, 8])
    with pytest.raises(UnknownItem, match=r"'pen'.*'pan'"):
        _found("ann", "pen", mode="neighbors")
    with pytest.raises(UnknownUser, match="'zoe'"):
        _found("zoe", "cup")


def test_neighbours_from_some_users_only():
    among = np.array([name in ("cleo", "dan") for name in map(GRAPH.user_name, range(GRAPH.n_users))])
    assert _found(among=among) == ([1], [8])
    assert _found(among=among, hops=2) == ([1], [5, 8])


def test_hops_are_bounded_and_seeded():
    reviews = [Review("a", "x", "target")]
    reviews += [Review(f"u{n}", item, f"{n} on {item}") for n in range(40) for item in ("x", f"i{n}")]
    graph = InteractionGraph.from_reviews(reviews)

    def far(seed, bound=10):
        source = GraphProfileSource(graph, hops=2, bound=bound, seed=seed)
        profile = source.profile("a", "x")
        assert profile.left_out == {"bound": 40 - bound}
        return [document.id for document in profile if document.item != "x"]

    assert len(far(0)) == 10
    assert far(0) == far(0) != far(1)


#: Two circles of three users, and one user who reviewed an item of each; by hand: z's two items pull equally.
CIRCLES = [Review(u, i, f"{u} on {i}") for u in "abc" for i in "mno"]
CIRCLES += [Review(u, i, f"{u} on {i}") for u in "def" for i in "pqr"]
CIRCLES += [Review("z", "m", "z on m"), Review("z", "p", "z on p")]


def test_communities():
    graph = InteractionGraph.from_reviews(CIRCLES)
    users, items = label_propagation(graph.edge_user, graph.edge_item, graph.n_users, graph.n_items)
    circles = {name: users[graph.user_number(name)] for name in "abcdefz"}
    assert len({circles[name] for name in "abc"}) == len({circles[name] for name in "def"}) == 1
    assert circles["a"] != circles["d"]
    assert circles["z"] in (circles["a"], circles["d"])
    assert {items[graph.item_number(name)] for name in "mno"} == {circles["a"]}
    other = "def" if circles["z"] == circles["a"] else "abc"
    restrict = GraphProfileSource(graph, community="restrict")
    near, far = ("m", "p") if other == "def" else ("p", "m")
    assert len(restrict.profile("z", near).neighbors) == 3
    assert restrict.profile("z", far).left_out == {"community": 3}
    extend = GraphProfileSource(graph, community="extend").profile("z", near)
    assert {document.author for document in extend} == set("abcdefz") - set(other)
    assert sum(document.provenance == "neighbor" for document in extend) == 9
    newcomer = GraphProfileSource(graph, community="restrict").profile("nobody", "p")
    assert {document.author for document in newcomer} >= set("def")


@given(st.permutations(range(4)))
def test_of_equally_frequent_labels_the_present_one_stays(order):
    """Else nodes between two communities would go back and forth, and where they end would be chance."""
    nodes, labels = np.array([0, 0, 0, 1, 1]), np.array([1, 2, 3, 3, 3])
    assert _most_frequent(nodes, labels, np.array([2, 0]), np.array(order)).tolist() == [2, 3]


def test_users_above_the_cap_tie_no_communities():
    """One shared account reviewed everything: without the cap it makes one community of all."""
    reviews = [Review("anonymous", item, f"anonymous on {item}") for item in "mnopqr"] * 5
    reviews += [Review(u, i, f"{u} on {i}") for u, i in zip("abcdef", "mnopqr", strict=True)]
    graph = InteractionGraph.from_reviews(reviews)
    free = GraphProfileSource(graph, community="extend", max_user_degree=3)
    assert free.profile("a", "m").neighbors.tolist() == []
    tied = GraphProfileSource(graph, community="extend").profile("a", "m")
    assert {graph.user_name(graph.edge_user[edge]) for edge in tied.neighbors} > {"anonymous"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "neighbours"}, "did you mean 'neighbors'"),
        ({"neighbor_scope": "all"}, "Known: all_items, target_item"),
        ({"community": "extended"}, "did you mean 'extend'"),
        ({"hops": 3}, "hops=3"),
        ({"bound": 0}, "bound=0"),
        ({"max_user_degree": 0}, "max_user_degree=0"),
        ({"leak_filter": ["txt"]}, "did you mean 'text'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        GraphProfileSource(GRAPH, **options)


@st.composite
def _cases(draw):
    reviews = draw(
        st.lists(
            st.builds(
                Review,
                st.sampled_from("abcdef"),
                st.sampled_from("mnopq"),
                st.sampled_from(["Good", "good!", "Bad", "", "Well made"]),
                st.sampled_from(["Yes", "yes", "No", ""]),
                rating=st.none(),
                date=st.none(),
                extra=st.none(),
            ),
            min_size=1,
            max_size=30,
        )
    )
    options = {
        "mode": draw(st.sampled_from(["both", "own", "neighbors"])),
        "neighbor_scope": draw(st.sampled_from(["target_item", "all_items"])),
        "hops": draw(st.sampled_from([1, 2])),
        "community": draw(st.sampled_from([None, "restrict", "extend"])),
        "bound": draw(st.sampled_from([1, 3, 64])),
        "max_user_degree": draw(st.sampled_from([None, 1, 4])),
        "leak_filter": draw(st.sampled_from([(), "text", ("text", "title")])),
    }
    return reviews, options


@given(_cases())
@settings(deadline=None, max_examples=150)
def test_what_holds_for_any_profile(case):
    """The target stays out, no other's text is marked own, marks are right, ids are unique, order is the file's."""
    reviews, options = case
    graph = InteractionGraph.from_reviews(reviews)
    source = GraphProfileSource(graph, **options)
    degrees = graph.user_degrees
    for edge in range(graph.n_edges):
        user, item = graph.user_name(graph.edge_user[edge]), graph.item_name(graph.edge_item[edge])
        profile = source.profile(user, item)
        documents = list(profile)
        assert len(documents) == len(profile)
        assert len({document.id for document in documents}) == len(documents)
        assert all(np.diff(part).min(initial=1) > 0 for part in (profile.own, profile.neighbors))
        marks = [document.provenance for document in documents]
        assert marks == sorted(marks, reverse=True)  # own documents stand first
        for document in documents:
            assert document.provenance == ("own" if document.author == user else "neighbor")
            assert not (document.author == user and document.item == item)
            assert options["mode"] in ("both", {"own": "own", "neighbor": "neighbors"}[document.provenance])
            if document.provenance == "neighbor" and options["max_user_degree"] is not None:
                assert degrees[graph.user_number(document.author)] <= options["max_user_degree"]
        if options["mode"] != "neighbors":
            mine = [n for n, review in enumerate(reviews) if review.user == user and review.item != item]
            assert profile.own.tolist() == mine
        plain = (options["hops"], options["community"], options["max_user_degree"], options["leak_filter"])
        if plain == (1, None, None, ()) and options["mode"] != "own":
            scope = {item}
            if options["neighbor_scope"] == "all_items":
                scope |= {review.item for review in reviews if review.user == user}
            others = [n for n, review in enumerate(reviews) if review.item in scope and review.user != user]
            assert profile.neighbors.tolist() == others
