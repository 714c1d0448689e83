"""Systems are ranked, answered and scored on the same examples; nothing is lost or counted twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from ropg.evaluation.systems import System, evaluate_systems, retriever_system
from ropg.examples import Document, Example
from ropg.retrievers import BM25, NoRetrieval, Recency
from ropg.tasks import get_task

HEADLINE = "Generate a headline for the following article: "


def profile(*texts: str, dates: bool = True) -> tuple[Document, ...]:
    return tuple(
        Document(f"d{i}", text, title=text, date=f"2020-01-0{i + 1}" if dates else None)
        for i, text in enumerate(texts)
    )


EXAMPLES = [
    Example("q1", "u1", HEADLINE + "cats", "sleepy cats", profile("cats", "dogs", "birds")),
    Example("q2", "u2", HEADLINE + "dogs", "loud dogs", profile("cats", "dogs")),
    Example("q3", "u3", HEADLINE + "fish", None, ()),
]


def echo(name: str, rankings: Mapping[str, Sequence[Document]]) -> dict[str, str]:
    """Answers with the titles of the documents."""
    return {i: " ".join(d.title for d in documents) for i, documents in rankings.items()}


@dataclass
class Answers:
    texts: dict[str, str]
    kept_ids: dict[str, tuple[str, ...]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def evaluate(*systems: System, examples=EXAMPLES, answer=echo, k=4, task=None):
    return evaluate_systems(
        examples, task or get_task("LaMP-4"), systems, k, answer, resamples=20, progress=False
    )


def test_values_counts_and_rows():
    """The numbers of the table come from exactly the examples that have a gold."""
    task = get_task("LaMP-4")
    none = retriever_system("none", NoRetrieval(), task, "No personalization")
    recency = retriever_system("recency", Recency(), task, "Recency")
    evaluation = evaluate(none, recency, k=1)
    outcome = evaluation.outcomes["recency"]
    assert outcome.predictions == {"q1": "birds", "q2": "dogs", "q3": ""}
    assert outcome.document_ids == {"q1": ("d2",), "q2": ("d1",), "q3": ()}
    assert outcome.evals == {"q1": 0.0, "q2": pytest.approx(2 / 3)}
    assert outcome.counts["empty_rankings"] == 1
    assert outcome.counts["without_target"] == 1
    assert evaluation.outcomes["none"].document_ids["q1"] == ()  # none puts no documents in
    assert evaluation.outcomes["none"].counts["empty_rankings"] == 3
    rows = {(row["system"], row["metric"]): row for row in evaluation.results}
    assert rows["recency", "rouge1"]["value"] == pytest.approx(1 / 3)
    assert rows["recency", "rouge1"]["n"] == 2
    assert rows["none", "rougeL"]["p_values"].keys() == {"recency"}


def test_a_test_split_without_golds_gives_predictions_only():
    """LaMP keeps its test golds to itself; a run on them must end with predictions, not with an error."""
    blind = [Example(e.id, e.user, e.input, None, e.profile) for e in EXAMPLES]
    evaluation = evaluate(retriever_system("recency", Recency(), get_task("LaMP-4")), examples=blind)
    assert evaluation.results == []
    assert set(evaluation.outcomes["recency"].predictions) == {"q1", "q2", "q3"}
    assert evaluation.outcomes["recency"].evals == {}


def test_predictions_are_stored_parsed_and_unread_ones_counted():
    """What is written is what was scored; unreadable answers are reported, not hidden."""
    task = get_task("LaMP-3")
    review = "What is the score of the following review on a scale of 1 to 5? … review: good"
    examples = [Example(str(i), str(i), review, "4", ()) for i in range(3)]
    texts = dict(zip("012", ["4 stars", "4/5", "who knows"], strict=True))
    evaluation = evaluate(
        System("a", "A", lambda part: [[]] * len(part)), examples=examples, answer=lambda *_: texts, task=task
    )
    assert evaluation.outcomes["a"].predictions == {"0": "4", "1": "4", "2": "who knows"}
    assert evaluation.outcomes["a"].counts["unparsed"] == 1
    assert [row["value"] for row in evaluation.results if row["metric"] == "mae"] == [1.0]


def test_what_the_prompt_kept_and_counted_is_reported():
    """Documents that fell out of the prompt are not shown as retrieved, and their number is told."""
    answers = Answers(
        {e.id: "x" for e in EXAMPLES}, {e.id: ("d1",) for e in EXAMPLES}, {"dropped_documents": 4}
    )
    outcome = evaluate(
        System("a", "A", lambda part: [list(e.profile) for e in part]), answer=lambda *_: answers
    ).outcomes["a"]
    assert outcome.document_ids["q2"] == ("d1",)
    assert outcome.counts["dropped_documents"] == 4


def test_a_streamed_retriever_ranks_as_one_that_ranks_all_at_once():
    """Empty profiles between others must not shift rankings to the wrong example."""
    task = get_task("LaMP-4")
    examples = [
        Example(
            str(i),
            "u",
            HEADLINE + "cats",
            "x",
            () if i % 3 == 0 else profile(f"cats {i}", "cats", f"dogs {i}"),
        )
        for i in range(10)
    ]
    retriever = BM25(variant="lucene")
    streamed = list(retriever_system("bm25", retriever, task).rank(examples))
    for example, documents in zip(examples, streamed, strict=True):
        ranked = retriever.rank(task.query(example.input), example.profile, example=example)
        assert documents == [r.document for r in ranked]


def test_undated_profiles_count_as_empty_unless_all_are():
    """One user without dates must not stop an evaluation; data without any date must not pass in silence."""
    task = get_task("LaMP-4")
    system = retriever_system("recency", Recency(), task)
    undated = Example("q4", "u4", HEADLINE + "x", "y", profile("cats", dates=False))
    evaluation = evaluate(
        system, examples=[undated, *EXAMPLES, Example("q5", "u", "x", "y", undated.profile)]
    )
    assert evaluation.outcomes["recency"].counts["empty_rankings"] == 3
    assert evaluation.outcomes["recency"].document_ids["q1"] == ("d2", "d1", "d0")
    with pytest.raises(ValueError, match="q4"):
        evaluate(system, examples=[undated])


def fixed(*rankings: Sequence[Document]) -> System:
    return System("s", "S", lambda part: list(rankings))


DOCUMENT = Document("d", "x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"systems": [fixed([], []), fixed([], [])]}, "distinct"),
        ({"systems": [fixed([], [])]}, "number of rankings"),
        ({"systems": [fixed([], [], [], [])]}, "number of rankings"),
        ({"systems": [fixed([DOCUMENT, DOCUMENT], [], [])]}, "'q1': a document stands twice"),
        ({"systems": [fixed([], [], [])], "k": 0}, "k=0"),
        ({"systems": [fixed([], [], [])], "answer": lambda *_: {"q1": "", "q2": ""}}, "no answer for 'q3'"),
        (
            {
                "systems": [fixed([], [], [])],
                "answer": lambda *_: dict.fromkeys(["q1", "q2", "q3", "q9"], ""),
            },
            "'q9'",
        ),
        ({"systems": [fixed([], [], [])], "examples": [*EXAMPLES, EXAMPLES[0]]}, "'q1' stands twice"),
    ],
)
def test_what_does_not_add_up_is_refused(arguments, message):
    """Lost or repeated examples (trouble C26) shift every number; they are named instead."""
    systems = arguments.pop("systems")
    with pytest.raises(ValueError, match=message):
        evaluate(*systems, **arguments)
