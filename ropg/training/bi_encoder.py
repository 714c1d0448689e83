"""Scores of a bi-encoder: a dot product compares a query's vector with a document's.

One encoder reads queries and documents, or, where only that of the queries is trained, each has its own and the
vectors of documents come from a table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


class TextRow(Protocol):
    """What is read of a row, such as :class:`ropg.training.rows.TrainingRow`."""

    @property
    def query(self) -> str: ...
    @property
    def documents(self) -> Sequence[str]: ...


class Embedder(Protocol):
    """What is needed of :class:`ropg.retrievers.encoder.Encoder`: texts to vectors, with gradient."""

    def embed(self, texts: Sequence[str]) -> Tensor: ...  # (N, D)


class QueryEmbedder(Protocol):
    """What is needed of :class:`ropg.retrievers.two_towers.TwoTowerEncoder`: gradient for queries alone."""

    def embed_queries(self, texts: Sequence[str]) -> Tensor: ...  # (N, D)
    def encode_documents(self, texts: Sequence[str], progress: bool = False) -> np.ndarray: ...  # (N, D)


def bi_encoder_scorer(
    encoder: Embedder | QueryEmbedder, rows: Sequence[TextRow] = ()
) -> Callable[[Sequence[TextRow]], Tensor]:
    """Return the function that scores rows with ``encoder``: rows -> (B, K), padded with 0.

    Every text of the rows is encoded once, however many rows share it: users of one item share
    documents, and a query may be a document elsewhere.

    Where the encoder has a frozen tower for documents, their vectors are computed once, without gradient, see
    :class:`DocumentVectors`; ``rows`` are all that will be scored, for training and for its evaluations. The function
    then has a method ``meet``, for the rows of a refresh.
    """
    if hasattr(encoder, "embed_queries"):
        return QueryScorer(encoder, rows)

    def score_rows(rows: Sequence[TextRow]) -> Tensor:
        place = {text: i for i, text in enumerate(dict.fromkeys(_texts(rows)))}
        vectors = _in_full(encoder.embed(list(place)))  # (N, D)
        queries = torch.tensor([place[row.query] for row in rows], device=vectors.device)  # (B,)
        return _products(vectors[queries], vectors, rows, place)

    return score_rows


class DocumentVectors:
    """Vectors of documents that never change: D numbers of 4 bytes for every distinct document, in main memory.

    ``rows``: their documents are encoded together when the first vector is asked for, so that numbers do not depend
    on where a killed run goes on. A document that they lack is encoded when it is first met, see also :meth:`meet`.
    """

    def __init__(self, encode: Callable[..., np.ndarray], rows: Sequence[TextRow] = ()) -> None:
        self._encode = encode
        self._rows = rows
        self._vectors: dict[str, np.ndarray] = {}
        self._met: Sequence[TextRow] = ()
        self._first = 0  # so many vectors are those of the first rows

    def __len__(self) -> int:
        return len(self._vectors)

    def meet(self, rows: Sequence[TextRow]) -> None:
        """Rows that take the place of others: what the first rows lack of them is encoded together at the next call.

        What came with rows met before is forgotten, as a killed run that goes on here never had it.
        """
        self._met = rows
        if not self._rows:  # the first rows are encoded
            self._vectors = dict(itertools.islice(self._vectors.items(), self._first))

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Vectors of some documents, on the CPU: (N, D)."""
        if self._rows:
            self._add(_documents(self._rows), progress=True)
            self._rows, self._first = (), len(self._vectors)
        self._add(_documents(self._met), progress=True)
        self._met = ()
        self._add(texts)
        return torch.from_numpy(np.stack([self._vectors[text] for text in texts]))

    def _add(self, texts: Sequence[str], progress: bool = False) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._encode(new, progress=progress), strict=True))


class QueryScorer:
    """Scores rows, (B, K), by queries with gradient and the vectors that documents keep."""

    def __init__(self, encoder: Any, rows: Sequence[TextRow]) -> None:
        self._encoder = encoder
        self._documents = DocumentVectors(encoder.encode_documents, rows)

    def meet(self, rows: Sequence[TextRow]) -> None:
        """As :meth:`DocumentVectors.meet`."""
        self._documents.meet(rows)

    def __call__(self, rows: Sequence[TextRow]) -> Tensor:
        """Rows -> (B, K), padded with 0."""
        asked = {text: i for i, text in enumerate(dict.fromkeys(row.query for row in rows))}
        queries = _in_full(self._encoder.embed_queries(list(asked)))  # (N, D)
        place = {text: i for i, text in enumerate(dict.fromkeys(_documents(rows)))}
        vectors = queries.new_zeros(0, queries.shape[-1])  # what dead rows need
        if place:
            with torch.autocast(
                queries.device.type, enabled=False
            ):  # they serve retrieval too, which is exact
                vectors = self._documents(list(place)).to(queries)  # (N, D)
        chosen = torch.tensor([asked[row.query] for row in rows], device=queries.device)  # (B,)
        return _products(queries[chosen], vectors, rows, place)


def _products(queries: Tensor, vectors: Tensor, rows: Sequence[TextRow], place: dict[str, int]) -> Tensor:
    """Dot products of (B, D) queries with their rows' documents, which are at ``place`` in (N, D) vectors: (B, K)."""
    width = max((len(row.documents) for row in rows), default=0)
    padded = [[place[d] for d in row.documents] + [-1] * (width - len(row.documents)) for row in rows]
    documents = torch.tensor(padded, dtype=torch.long, device=vectors.device)  # (B, K)
    # multiplied and summed rather than a matrix product, which mixed precision would round to bf16
    products = queries.unsqueeze(1) * vectors[documents.clamp(min=0)]  # (B, K, D)
    return products.sum(dim=-1).masked_fill(documents < 0, 0.0)  # (B, K)


def _in_full(vectors: Tensor) -> Tensor:
    """At least in single precision."""
    return vectors.float() if vectors.dtype in (torch.float16, torch.bfloat16) else vectors


def _texts(rows: Sequence[TextRow]) -> list[str]:
    return [text for row in rows for text in (row.query, *row.documents)]


def _documents(rows: Sequence[TextRow]) -> list[str]:
    return [text for row in rows for text in row.documents]
