"""BM25 in the two variants that libraries mean by it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np

from ropg.examples import Document
from ropg.retrievers._lru import LRU
from ropg.retrievers.base import (
    PROFILE_CACHE,
    RETRIEVERS,
    Request,
    Scorer,
    ScoringRetriever,
    TextOf,
    document_text,
)

Variant = Literal["okapi", "lucene"]
Tokens = Sequence[str]


@RETRIEVERS.register("bm25")
class BM25(ScoringRetriever):
    """BM25 over one profile at a time, with k1 = 1.5 and b = 0.75.

    With N documents, n of them holding a term, tf occurrences in a document of length l and mean
    length l̄, a term adds idf · tf / (tf + k1 (1 − b + b l / l̄)) to the document's score.

    ``okapi`` is rank_bm25's BM25Okapi exactly, which the paper uses: idf = ln((N − n + ½) / (n + ½)) and
    another factor k1 + 1; where idf is negative it becomes a quarter of the mean idf of all terms. That
    mean is itself negative where most terms are in more than half of the documents, as in small
    profiles: then documents that hold the query's words rank *below* those that do not, and a lone
    document scores below 0. A term in exactly half of the documents adds nothing.

    ``lucene`` (by bm25s, in double precision) has idf = ln(1 + (N − n + ½) / (n + ½)), never negative: a
    document that holds a word of the query never ranks below one that holds none.

    The two order documents alike for one query word that is in fewer than half of the documents. They
    differ for words in half or more, and may differ where several words compete, since lucene's idf
    falls less steeply.

    Parameters
    ----------
    variant: ``okapi`` or ``lucene``.
    tokenize: str -> tokens, for queries and documents alike.
    text: Document -> str, what is tokenised.
    """

    name = "bm25"

    def __init__(
        self,
        variant: Variant = "okapi",
        tokenize: Callable[[str], Tokens] = str.split,
        *,
        text: TextOf = document_text,
    ) -> None:
        super().__init__(text=text)
        if variant not in get_args(Variant):
            raise ValueError(
                f"BM25 variant {variant!r} is unknown; choose one of {', '.join(get_args(Variant))}"
            )
        self.variant = variant
        self.tokenize = tokenize

    def scorer(self) -> Scorer:
        """Score by BM25; a profile object that comes again is not indexed again."""
        indices: LRU[tuple[Sequence[Document], Callable[[Tokens], np.ndarray]]] = LRU(PROFILE_CACHE)

        def score(requests: Sequence[Request]) -> list[np.ndarray]:
            return [index_of(request.documents)(self.tokenize(request.query)) for request in requests]

        def index_of(documents: Sequence[Document]) -> Callable[[Tokens], np.ndarray]:
            entry = indices.get(id(documents))
            if entry is None:
                entry = (documents, self._index([self.tokenize(self.text(d)) for d in documents]))
                indices.put(id(documents), entry, cost=max(1, len(documents)))
            return entry[1]

        return score

    def _index(self, corpus: list[Tokens]) -> Callable[[Tokens], np.ndarray]:
        """A function from the query's tokens to scores (n,) over the tokenised documents."""
        if not any(corpus):  # both libraries divide by zero without a document or without a token
            return lambda query: np.zeros(len(corpus))
        return _okapi(corpus) if self.variant == "okapi" else _lucene(corpus)


def _okapi(corpus: list[Tokens]) -> Callable[[Tokens], np.ndarray]:
    from rank_bm25 import BM25Okapi

    index = BM25Okapi(corpus)

    def scores(query: Tokens) -> np.ndarray:
        # a token that no document holds adds exactly 0, after a pass over all documents: spare the pass
        return index.get_scores([token for token in query if token in index.idf])

    return scores


def _lucene(corpus: list[Tokens]) -> Callable[[Tokens], np.ndarray]:
    import bm25s

    # it sets its logger to DEBUG, which prints lines per profile wherever the root logger has a handler
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75, dtype="float64")
    # the "empty token" that bm25s would add lies outside its own matrix: a query with "" would raise
    index.index([list(tokens) for tokens in corpus], create_empty_token=False, show_progress=False)

    def scores(query: Tokens) -> np.ndarray:
        return index.get_scores_from_ids(index.get_tokens_ids(list(query)))

    return scores
