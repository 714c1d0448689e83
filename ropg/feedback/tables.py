"""Parquet files that appear whole or not at all, and that know what made them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ropg.differences import differences
from ropg.feedback.keys import canonical_json
from ropg.files import replaced_file

METADATA = b"ropg"
_VERSION = 1


class TableError(ValueError):
    """A table file that cannot be used; the message names the file and the remedy."""


class StaleTable(TableError):
    """A table that something else made than what is asked for now; build it again."""


def write_table(
    path: str | Path,
    table: pa.Table,
    kind: str,
    identity: Mapping[str, Any],
    counts: Mapping[str, int],
    owners: Sequence[str] | None = None,
) -> None:
    """Write a table atomically: a reader sees the old file or the new one, never a part.

    ``kind`` says which table it is, ``identity`` what made it, ``counts`` what was skipped on the way.
    ``owners``, digests of the users it concerns, let them be forgotten (``ropg.feedback.owners``).
    Equal rows, identity and counts give equal bytes; no time of writing is kept.
    """
    content = {"kind": kind, "version": _VERSION, "identity": dict(identity), "counts": dict(counts)}
    if owners is not None:
        content["owners"] = sorted(owners)
    head = canonical_json(content)
    # chunks show how a table was put together, which must not show in the file
    whole = table.replace_schema_metadata({METADATA: head.encode()}).combine_chunks()
    with replaced_file(Path(path)) as stream:
        pq.write_table(whole, stream, compression="zstd", row_group_size=1 << 17, write_page_checksum=True)


def read_table(
    path: str | Path, schema: pa.Schema, kind: str, identity: Mapping[str, Any] | None = None
) -> tuple[pa.Table, dict[str, Any], dict[str, int]]:
    """Read a table back: rows, identity and counts.

    Raises FileNotFoundError where there is no file, TableError for a damaged or foreign one, and
    StaleTable where ``identity`` is given and differs from what made the file.
    """
    path = Path(path)
    try:
        table = pq.read_table(path, memory_map=False, page_checksum_verification=True)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{path} is damaged ({error})") from error
    try:
        head = json.loads((table.schema.metadata or {})[METADATA])
        if not (isinstance(head["identity"], dict) and isinstance(head["counts"], dict)):
            raise ValueError("identity and counts are objects")
    except (KeyError, TypeError, ValueError):
        raise TableError(f"{path} does not say what made it, so this program did not write it") from None
    if head.get("kind") != kind or head.get("version") != _VERSION:
        raise TableError(
            f"{path} holds a {head.get('kind')} table of version {head.get('version')}, not a {kind} table "
            f"of version {_VERSION}; delete it or name another file"
        )
    if not table.schema.remove_metadata().equals(schema):
        raise TableError(f"{path} has the columns {table.schema.names}, expected {schema.names}; delete it")
    if identity is not None and canonical_json(head["identity"]) != canonical_json(dict(identity)):
        differing = [
            f"{name or 'identity'}: {old!r} in the file, {new!r} now"
            for name, old, new in differences(head["identity"], dict(identity))
        ]
        raise StaleTable(f"{path} was made with other settings ({'; '.join(differing)})")
    return table.replace_schema_metadata(None), head["identity"], head["counts"]


def offsets(column: Sequence[str], where: str) -> dict[str, tuple[int, int]]:
    """Where the rows of each example lie: id -> (first row, row after the last), in order.

    Raises TableError where the rows of an example are not together.

    >>> offsets(["a", "a", "b"], "here")
    {'a': (0, 2), 'b': (2, 3)}
    """
    found: dict[str, tuple[int, int]] = {}
    start = 0
    for row in range(1, len(column) + 1):
        if row == len(column) or column[row] != column[start]:
            if column[start] in found:
                raise TableError(
                    f"{where}: the rows of example {column[start]!r} are not together; build it again"
                )
            found[column[start]] = (start, row)
            start = row
    return found


class ExampleTable:
    """A table whose rows lie together by example, with what made it and what was counted on the way.

    Subclasses name their ``kind`` and ``schema``; the first column is ``example_id``.
    """

    kind: ClassVar[str]
    schema: ClassVar[pa.Schema]

    def __init__(self, table: pa.Table, identity: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        self.table = table
        self.identity = dict(identity)
        self.counts = dict(counts)
        self.owners: Sequence[str] | None = None  # digests of its users, where the rows do not tell them
        self._offsets = offsets(table.column("example_id").to_pylist(), f"{self.kind} table")

    def __len__(self) -> int:
        return len(self.table)

    def __contains__(self, example_id: object) -> bool:
        return example_id in self._offsets

    @property
    def example_ids(self) -> list[str]:
        """The examples that have rows, in table order."""
        return list(self._offsets)

    def part(self, example_id: str) -> pa.Table:
        """The rows of one example, read alone. Raises KeyError where it has none."""
        start, stop = self._offsets[example_id]
        return self.table.slice(start, stop - start)

    def write(self, path: str | Path) -> None:
        """Write the table as Parquet, whole or not at all; equal tables give equal bytes."""
        write_table(path, self.table, self.kind, self.identity, self.counts, self.owners)

    @classmethod
    def read(cls, path: str | Path, identity: Mapping[str, Any] | None = None) -> Self:
        """Read a table back. Raises StaleTable where ``identity`` is given and is not what made the file."""
        return cls(*read_table(path, cls.schema, cls.kind, identity))
