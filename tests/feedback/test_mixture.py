"""Candidates of several proposers: whose turn it is, each document once, and what stays the initial retriever's."""

from __future__ import annotations

import pytest
from feedback_fakes import ByLength, FakeTask, make_examples
from hypothesis import given
from hypothesis import strategies as st

from ropg.feedback import CandidateTable, build_candidates
from ropg.feedback.mixture import build_mixture, round_robin

TASK = FakeTask()
EXAMPLES = make_examples(2, documents=6)  # the initial order is d5, d4, d3, d2, d1, d0


def ranking() -> CandidateTable:
    return build_candidates(EXAMPLES, TASK, ByLength(), l="all", progress=False)


def mixture(proposals, l=4) -> CandidateTable:  # noqa: E741
    return build_mixture(EXAMPLES, ranking(), proposals, l, identity={"made": "here"})


def test_turns_by_hand():
    """First the first of each, then the next that nobody has taken; an exhausted ranking loses its turn."""
    assert round_robin([["a", "b", "c"], ["c", "a", "d"], ["d"]], 10) == {"a": 0, "c": 1, "d": 2, "b": 0}
    assert list(round_robin([[1, 2, 3, 4], [4, 3, 2, 1]], 3)) == [1, 4, 2]
    assert round_robin([[], [1]], 2) == {1: 1}
    assert round_robin([], 2) == {}


@given(st.lists(st.lists(st.integers(0, 12), unique=True, max_size=9), max_size=4), st.integers(0, 15))
def test_turns_are_fair(rankings, size):
    """Nothing is repeated or made up, as many are taken as there are, and each gives its best that is left."""
    taken = round_robin(rankings, size)
    distinct = {item for ranked in rankings for item in ranked}
    assert len(taken) == min(size, len(distinct))
    assert taken.keys() <= distinct
    for number, ranked in enumerate(rankings):
        own = [item for item, source in taken.items() if source == number]
        assert own == sorted(own, key=ranked.index)
        if own:  # what it ranks above its last one was taken by somebody
            assert set(ranked[: ranked.index(own[-1])]) <= taken.keys()
    if rankings and rankings[0] and size:
        assert next(iter(taken.items())) == (rankings[0][0], 0)
    # one ranking alone gives its top, as without a mixture
    assert list(round_robin(rankings[:1], size)) == (rankings[0][:size] if rankings else [])


def test_candidates_keep_the_initial_order_ranks_and_scores():
    """Hand-worked: d5 by initial, d0 and d2 by their proposers, then d4; d_b is still the initial first one."""
    table = mixture({"bm25": [["d0", "d5"], ["d5", "d4"]], "random": [["d0", "d2"], []]})
    rows = [row for row in table.table.to_pylist() if row["example_id"] == "e0"]
    assert [(r["document_id"], r["rank"], r["source"]) for r in rows] == [
        ("d5", 1, "initial"),
        ("d4", 2, "initial"),
        ("d2", 4, "random"),
        ("d0", 6, "bm25"),
    ]
    of_all = dict(zip(ranking().rows("e0").document_ids, ranking().rows("e0").scores, strict=True))
    assert {r["document_id"]: r["score"] for r in rows} == {d: of_all[d] for d in ("d5", "d4", "d2", "d0")}
    assert table.rows("e1").document_ids == ("d5", "d4", "d3", "d2")
    assert {k: n for k, n in table.counts.items() if n} == {
        "examples": 2,
        "kept": 2,
        "from_initial": 5,
        "from_bm25": 2,
        "from_random": 1,
        "without_random": 1,
    }
    assert table.identity == {"made": "here"}
    assert len(table.owners) == 2  # so that a user can be forgotten


def test_a_proposal_from_elsewhere_is_named():
    """A document without an initial score could not be ranked with the others."""
    with pytest.raises(ValueError, match=r"'e1': bm25 proposes document 'd9', which the initial"):
        mixture({"bm25": [["d1"], ["d9"]]})


def test_profiles_smaller_than_l_are_taken_whole():
    table = mixture({"bm25": [["d0"], ["d1"]]}, l=40)
    assert [len(table.rows(e).document_ids) for e in ("e0", "e1")] == [6, 6]
