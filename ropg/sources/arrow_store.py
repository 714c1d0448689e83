"""Examples in an Arrow file: written once as a stream, memory-mapped ever after.

A file of gigabytes is parsed once. What is stored beside each example are the validator's findings, so
that a second opening neither parses nor checks anything again; policies are applied when it is opened.

The file is written under a temporary name and moved into place when it is complete: a killed process
leaves no broken cache, and two processes that convert at once do each other no harm.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from ropg.examples import Document, Example
from ropg.sources.example_set import Header
from ropg.sources.normalised import DOCUMENT_KEYS, Record
from ropg.sources.validation import Finding, Rules, inspect

#: Raised whenever the stored form or the validator changes: older cache files are then not used.
FORMAT_VERSION = 2
BATCH = 256  # examples held in memory at once while converting,
BATCH_DOCUMENTS = 32768  # or so many documents, whichever comes first
_STALE = 24 * 3600  # seconds after which an abandoned temporary file is removed
_FACTS = b"ropg.facts"

_STRING = pa.string()
_DOCUMENT = pa.struct([(name, _STRING) for name in (*DOCUMENT_KEYS, "extra")])
_FINDING = pa.struct([("kind", _STRING), ("place", pa.int32())])
SCHEMA = pa.schema(
    [
        ("id", _STRING),
        ("user", _STRING),
        ("input", _STRING),
        ("target", _STRING),
        ("date", _STRING),
        ("split", _STRING),
        ("extra", _STRING),
        ("profile", pa.list_(_DOCUMENT)),
        ("findings", pa.list_(_FINDING)),
    ]
)


def cache_folder(cache_dir: str | None) -> Path:
    """The folder for converted files: the argument, else ``$ROPG_CACHE``, else ``~/.cache/ropg/examples``."""
    return Path(
        cache_dir or os.environ.get("ROPG_CACHE") or Path.home() / ".cache" / "ropg" / "examples"
    ).expanduser()


def cache_file(paths: Sequence[Path], settings: Mapping[str, Any], cache_dir: str | None) -> Path:
    """The cache file for the present state of ``paths`` (path, size, time of change) read with ``settings``.

    The first half of the name depends on paths and settings only, so that a conversion can remove the
    one it replaces.
    """
    named = json.dumps([[str(path.resolve()) for path in paths], settings], sort_keys=True)
    states = [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return cache_folder(cache_dir) / f"{_digest(named)}-{_digest(json.dumps([FORMAT_VERSION, states]))}.arrow"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def write(file: Path, records: Iterable[Record], rules: Rules, facts: dict[str, list[str]]) -> None:
    """Write ``records`` to ``file``, which appears complete or not at all.

    ``facts`` (kind of finding -> record ids) holds what concerns no single example. It is stored after
    the last record, so the caller may fill it while the records stream through.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"{error}. Remedy: name a folder for converted files by cache_dir or ROPG_CACHE"
        ) from error
    temporary = file.parent / f".{file.stem}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        with temporary.open("wb") as stream:
            with pa.ipc.new_file(stream, SCHEMA) as writer:
                for batch in _batches(records, rules):
                    writer.write_batch(batch)
                nothing = pa.RecordBatch.from_pylist([], schema=SCHEMA)
                writer.write_batch(nothing, custom_metadata={_FACTS: json.dumps(facts).encode()})
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
    _tidy(file)


def _batches(records: Iterable[Record], rules: Rules) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    documents = 0
    seen: set[str] = set()
    for record in records:
        rows.append(_row(record, rules, repeated=record.id in seen))
        seen.add(record.id)
        documents += len(record.profile)
        if len(rows) == BATCH or documents >= BATCH_DOCUMENTS:
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
            rows, documents = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _row(record: Record, rules: Rules, repeated: bool) -> dict[str, Any]:
    meta = {"date": record.date} if record.date is not None else {}
    profile = tuple(build_document(parts) for parts in record.profile)
    example = Example(record.id, record.user or record.id, record.input, record.target, profile, meta)
    findings = [Finding("duplicate_id")] if repeated else []
    findings += [Finding(kind) for kind in record.problems]
    findings += [Finding("missing_field", place) for place in record.missing]
    findings += inspect(example, rules)
    return {
        "id": record.id,
        "user": record.user,
        "input": record.input,
        "target": record.target,
        "date": record.date,
        "split": record.split,
        "extra": record.extra,
        "profile": record.profile,
        "findings": [finding._asdict() for finding in findings],
    }


