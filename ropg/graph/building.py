"""From reviews to the columns of a graph: one pass over them, a batch of Python objects at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ropg.graph.columns import ROWS, STRING, TEXTS, Names
from ropg.text import well_formed


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
    done = sum(map(len, ratings))
    try:
        stars = [np.nan if row[4] is None else float(row[4]) for row in rows]
        users, items, *texts = (pa.array([row[part] for row in rows], STRING) for part in (0, 1, 2, 3, 5, 6))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(_broken(rows, done)) from error
    if any(array.null_count for array in (users, items, *texts[:2])) or np.isinf(stars).any():
        raise ValueError(_broken(rows, done))
    columns.users.append(users)
    columns.items.append(items)
    ratings.append(np.array(stars, np.float64))
    columns.texts.append(pa.RecordBatch.from_arrays(texts, schema=TEXTS))


def _broken(rows: list[Review], done: int) -> str:
    """What is said about the first review that is none."""
    for number, row in enumerate(rows, start=done + 1):
        for name, value in zip(Review._fields, row, strict=True):
            if name == "rating":
                good = value is None or (isinstance(value, (int, float)) and not math.isinf(value))
            else:
                good = value is None and name in ("date", "extra")
                good = good or (isinstance(value, str) and value == well_formed(value))
            if not good:
                return f"review {number}: {name} is {value!r}. Remedy: names and texts are str, a rating is a number"
    return f"reviews {done + 1} to {done + len(rows)}: one of them cannot be stored"
