"""BM25 over 2,000 profiles of 200 documents: one Python index per example against the library's."""

from __future__ import annotations

import math

import numpy as np
from rank_bm25 import BM25Okapi

from benchmarks.measure import Outcome, alternate
from benchmarks.texts import HOTELS, Reviews
from ropg.examples import Document
from ropg.retrievers import BM25, Ranked, Request
from ropg.retrievers.base import document_text


class PythonIndex(BM25Okapi):
    """rank_bm25's index with lucene's idf, as research code writes it, and without the factor k1 + 1."""

    def _calc_idf(self, nd: dict[str, int]) -> None:
        self.idf = {
            word: math.log(1 + (self.corpus_size - n + 0.5) / (n + 0.5)) / (self.k1 + 1)
            for word, n in nd.items()
        }


def straightforward(requests: list[Request]) -> list[list[Ranked]]:
    """An index for every example, and every document sorted."""
    rankings = []
    for request in requests:
        index = PythonIndex([document_text(d).split() for d in request.documents])
        scores = index.get_scores(request.query.split())
        order = np.argsort(-scores, kind="stable")
        rankings.append([Ranked(request.documents[i], scores[i]) for i in order])
    return rankings


def ours(requests: list[Request]) -> list[list[Ranked]]:
    """The project's retriever."""
    return list(BM25("lucene").rank_stream(requests))


def check(a: list[Ranked], b: list[Ranked]) -> None:
    """Raise AssertionError where a document's scores differ; ties may stand in either order."""
    mine = {place.document.id: place.score for place in b}
    np.testing.assert_allclose([p.score for p in a], [mine[p.document.id] for p in a], atol=1e-9)
    np.testing.assert_allclose([p.score for p in a], [p.score for p in b], atol=1e-9)


def profiles(n: int, size: int) -> list[Request]:
    """Profiles that share documents as users of the same items do, each with a query."""
    reviews = Reviews(0, HOTELS)
    shared = reviews.documents(20_000, "d")
    draw = np.random.default_rng(1)

    def profile() -> list[Document]:
        return [shared[i] for i in draw.choice(len(shared), size=size, replace=False)]

    return [Request(reviews.text(), profile()) for _ in range(n)]


def run(pairs: int = 3) -> Outcome:
    """Compare on 2,000 profiles."""
    requests = profiles(2000, 200)
    some = requests[:100]
    for a, b in zip(straightforward(some), ours(some), strict=True):
        check(a, b)
    slow, fast = alternate(lambda: straightforward(requests), lambda: ours(requests), pairs)
    return Outcome(
        "bm25",
        "BM25, 2,000 profiles of 200 documents (20,000 distinct hotel reviews), non-negative idf, against one Python "
        "index per example",
        slow,
        fast,
        at_least=5,
        checked="scores and order of 100 profiles equal (1e-9)",
    )
