"""The systems of PGraphRAG: whose documents they show, how many, and that the target is never among them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropg.examples import Document, Example
from ropg.graph.catalogue import TABLES, labels
from ropg.graph.random_documents import random_documents
from ropg.graph.slices import slice_ids, slice_results, slices_of
from ropg.graph.systems import Recipe, build_system, fitting
from ropg.retrievers import BM25, NoRetrieval
from ropg.tasks import get_task

TASK = get_task("pgraphrag_title", template="paper")


class Words:
    """An LLM as far as a budget needs one: a word is a token."""

    def __init__(self, max_input_tokens: int | None = 512) -> None:
        self.max_input_tokens = max_input_tokens

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def review(number: int, provenance: str, author: str, text: str = "plain words") -> Document:
    return Document(
        f"{author}#{number}",
        text,
        title=f"title {author} {number}",
        score="3",
        provenance=provenance,
        author=author,
        item="i",
    )


def example(user: str = "ann", own: int = 3, neighbors: int = 4, **given: str) -> Example:
    """Own documents first, as the source has them; with the query "words" BM25 leaves them in that order."""
    profile = [review(i + 1, "own", user) for i in range(own)]
    profile += [review(0, "neighbor", f"{user}-n{i}") for i in range(neighbors)]
    return Example(user, user, given.get("input", "words"), given.get("target", "gold"), profile)


def documents_of(recipe: Recipe, *examples: Example, llm: Words | None = None) -> list[list[Document]]:
    system = build_system(recipe, {"bm25": BM25("lucene")}, TASK, llm or Words(), examples)
    return [list(documents) for documents in system.rank(examples)]


@pytest.mark.parametrize(
    ("recipe", "own", "neighbors"),
    [
        (Recipe("both", k=2), 2, 2),
        (Recipe("both", k=2, budget="equal"), 2, 0),  # equal scores: the profile's order, own ones first
        (Recipe("both", k=2, choice="random"), 2, 2),
        (Recipe("neighbors", k=2), 0, 2),
        (Recipe("own", k=2), 2, 0),
        (Recipe("own", k=9), 3, 0),
        (Recipe("own", k=2, choice="random"), 2, 0),
        (Recipe("own", choice="all_that_fits"), 3, 0),
        (Recipe("both", choice="all_that_fits"), 3, 4),
        (Recipe("none"), 0, 0),
    ],
)
def test_whose_documents_and_how_many(recipe, own, neighbors):
    """k of each side is up to twice what LaMP shows; a table that hides this compares lengths of prompts."""
    (documents,) = documents_of(recipe, example())
    kinds = [document.provenance for document in documents]
    assert (kinds.count("own"), kinds.count("neighbor")) == (own, neighbors)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 4), st.sampled_from(["ranked", "random"]))
def test_the_equal_budget_shows_no_more_than_the_baseline(own, neighbors, k, choice):
    one = example(own=own, neighbors=neighbors)
    (equal,) = documents_of(Recipe("both", k=k, budget="equal", choice=choice), one)
    (each,) = documents_of(Recipe("both", k=k, choice=choice), one)
    assert len(equal) == min(k, own + neighbors)
    assert len(each) == min(k, own) + min(k, neighbors)
    for document in (*equal, *each):
        assert document in one.profile


def test_a_query_decides_among_the_neighbors():
    """Ranked, not merely filtered."""
    profile = [review(0, "neighbor", f"n{i}", text) for i, text in enumerate(("salt", "sea view", "sand"))]
    one = Example("e", "ann", "view", "gold", profile)
    assert [d.text for d in documents_of(Recipe("neighbors", k=1), one)[0]] == ["sea view"]


def test_random_order_is_seeded_by_example():
    """The same draw in every run, another for every example."""
    first, second = example("ann", own=9, neighbors=0), example("bob", own=9, neighbors=0)
    recipe = Recipe("own", k=3, choice="random")
    once = documents_of(recipe, first, second)
    assert once == documents_of(recipe, first, second)
    places = [[int(d.id.rpartition("#")[2]) for d in documents] for documents in once]
    assert places[0] != places[1]


# users write reviews of items; a profile is what the source makes of it
graphs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=14, unique=True)


def examples_of(edges: list[tuple[int, int]]) -> list[Example]:
    reviews = [
        Document(f"{u}#{i}", f"text {u} {i}", title=f"title {u} {i}", author=str(u), item=str(i))
        for u, i in edges
    ]
    found = {}
    for target in reviews:
        profile = [
            Document(d.id, d.text, d.title, author=d.author, item=d.item, provenance=provenance)
            for d in reviews
            for provenance in (["own"] if d.author == target.author else ["neighbor"])
            if (d.author == target.author) != (d.item == target.item)
        ]
        found.setdefault(
            target.author, Example(target.author, target.author, target.text, target.title, profile)
        )
    return list(found.values())


@given(graphs, st.integers(1, 4), st.integers(0, 3))
def test_random_retrieval_takes_nothing_of_the_user(edges, k, seed):
    """A target among its own documents would be copied, and the baseline would win; nobody's text is called own."""
    examples = examples_of(edges)
    others = {
        one.user: {d.id for e in examples for d in e.profile if d.author != one.user} for one in examples
    }
    for one in examples:
        drawn = random_documents(one, examples, k, seed)
        assert len({d.id for d in drawn}) == len(drawn) == min(k, len(others[one.user]))
        assert {d.id for d in drawn} <= others[one.user]
        assert all(d.provenance == "neighbor" for d in drawn)
        assert all((d.text, d.title) != (one.input, one.target) for d in drawn)
        assert drawn == random_documents(one, examples, k, seed)


