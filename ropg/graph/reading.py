"""Graphs from files and tables: the released split files, reviews as CSV or JSON lines, ``datasets`` tables.

Ids are strings whatever the file holds; where numbers and strings are mixed, that is counted. A record that
is no review is an error that names file and record, or is skipped and counted.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ropg.graph.building import Review
from ropg.graph.interactions import InteractionGraph
from ropg.graph.reading_report import BadRecords, ReadGraph, ReadingReport
from ropg.sources.conversion import progress
from ropg.sources.json_files import read_records
from ropg.sources.normalised import Layout, RecordError, normalise_document, text_of_number
from ropg.sources.report import did_you_mean

#: What a review consists of, and the fields' own names in a file unless a map says otherwise.
FIELDS = ("user", "item", "text", "title", "rating", "date")
_RELEASED = Layout(
    question={},
    document={
        "text": ("text",),
        "title": ("title",),
        "score": ("rating",),
        "item": ("pid",),
        "date": ("date",),
    },
    required=("text", "title", "score", "item"),
    needs_document_ids=False,
)


def read_graph(
    path: str | Path, fields: Mapping[str, str] | None = None, bad_records: BadRecords = "error"
) -> ReadGraph:
    """Read a saved graph (a folder), a released split file, or a file of reviews; the content decides."""
    file = Path(path).expanduser()
    if file.is_dir():
        return from_saved(file)
    if not file.is_file():
        raise FileNotFoundError(f"pgraphrag: no such file: {file}")
    if not fields and is_split_file(file):
        return from_split_file(file, bad_records)
    return from_reviews_file(file, fields, bad_records)


def is_split_file(path: Path) -> bool:
    """Whether the first record lists a user's reviews; a file without records counts as one."""
    if path.suffix.lower() in (".csv", ".tsv"):
        return False
    first = next(iter(read_records(path)), None)
    return not (isinstance(first, Mapping) and "profile" not in first and set(FIELDS) & set(first))


def from_split_file(path: str | Path, bad_records: BadRecords = "error") -> ReadGraph:
    """Read a released file: a list of ``{"id": user, "profile": [{"rating", "title", "text", "pid"}]}``.

    The first review of each profile is the user's target; a user with ``"target": false`` has none, as
    ``python -m ropg.graph split`` writes users whose items nobody else reviewed. Further keys of a review are
    kept in the documents' ``fields``. With ``bad_records="skip"`` a broken review is left out, and with a broken target
    the whole user.

    Raises FileNotFoundError, MalformedFile and RecordError with the name of the file and of the record.
    """
    file = _existing(path)
    _check_policy(bad_records)
    report = ReadingReport(str(file))
    seen: set[str] = set()
    without_target: list[str] = []

    def reviews() -> Iterator[Review]:
        with progress(file) as count:
            for number, raw in enumerate(read_records(file, on_bytes=count), start=1):
                report.records += 1
                try:
                    user, profile, where = _head(raw, file, number, report)
                    first = _released_review(user, profile[0], 0, where, report)
                except RecordError as error:
                    _refuse_or_skip(error, bad_records, report)
                    continue
                if user in seen:
                    report.repeated_users.append(user)
                seen.add(user)
                if raw.get("target", True) is False:
                    without_target.append(user)
                yield first
                for place in range(1, len(profile)):
                    try:
                        yield _released_review(user, profile[place], place, where, report)
                    except RecordError as error:
                        _refuse_or_skip(error, bad_records, report)

    graph = _built(reviews(), report, {"targets": "first", "without_target": without_target})
    return ReadGraph(graph, first_reviews(graph), report)


def from_reviews_file(
    path: str | Path, fields: Mapping[str, str] | None = None, bad_records: BadRecords = "error"
) -> ReadGraph:
    """Read reviews, one a record, from CSV, TSV, JSON lines or a JSON list.

    ``fields`` maps the names user, item, text, title, rating and date to the file's names where they differ.
    User, item and text must be there; an empty or missing title is "", rating and date may be missing.
    Other columns are not read.
    """
    file = _existing(path)
    report = ReadingReport(str(file))

    def records() -> Iterator[tuple[str, Any]]:
        with progress(file) as count:
            raws = read_records(file, wrapped_in="data", on_bytes=count)
            yield from ((f"{file}, record {number}", raw) for number, raw in enumerate(raws, start=1))

    return _from_records(records(), fields, bad_records, report)


def from_table(
    table: Any,
    fields: Mapping[str, str] | None = None,
    bad_records: BadRecords = "error",
    name: str = "table",
) -> ReadGraph:
    """Read reviews from a ``datasets`` table, an Arrow table, or any iterable of mappings; see
    :func:`from_reviews_file`. ``name`` stands for the file in messages."""
    if isinstance(table, Mapping):
        raise ValueError(f"{name}: this holds several tables ({', '.join(map(str, table))}); choose one")
    report = ReadingReport(name)
    records = ((f"{name}, row {number}", raw) for number, raw in enumerate(_rows(table), start=1))
    return _from_records(records, fields, bad_records, report)


def from_saved(folder: str | Path) -> ReadGraph:
    """Open a saved graph, with the targets and the report of the file that it was read from."""
    graph = InteractionGraph.open(folder)
    report = ReadingReport(**graph.notes.get("reading", {"path": str(folder), "reviews": graph.n_edges}))
    return ReadGraph(graph, first_reviews(graph) if graph.notes.get("targets") == "first" else None, report)


