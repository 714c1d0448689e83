"""Reading JSON, JSON lines and CSV as streams of records, with errors that say where.

Nothing here knows what a record means. Memory holds one record at a time, whatever the file's size.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import ijson

_EXPLAINED = 64 << 20  # files up to this size are parsed once more to find line and column of an error


class MalformedFile(ValueError):
    """A file that is no JSON, JSON lines or CSV; the message says where it breaks."""


class CountingReader:
    """A binary file that reports how many bytes were read, for progress and for error messages."""

    def __init__(self, path: Path, on_bytes: Callable[[int], object] | None = None) -> None:
        self.position = 0
        self._file = path.open("rb")
        self._on_bytes = on_bytes
        if self._file.read(3) != b"\xef\xbb\xbf":  # some Windows programs begin UTF-8 with a mark
            self._file.seek(0)

    def __enter__(self) -> CountingReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        """Read bytes, as ijson asks for them."""
        return self._counted(self._file.read(size))

    def __iter__(self) -> Iterator[bytes]:
        return (self._counted(line) for line in self._file)

    def _counted(self, data: bytes) -> bytes:
        self.position += len(data)
        if self._on_bytes is not None:
            self._on_bytes(len(data))
        return data


def read_records(
    path: Path, *, wrapped_in: str = "golds", on_bytes: Callable[[int], object] | None = None
) -> Iterator[Any]:
    """Yield the records of a JSON list, of ``{wrapped_in: [...]}``, of JSON lines, or of a CSV or TSV file.

    The content decides, not the name: a list may be called .jsonl and JSON lines .json; only .csv and
    .tsv are told by their names. Numbers with a point come as ``decimal.Decimal``.

    Raises MalformedFile with the file and the place of the error.
    """
    if path.suffix.lower() in (".csv", ".tsv"):
        yield from _csv(path, on_bytes)
        return
    layout = _layout(path, wrapped_in)
    if layout == "lines":
        yield from _lines(path, on_bytes)
    else:
        yield from _items(path, "item" if layout == "list" else f"{wrapped_in}.item", on_bytes)


def read_task_name(path: Path, key: str = "task") -> str | None:
    """The value of a top-level key of a wrapped file, None where the file is a bare list or JSON lines."""
    if _layout(path, "golds") != "wrapped":
        return None
    with CountingReader(path) as stream:
        try:
            value = next(ijson.items(stream, key), None)
        except (ijson.JSONError, UnicodeDecodeError) as error:
            _raise_malformed(path, stream.position, 0, error)
    return None if value is None else str(value)


def _layout(path: Path, wrapped_in: str) -> str:
    """Which of list, wrapped and lines a file is, by its beginning."""
    with CountingReader(path) as stream:
        try:
            events = ijson.basic_parse(stream, buf_size=4096)
            first, _ = next(events, ("empty", None))
            if first == "start_array":
                return "list"
            if first == "start_map":
                return "wrapped" if _is_wrapped(events, wrapped_in) else "lines"
        except (ijson.JSONError, UnicodeDecodeError) as error:
            _raise_malformed(path, stream.position, 0, error)
    raise MalformedFile(f"{path}: expected a list of records, JSON lines, or an object with {wrapped_in!r}")


def _is_wrapped(events: Iterator[tuple[str, Any]], wrapped_in: str) -> bool:
    depth = 1
    for event, value in events:
        if event == "map_key" and depth == 1:
            if value == wrapped_in:
                return True
            if value != "task":  # the wrapped form holds "task" and the list; this is a record on a line
                return False
        depth += event in ("start_map", "start_array")
        depth -= event in ("end_map", "end_array")
        if depth == 0:
            return False
    return False


def _items(path: Path, prefix: str, on_bytes: Callable[[int], object] | None) -> Iterator[Any]:
    count = 0
    with CountingReader(path, on_bytes) as stream:
        try:
            for record in ijson.items(stream, prefix):
                yield record
                count += 1
        except (ijson.JSONError, UnicodeDecodeError) as error:
            _raise_malformed(path, stream.position, count, error)


def _lines(path: Path, on_bytes: Callable[[int], object] | None) -> Iterator[Any]:
    with CountingReader(path, on_bytes) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                yield json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
            except ValueError as error:  # also UnicodeDecodeError
                raise MalformedFile(
                    f"{path}, line {number}: {error}. Remedy: write one JSON object a line"
                ) from error


def _csv(path: Path, on_bytes: Callable[[int], object] | None) -> Iterator[dict[str, str]]:
    csv.field_size_limit(min(sys.maxsize, 1 << 30))  # a profile in one cell is longer than csv's 128 KiB
    with CountingReader(path, on_bytes) as stream:
        text = (_decoded(path, number, line) for number, line in enumerate(stream, start=1))
        reader = csv.DictReader(text, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        try:
            names = reader.fieldnames or ()
            if twice := sorted({name for name in names if name and list(names).count(name) > 1}):
                raise MalformedFile(
                    f"{path}, line 1: the header names {', '.join(map(repr, twice))} twice, and which one is meant is "
                    "unknown. Remedy: rename or remove a column"
                )
            for record in reader:
                if None in record or None in record.values():
                    raise MalformedFile(
                        f"{path}, line {reader.line_num}: {len(reader.fieldnames or ())} cells are named in "
                        "the header, this row has another number of them"
                    )
                yield record
        except csv.Error as error:
            raise MalformedFile(f"{path}, line {reader.line_num}: {error}") from error


def _decoded(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFile(f"{path}, line {number}: {error}. Remedy: save the file as UTF-8") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _raise_malformed(path: Path, position: int, count: int, error: Exception) -> NoReturn:
    """Say where a file breaks: line and column where it is small enough, else how far reading came."""
    where, what = f"before byte {position:,}", " ".join(str(error).split()) or "the file ends too early"
    if path.stat().st_size <= _EXPLAINED:
        try:
            json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=_refuse_constant)
        except json.JSONDecodeError as exact:
            where, what = f"line {exact.lineno} column {exact.colno} (character {exact.pos:,})", exact.msg
        except ValueError as exact:
            what = str(exact)
    raise MalformedFile(
        f"{path}: malformed JSON after {count:,} complete records, {where}: {what}. "
        "Remedy: copy or download the file again, or write NaN and Infinity as null or text"
    ) from error
