"""Splitting a user-item graph: users whole, neighbours kept, profile sizes spread, the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ropg.graph.__main__ import main
from ropg.graph.review_files import read_reviews
from ropg.graph.split import GraphSplit, assign_splits, repair, split_graph
from ropg.graph.split_report import split_report
from ropg.graph.targets import draw_targets
from ropg.sources.normalised import RecordError

HALVES = (0.5, 0.25, 0.25)


def edges(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([user for user, _ in pairs]), np.array([item for _, item in pairs])


def popular(n_users: int, n_items: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A graph as of reviews: a few items have most users, most users have one review, nearly all connected."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.geometric(0.8, n_users), 30)
    users = np.repeat(np.arange(n_users), sizes)
    return users, np.minimum((rng.pareto(0.9, len(users)) * 3).astype(int), n_items - 1)


graphs = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 7)), min_size=1, max_size=40).map(
    lambda pairs: edges(*[(u, i) for u, (_, i) in enumerate(pairs[:12])], *pairs[12:])
)  # every user has an edge, some several, some the same twice
fractions = st.sampled_from([HALVES, (0.8, 0.1, 0.1), (0.0, 0.5, 0.5), (1.0, 0.0, 0.0)])


@settings(max_examples=100, deadline=None)
@given(graph=graphs, shares=fractions, seed=st.integers(0, 5))
@example(  # user 0 also has an item of its own, which must not hold it where nobody else is
    graph=(np.array([*range(12), 0]), np.array([1, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0])),
    shares=HALVES,
    seed=0,
)
def test_every_target_keeps_a_neighbor(
    graph: tuple[np.ndarray, np.ndarray], shares: tuple[float, ...], seed: int
) -> None:
    """If this fails, some target has no neighbour document in its own split, or a user lost the target."""
    user, item = graph
    split = split_graph(user, item, shares, seed)
    people = {i: set(user[item == i].tolist()) for i in set(item.tolist())}
    for u in range(user.max() + 1):
        assert shares[split.splits[u]] > 0
        may = any(people[i] - {u} for i in item[user == u].tolist())
        target = int(split.targets[u])
        assert (target >= 0) == may
        if may:
            assert user[target] == u
            others = people[int(item[target])] - {u}
            assert any(split.splits[other] == split.splits[u] for other in others)
    assert split.untargeted == 0
    again = split_graph(user, item, shares, seed)
    np.testing.assert_array_equal(split.splits, again.splits)
    np.testing.assert_array_equal(split.targets, again.targets)


def test_targets_are_drawn_among_shared_items() -> None:
    """If this fails, targets are not random, or fall on items that nobody else reviewed."""
    user, item = edges((0, 0), (0, 1), (0, 2), (1, 1), (1, 1), (2, 2), (3, 9), (3, 9))
    drawn = {tuple(draw_targets(user, item, int(user.max()) + 1, seed).tolist()) for seed in range(60)}
    # user 0: item 1 or 2, not 0; user 1: either review of item 1; user 3 reviewed item 9 twice, alone
    assert drawn == {(a, b, 5, -1) for a in (1, 2) for b in (3, 4)}


def test_sizes_profiles_and_neighbors_on_a_connected_graph() -> None:
    """If this fails, one popular item pulls everybody into one split, or a split is unlike the whole."""
    user, item = popular(6000, 400)
    split = split_graph(user, item, (0.8, 0.1, 0.1), 3)
    report = split_report(user, item, split, (0.8, 0.1, 0.1), 3)
    assert all(report.checks.values()), report.text()
    assert [part.users for part in report.splits] == pytest.approx([4800, 600, 600], abs=3)
    assert report.neighbors_kept > 0.7  # users dealt out one by one keep 0.66: 0.8² + 0.1² + 0.1²
    rng = np.random.default_rng(0)
    alone = GraphSplit(rng.choice(3, 6000, p=[0.8, 0.1, 0.1]).astype(np.int8), split.targets, 0, 0, 0, 0)
    by_user = split_report(user, item, alone, (0.8, 0.1, 0.1), 3)
    assert report.cut_items < by_user.cut_items
    assert report.neighbors_kept > by_user.neighbors_kept
    assert not by_user.checks["every target's item has another user in its split"]


def test_small_components_stay_whole() -> None:
    """If this fails, users who share items are parted where nothing forces it."""
    pairs = [(3 * k + u, 2 * k + i) for k in range(400) for u, i in ((0, 0), (1, 0), (1, 1), (2, 1))]
    user, item = edges(*pairs)
    split = split_graph(user, item, HALVES, 0)
    assert all(len(set(split.splits[3 * k : 3 * k + 3].tolist())) == 1 for k in range(400))
    assert split_report(user, item, split, HALVES, 0).neighbors_kept == 1.0
    assert np.bincount(split.splits).tolist() == [600, 300, 300]


def test_an_item_of_everybody_is_cut() -> None:
    """If this fails, a graph around one item goes whole into train, and dev and test stay empty."""
    user, item = edges(*((u, 0) for u in range(1000)))
    split = split_graph(user, item, (0.8, 0.1, 0.1), 0)
    assert np.bincount(split.splits).tolist() == [800, 100, 100]
    assert (split.targets == np.arange(1000)).all()


def test_repair_by_hand() -> None:
    """If this fails, a target alone in its split is kept, or mended by hurting another."""
    # user 0 (split 0): target item 0, whose other user 1 is in split 1; item 1 has user 2 in split 0
    user, item = edges((0, 0), (0, 1), (1, 0), (2, 1), (3, 0))
    targets = np.array([0, 2, 3, 4])
    splits = np.array([0, 1, 0, 1], dtype=np.int8)
    mended = repair(user, item, targets, splits)
    assert (mended.targets.tolist(), mended.splits.tolist()) == ([1, 2, 3, 4], [0, 1, 0, 1])
    assert (mended.retargeted, mended.moved, mended.untargeted) == (1, 0, 0)
    assert (targets.tolist(), splits.tolist()) == ([0, 2, 3, 4], [0, 1, 0, 1])  # as they were given

    # user 0 alone in split 0; item 0 has one user in split 1 and two in split 2: the latter
    user, item = edges((0, 0), (1, 0), (2, 0), (3, 0), (1, 5), (4, 5))
    mended = repair(user, item, np.array([0, 4, 2, 3, 5]), np.array([0, 1, 2, 2, 1], dtype=np.int8))
    assert (mended.splits.tolist(), mended.targets.tolist()) == ([2, 1, 2, 2, 1], [0, 4, 2, 3, 5])
    assert (mended.retargeted, mended.moved, mended.untargeted) == (0, 1, 0)

    # a target whose item nobody else has
    mended = repair(*edges((0, 0), (1, 1)), np.array([0, -1]), np.array([0, 0], dtype=np.int8))
    assert (mended.targets.tolist(), mended.untargeted) == ([-1, -1], 1)


def test_seed_decides() -> None:
    """If this fails, a split cannot be made again, or every seed gives the same."""
    user, item = popular(500, 60)
    digests = [
        split_report(user, item, split_graph(user, item, HALVES, seed), HALVES, seed).digest
        for seed in (0, 0, 1)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_report_sees_what_is_wrong() -> None:
    """If this fails, the report proves properties that do not hold."""
    user, item = popular(300, 40)
    split = split_graph(user, item, HALVES, 0)
    assert all(split_report(user, item, split, HALVES, 0).checks.values())

    def failing(splits: np.ndarray, targets: np.ndarray) -> list[str]:
        wrong = GraphSplit(splits, targets, split.without_neighbor, 0, 0, 0)
        return [
            name for name, holds in split_report(user, item, wrong, HALVES, 0).checks.items() if not holds
        ]

    of_one = np.zeros(300, dtype=np.int8)
    assert [name.split(" ")[1] for name in failing(of_one, split.targets)] == ["sizes"]
    sizes = np.bincount(user)
    by_size = np.empty(300, dtype=np.int8)  # the smallest profiles into train, the largest into test
    by_size[np.argsort(sizes, kind="stable")] = np.repeat([0, 1, 2], [150, 75, 75])
    assert any("profile sizes" in name for name in failing(by_size, split.targets))
    stolen = split.targets.copy()
    stolen[0] = np.flatnonzero(user == 1)[0]
    assert "every target is a review of its user" in failing(split.splits, stolen)
    fewer = split.targets.copy()
    fewer[np.flatnonzero(fewer >= 0)[0]] = -1
    assert "every user with a neighbor is a target" in failing(split.splits, fewer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fractions": (0.5, 0.5)}, "three numbers"),
        ({"fractions": (0.5, 0.6, -0.1)}, "three numbers"),
        ({"fractions": (float("nan"), 0.5, 0.5)}, "three numbers"),
        ({"targets": np.array([0])}, "one edge for each of the 2 users"),
        ({"targets": np.array([1, 0])}, "an edge of its user"),
        ({"targets": np.array([0, 9])}, "an edge of its user"),
        ({"edge_user": np.array([0.0, 1.0])}, "whole numbers"),
        ({"edge_user": np.array([-1, 1])}, "whole numbers"),
        ({"edge_user": np.array([0])}, "one length"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    """If this fails, a wrong array or fraction gives a split that looks like one."""
    given: dict[str, Any] = {
        "edge_user": np.array([0, 1]),
        "edge_item": np.array([0, 0]),
        "targets": np.array([0, 1]),
        "fractions": HALVES,
    }
    with pytest.raises(ValueError, match=message):
        assign_splits(**(given | change))


def raw_rows(n: int = 240) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = [
        {
            "user": f"u{u}",
            "item": int(rng.integers(0, 6)),
            "text": f"text {u}",
            "title": f"title {u}",
            "rating": int(rng.integers(1, 6)),
        }
        for u in range(n)
    ]
    rows += [{**rows[k], "item": int(rng.integers(0, 6)), "text": f"more {k}"} for k in range(0, n, 9)]
    return [
        *rows,
        {"user": "hermit", "item": "cave", "text": "", "title": "Só ûma", "rating": 2, "date": "2020"},
    ]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_split_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails, the files are no released split files, lose a review, or are not what the report says."""
    source = write_jsonl(tmp_path / "raw.jsonl", raw_rows())
    arguments = ["split", str(source), "--seed", "4", "--fractions", "0.6", "0.2", "0.2"]
    assert main([*arguments, "--out", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr().out
    assert "holds: files: every target has a neighbor in its file" in printed
    report = json.loads((tmp_path / "a" / "report.json").read_text())
    assert all(report["checks"].values())
    assert (report["users"], report["reviews"], report["without_neighbor"]) == (241, len(raw_rows()), 1)
    assert [part["users"] for part in report["splits"]] == pytest.approx([144.6, 48.2, 48.2], abs=2.4)
    found = []
    for part in ("train", "dev", "test"):
        users = json.loads((tmp_path / "a" / f"reviews_{part}.json").read_text(encoding="utf-8"))
        for user in users:
            found += [(user["id"], r["pid"], r["text"], r["title"], r["rating"]) for r in user["profile"]]
            assert (user.get("target", True) is False) == (user["id"] == "hermit")
    expected = [(r["user"], str(r["item"]), r["text"], r["title"], r["rating"]) for r in raw_rows()]
    assert sorted(found) == sorted(expected)
    assert main([*arguments, "--out", str(tmp_path / "b")]) == 0
    for path in (tmp_path / "a").glob("reviews_*.json"):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert json.loads((tmp_path / "b" / "report.json").read_text())["digest"] == report["digest"]
    # what was written can be split again, and has the same users
    written = [str(path) for path in sorted((tmp_path / "a").glob("reviews_*.json"))]
    assert main(["split", *written, "--out", str(tmp_path / "c"), "--fractions", "0.5", "0.5", "0"]) == 0
    again = json.loads((tmp_path / "c" / "report.json").read_text())
    assert (again["users"], again["files"]) == (241, ["reviews_train.json", "reviews_dev.json"])


def test_files_are_kept_apart(tmp_path: Path) -> None:
    """If this fails, users of two shops who happen to have one id are taken for one person."""
    a = write_jsonl(tmp_path / "a.jsonl", raw_rows(3))
    b = tmp_path / "b.csv"
    b.write_text("who,asin,text,title,rating\nu1,cave,hi,,4\n", encoding="utf-8")
    table = read_reviews([b], {"user": "who", "item": "asin"})
    assert (table.users, table.items, table.targets) == (["u1"], ["cave"], None)
    assert table.reviews == [{"text": "hi", "title": "", "rating": "4", "date": None, "extra": None}]
    b.write_text("user,item,text,title,rating\nu1,cave,hi,,4\n", encoding="utf-8")
    both = read_reviews([a, b])
    assert {"a/u1", "b/u1"} <= set(both.users)
    assert {"a/cave", "b/cave"} <= set(both.items)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"item": "i", "text": "t"}], r"raw.jsonl, record 1: the field 'user' is missing.*--fields"),
        ([{"user": "u", "item": "i", "text": 5, "title": "t", "rating": 1}], "'text' must be text"),
        ([{"user": "u", "item": ["i"], "text": "t", "title": "t", "rating": 1}], "must be a string or a number"),
        ([[1]], "record 1: an object"),
        ([{"id": "u", "profile": []}], "must be a list of reviews"),
        ([{"id": "u", "profile": [{"pid": 1, "rating": 1, "title": "t"}]}], "user 'u', review 1: missing or null: text"),
    ],
)  # fmt: skip
def test_bad_records_are_named(rows: list[Any], message: str, tmp_path: Path) -> None:
    """If this fails, a bad review is dropped silently, or nobody can find it."""
    with pytest.raises(RecordError, match=message):
        read_reviews([write_jsonl(tmp_path / "raw.jsonl", rows)])


