"""At most so many documents of each provenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ropg.retrievers.base import Ranked, Request, Retriever
from ropg.retrievers.provenance_filter import known_provenances


class Quota(Retriever):
    """Keep the first documents of each provenance in a ranking, up to its limit.

    ``Quota(BM25(), {"own": 3, "neighbor": 1})`` fills a prompt of four with three of the user's own
    documents and one of a neighbour's, in the order of their scores. Scores are untouched.

    Parameters
    ----------
    retriever: what ranks.
    limits: provenance -> number of documents; a provenance that is not named has no limit.
    """

    def __init__(self, retriever: Retriever, limits: Mapping[str, int]) -> None:
        known_provenances(limits.keys())
        for provenance, limit in limits.items():
            if limit < 0:
                raise ValueError(f"the quota of {provenance!r} is {limit}; it must be 0 or more")
        self.retriever = retriever
        self.limits = dict(limits)
        shares = ",".join(f"{provenance}<={limit}" for provenance, limit in sorted(limits.items()))
        self.name = f"{retriever.name}[{shares}]"
        self.fills_prompt = retriever.fills_prompt

    def rank_stream(self, requests: Iterable[Request]) -> Iterator[list[Ranked]]:
        """Cut the wrapped retriever's rankings."""
        return (self._cut(ranking) for ranking in self.retriever.rank_stream(requests))

    def can_rank(self, request: Request) -> bool:
        """Whether the wrapped retriever can rank the profile."""
        return self.retriever.can_rank(request)

    def _cut(self, ranking: list[Ranked]) -> list[Ranked]:
        taken: Counter[str] = Counter()
        kept = []
        for place in ranking:
            provenance = place.document.provenance
            if taken[provenance] < self.limits.get(provenance, len(ranking)):
                taken[provenance] += 1
                kept.append(place)
        return kept
