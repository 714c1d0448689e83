"""Reciprocal rank fusion of several retrievers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from math import fsum
from typing import Any

from ropg.examples import Document
from ropg.retrievers.base import (
    RETRIEVERS,
    CannotRank,
    Ranked,
    Request,
    Retriever,
    TextOf,
    document_text,
    sort_by_score,
)
from ropg.retrievers.bm25 import BM25, Variant
from ropg.retrievers.dense import TextEncoder, build_dense
from ropg.retrievers.recency import Recency


class ReciprocalRankFusion(Retriever):
    """score(d) = Σ_i 1 / (k + rank_i(d)) over the rankings of the members (Cormack et al., 2009).

    A member that cannot rank a profile (recency, where nothing is dated) is left out for that request
    and counted in ``skipped``, by its name. Documents that every member leaves out are left out.

    Parameters
    ----------
    retrievers: the members.
    k: the constant of the formula.
    """

    name = "rrf"

    def __init__(self, retrievers: Sequence[Retriever], k: float = 60) -> None:
        if not retrievers:
            raise ValueError("reciprocal rank fusion needs at least one retriever")
        if k < 0:
            raise ValueError(f"reciprocal rank fusion needs k >= 0, not {k}")
        self.retrievers = list(retrievers)
        self.k = k
        self.skipped: Counter[str] = Counter()

    def rank_stream(self, requests: Iterable[Request]) -> Iterator[list[Ranked]]:
        """Fuse the members' rankings; raises CannotRank where no member can rank a profile."""
        # every member reads its own copy of the stream, as far ahead as its batches need
        own, *copies = tee(requests, 1 + len(self.retrievers))
        streams = [
            member.rank_stream(filter(member.can_rank, copy))
            for member, copy in zip(self.retrievers, copies, strict=True)
        ]
        for request in own:
            rankings = []
            for member, stream in zip(self.retrievers, streams, strict=True):
                if member.can_rank(request):
                    rankings.append(next(stream))
                else:
                    self.skipped[member.name] += 1
            if not rankings:
                raise CannotRank(f"{request.name}: none of the fused retrievers can rank this profile")
            yield self._fuse(request, rankings)

    def can_rank(self, request: Request) -> bool:
        """True where at least one member can rank the profile."""
        return any(member.can_rank(request) for member in self.retrievers)

    def _fuse(self, request: Request, rankings: list[list[Ranked]]) -> list[Ranked]:
        terms: dict[str, list[float]] = {}
        for ranking in rankings:
            for rank, (document, _) in enumerate(ranking, start=1):
                terms.setdefault(document.id, []).append(1.0 / (self.k + rank))
        documents: dict[str, Document] = {d.id: d for d in request.documents if d.id in terms}
        # fsum: the same ranks in another order of the members are the same sum, so they tie
        scores = [fsum(terms[document_id]) for document_id in documents]
        return sort_by_score(Request(request.query, list(documents.values()), request.example), scores)


@RETRIEVERS.register("rrf")
def build_fusion(
    retrievers: Sequence[Retriever] | None = None,
    *,
    encoder: str | TextEncoder | None = None,
    k: float = 60,
    text: TextOf = document_text,
    variant: Variant = "okapi",
    **encoder_options: Any,
) -> ReciprocalRankFusion:
    """Build the fusion of ``retrievers``, by default BM25, recency and ``encoder``, the initial dense one.

    ``text``, ``variant`` (of BM25) and the encoder's options are for the default members alone.
    """
    if retrievers is None:
        if encoder is None:
            raise ValueError("rrf fuses BM25, recency and a dense retriever: give `encoder` or `retrievers`")
        dense = build_dense(encoder, text=text, label="initial", **encoder_options)
        retrievers = [BM25(variant, text=text), Recency(text=text), dense]
    elif encoder is not None:
        raise ValueError("rrf takes either `retrievers` or `encoder`, not both")
    return ReciprocalRankFusion(retrievers, k)
