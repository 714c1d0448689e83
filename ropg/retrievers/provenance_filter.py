"""Let a retriever see only documents of some provenance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import get_args

from ropg.examples import Document, Provenance
from ropg.retrievers._lru import LRU
from ropg.retrievers.base import PROFILE_CACHE, Ranked, Request, Retriever


def known_provenances(names: Collection[str]) -> frozenset[str]:
    """Check names of provenances; raises ValueError for one that no document can have.

    >>> known_provenances(["neighbour"])
    Traceback (most recent call last):
    ValueError: unknown provenance 'neighbour'; choose among own, neighbor
    """
    for name in names:
        if name not in get_args(Provenance):
            raise ValueError(f"unknown provenance {name!r}; choose among {', '.join(get_args(Provenance))}")
    return frozenset(names)


class ProvenanceFilter(Retriever):
    """Rank only the documents whose provenance is named; the others are no part of the profile.

    Filtering comes first, so the statistics of BM25 are those of the documents that stay. A profile
    without such documents has an empty ranking.

    Parameters
    ----------
    retriever: what ranks the documents that stay.
    provenance: one provenance or several: ``own``, ``neighbor``.
    """

    def __init__(self, retriever: Retriever, provenance: str | Collection[str] = "own") -> None:
        self.retriever = retriever
        self.provenance = known_provenances([provenance] if isinstance(provenance, str) else provenance)
        self.name = f"{retriever.name}[{'+'.join(sorted(self.provenance))}]"
        self.fills_prompt = retriever.fills_prompt

    def rank_stream(self, requests: Iterable[Request]) -> Iterator[list[Ranked]]:
        """Rank what passes the filter."""
        return self.retriever.rank_stream(self._filtered(requests))

    def can_rank(self, request: Request) -> bool:
        """Whether the wrapped retriever can rank what passes the filter."""
        return self.retriever.can_rank(replace(request, documents=self._allowed(request.documents)))

    def _filtered(self, requests: Iterable[Request]) -> Iterator[Request]:
        # one filtered list per profile object, so that the wrapped retriever prepares it once
        seen: LRU[tuple[Sequence[Document], list[Document]]] = LRU(PROFILE_CACHE)
        for request in requests:
            entry = seen.get(id(request.documents))
            if entry is None:
                entry = (request.documents, self._allowed(request.documents))
                seen.put(id(request.documents), entry, cost=max(1, len(entry[1])))
            yield replace(request, documents=entry[1])

    def _allowed(self, documents: Sequence[Document]) -> list[Document]:
        return [document for document in documents if document.provenance in self.provenance]
