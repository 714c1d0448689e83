"""Own data: any JSON list, JSON lines, CSV or TSV, with a map of field names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg.sources import SOURCES
from ropg.sources.arrow_store import ArrowRows
from ropg.sources.cells import PROFILE, from_cells
from ropg.sources.conversion import converted, progress
from ropg.sources.example_set import ExampleSet
from ropg.sources.json_files import read_records
from ropg.sources.normalised import (
    DOCUMENT_KEYS,
    QUESTION_KEYS,
    Layout,
    Record,
    RecordError,
    normalise_record,
)
from ropg.sources.report import Report, did_you_mean, resolve_policies
from ropg.sources.splits import DEFAULT_FRACTIONS, SPLITS, check_split, users_of_split
from ropg.sources.validation import Rules

_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv")


@SOURCES.register("records")
def load(
    *,
    path: str | Path,
    fields: Mapping[str, str] | None = None,
    split: str | None = None,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    labels: Sequence[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_problem: Mapping[str, str] | None = None,
    cache_dir: str | None = None,
) -> ExampleSet:
    """Load examples from files of any origin.

    A record holds ``id``, ``input`` and ``profile``, and may hold ``user``, ``target``, ``date`` and
    ``split``. A document holds ``text`` and may hold ``id`` (else its place), ``title``, ``score``, ``date``,
    ``tag``, ``author``, ``item`` and ``provenance``; a document may also be a bare string. Other keys are
    kept, in ``Example.meta`` and ``Document.fields``.

    In a CSV or TSV file the profile is either a column of JSON lists, or there is one row per document:
    columns ``profile.text``, ``profile.title`` and so on, beside the example's own columns, which every row
    repeats. Rows with the same id are one example, wherever they stand; a row whose document columns are
    all empty adds no document. An empty cell is an absent value, but for ``input`` and ``target``. This
    second form is held in memory while it is converted.

    Parameters
    ----------
    path: a file, or a folder that holds ``train``, ``dev`` and ``test`` files.
    fields: this project's name -> the file's name, such as
        ``{"input": "question", "target": "answer", "profile": "history", "profile.text": "body"}``.
    split: of a folder, its file; of a file whose records name splits, these records; else the users of a
        seeded split by ``fractions`` (train, dev, test). None: everything.
    labels: the gold outputs that exist, where the task has labels.
    limit, seed, on_problem, cache_dir: see ``load_examples``.

    Raises FileNotFoundError, MalformedFile, RecordError or ValidationError, each with the file's name.
    """
    check_split(split, f"records {path}")
    policies = resolve_policies(on_problem)
    root = Path(path).expanduser()
    paths = _files(root, split)
    rules = Rules(None if labels is None else tuple(label.strip().casefold() for label in labels))
    names = dict(fields or {})
    layout = _layout(names)
    rows = converted(
        paths,
        settings={"source": "records", "fields": names, "labels": rules.labels},
        records=lambda problems: _records(paths, layout, names, problems),
        rules=rules,
        cache_dir=cache_dir,
    )
    wanted: Sequence[int] = range(len(rows))
    if split is not None and not root.is_dir():
        wanted = _rows_of_split(rows, root, split, fractions, seed)
    report = Report(f"records {root.name} {split or 'all'}", str(root), policies)
    problems = [(kind, record) for kind, records in rows.facts.items() for record in records]
    return ExampleSet(rows, report, wanted=wanted, limit=limit, problems=problems)


def _files(root: Path, split: str | None) -> list[Path]:
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise FileNotFoundError(f"records: neither a file nor a folder: {root}")
    tried = [
        root / f"{name}{suffix}" for name in (SPLITS if split is None else [split]) for suffix in _SUFFIXES
    ]
    found = {file.stem: file for file in reversed(tried) if file.is_file()}
    if not found:
        raise FileNotFoundError("records: no file. Tried:\n  " + "\n  ".join(map(str, tried)))
    return [found[name] for name in SPLITS if name in found]


def _layout(fields: dict[str, str]) -> Layout:
    known = [*QUESTION_KEYS, *(PROFILE + key for key in DOCUMENT_KEYS)]
    for name in fields:
        if name not in known:
            raise ValueError(f"records: fields has the unknown name {name!r}{did_you_mean(name, known)}")
    question = {key: (fields.get(key, key),) for key in QUESTION_KEYS}
    document = {key: (fields.get(PROFILE + key, key),) for key in DOCUMENT_KEYS}
    return Layout(question, document, needs_document_ids=False)


def _records(
    paths: list[Path], layout: Layout, names: dict[str, str], problems: dict[str, list[str]]
) -> Iterator[Record]:
    types = set()
    for path in paths:
        with progress(path) as count:
            raws: Iterable[Any] = read_records(path, wrapped_in="data", on_bytes=count)
            if path.suffix.lower() in (".csv", ".tsv"):
                raws = from_cells(raws, layout, names, path)
            for number, raw in enumerate(raws, start=1):
                record = normalise_record(raw, layout, str(path), number)
                types.add(record.id_is_text)
                yield record
    if len(types) > 1:
        problems["mixed_id_types"] = [path.name for path in paths]


def _rows_of_split(
    rows: ArrowRows, path: Path, split: str, fractions: Sequence[float], seed: int
) -> list[int]:
    named = [rows.split(row) for row in range(len(rows))]
    if any(named):
        if not all(named):
            raise RecordError(
                f"{path}: {named.count(None):,} of {len(named):,} records name no split. "
                "Remedy: give every record one, or none"
            )
        return [row for row, name in enumerate(named) if name == split]
    users = users_of_split(map(rows.user, range(len(rows))), split, fractions, seed)
    return [row for row in range(len(rows)) if rows.user(row) in users]
