"""From what a file holds to the types of an example: ids and scores as strings, keys kept, errors named.

A raw record may hold anything. After :func:`normalise_record` each value has one type, so a column can
be stored with one type whatever the order of the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

QUESTION_KEYS = ("id", "user", "input", "target", "date", "split", "profile")
DOCUMENT_KEYS = ("id", "text", "title", "score", "date", "tag", "author", "item", "provenance")


class RecordError(ValueError):
    """A record that cannot be an example; the message names file, record and remedy."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where an example's parts stand in a record.

    question: part of an example (``id``, ``input``, ...) -> keys of the record, the first present counts.
    document: part of a document (``text``, ``title``, ...) -> keys of the profile's items.
    required: document parts that must be there.
    needs_document_ids: False numbers documents without an id by their place.
    """

    question: Mapping[str, tuple[str, ...]]
    document: Mapping[str, tuple[str, ...]]
    required: tuple[str, ...] = ("text",)
    needs_document_ids: bool = True


@dataclass(slots=True)
class Record:
    """One example as it is stored; ``missing`` lists places of documents that lack a required part,
    ``problems`` the kinds of findings that reading brought up."""

    id: str
    user: str | None
    input: str
    target: str | None
    date: str | None
    split: str | None
    extra: str | None
    profile: list[dict[str, str | None]]
    id_is_text: bool = True
    missing: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def normalise_record(raw: Any, layout: Layout, path: str, number: int) -> Record:
    """Check and convert one record; ``number`` counts from 1 and stands in for an id that is missing.

    Raises RecordError for a record that is no object, for missing keys, and for values of a wrong type.
    """
    where = f"{path}, record {number}"
    if not isinstance(raw, Mapping):
        raise RecordError(f"{where}: an object is expected, this is {_kind(raw)}")
    raw_id = _required(raw, layout, "id", where)
    record_id = text_of_number(raw_id, "id", where)
    where = f"{path}, record {record_id!r}"
    question = _required(raw, layout, "input", where)
    profile = _required(raw, layout, "profile", where)
    if not isinstance(profile, list):
        raise RecordError(
            f"{where}: the profile must be a list of documents, this is {_kind(profile)}. "
            "Remedy: write [] for a user without documents"
        )
    documents: list[dict[str, str | None]] = []
    missing = []
    for place, item in enumerate(profile):
        document, complete = normalise_document(item, layout, place, where)
        documents.append(document)
        if not complete:
            missing.append(place)
    return Record(
        id=record_id,
        user=_optional(raw, layout, "user", where),
        input=_text(question, _key(raw, layout.question["input"]), where),
        target=_target(raw, layout, where),
        date=_optional(raw, layout, "date", where),
        split=_optional(raw, layout, "split", where),
        extra=extra_keys(raw, layout.question),
        profile=documents,
        id_is_text=isinstance(raw_id, str),
        missing=missing,
    )


def text_of_number(value: Any, name: str, where: str) -> str:
    """A string or a number as a string; 5.0 (as a table program writes 5) becomes "5".

    >>> text_of_number(5, "id", "x.json"), text_of_number("05", "id", ""), text_of_number(4.5, "score", "")
    ('5', '05', '4.5')
    """
    if isinstance(value, str):
        return _whole(value, name, where)
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if value != value or value in (float("inf"), float("-inf")):
            raise RecordError(
                f"{where}: {name!r} is {value}. Remedy: write a number, a string, or leave it out"
            )
        return str(int(value)) if value == int(value) else str(value)
    raise RecordError(f"{where}: {name!r} must be a string or a number, it is {_kind(value)}")


def extra_keys(raw: Mapping[str, Any], known: Mapping[str, tuple[str, ...]]) -> str | None:
    """The keys that ``known`` does not name, as a JSON object; None where there are none."""
    names = {key for keys in known.values() for key in keys}
    rest = {str(key): value for key, value in raw.items() if key not in names}
    return json.dumps(rest, default=_number) if rest else None


def _number(value: Any) -> int | float:
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def normalise_document(
    item: Any, layout: Layout, place: int, where: str
) -> tuple[dict[str, str | None], bool]:
    """The parts of one document, and whether all that the layout requires are there.

    ``place`` counts from 0 and is the id of a document without one. Raises RecordError as above.
    """
    if isinstance(item, str) and not layout.needs_document_ids:
        item = {layout.document["text"][0]: item}
    where = f"{where}, document {place + 1} of the profile"
    if not isinstance(item, Mapping):
        raise RecordError(f"{where}: an object is expected, this is {_kind(item)}")
    parts: dict[str, str | None] = {"extra": extra_keys(item, layout.document)}
    for part in DOCUMENT_KEYS:
        key = _key(item, layout.document.get(part, ()))
        value = None if key is None else item[key]
        if value is None:
            parts[part] = None
        elif part in ("text", "title"):
            parts[part] = _text(value, key, where)
        else:
            parts[part] = text_of_number(value, str(key), where)
    if parts["provenance"] not in (None, "own", "neighbor"):
        raise RecordError(
            f"{where}: provenance {parts['provenance']!r}. Remedy: write own or neighbor, or leave it out"
        )
    if parts["id"] is None:
        if layout.needs_document_ids:
            raise RecordError(f"{where}: 'id' is missing")
        parts["id"] = str(place)
    return parts, all(parts[part] is not None for part in layout.required)


def _key(raw: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((key for key in keys if key in raw), None)


def _required(raw: Mapping[str, Any], layout: Layout, part: str, where: str) -> Any:
    key = _key(raw, layout.question[part])
    if key is None:
        expected = " or ".join(map(repr, layout.question[part]))
        raise RecordError(
            f"{where}: the key {expected} is missing; found: {', '.join(map(repr, raw)) or 'none'}"
        )
    if raw[key] is None:
        remedy = " Remedy: write [] for a user without documents" if part == "profile" else ""
        raise RecordError(f"{where}: {key!r} is null.{remedy}")
    return raw[key]


def _optional(raw: Mapping[str, Any], layout: Layout, part: str, where: str) -> str | None:
    key = _key(raw, layout.question.get(part, ()))
    if key is None or raw[key] is None:
        return None
    return text_of_number(raw[key], key, where)


def _target(raw: Mapping[str, Any], layout: Layout, where: str) -> str | None:
    return _optional(raw, layout, "target", where)


def _text(value: Any, name: str | None, where: str) -> str:
    if not isinstance(value, str):
        raise RecordError(f"{where}: {name!r} must be text, it is {_kind(value)}")
    return _whole(value, name, where)


def _whole(text: str, name: str | None, where: str) -> str:
    """Refuse what no file can hold as UTF-8: half of a character, which JSON can write as an escape."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise RecordError(f"{where}: {name!r} holds a broken character ({error})") from error
    return text


def _kind(value: Any) -> str:
    names = {list: "a list", dict: "an object", str: "text", bool: "true or false", type(None): "null"}
    return names.get(
        type(value), "a number" if isinstance(value, (int, float, Decimal)) else type(value).__name__
    )
