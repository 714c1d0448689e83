"""Rows of a CSV or TSV file as records: a profile in one cell, or one row per document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from ropg.sources.normalised import Layout, RecordError

#: What the names of a document's columns begin with: "profile.text".
PROFILE = "profile."


def from_cells(
    cells: Iterable[dict[str, str]], layout: Layout, names: Mapping[str, str], path: Path
) -> Iterator[dict[str, Any]]:
    """Turn rows of cells, in either form, into records. An empty cell is an absent value.

    ``names`` is the user's field map. Rows with the same id are one record where each row holds a document.
    """
    profile = layout.question["profile"][0]
    rows = iter(cells)
    first = next(rows, None)
    if first is None:
        return
    if profile in first:
        for number, row in enumerate(chain([first], rows), start=1):
            yield {**_filled(row, layout), profile: _parse_profile(row[profile], path, number)}
        return
    columns = _document_columns(first, layout, names, path)
    yield from _group(chain([first], rows), columns, layout, path)


def _filled(row: Mapping[str, str], layout: Layout) -> dict[str, str]:
    kept = (layout.question["input"][0], layout.question["target"][0])
    return {name: cell for name, cell in row.items() if cell or name in kept}


def _parse_profile(cell: str, path: Path, number: int) -> Any:
    try:
        return json.loads(cell) if cell.strip() else []
    except ValueError as error:
        raise RecordError(f"{path}, record {number}: the profile's cell is no JSON list: {error}") from error


def _document_columns(
    row: Mapping[str, str], layout: Layout, names: Mapping[str, str], path: Path
) -> dict[str, str]:
    """Column -> key of a document: the mapped column, or ``profile.`` and the part's name."""
    columns = {}
    for part, (key,) in layout.document.items():
        column = names.get(PROFILE + part, PROFILE + part)
        if column in row:
            columns[column] = key
    if layout.document["text"][0] not in columns.values():
        raise RecordError(
            f"{path}: no column holds the profile; columns: {', '.join(row)}. Remedy: name a column of JSON "
            "lists 'profile', or the documents' columns 'profile.text', 'profile.title', ..., or map them "
            "by fields"
        )
    return columns


def _group(
    rows: Iterable[dict[str, str]], columns: dict[str, str], layout: Layout, path: Path
) -> Iterator[dict[str, Any]]:
    profile, record_id = layout.question["profile"][0], layout.question["id"][0]
    records: dict[str, dict[str, Any]] = {}
    heads: dict[str, dict[str, str]] = {}
    for number, row in enumerate(rows, start=1):
        head = _filled({name: cell for name, cell in row.items() if name not in columns}, layout)
        key = row.get(record_id, "")
        if not key:
            raise RecordError(f"{path}, record {number}: the cell of {record_id!r} is empty or missing")
        if heads.setdefault(key, head) != head:
            raise RecordError(
                f"{path}, record {key!r}: its rows differ outside of the document columns. "
                "Remedy: repeat the example's own cells in every row, or give the rows other ids"
            )
        record = records.setdefault(key, {**head, profile: []})
        document = {columns[name]: row[name] for name in columns if row[name]}
        if document:
            record[profile].append(document)
    yield from records.values()
