"""Parquet files that appear whole or not at all, and that know what made them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ropg.feedback.keys import canonical_json

_METADATA = b"ropg"
_VERSION = 1


class TableError(ValueError):
    """A table file that cannot be used; the message names the file and the remedy."""


class StaleTable(TableError):
    """A table that something else made than what is asked for now; build it again."""


def write_table(
    path: str | Path, table: pa.Table, kind: str, identity: Mapping[str, Any], counts: Mapping[str, int]
) -> None:
    """Write a table atomically: a reader sees the old file or the new one, never a part.

    ``kind`` says which table it is, ``identity`` what made it, ``counts`` what was skipped on the way.
    Equal rows, identity and counts give equal bytes; no time of writing is kept.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = canonical_json(
        {"kind": kind, "version": _VERSION, "identity": dict(identity), "counts": dict(counts)}
    )
    # chunks show how a table was put together, which must not show in the file
    whole = table.replace_schema_metadata({_METADATA: head.encode()}).combine_chunks()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            pq.write_table(
                whole, stream, compression="zstd", row_group_size=1 << 17, write_page_checksum=True
            )
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


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
        head = json.loads((table.schema.metadata or {})[_METADATA])
    except (KeyError, ValueError):
        raise TableError(f"{path} does not say what made it, so this program did not write it") from None
    if head.get("kind") != kind or head.get("version") != _VERSION:
        raise TableError(
            f"{path} holds a {head.get('kind')} table of version {head.get('version')}, not a {kind} table "
            f"of version {_VERSION}; delete it or name another file"
        )
    if not table.schema.remove_metadata().equals(schema):
        raise TableError(f"{path} has the columns {table.schema.names}, expected {schema.names}; delete it")
    if identity is not None and canonical_json(head["identity"]) != canonical_json(dict(identity)):
        differing = _differences(head["identity"], dict(identity))
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


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(set(old) | set(new))
        return [
            line
            for key in keys
            if old.get(key) != new.get(key)
            for line in _differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
        ]
    return [f"{name or 'identity'}: {old!r} in the file, {new!r} now"]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