def build_document(parts: Mapping[str, str | None]) -> Document:
    """A document from its stored parts (see ``normalise_document``)."""
    extra = {"fields": json.loads(parts["extra"])} if parts["extra"] else {}
    return Document(
        id=parts["id"] or "",
        text=parts["text"] or "",
        title=parts["title"] or "",
        score=parts["score"],
        date=parts["date"],
        tag=parts["tag"],
        provenance=parts["provenance"] or "own",
        author=parts["author"],
        item=parts["item"],
        **extra,
    )


def _tidy(file: Path) -> None:
    """Remove what ``file`` replaces and what killed conversions left behind."""
    for old in file.parent.glob(f"{file.stem.partition('-')[0]}-*.arrow"):
        if old != file:
            old.unlink(missing_ok=True)  # a process that has it mapped keeps it
    for left in file.parent.glob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if left.stat().st_mtime < time.time() - _STALE:
                left.unlink()


class ArrowRows:
    """The examples of an Arrow file, read through a memory map: a ``Rows`` of the example set."""

    def __init__(self, file: Path) -> None:
        self._file = file
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        last = reader.num_record_batches - 1
        self._batches = [reader.get_batch(number) for number in range(last)]
        self._starts = list(accumulate((batch.num_rows for batch in self._batches), initial=0))
        _, metadata = reader.get_batch_with_custom_metadata(last)
        self.facts: dict[str, list[str]] = json.loads(metadata[_FACTS])

    def __len__(self) -> int:
        return self._starts[-1]

    def digest(self) -> str:
        """SHA-256 of the Arrow file, which equal records always make alike."""
        with self._file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def header(self, row: int) -> Header:
        """The example of ``row`` without its profile."""
        part = {name: self._value(row, name) for name in ("id", "user", "input", "target", "date", "extra")}
        meta = json.loads(part["extra"]) if part["extra"] else {}
        if part["date"] is not None:
            meta["date"] = part["date"]
        return Header(part["id"], part["user"] or part["id"], part["input"], part["target"], meta)

    def user(self, row: int) -> str:
        """The user of ``row``; the id where the file names none."""
        return self._value(row, "user") or self._value(row, "id")

    def split(self, row: int) -> str | None:
        """The split that the record itself names."""
        return self._value(row, "split")

    def size(self, row: int) -> int:
        """Number of documents of ``row``."""
        return len(self._list(row, "profile"))

    def documents(self, row: int) -> list[Document]:
        """All documents of ``row``."""
        return [build_document(parts) for parts in self._list(row, "profile").to_pylist()]

    def document_id(self, row: int, place: int) -> str:
        """The id of one document."""
        return self._list(row, "profile").field("id")[place].as_py()

    def findings(self, row: int) -> list[Finding]:
        """What the validator found in ``row``."""
        found = self._list(row, "findings")
        return [Finding(**finding) for finding in found.to_pylist()] if len(found) else []

    def select(self, row: int, places: Sequence[int]) -> Sequence[int]:
        """All documents stay."""
        return places

    def _value(self, row: int, name: str) -> Any:
        number = bisect_right(self._starts, row) - 1
        return self._batches[number].column(name)[row - self._starts[number]].as_py()

    def _list(self, row: int, name: str) -> Any:
        number = bisect_right(self._starts, row) - 1
        return self._batches[number].column(name)[row - self._starts[number]].values
