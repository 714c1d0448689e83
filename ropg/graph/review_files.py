"""Review files as arrays: reading released split files and raw tables, writing released split files.

A released file is a list of ``{"id": user, "profile": [{"rating", "title", "text", "pid"}]}``, the first
review of each user being the target; a user who is no target has ``"target": false``. A raw table, JSON
lines, a JSON list, CSV or TSV, holds one review a record: ``user, item, text, title, rating`` and maybe
``date``. Ids are text whatever a file holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ropg.files import write_text
from ropg.sources.json_files import read_records
from ropg.sources.normalised import RecordError, text_of_number

FIELDS = ("user", "item", "text", "title", "rating", "date")
_RELEASED = {"item": "pid", "text": "text", "title": "title", "rating": "rating", "date": "date"}


@dataclass
class ReviewTable:
    """Reviews and who wrote them of what.

    users, items: names; edge_user, edge_item: (E,) places in them. reviews: per edge the text, title,
    rating and date (or None). targets: (U,) edges, -1 for a user who is no target; None where a file has no
    """

    users: list[str]
    items: list[str]
    edge_user: np.ndarray
    edge_item: np.ndarray
    reviews: list[dict[str, str | None]]
    targets: np.ndarray | None


@dataclass
class _Builder:
    prefix: str = ""
    users: dict[str, int] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)
    edge_user: list[int] = field(default_factory=list)
    edge_item: list[int] = field(default_factory=list)
    reviews: list[dict[str, str | None]] = field(default_factory=list)
    targets: dict[int, int] = field(default_factory=dict)
    raw: bool = False

    def add(self, user: str, record: Mapping[str, Any], names: Mapping[str, str], where: str) -> None:
        item = text_of_number(_value(record, names["item"], where), names["item"], where)
        review: dict[str, str | None] = {}
        for part in ("text", "title"):
            value = _value(record, names[part], where)
            if not isinstance(value, str):
                raise RecordError(f"{where}: {names[part]!r} must be text, it is {type(value).__name__}")
            review[part] = value
        review["rating"] = text_of_number(_value(record, names["rating"], where), names["rating"], where)
        date = record.get(names["date"])
        review["date"] = None if date in (None, "") else text_of_number(date, names["date"], where)
        self.edge_user.append(self.users.setdefault(self.prefix + user, len(self.users)))
        self.edge_item.append(self.items.setdefault(self.prefix + item, len(self.items)))
        self.reviews.append(review)


def _value(record: Mapping[str, Any], key: str, where: str) -> Any:
    value = record.get(key)
    if value is None:
        raise RecordError(
            f"{where}: {key!r} is missing or null; found: {', '.join(map(repr, record)) or 'nothing'}. "
            "Remedy: name the file's fields (--fields item=asin rating=stars), or fill in the value"
        )
    return value


def read_reviews(paths: Sequence[str | Path], fields: Mapping[str, str] | None = None) -> ReviewTable:
    """Read review files, each released or raw, into one table.

    Several files are kept apart: users and items are named ``<file>/<id>``, after the file's stem.
    ``fields``: our name -> the name in raw files, such as ``{"item": "asin"}``.

    Raises FileNotFoundError, MalformedFile, or RecordError with file, record and remedy.
    """
    for name in fields or {}:
        if name not in FIELDS:
            raise ValueError(f"fields: {name!r} is unknown; known: {', '.join(FIELDS)}")
    names = {name: (fields or {}).get(name, name) for name in FIELDS}
    files = [Path(path).expanduser() for path in paths]
    stems = [file.stem for file in files]
    if len(set(stems)) < len(stems):
        raise ValueError(
            f"files of the same name ({', '.join(sorted(stems))}): rename one, they name its users"
        )
    made = _Builder()
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"reviews: no such file: {file}")
        made.prefix = f"{file.stem}/" if len(files) > 1 else ""
        for number, record in enumerate(read_records(file, wrapped_in="data"), start=1):
            where = f"{file}, record {number}"
            if not isinstance(record, Mapping):
                raise RecordError(f"{where}: an object is expected, this is {type(record).__name__}")
            if "profile" in record:
                _released(made, record, where)
            else:
                made.raw = True
                user = text_of_number(_value(record, names["user"], where), names["user"], where)
                made.add(user, record, names, where)
    if not made.reviews:
        raise ValueError(f"no review in {', '.join(map(str, files))}")
    targets = np.full(len(made.users), -1, dtype=np.int64)
    targets[list(made.targets)] = list(made.targets.values())
    return ReviewTable(
        list(made.users),
        list(made.items),
        np.array(made.edge_user, dtype=np.int64),
        np.array(made.edge_item, dtype=np.int64),
        made.reviews,
        None if made.raw else targets,
    )


def _released(made: _Builder, record: Mapping[str, Any], where: str) -> None:
    user = text_of_number(_value(record, "id", where), "id", where)
    where = f"{where}, user {user!r}"
    profile = record["profile"]
    if not isinstance(profile, list) or not profile:
        raise RecordError(f"{where}: 'profile' must be a list of reviews, the first of them the target")
    if made.prefix + user in made.users:
        raise RecordError(f"{where}: stands twice in this file. Remedy: join the profiles into one")
    first = len(made.reviews)
    for place, review in enumerate(profile, start=1):
        at = f"{where}, review {place}"
        if not isinstance(review, Mapping):
            raise RecordError(f"{at}: an object is expected, this is {type(review).__name__}")
        made.add(user, review, _RELEASED, at)
    if record.get("target", True) is not False:
        made.targets[made.users[made.prefix + user]] = first


def write_released(path: str | Path, table: ReviewTable, users: Sequence[int], targets: np.ndarray) -> None:
    """Write some users as a released split file, each one's target first; in the order given.

    targets: (U,) edges, -1 for a user who is none: its entry gets ``"target": false``.
    """
    import json

    of_user: dict[int, list[int]] = {user: [] for user in users}
    for edge, user in enumerate(table.edge_user.tolist()):
        if user in of_user:
            of_user[user].append(edge)
    lines = []
    for user, edges in of_user.items():
        target = int(targets[user])
        order = edges if target < 0 else [target, *(edge for edge in edges if edge != target)]
        entry: dict[str, Any] = {"id": table.users[user], "profile": [_review(table, edge) for edge in order]}
        if target < 0:
            entry["target"] = False
        lines.append(json.dumps(entry, ensure_ascii=False))
    write_text(Path(path), "[\n" + ",\n".join(lines) + "\n]\n")


def _review(table: ReviewTable, edge: int) -> dict[str, Any]:
    review = table.reviews[edge]
    rating = review["rating"] or ""
    entry: dict[str, Any] = {
        "rating": int(rating) if rating.isascii() and rating.isdigit() else rating,
        "title": review["title"],
        "text": review["text"],
        "pid": table.items[int(table.edge_item[edge])],
    }
    return entry | ({"date": review["date"]} if review["date"] is not None else {})
