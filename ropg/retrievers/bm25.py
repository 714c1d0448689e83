"""BM25 in the two variants that libraries mean by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np

from ropg.examples import Document
from ropg.retrievers._lru import LRU
from ropg.retrievers._terms import Terms
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
K1, B = 1.5, 0.75  # as in rank_bm25


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

    ``lucene`` has idf = ln(1 + (N − n + ½) / (n + ½)), never negative: a
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
        indices: LRU[tuple[Sequence[Document], Callable[[str], np.ndarray]]] = LRU(PROFILE_CACHE)
        terms = Terms(self.tokenize)

        def score(requests: Sequence[Request]) -> list[np.ndarray]:
            return [index_of(request.documents)(request.query) for request in requests]

        def index_of(documents: Sequence[Document]) -> Callable[[str], np.ndarray]:
            entry = indices.get(id(documents))
            if entry is None:
                texts = [self.text(document) for document in documents]
                index = self._okapi(texts) if self.variant == "okapi" else _lucene(terms, texts)
                entry = (documents, index)
                indices.put(id(documents), entry, cost=max(1, len(documents)))
            return entry[1]

        return score

    def _okapi(self, texts: Sequence[str]) -> Callable[[str], np.ndarray]:
        """A function from the query to scores (n,), by rank_bm25."""
        from rank_bm25 import BM25Okapi

        corpus = [self.tokenize(text) for text in texts]
        if not any(corpus):  # it divides by zero without a document or without a token
            return lambda query: np.zeros(len(corpus))
        index = BM25Okapi(corpus)

        def scores(query: str) -> np.ndarray:
            # a token that no document holds adds exactly 0, after a pass over all documents: spare the pass
            return index.get_scores([token for token in self.tokenize(query) if token in index.idf])

        return scores


def _lucene(terms: Terms, texts: Sequence[str]) -> Callable[[str], np.ndarray]:
    """A function from the query to scores (n,), of the query's terms alone."""
    profile, n = terms.profile(texts), len(texts)
    mean = profile.lengths.mean() if n else 0.0
    if mean == 0:
        return lambda query: np.zeros(n)
    norms = K1 * (1 - B + B * profile.lengths / mean)  # (n,)

    def scores(query: str) -> np.ndarray:
        found = terms.matches(query, profile)
        # documents that hold each term: (q,)
        holding = np.bincount(found.terms, minlength=len(found.repeats))
        idf = np.log1p((n - holding + 0.5) / (holding + 0.5))  # (q,)
        saturated = found.frequencies / (found.frequencies + norms[found.documents])  # (P,)
        weights = (found.repeats * idf)[found.terms] * saturated
        return np.bincount(found.documents, weights=weights, minlength=n)

    return scores
