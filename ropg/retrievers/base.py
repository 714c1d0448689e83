"""What every retriever is: requests in, stable rankings out.

Legend: Q requests, n documents of one profile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from ropg.examples import Document, Example
from ropg.registry import Registry
from ropg.retrievers._lru import LRU
from ropg.retrievers._progress import progress_bar

RETRIEVERS = Registry("ropg.retrievers", "retriever")

TextOf: TypeAlias = Callable[[Document], str]

# documents of the profiles that one stream keeps at hand, prepared, in case a later request ranks them again
PROFILE_CACHE = 20_000


class Ranked(NamedTuple):
    """One place of a ranking: the document and the score that put it there."""

    document: Document
    score: float


@dataclass(frozen=True, slots=True)
class Request:
    """One ranking to make: ``query`` is φ_q(x), ``documents`` the profile, in its own order.

    ``example`` is what the query comes from; its id seeds :class:`Random` and names the request in errors.
    """

    query: str
    documents: Sequence[Document]
    example: Example | None = None

    @property
    def name(self) -> str:
        """What error messages call this request."""
        return f"example {self.example.id!r}" if self.example is not None else f"query {self.query[:60]!r}"


# One score per document of each request, in the order of the documents.
Scorer: TypeAlias = Callable[[Sequence[Request]], Sequence[Sequence[float] | np.ndarray]]


class CannotRank(ValueError):
    """A profile that lacks what this retriever ranks by."""


def document_text(document: Document) -> str:
    """The text of a document where no task says otherwise: title, space, text.

    >>> document_text(Document("d", "a quiet hotel", title="Stay"))
    'Stay a quiet hotel'
    """
    return f"{document.title} {document.text}" if document.title else document.text


class Retriever(ABC):
    """Ranks profiles. Subclasses write :meth:`rank_stream`; most write only a :class:`ScoringRetriever`.

    Attributes
    ----------
    name: the name in tables and messages.
    fills_prompt: False where the ranked documents must not enter a prompt (:class:`NoRetrieval`).
    """

    name: str = ""
    fills_prompt: bool = True

    def rank(
        self, query: str, documents: Sequence[Document], *, example: Example | None = None
    ) -> list[Ranked]:
        """Rank ``documents`` for one query, best first: (n,), ties in the order of the profile."""
        return self.rank_many([Request(query, documents, example)])[0]

    def rank_many(self, requests: Iterable[Request]) -> list[list[Ranked]]:
        """Rank every request: Q rankings in the order of the requests, each as :meth:`rank` makes it."""
        total = len(requests) if isinstance(requests, Sized) else None
        return list(progress_bar(self.rank_stream(requests), total=total, title=self.name, unit="query"))

    @abstractmethod
    def rank_stream(self, requests: Iterable[Request]) -> Iterator[list[Ranked]]:
        """Yield the ranking of each request in turn, holding only some requests at a time.

        For streams whose profiles do not fit into memory together: give a generator, keep the top.
        """

    def can_rank(self, request: Request) -> bool:
        """Whether this profile has what the retriever ranks by; ranking it raises CannotRank otherwise."""
        return True


class ScoringRetriever(Retriever):
    """A retriever that scores every document and sorts by score.

    Subclasses write :meth:`scorer`. It is called once per stream, so whatever the returned function
    remembers (token lists, vectors) serves all requests of the stream and no later one. Nothing is
    filtered by score: all documents come back.

    Parameters
    ----------
    text: what the retriever sees of a document. Every constructor takes it, so that one call with a
        task's ``document_text`` builds any retriever; those that go by ids or dates have no use for it.
    """

    # a scorer gets as many requests at once as together hold about this many documents
    chunk_documents: ClassVar[int] = 1

    def __init__(self, *, text: TextOf = document_text) -> None:
        self.text = text

    @abstractmethod
    def scorer(self) -> Scorer:
        """Return the scoring function of one stream; it gets requests with distinct documents."""

    def rank_stream(self, requests: Iterable[Request]) -> Iterator[list[Ranked]]:
        """Score chunks of requests and sort each. Raises ValueError, naming the example, for a bad score."""
        score = self.scorer()
        for chunk in _chunks(_with_distinct_documents(requests), self.chunk_documents):
            for request, scores in zip(chunk, score(chunk), strict=True):
                yield sort_by_score(request, scores)


def sort_by_score(request: Request, scores: Sequence[float] | np.ndarray) -> list[Ranked]:
    """Sort the documents of a request, best first; equal scores keep the order of the profile.

    ``scores`` is (n,). Raises ValueError where a score is not finite, and where there is not one each.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (len(request.documents),):
        raise ValueError(f"{request.name}: {values.shape} scores for {len(request.documents)} documents")
    if not np.isfinite(values).all():
        bad = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(
            f"{request.name}: document {request.documents[bad].id!r} has the score {values[bad]}; "
            "check the retriever's weights (a diverged training?) and the text it reads"
        )
    order = np.argsort(-values, kind="stable")
    return list(map(Ranked, [request.documents[i] for i in order.tolist()], values[order].tolist()))


def _with_distinct_documents(requests: Iterable[Request]) -> Iterator[Request]:
    """Read each profile into a list, once per profile object, with every document once.

    Requests that share one profile object get one list, so a scorer can prepare it once.
    """
    seen: LRU[tuple[Sequence[Document], list[Document]]] = LRU(PROFILE_CACHE)
    for request in requests:
        # the entry holds the profile itself: its id() cannot pass on to another object meanwhile
        entry = seen.get(id(request.documents))
        if entry is None:
            entry = (request.documents, _distinct(request))
            seen.put(id(request.documents), entry, cost=max(1, len(entry[1])))
        yield Request(request.query, entry[1], request.example)


def _distinct(request: Request) -> list[Document]:
    by_id: dict[str, Document] = {}
    for document in request.documents:
        known = by_id.setdefault(document.id, document)
        if known is not document and known != document:
            raise ValueError(
                f"{request.name}: two different documents of the profile have the id {document.id!r}; "
                "give them different ids, or let the source's checks skip or re-key them"
            )
    return list(by_id.values())


def _chunks(requests: Iterable[Request], documents: int) -> Iterator[list[Request]]:
    chunk: list[Request] = []
    held = 0
    for request in requests:
        chunk.append(request)
        held += len(request.documents)
        if held >= documents:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk
