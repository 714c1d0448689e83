"""From reviews to the columns of a graph: one pass over them, a batch of Python objects at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ropg.graph.columns import ROWS, STRING, TEXTS, Names


class Review(NamedTuple):
    """One edge of the graph: what ``user`` wrote about ``item``.

    ``rating`` is None where there is none, ``date`` is kept as it is written, and ``extra`` holds further
    fields as a JSON object.
    """

    user: str
    item: str
    text: str
    title: str = ""
    rating: float | None = None
    date: str | None = None
    extra: str | None = None


class Csr(NamedTuple):
    """The edges of each node: those of node n are ``edges[offsets[n]:offsets[n + 1]]``, ascending.

    offsets: (nodes + 1,) int64. edges: (E,) int32.
    """

    offsets: np.ndarray
    edges: np.ndarray

    def of(self, node: int) -> np.ndarray:
        """The edges of one node."""
        return self.edges[self.offsets[node] : self.offsets[node + 1]]


def index_edges(nodes: np.ndarray, n_nodes: int) -> Csr:
    """Sort edges by their node.

    >>> index_edges(np.array([1, 0, 1]), 3)
    Csr(offsets=array([0, 1, 3, 3]), edges=array([1, 0, 2], dtype=int32))
    """
    degrees = np.bincount(nodes, minlength=n_nodes)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(degrees, dtype=np.int64)])
    return Csr(offsets, np.argsort(nodes, kind="stable").astype(np.int32))


class Columns(NamedTuple):
    """Reviews by column: names as Arrow strings, ratings (n,) float64 (NaN: none), texts in batches."""

    users: list[pa.LargeStringArray]
    items: list[pa.LargeStringArray]
    ratings: np.ndarray
    texts: list[pa.RecordBatch]


def columns_of(reviews: Iterable[Review]) -> Columns:
    """Collect reviews; memory holds :data:`ropg.graph.columns.ROWS` of them as Python objects."""
    columns = Columns([], [], np.empty(0), [])
    ratings: list[np.ndarray] = []
    rows: list[Review] = []
    for review in reviews:
        rows.append(review)
        if len(rows) == ROWS:
            _flush(rows, columns, ratings)
            rows = []
    if rows:
        _flush(rows, columns, ratings)
    return columns._replace(ratings=np.concatenate(ratings) if ratings else np.empty(0, np.float64))


def number_names(known: Names | None, chunks: list[pa.LargeStringArray]) -> tuple[Names, np.ndarray]:
    """Number names in the order of their first appearance, after those that are known.

    Returns the names and, for each entry of ``chunks``, its number (n,) int32.
    """
    start = 0 if known is None else len(known)
    everything = pa.concat_arrays([known.values] if known else [pa.array([], STRING)])
    encoded = pa.concat_arrays([everything, *chunks]).dictionary_encode()
    numbers = encoded.indices.to_numpy()[start:].astype(np.int32)
    if known is not None and len(encoded.dictionary) == start:
        return known, numbers
    return Names(encoded.dictionary), numbers


def _flush(rows: list[Review], columns: Columns, ratings: list[np.ndarray]) -> None:
    users, items, texts, titles, stars, dates, extras = zip(*rows, strict=True)
    columns.users.append(pa.array(users, STRING))
    columns.items.append(pa.array(items, STRING))
    ratings.append(np.array([np.nan if rating is None else rating for rating in stars], np.float64))
    arrays = [pa.array(values, STRING) for values in (texts, titles, dates, extras)]
    columns.texts.append(pa.RecordBatch.from_arrays(arrays, schema=TEXTS))
