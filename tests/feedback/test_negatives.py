"""Hard negatives: which documents they are, what they are taken to be worth, and what they leave alone."""

from __future__ import annotations

import pytest
from feedback_fakes import ByLength, FakeLLM, FakeTask, make_examples
from hypothesis import given
from hypothesis import strategies as st

from ropg.feedback import GenerationStore, build_candidates, join, score_candidates
from ropg.feedback.negatives import with_negatives
from ropg.feedback.queries import ScoredQuery

TASK = FakeTask()
EXAMPLES = make_examples(3, documents=6)  # the initial order is d5, d4, d3, d2, d1, d0
RANKING = build_candidates(EXAMPLES, TASK, ByLength(), l="all", progress=False)


def query(ids, rewards, example_id="e1", ranks=None) -> ScoredQuery:
    rows = RANKING.rows(example_id)
    place = {d: (r, s) for d, r, s in zip(rows.document_ids, rows.ranks, rows.scores, strict=True)}
    return ScoredQuery(
        example_id,
        "q",
        tuple(ids),
        tuple(f"text of {d}" for d in ids),
        tuple(rewards),
        tuple(place[d][1] for d in ids),
        tuple(place[d][0] for d in ids),
        rewards[0],
    )


def test_negatives_by_hand():
    """Two candidates, two negatives: ranks 3 and 4 at the lower of the two rewards; all else stays as it was."""
    before = query(["d5", "d4"], [0.25, 0.75])
    (after,) = with_negatives([before], RANKING, 2, 2, EXAMPLES, TASK)
    assert after.document_ids == ("d5", "d4", "d3", "d2")
    assert after.rewards == (0.25, 0.75, 0.25, 0.25)
    assert after.ranks == (1, 2, 3, 4)
    assert after.initial_scores == (*before.initial_scores, *RANKING.rows("e1").scores[2:4])
    assert after.documents == (
        *before.documents,
        *(TASK.document_text(EXAMPLES[1].profile[j]) for j in (3, 2)),
    )
    assert after.baseline == 0.25
    assert (after.example_id, after.query) == ("e1", "q")


def test_documents_that_are_candidates_already_are_passed_over():
    """Another retriever proposed d3: it has feedback of its own, and the next ones are taken in its place."""
    (after,) = with_negatives([query(["d5", "d3"], [1.0, 0.5])], RANKING, 2, 2, EXAMPLES, TASK)
    assert after.document_ids == ("d5", "d3", "d2", "d1")
    # d4, of rank 2, is inside the top l: nobody asked about it, but it is no document from outside


@given(st.integers(2, 7), st.integers(0, 9))
def test_as_many_as_there_are(l, number):  # noqa: E741
    """A profile that ends gives fewer; the ranks go on where the candidates end."""
    ids = RANKING.rows("e1").document_ids[:l]
    before = query(ids, [0.5] * len(ids))
    (after,) = with_negatives([before], RANKING, l, number, EXAMPLES, TASK)
    assert after.document_ids == RANKING.rows("e1").document_ids[: l + number]
    assert after.ranks == tuple(range(1, len(after.document_ids) + 1))
    if not number:
        assert after == before


def test_no_llm_call_is_made_for_them(tmp_path):
    """The LLM's hours are what this method costs."""
    llm = FakeLLM()
    candidates = build_candidates(EXAMPLES, TASK, ByLength(), l=2, progress=False)
    with GenerationStore(tmp_path) as store:
        feedback = score_candidates(EXAMPLES, TASK, candidates, llm, store, progress=False)
    queries = join(candidates, feedback, EXAMPLES, TASK)
    asked = sum(map(len, llm.batches))
    after = with_negatives(queries, RANKING, 2, 3, EXAMPLES, TASK)
    assert sum(map(len, llm.batches)) == asked == 6
    assert [len(q.rewards) for q in after] == [5, 5, 5]
    assert [q.example_id for q in after] == [q.example_id for q in queries]


def test_another_ranking_is_named():
    other = build_candidates(EXAMPLES[:1], TASK, ByLength(), l="all", progress=False)
    with pytest.raises(ValueError, match=r"'e1' is not in the initial ranking"):
        with_negatives([query(["d5", "d4"], [0.0, 1.0])], other, 2, 1, EXAMPLES, TASK)