def test_random_retrieval_skips_copies_of_the_target_and_reads_all_profiles():
    """The same review under another name is the target as well."""
    copy = Document("x#0", "slept well", title="Quiet", author="x", provenance="neighbor")
    asks = Example("ann", "ann", "slept well", "Quiet", [copy])
    others = [example(f"u{i}", own=1, neighbors=1) for i in range(20)]
    drawn = [random_documents(asks, [asks, *others], 2, seed) for seed in range(30)]
    assert all(copy.id not in {d.id for d in documents} for documents in drawn)
    assert len({d.author for documents in drawn for d in documents}) > 15
    assert random_documents(asks, [asks], 2) == []


@pytest.mark.parametrize("kind", ["title", "text", "rating"])
def test_provenance_reaches_the_prompt(kind):
    """The prompt names own and other reviews in two blocks: a document in the wrong one is a false statement."""
    task = get_task(f"pgraphrag_{kind}", template="paper")
    one = example(own=2, neighbors=2)
    for mode, blocks in (("both", (True, True)), ("own", (True, False)), ("neighbors", (False, True))):
        system = build_system(Recipe(mode, k=1), {"bm25": BM25("lucene")}, task, Words(), [one])
        (documents,) = system.rank([one])
        prompt = task.build_prompt(one.input, documents)
        assert set(prompt.kept_ids) == {document.id for document in documents}
        own, other = prompt.text.find("title ann 1"), prompt.text.find("title ann-n0 0")
        assert ((own >= 0), (other >= 0)) == blocks
        if mode == "both":
            assert own < other  # own reviews stand in the first block, whatever their rank


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(10, 120))
def test_all_that_fits_is_the_longest_list_that_fits_whole(lengths, budget):
    """One document more and a text would be cut; given to the prompt builder all at once, all would be."""
    documents = [review(i, "own", "ann", " ".join(["word"] * n)) for i, n in enumerate(lengths)]
    llm = Words(budget)
    n = fitting("ask", documents, TASK, llm)
    if not documents:
        assert n == 0
        return
    assert 1 <= n <= len(documents)
    assert n == 1 or llm.count_tokens(TASK.prompt("ask", documents[:n])) <= budget
    assert n == len(documents) or llm.count_tokens(TASK.prompt("ask", documents[: n + 1])) > budget
    assert fitting("ask", documents, TASK, Words(None)) == len(documents)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: Recipe("neighbours"), "none of both, neighbors, own"),
        (lambda: Recipe("own", k=0), "k=0: a system shows at least one document"),
        (lambda: Recipe("own", budget="half"), "none of each_side, equal"),
        (lambda: build_system(Recipe("own", "dense"), {"bm25": BM25()}, TASK, Words(), []), "no retriever 'dense'"),
        (lambda: build_system(Recipe("own"), {"bm25": NoRetrieval()}, TASK, Words(), []), "No-Retrieval"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        bad()


def test_names_tell_all_systems_of_a_table_apart():
    """A name taken twice would be evaluated once, under the other's title."""
    for table in TABLES.values():
        for budget in ("each_side", "equal"):
            recipes = table.columns(["bm25", "dense"], 4, budget)
            names = [recipe.name for recipe in recipes]
            titles = labels(recipes)
            assert len(set(names)) == len(names) == len(set(titles.values()))
            assert {recipe.baseline.name for recipe in recipes} <= set(names)


def test_slices_by_hand():
    examples = [
        example("a", own=0, neighbors=1, target="x"),
        example("b", own=2, neighbors=4, target="x"),
        example("c", own=0, neighbors=5, target="x"),
        example("d", own=0, neighbors=0, target="x"),
    ]
    assert slices_of(examples[1]) == ("some own history", "two to four neighbors")
    assert slice_ids(examples) == {
        "no own history": ["a", "c", "d"],
        "some own history": ["b"],
        "no neighbor": ["d"],
        "one neighbor": ["a"],
        "two to four neighbors": ["b"],
        "five or more neighbors": ["c"],
    }
    results = slice_results(TASK, examples, {"s": {"a": "x", "b": "x", "c": "y", "d": "y"}}, resamples=5)
    values = {name: (rows[0]["metric"], rows[0]["value"], rows[0]["n"]) for name, rows in results.items()}
    assert values["no own history"] == ("rouge1", pytest.approx(1 / 3), 3)
    assert values["five or more neighbors"] == ("rouge1", 0.0, 1)
    without_gold = Example("e", "e", "words", None, [])
    assert (
        slice_results(TASK, [*examples, without_gold], {"s": dict.fromkeys("abcde", "x")}, resamples=5)[
            "no neighbor"
        ][0]["n"]
        == 1
    )
