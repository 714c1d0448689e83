"""The columns of a graph in Arrow: distinct names with a sorted index, and the texts of the reviews in batches.

Both read the same from memory and from a memory-mapped file, and hold no Python object per row.
"""

from __future__ import annotations

import difflib
import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Rows of one batch of texts.
ROWS = 8192
#: Up to so many names all are compared to find the nearest one, above only those that sort beside it.
_COMPARED = 20_000
_BESIDE = 100

STRING = pa.large_string()
TEXTS = pa.schema([("text", STRING), ("title", STRING), ("date", STRING), ("extra", STRING)])
NAMES = pa.schema([("name", STRING)])


def reader(array: pa.LargeStringArray) -> Callable[[int], Any]:
    """A function from the place to the string, or None: several times as fast as Arrow's own scalars.

    >>> read = reader(pa.array(["a", "", "né"], STRING)[1:])
    >>> read(0), read(1), reader(pa.array([None, "x"], STRING))(0)
    ('', 'né', None)
    """
    if array.null_count == len(array):
        return _nothing
    if array.null_count:
        return lambda place: array[place].as_py()
    _, ends, data = array.buffers()
    offsets = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
    content = memoryview(b"" if data is None else data)
    return lambda place: str(content[offsets[place] : offsets[place + 1]], "utf-8")


def _nothing(place: int) -> None:
    return None


class Names:
    """Distinct names, numbered by their place, and found by binary search.

    values: the names (n,). order: (n,) int32, the numbers in the order of the names as UTF-8 bytes, which is
    also Python's order of strings; computed where it is not given.
    """

    def __init__(self, values: pa.LargeStringArray, order: np.ndarray | None = None) -> None:
        self.values = values
        self._read = reader(values)
        self.order = pc.sort_indices(values).to_numpy().astype(np.int32) if order is None else order

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> str:
        if number < 0:
            raise IndexError(f"number {number}: names are numbered from 0")
        name: str = self._read(number)
        return name

    def find(self, name: str) -> int | None:
        """The number of ``name``, None where it is not there.

        >>> names = Names(pa.array(["bo", "al"], STRING))
        >>> names.find("al"), names.find("cy")
        (1, None)
        """
        place = self._place(name)
        if place < len(self) and self._sorted(place) == name:
            return int(self.order[place])
        return None

    def nearest(self, name: str, most: int = 3) -> list[str]:
        """Names that are spelled much like ``name``; of very many names only those that sort beside it are tried."""
        near = range(len(self))
        if len(self) > _COMPARED:
            place = self._place(name)
            near = range(max(0, place - _BESIDE), min(len(self), place + _BESIDE))
        return difflib.get_close_matches(name, [self._sorted(place) for place in near], n=most)

    def _place(self, name: str) -> int:
        return bisect_left(range(len(self)), name, key=self._sorted)

    def _sorted(self, place: int) -> str:
        return self[int(self.order[place])]


class Texts:
    """Text, title, date and further fields of the reviews, in batches of Arrow (see :data:`TEXTS`)."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.batches = [batch for batch in batches if batch.num_rows]
        self._starts = list(accumulate((batch.num_rows for batch in self.batches), initial=0))
        self._columns = [tuple(map(reader, batch.columns)) for batch in self.batches]

    def __len__(self) -> int:
        return self._starts[-1]

    def row(self, number: int) -> tuple[str, str, str | None, str | None]:
        """(text, title, date, further fields as JSON) of one review."""
        columns, place = self._find(number)
        text, title, date, extra = columns
        return text(place), title(place), date(place), extra(place)

    def text(self, number: int) -> str:
        """The text of one review."""
        columns, place = self._find(number)
        text: str = columns[0](place)
        return text

    def title(self, number: int) -> str:
        """The title of one review."""
        columns, place = self._find(number)
        title: str = columns[1](place)
        return title

    def extended(self, batches: Iterable[pa.RecordBatch]) -> Texts:
        """These texts and further ones; a last batch that is not full is filled, the others are shared."""
        kept, last = list(self.batches), []
        if kept and kept[-1].num_rows < ROWS:
            last = [kept.pop()]
        tail = pa.Table.from_batches([*last, *batches], schema=TEXTS).combine_chunks()
        return Texts([*kept, *tail.to_batches(max_chunksize=ROWS)])

    def _find(self, number: int) -> tuple[tuple[Callable[[int], Any], ...], int]:
        batch = bisect_right(self._starts, number) - 1
        return self._columns[batch], number - self._starts[batch]


def digest_column(digest: Any, arrays: Iterable[pa.LargeStringArray]) -> None:
    """Put strings into a hash: the same strings give the same, however they are cut into arrays."""
    lengths, content = [], hashlib.sha256()
    for array in arrays:
        missing = pa.scalar(-1, pa.int64())
        lengths.append(pc.fill_null(pc.binary_length(array).cast(pa.int64()), missing).to_numpy())
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        if data is not None and len(array):
            content.update(memoryview(data)[ends[0] : ends[-1]])
    digest.update(np.concatenate(lengths).tobytes() if lengths else b"")
    digest.update(content.digest())