def test_reviews_without_rating_are_split(tmp_path: Path) -> None:
    """If this fails, a table that only has texts ends in files that cannot be read."""
    rows = [{"user": f"u{i}", "item": f"i{i % 2}", "text": f"text {i}"} for i in range(8)]
    source = str(write_jsonl(tmp_path / "raw.jsonl", rows))
    assert main(["split", source, "--out", str(tmp_path), "--fractions", "0.5", "0.25", "0.25"]) == 0
    written = [read_reviews([path]) for path in sorted(tmp_path.glob("reviews_*.json"))]
    found = [review for table in written for review in table.reviews]
    assert sorted(review["text"] or "" for review in found) == [row["text"] for row in rows]
    assert {review["rating"] for review in found} == {None}


def test_a_split_leaves_no_file_of_an_earlier_one(tmp_path: Path) -> None:
    """If this fails, users who are now trained on are still in yesterday's test file beside it."""
    source = str(write_jsonl(tmp_path / "raw.jsonl", raw_rows()))
    out = tmp_path / "out"
    assert main(["split", source, "--out", str(out), "--fractions", "0.5", "0.25", "0.25"]) == 0
    (out / "notes_test.json").write_text("mine")
    assert main(["split", source, "--out", str(out), "--fractions", "0.5", "0.5", "0"]) == 0
    left = ["notes_test.json", "report.json", "reviews_dev.json", "reviews_train.json"]
    assert sorted(path.name for path in out.iterdir()) == left


