"""Recency: the newest documents first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ropg.examples import Document
from ropg.retrievers.base import RETRIEVERS, CannotRank, Request, Scorer, ScoringRetriever


@RETRIEVERS.register("recency")
class Recency(ScoringRetriever):
    """Ranks by date, newest first; the score is 1/rank, as the paper takes it for query prediction.

    Dates of any precision are compared by :func:`ropg.sources.dates.parse_date`. Equal dates keep the
    order of the profile; documents whose date is missing or unreadable come last, in that order too.
    """

    name = "recency"

    def scorer(self) -> Scorer:
        """Score by reciprocal rank; raises CannotRank for a profile in which nothing is dated."""
        return _reciprocal_ranks

    def can_rank(self, request: Request) -> bool:
        """True where at least one document is dated, and for an empty profile."""
        return not request.documents or any(_date(document) is not None for document in request.documents)


def _reciprocal_ranks(requests: Sequence[Request]) -> list[list[float]]:
    return [_scores(request) for request in requests]


def _scores(request: Request) -> list[float]:
    dates = [_date(document) for document in request.documents]
    dated = [i for i, date in enumerate(dates) if date is not None]
    if dates and not dated:
        raise CannotRank(
            f"{request.name}: recency cannot rank {len(dates)} documents of which none has a readable date; "
            "give documents a date (LaMP has them in its time-based splits), or leave recency out"
        )
    # a reversed sort is stable: equal dates keep the order of the profile
    newest_first = sorted(dated, key=lambda i: dates[i], reverse=True)
    undated = [i for i, date in enumerate(dates) if date is None]
    scores = [0.0] * len(dates)
    for rank, i in enumerate(newest_first + undated, start=1):
        scores[i] = 1.0 / rank
    return scores


def _date(document: Document) -> Any:
    from ropg.sources.dates import parse_date  # here, because sources is heavier than ranking needs to be

    return parse_date(document.date) if document.date is not None else None
