"""Dense retrieval: exact nearest neighbours by dot product, over one profile at a time."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ropg.retrievers._lru import LRU
from ropg.retrievers.base import RETRIEVERS, Request, Scorer, ScoringRetriever, TextOf, document_text
from ropg.retrievers.encoder import load_encoder


class TextEncoder(Protocol):
    """What :class:`Dense` needs of an encoder; :class:`ropg.retrievers.encoder.Encoder` is one.

    A parameter ``progress`` of ``encode`` is set to True where there is one (show a bar).
    """

    def encode(self, texts: list[str], /) -> np.ndarray:
        """Return one vector per text: (N, D)."""
        ...


class TwoTowers(Protocol):
    """Or this, where queries and documents have an encoder each.

    :class:`ropg.retrievers.two_towers.TwoTowerEncoder` is one. ``progress`` as in :class:`TextEncoder`.
    """

    def encode_queries(self, texts: list[str], /) -> np.ndarray:
        """Return one vector per query: (N, D)."""
        ...

    def encode_documents(self, texts: list[str], /) -> np.ndarray:
        """Return one vector per document: (N, D)."""
        ...


class Dense(ScoringRetriever):
    """score(x, d) = E(φ_q(x)) · E(d), with one encoder E for both, no normalisation, all documents scored.

    Where the encoder has two towers, E is one encoder for x and another for d.

    Every distinct text of a stream is encoded once, whichever requests hold it, as long as fewer than
    ``cache_size`` texts came since. Vectors are never kept from one call to the next: the encoder
    may have been trained in between.

    Parameters
    ----------
    encoder: the encoder of queries and documents, or the two towers.
    text: Document -> str, what is encoded.
    cache_size: vectors kept during one call; 4 D bytes each.
    label: the retriever's name in tables; the untrained encoder and trained ones differ by it.
    """

    # enough texts for well-filled batches of one length, few enough that long streams stay in memory
    chunk_documents = 8192

    def __init__(
        self,
        encoder: TextEncoder | TwoTowers,
        *,
        text: TextOf = document_text,
        cache_size: int = 100_000,
        label: str = "dense",
    ) -> None:
        super().__init__(text=text)
        self.encoder = encoder
        self.cache_size = cache_size
        self.name = label

    def scorer(self) -> Scorer:
        """Score by dot product; raises nothing itself, a vector that is not finite is refused on sorting."""
        encoder: Any = self.encoder
        if hasattr(encoder, "encode_queries"):
            queries = _Cached(encoder.encode_queries, self.cache_size)
            documents = _Cached(encoder.encode_documents, self.cache_size)
        else:
            queries = documents = _Cached(encoder.encode, self.cache_size)

        def score(requests: Sequence[Request]) -> list[np.ndarray]:
            texts = [[self.text(document) for document in request.documents] for request in requests]
            if queries is documents:  # their texts share batches
                of_queries = of_documents = documents(_texts_to_encode(requests, texts))
            else:
                of_queries = queries(r.query for r, own in zip(requests, texts, strict=True) if own)
                of_documents = documents(text for own in texts for text in own)
            return [
                _scores(request.query, own, of_queries, of_documents)
                for request, own in zip(requests, texts, strict=True)
            ]

        return score


class _Cached:
    """Vectors of texts by their keys, each encoded once while it is kept."""

    def __init__(self, encode: Callable[..., np.ndarray], size: int) -> None:
        self._encode = encode
        self._kept: LRU[np.ndarray] = LRU(size)
        self._shown = {"progress": True} if "progress" in inspect.signature(encode).parameters else {}

    def __call__(self, texts: Iterable[str]) -> dict[bytes, np.ndarray]:
        wanted = {_key(text): text for text in texts}
        known = {key: vector for key in wanted if (vector := self._kept.get(key)) is not None}
        missing = [key for key in wanted if key not in known]
        if missing:
            encoded = self._encode([wanted[key] for key in missing], **self._shown)
            for key, vector in zip(missing, encoded, strict=True):
                known[key] = np.array(vector)  # a copy: a view would keep the whole chunk alive
                self._kept.put(key, known[key])
        return known


def _texts_to_encode(requests: Sequence[Request], texts: list[list[str]]) -> Iterator[str]:
    for request, own in zip(requests, texts, strict=True):
        if own:  # the query of an empty profile is never needed
            yield request.query
            yield from own


def _scores(
    query: str, texts: list[str], queries: dict[bytes, np.ndarray], documents: dict[bytes, np.ndarray]
) -> np.ndarray:
    """Dot products of one request: (n,)."""
    if not texts:
        return np.zeros(0)
    keys = [_key(text) for text in texts]
    # One product per distinct text: a matrix product may round equal rows differently, and equal
    # documents must tie. Double precision makes the sum independent of how it is blocked.
    rows = {key: row for row, key in enumerate(dict.fromkeys(keys))}
    matrix = np.stack([documents[key] for key in rows]).astype(np.float64)  # (distinct, D)
    products = matrix @ queries[_key(query)].astype(np.float64)  # (distinct,)
    return products[[rows[key] for key in keys]]


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@RETRIEVERS.register("dense")
def build_dense(
    encoder: str | TextEncoder | TwoTowers,
    *,
    text: TextOf = document_text,
    cache_size: int = 100_000,
    label: str = "dense",
    **encoder_options: Any,
) -> Dense:
    """Build :class:`Dense` from an encoder or from the name of one, with the options of ``load_encoder``."""
    if isinstance(encoder, str):
        encoder = load_encoder(encoder, **encoder_options)
    elif encoder_options:
        raise TypeError(f"{', '.join(encoder_options)}: options of an encoder that is loaded already")
    return Dense(encoder, text=text, cache_size=cache_size, label=label)
