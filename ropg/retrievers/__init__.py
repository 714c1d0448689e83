"""Retrievers: rank the documents of a profile P_u for a query φ_q(x). Importing this imports no torch.

A choice is one file that registers one name: ``none``, ``random``, ``recency``, ``bm25``, ``dense`` and
``rrf``. :class:`ProvenanceFilter` and :class:`Quota` wrap any of them.

>>> from ropg.examples import Document
>>> profile = [Document("a", "tea mug"), Document("b", "a red tea pot"), Document("c", "a blue chair")]
>>> ranking = load_retriever("bm25", variant="lucene").rank("red pot", profile)
>>> [(document.id, round(score, 3)) for document, score in ranking]
[('b', 0.682), ('a', 0.0), ('c', 0.0)]
"""

from typing import Any

from ropg.retrievers.base import RETRIEVERS, CannotRank, Ranked, Request, Retriever, document_text
from ropg.retrievers.bm25 import BM25
from ropg.retrievers.dense import Dense
from ropg.retrievers.encoder import Encoder, load_encoder
from ropg.retrievers.none import NoRetrieval
from ropg.retrievers.provenance_filter import ProvenanceFilter
from ropg.retrievers.quota import Quota
from ropg.retrievers.random import Random
from ropg.retrievers.recency import Recency
from ropg.retrievers.rrf import ReciprocalRankFusion

__all__ = [
    "BM25",
    "RETRIEVERS",
    "CannotRank",
    "Dense",
    "Encoder",
    "NoRetrieval",
    "ProvenanceFilter",
    "Quota",
    "Random",
    "Ranked",
    "Recency",
    "ReciprocalRankFusion",
    "Request",
    "Retriever",
    "document_text",
    "load_encoder",
    "load_retriever",
]


def load_retriever(name: str, **options: Any) -> Retriever:
    """Build the retriever called ``name`` from the options of its constructor.

    All of them take ``text``. ``dense`` and ``rrf`` also take ``encoder``: an :class:`Encoder`, or the
    name of one and :func:`load_encoder`'s options beside it. ``package.module:attribute`` names a
    retriever of one's own. Raises UnknownName, with the nearest names, for any other name.

    >>> load_retriever("recenci")
    Traceback (most recent call last):
    ropg.registry.UnknownName: unknown retriever 'recenci'; did you mean recency? Known: bm25, dense, ...
    """
    return RETRIEVERS.get(name)(**options)
