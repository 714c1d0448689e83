"""Statistics of review files as text and JSON: the PGraphRAG paper's tables 1, 2 and 7."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ropg.graph.review_files import read_reviews
from ropg.graph.split_report import grid
from ropg.graph.statistics import RATINGS, FileStatistics, file_statistics
from ropg.graph.targets import draw_targets

OTHER, NONE = "other", "none"
_KINDS = {"text": "long text", "title": "short text", "rating": "rating"}


def statistics_of_file(path: str | Path, fields: Mapping[str, str] | None = None) -> FileStatistics:
    """Statistics of a released split file, or of a raw table, whose targets are drawn with seed 0."""
    table = read_reviews([path], fields)
    targets = table.targets
    if targets is None:
        targets = draw_targets(table.edge_user, table.edge_item, len(table.users))
    reviews = [table.reviews[edge] for edge in targets[targets >= 0].tolist()]
    return file_statistics(
        Path(path).stem,
        table.edge_user,
        table.edge_item,
        targets,
        *([review[part] or "" for review in reviews] for part in ("title", "text", "rating")),
    )


def _shares(found: Mapping[str, float], ratings: Sequence[str]) -> list[float]:
    """Of each column: a table of half stars or of a scale to 100 has too many ratings for a column each."""
    other = sum(share for rating, share in found.items() if rating not in {*RATINGS, ""})
    rest = {OTHER: other, NONE: found.get("", 0.0)}
    return [rest[rating] if rating in rest else found.get(rating, 0.0) for rating in ratings]


def statistics_json(files: Sequence[FileStatistics]) -> str:
    """A JSON list, one object a file."""
    return json.dumps([dataclasses.asdict(file) for file in files], indent=2, allow_nan=False)


def statistics_text(files: Sequence[FileStatistics]) -> str:
    """The tables, one row a file."""
    found = {rating for file in files for rating in file.ratings}
    ratings = [*RATINGS, *([OTHER] if found - {*RATINGS, ""} else []), *([NONE] if "" in found else [])]
    graph = [["", "users", "items", "reviews", "average degree", "reviews per user", "with one review"]]
    around = [["", "targets", "own history", "neighbors: median", "mean", "min", "words (median)", "empty",
               f"ratings {' '.join(ratings)}, %"]]  # fmt: skip
    lengths = [["", "task", "input words", "output words", "profile size"]]
    items = [["", *(f"n = {row.reviews}" for row in files[0].reviews_per_item)]]
    for file in files:
        of, to = file.graph, file.targets
        graph.append(
            [
                file.name,
                f"{of.users:,}",
                f"{of.items:,}",
                f"{of.reviews:,}",
                f"{of.average_degree:.2f}",
                str(of.profile_size),
                f"{of.users_with_one_review:.1%}",
            ]
        )
        around.append(
            [
                file.name,
                f"{to.targets:,}",
                f"{to.with_own_history:.1%}",
                f"{to.neighbors_median:g}",
                f"{to.neighbors_mean:.1f}",
                str(to.neighbors_min),
                f"{file.target_words_median:g}",
                str(file.empty_targets),
                " ".join(f"{100 * share:.0f}" for share in _shares(file.ratings, ratings)),
            ]
        )
        for kind, name in _KINDS.items():
            length = file.lengths[kind]
            output = "-" if length.output is None else str(length.output)
            lengths.append([file.name, name, str(length.input), output, str(of.profile_size)])
        items.append(
            [
                file.name,
                *(
                    f"{r.exact:,} ({r.exact_share:.2%}), {r.cumulative_share:.2%}"
                    for r in file.reviews_per_item
                ),
            ]
        )
    sections = {
        "Graph (the paper's Table 2)": graph,
        "Targets": around,
        "Tasks (Table 1; outputs are the gold ones)": lengths,
        "Items by number of reviews: exactly, and at most so many (Table 7)": items,
    }
    return "\n\n".join("\n".join([title, *grid(rows)]) for title, rows in sections.items())