def test_further_fields_stay_in_a_split(tmp_path: Path) -> None:
    """If this fails, splitting a released file loses what its reviews hold beside rating, title and text."""
    review = {"rating": 3, "title": "t", "text": "x", "pid": "i", "helpful": {"yes": 2}, "date": "2020-01-01"}
    users = [{"id": f"u{i}", "profile": [review]} for i in range(4)]
    source = tmp_path / "in.json"
    source.write_text(json.dumps(users), encoding="utf-8")
    assert main(["split", str(source), "--out", str(tmp_path), "--fractions", "0.5", "0.5", "0"]) == 0
    for part in ("train", "dev"):
        for user in json.loads((tmp_path / f"reviews_{part}.json").read_text(encoding="utf-8")):
            assert user["profile"] == [review]


def test_command_line_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails, a mistake on the command line ends in a traceback."""
    source = str(write_jsonl(tmp_path / "raw.jsonl", raw_rows(9)))
    for arguments, message in (
        (["stats", str(tmp_path / "none.json")], "no such file"),
        (["stats", source, "--fields", "item"], "write OURS=THEIRS"),
        (["stats", source, "--fields", "star=x"], "unknown name 'star'. Known: date, item"),
        (["split", source, "--out", str(tmp_path), "--fractions", "1", "1", "1"], "that add up to 1"),
        (["split", source, "--out", source], "that is a file; name a folder"),
        (["split", source, "--out", str(tmp_path), "--name", "../x"], "--name '../x'"),
        (["split", source, "--out", str(tmp_path), "--seed", "-1"], "--seed -1"),
        (["split", "a/x_dev.json", "--out", "a", "--name", "x"], "would be replaced by its own split"),
    ):
        assert main(arguments) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "report.json").exists()
