"""Review files as one table of arrays, and writing released split files.

A released file is a list of ``{"id": user, "profile": [{"rating", "title", "text", "pid"}]}``, the first
review of each user being the target; a user who is no target has ``"target": false``. A raw table, JSON
lines, a JSON list, CSV or TSV, holds one review a record: ``user, item, text, title, rating`` and maybe
``date``. Ids are text whatever a file holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ropg.files import write_text
from ropg.graph.reading import read_graph
from ropg.graph.reading_report import ReadGraph


@dataclass
class ReviewTable:
    """Reviews and who wrote them of what.

    users, items: names; edge_user, edge_item: (E,) places in them. reviews: per edge the text, title,
    rating, date, and further fields as JSON (or None). targets: (U,) edges, -1 for a user
    who is no target; None where a file names none
    """

    users: list[str]
    items: list[str]
    edge_user: np.ndarray
    edge_item: np.ndarray
    reviews: list[dict[str, str | None]]
    targets: np.ndarray | None


def read_reviews(paths: Sequence[str | Path], fields: Mapping[str, str] | None = None) -> ReviewTable:
    """Read review files, each whatever :func:`ropg.graph.reading.read_graph` reads, into one table.

    Several files are kept apart: users and items are named ``<file>/<id>``, after the file's stem.
    ``fields``: our name -> the name in raw files, such as ``{"item": "asin"}``. ``targets`` is None where a
    file names none.

    Raises FileNotFoundError, MalformedFile, or RecordError with file, record and remedy; ValueError for files
    of one name.
    """
    files = [Path(path).expanduser() for path in paths]
    stems = [file.stem for file in files]
    if len(set(stems)) < len(stems):
        raise ValueError(
            f"files of the same name ({', '.join(sorted(stems))}): rename one, they name its users"
        )
    table = ReviewTable([], [], np.zeros(0, np.int64), np.zeros(0, np.int64), [], np.zeros(0, np.int64))
    for file in files:
        read = read_graph(file, fields)
        _append(table, read, f"{file.stem}/" if len(files) > 1 else "")
    return table


def _append(table: ReviewTable, read: ReadGraph, prefix: str) -> None:
    graph, edges = read.graph, len(table.reviews)
    table.edge_user = np.concatenate([table.edge_user, graph.edge_user + np.int64(len(table.users))])
    table.edge_item = np.concatenate([table.edge_item, graph.edge_item + np.int64(len(table.items))])
    if table.targets is not None:
        targets = read.targets
        moved = None if targets is None else np.where(targets < 0, -1, targets + edges)
        table.targets = None if moved is None else np.concatenate([table.targets, moved])
    table.users += [prefix + graph.user_name(user) for user in range(graph.n_users)]
    table.items += [prefix + graph.item_name(item) for item in range(graph.n_items)]
    for edge in range(graph.n_edges):
        document = graph.document(edge)
        table.reviews.append(
            {
                "text": document.text,
                "title": document.title,
                "rating": document.score,
                "date": document.date,
                "extra": json.dumps(dict(document.fields), ensure_ascii=False) if document.fields else None,
            }
        )


def write_released(path: str | Path, table: ReviewTable, users: Sequence[int], targets: np.ndarray) -> None:
    """Write some users as a released split file, each one's target first; in the order given.

    targets: (U,) edges, -1 for a user who is none: its entry gets ``"target": false``.
    """
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
    date = {"date": review["date"]} if review["date"] is not None else {}
    return {**json.loads(review["extra"] or "{}"), **entry, **date}
