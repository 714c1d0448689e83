"""Statistics of a user-item graph, by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ropg.graph.__main__ import main
from ropg.graph.statistics import (
    FileStatistics,
    file_statistics,
    graph_statistics,
    reviews_per_item,
    target_statistics,
)
from ropg.graph.statistics_text import statistics_of_file


def review(pid: object, title: str, text: str, rating: int) -> dict[str, object]:
    return {"pid": pid, "title": title, "text": text, "rating": rating}


# ann: pan (twice), pot; bob: pan; cleo: pan, lid; dora: lid
FILE = [
    {"id": "ann", "profile": [review(7, "Nice", "Fries well", 5), review(7, "Again", "Good", 5), review(8, "x", "y", 1)]},
    {"id": "bob", "profile": [review("7", "Too heavy", "My arm hurts a lot", 2)]},
    {"id": "cleo", "profile": [review("9", "Fits", "", 4), review("7", "So so", "It is a pan", 3)]},
    {"id": "dora", "profile": [review("9", "Hm", "Round", 4)]},
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "kitchen_dev.json"
    file.write_text(json.dumps(FILE), encoding="utf-8")
    return file


@pytest.fixture
def found(path: Path) -> FileStatistics:
    return statistics_of_file(path)


def test_graph(found: FileStatistics) -> None:
    """If this fails, Table 2 is wrong; 7 and "7" are one item."""
    graph = found.graph
    assert (graph.users, graph.items, graph.reviews) == (4, 3, 7)
    assert graph.average_degree == 2 * 7 / (4 + 3)
    assert graph.users_with_one_review == 0.5
    assert graph.profile_size.mean == 7 / 4
    assert graph.profile_size.sd == pytest.approx((((3 - 1.75) ** 2 + 2 * 0.75**2 + 0.25**2) / 4) ** 0.5)


def test_the_papers_average_degrees() -> None:
    """If this fails, the average degree is another than in Table 2, whose counts these are."""
    for users, items, reviews, degree in ((184_771, 51_376, 198_668, 1.68), (15_587, 2_975, 19_698, 2.12)):
        user = np.concatenate([np.arange(users), np.zeros(reviews - users, dtype=int)])
        item = np.concatenate([np.arange(items), np.zeros(reviews - items, dtype=int)])
        assert round(graph_statistics(user, item).average_degree, 2) == degree


def test_targets(found: FileStatistics) -> None:
    """If this fails, a second review of the target's item counts as history, or one's own as a neighbour's."""
    targets = found.targets
    assert targets.targets == 4
    assert targets.with_own_history == 2 / 4  # ann: the pot; cleo: the pan
    # ann: bob and cleo; bob: ann twice and cleo; cleo: dora; dora: cleo
    assert (targets.neighbors_median, targets.neighbors_mean, targets.neighbors_min) == (1.5, 7 / 4, 1)
    assert targets.without_neighbor == 0
    assert found.target_words_median == 1.5  # 2, 5, 0, 1
    assert found.empty_targets == 1
    assert found.ratings == {"1": 0.0, "2": 0.25, "3": 0.0, "4": 0.5, "5": 0.25}
    user, item = np.array([0, 1, 1]), np.array([0, 1, 0])
    assert target_statistics(user, item, np.array([-1, 1])).without_neighbor == 1
    assert target_statistics(user, item, np.array([-1, -1])).targets == 0


def test_lengths(found: FileStatistics) -> None:
    """If this fails, Table 1 gives the length of another part than the task reads or writes."""
    text, title, rating = (found.lengths[kind] for kind in ("text", "title", "rating"))
    assert text.output is not None
    assert (text.input.mean, text.output.mean) == (5 / 4, 8 / 4)
    assert (title.input, title.output) == (text.output, text.input)
    assert (rating.input.mean, rating.output) == (13 / 4, None)


def test_reviews_per_item(found: FileStatistics) -> None:
    """If this fails, Table 7 is wrong: one item of one review, one of two, one of four."""
    rows = [(r.exact, r.cumulative) for r in found.reviews_per_item]
    assert rows == [(1, 1), (1, 2), (0, 2), (1, 3), (0, 3)]
    assert found.reviews_per_item[1].cumulative_share == 2 / 3
    assert reviews_per_item(np.array([5, 5, 9]))[0].exact == 1  # numbers without an edge are no items


def test_nothing_gives_zeros() -> None:
    """If this fails, an empty table ends in a division by zero or in NaN."""
    none = np.array([], dtype=np.int64)
    assert graph_statistics(none, none).average_degree == 0.0
    assert file_statistics("none", none, none, none, [], [], []).target_words_median == 0.0


def test_stats_command(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails, the command prints other numbers than the functions give."""
    raw = tmp_path / "raw.jsonl"
    rows = [
        {"user": user["id"], "item": r["pid"], **{key: r[key] for key in ("title", "text", "rating")}}
        for user in FILE
        for r in user["profile"]  # type: ignore[attr-defined]
    ]
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["stats", str(path), str(raw), "--json"]) == 0
    released, drawn = json.loads(capsys.readouterr().out)
    assert released["graph"] == drawn["graph"]
    assert drawn["targets"]["targets"] == 4  # ann's pot has no other user: one of the two others is drawn
    assert drawn["targets"]["neighbors_min"] == 1
    assert main(["stats", str(path)]) == 0
    printed = capsys.readouterr().out
    line = next(
        line.split() for line in printed.splitlines() if line.startswith("kitchen_dev") and "%" in line
    )
    assert line == ["kitchen_dev", "4", "3", "7", "2.00", "1.75±0.83", "50.0%"]


def test_unusual_ratings_have_a_column_that_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If this fails, reviews without a rating stand under no heading, or a scale to 100 fills the screen."""
    ratings = (5, 4.5, 73, None, None)
    rows = [{"user": f"u{i}", "item": "i", "text": "t", "rating": r} for i, r in enumerate(ratings)]
    file = tmp_path / "raw.json"
    file.write_text(json.dumps(rows), encoding="utf-8")
    assert main(["stats", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "ratings 1 2 3 4 5 other none, %" in printed
    assert "0 0 0 0 20 40 40\n" in printed


def test_help_is_quick() -> None:
    """If this fails, --help imports what only the work needs."""
    code = (
        "import sys; from ropg.graph.__main__ import parser; parser().format_help(); "
        "sys.exit(bool({'torch', 'transformers', 'datasets', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
