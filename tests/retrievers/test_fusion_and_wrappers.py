"""Reciprocal rank fusion, the provenance filter and the quota."""

from __future__ import annotations

import pytest
from retriever_helpers import CountingEncoder

from ropg.examples import Document, Example
from ropg.retrievers import (
    BM25,
    CannotRank,
    Dense,
    NoRetrieval,
    ProvenanceFilter,
    Quota,
    Random,
    Recency,
    ReciprocalRankFusion,
    Request,
    load_retriever,
)


def ids(ranking: list) -> list[str]:
    return [document.id for document, _ in ranking]


A = Document("a", "tea pot", date="2001")
B = Document("b", "red chair", date="2003")
C = Document("c", "tea mug tea", date="2002")


def test_fusion_by_hand() -> None:
    """Σ 1/(60 + rank) over BM25 (c, a, b) and recency (b, c, a)."""
    fusion = ReciprocalRankFusion([BM25("lucene"), Recency()])
    assert ids(BM25("lucene").rank("tea", [A, B, C])) == ["c", "a", "b"]
    ranking = fusion.rank("tea", [A, B, C])
    assert ids(ranking) == ["c", "b", "a"]
    expected = [1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62 + 1 / 63]
    assert [score for _, score in ranking] == pytest.approx(expected, rel=1e-15)
    first = ReciprocalRankFusion([BM25("lucene"), Recency()], k=0).rank("tea", [A, B, C])[0]
    assert first.score == pytest.approx(1 + 1 / 2)


def test_equal_ranks_tie_in_any_order_of_the_members() -> None:
    """Rounding would otherwise decide between documents that all members together rank alike."""

    def by(order: str) -> Dense:
        return Dense(CountingEncoder(lambda text: [-order.index(text) if text in order else 1.0]))

    documents = [Document(name, name) for name in "zyx"]
    members = [by("zyx"), by("yxz"), by("xzy")]
    for turn in range(3):
        ranking = ReciprocalRankFusion(members[turn:] + members[:turn]).rank("q", documents)
        assert ids(ranking) == ["z", "y", "x"]
        assert len({score for _, score in ranking}) == 1


def test_a_member_that_cannot_rank_is_skipped_and_counted() -> None:
    """One user without dates would stop the fusion for everybody; silence would hide that recency is off."""
    undated = [Document("u", "pot"), Document("v", "tea")]
    fusion = ReciprocalRankFusion([BM25("lucene"), Recency()])
    requests = [
        Request("tea", undated),
        Request("tea", [A, B, C]),
        Request("tea", undated),
        Request("tea", []),
    ]
    rankings = fusion.rank_many(requests)
    assert [ids(ranking) for ranking in rankings] == [["v", "u"], ["c", "b", "a"], ["v", "u"], []]
    assert rankings[0][0].score == 1 / 61
    assert fusion.skipped == {"recency": 2}
    alone = ReciprocalRankFusion([Recency()])
    with pytest.raises(CannotRank, match="example 'q3'"):
        alone.rank("tea", undated, example=Example("q3", "q3", "", None, undated))


def test_fusion_is_bm25_recency_and_the_initial_encoder_by_default() -> None:
    """The table's RRF row is this fusion, and each text is still encoded once."""
    encoder = CountingEncoder()
    fusion = load_retriever("rrf", encoder=encoder, variant="lucene", text=lambda d: d.text)
    assert [member.name for member in fusion.retrievers] == ["bm25", "recency", "initial"]
    assert fusion.k == 60
    requests = [Request("tea", [A, B, C]), Request("red", [C, B]), Request("tea", [B])]
    assert fusion.rank_many(requests) == [fusion.rank(r.query, r.documents) for r in requests]
    assert sorted(encoder.seen[:5]) == sorted({"tea", "red", "tea pot", "red chair", "tea mug tea"})
    with pytest.raises(ValueError, match="encoder"):
        load_retriever("rrf")
    with pytest.raises(ValueError, match="at least one"):
        ReciprocalRankFusion([])


OWN1 = Document("o1", "tea tea", date="2001")
OWN2 = Document("o2", "pot", date="2005")
NEAR1 = Document("n1", "tea", provenance="neighbor", date="2003")
NEAR2 = Document("n2", "tea tea tea", provenance="neighbor", date="2004")
MIXED = [NEAR1, OWN1, NEAR2, OWN2]


def test_the_filter_hides_documents_from_the_retriever() -> None:
    """ "Own documents only" must mean that neighbours' documents do not even enter BM25's statistics."""
    own = ProvenanceFilter(BM25())
    assert own.rank("tea", MIXED) == BM25().rank("tea", [OWN1, OWN2])
    assert ids(ProvenanceFilter(Recency(), "neighbor").rank("", MIXED)) == ["n2", "n1"]
    assert len(ProvenanceFilter(Random(), ["own", "neighbor"]).rank("", MIXED)) == 4
    assert own.rank("tea", [NEAR1]) == []
    assert own.rank_many([Request("tea", MIXED), Request("pot", MIXED)]) == [
        own.rank("tea", MIXED),
        own.rank("pot", MIXED),
    ]
    assert not ProvenanceFilter(NoRetrieval()).fills_prompt


def test_a_filtered_profile_without_dates_is_skipped_by_the_fusion() -> None:
    """What counts is whether the documents that stay are dated."""
    profile = [Document("o", "tea"), NEAR1]
    fusion = ReciprocalRankFusion([BM25(), ProvenanceFilter(Recency(), "own")])
    assert len(fusion.rank("tea", profile)) == 2
    assert fusion.skipped == {"recency[own]": 1}


def test_the_quota_limits_each_provenance_and_keeps_the_order() -> None:
    """A prompt of four filled by one chatty neighbour is what the quota is there to prevent."""
    ranking = Quota(Recency(), {"own": 1, "neighbor": 1}).rank("", MIXED)
    assert ranking == [r for r in Recency().rank("", MIXED) if r.document.id in ("o2", "n2")]
    assert ids(Quota(Recency(), {"neighbor": 0}).rank("", MIXED)) == ["o2", "o1"]
    assert ids(ProvenanceFilter(Quota(Recency(), {"own": 1}), "own").rank("", MIXED)) == ["o2"]


@pytest.mark.parametrize(
    "build", [lambda: ProvenanceFilter(BM25(), "neighbour"), lambda: Quota(BM25(), {"friend": 1})]
)
def test_unknown_provenances_are_refused(build) -> None:
    """A misspelt provenance would filter everything away in silence."""
    with pytest.raises(ValueError, match="own, neighbor"):
        build()
    with pytest.raises(ValueError, match="-1"):
        Quota(BM25(), {"own": -1})