def first_reviews(graph: InteractionGraph) -> np.ndarray:
    """The first review of each user, -1 for users whom the file says to have no target: (n_users,) int64."""
    firsts: np.ndarray = graph.by_user.edges[graph.by_user.offsets[:-1]].astype(np.int64)
    firsts[[graph.user_number(user) for user in graph.notes.get("without_target", ())]] = -1
    return firsts


def _existing(path: str | Path) -> Path:
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"pgraphrag: no such file: {file}")
    return file


def _check_policy(bad_records: str) -> None:
    if bad_records not in get_args(BadRecords):
        raise ValueError(
            f"bad_records: unknown value {bad_records!r}{did_you_mean(str(bad_records), get_args(BadRecords))}"
        )


def _refuse_or_skip(error: RecordError, bad_records: BadRecords, report: ReadingReport) -> None:
    if bad_records != "skip":
        raise error
    report.skip(error)


def _built(reviews: Iterable[Review], report: ReadingReport, notes: dict[str, Any]) -> InteractionGraph:
    graph = InteractionGraph.from_reviews(reviews)
    report.reviews = graph.n_edges
    if not graph.n_edges:
        reason = f": {report.skipped_records[0]}" if report.skipped else ""
        raise RecordError(f"{report.path}: none of {report.records:,} records holds a review{reason}")
    graph.notes.update(notes, reading=asdict(report))
    return graph


def _head(raw: Any, path: Path, number: int, report: ReadingReport) -> tuple[str, list[Any], str]:
    """The user of a record of a split file, the reviews, and how messages name the user."""
    if not isinstance(raw, Mapping) or raw.get("id") is None:
        raise RecordError(f"{path}, record {number}: an object with an 'id' is expected")
    user = report.text_id(raw["id"], "user", "id", f"{path}, record {number}")
    where = f"{path}, user {user!r}"
    profile = raw.get("profile")
    if not isinstance(profile, list) or not profile:
        raise RecordError(f"{where}: 'profile' must be a list of reviews, the first of them the target")
    return user, profile, where


def _released_review(user: str, raw: Any, place: int, where: str, report: ReadingReport) -> Review:
    parts, complete = normalise_document(raw, _RELEASED, place, where)
    where = f"{where}, review {place + 1}"
    if not complete:
        lacking = [_RELEASED.document[part][0] for part in _RELEASED.required if parts[part] is None]
        raise RecordError(f"{where}: missing or null: {', '.join(lacking)}")
    item = report.text_id(raw["pid"], "item", "pid", where)
    rating = _rating(parts["score"], "rating", where)
    return Review(
        user, item, parts["text"] or "", parts["title"] or "", rating, parts["date"], parts["extra"]
    )


def _from_records(
    records: Iterable[tuple[str, Any]],
    fields: Mapping[str, str] | None,
    bad_records: BadRecords,
    report: ReadingReport,
) -> ReadGraph:
    _check_policy(bad_records)
    names = {name: name for name in FIELDS} | dict(fields or {})
    for name in names:
        if name not in FIELDS:
            raise ValueError(
                f"{report.path}: fields has the unknown name {name!r}{did_you_mean(name, FIELDS)}"
            )

    def reviews() -> Iterator[Review]:
        for where, raw in records:
            report.records += 1
            try:
                yield _table_review(raw, names, where, report)
            except RecordError as error:
                _refuse_or_skip(error, bad_records, report)

    return ReadGraph(_built(reviews(), report, {}), None, report)


def _table_review(raw: Any, names: Mapping[str, str], where: str, report: ReadingReport) -> Review:
    if not isinstance(raw, Mapping):
        raise RecordError(f"{where}: a record with named fields is expected")
    for part in ("user", "item", "text"):
        if names[part] not in raw:
            found = ", ".join(map(repr, raw)) or "none"
            raise RecordError(
                f"{where}: the field {names[part]!r} is missing; found: {found}. "
                f"Remedy: map it by fields, such as fields.{part}=NAME (--fields {part}=NAME)"
            )
    text, title = raw[names["text"]], raw.get(names["title"])
    if not isinstance(text, str):
        raise RecordError(f"{where}: {names['text']!r} must be text, it is {type(text).__name__}")
    if title is not None and not isinstance(title, str):
        raise RecordError(f"{where}: {names['title']!r} must be text, it is {type(title).__name__}")
    return Review(
        report.text_id(raw[names["user"]], "user", names["user"], where),
        report.text_id(raw[names["item"]], "item", names["item"], where),
        text_of_number(text, names["text"], where),
        text_of_number(title or "", names["title"], where),
        _rating(raw.get(names["rating"]), names["rating"], where),
        _date(raw.get(names["date"]), names["date"], where),
    )


def _rating(value: Any, name: str, where: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        rating = float(text_of_number(value, name, where))
    except ValueError as error:  # a RecordError is one too
        raise RecordError(f"{where}: {name!r} is no number: {value!r}") from error
    if not math.isfinite(rating):
        raise RecordError(f"{where}: {name!r} is {value}. Remedy: write a number, or leave it out")
    return rating


def _date(value: Any, name: str, where: str) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    return text_of_number(value, name, where)


def _rows(table: Any) -> Iterator[Any]:
    """Rows as mappings, in batches where the table can give them."""
    batches: Callable[..., Iterable[Any]] | None = getattr(table, "iter", None)
    if batches is not None:  # datasets.Dataset and IterableDataset: row by row is many times slower
        for batch in batches(batch_size=1000):
            columns = list(batch)
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(columns, values, strict=True))
    elif hasattr(table, "to_batches"):
        for batch in table.to_batches():
            yield from batch.to_pylist()
    else:
        yield from table
