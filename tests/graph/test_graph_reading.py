"""Graphs from files and tables, and what is said about records that are no reviews."""

import csv
import datetime
import json

import pyarrow as pa
import pytest

from ropg.graph import (
    InteractionGraph,
    Review,
    choose_targets,
    from_saved,
    from_split_file,
    from_table,
    has_neighbor,
    read_graph,
)
from ropg.graph.cache import cached_graph
from ropg.sources import load_examples
from ropg.sources.normalised import RecordError

SPLIT = [
    {
        "id": "ann",
        "profile": [
            {"rating": 5, "title": "Lovely", "text": "Fries well", "pid": 7},
            {"rating": 4, "title": "Nice", "text": "Boils", "pid": "8", "verified": True},
        ],
    },
    {"id": 4, "profile": [{"rating": 2.5, "title": "No", "text": "Heavy", "pid": "7", "date": "2020-01-01"}]},
]
ROWS = [
    {"user": "ann", "item": "7", "text": "Fries well", "title": "Lovely", "rating": 5, "date": "2020-01-02"},
    {"user": 4, "item": 7, "text": "Heavy", "title": None, "rating": None, "date": None},
    {
        "user": "bob",
        "item": "8",
        "text": 'Boils, "well"\nand fast',
        "title": "Nice",
        "rating": 4.5,
        "date": None,
    },
]
GRAPH = InteractionGraph.from_reviews(
    [
        Review("ann", "7", "Fries well", "Lovely", 5.0, "2020-01-02"),
        Review("4", "7", "Heavy"),
        Review("bob", "8", 'Boils, "well"\nand fast', "Nice", 4.5),
    ]
)


def _write(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def test_split_file(tmp_path):
    graph, targets, report = from_split_file(_write(tmp_path / "x.json", SPLIT))
    assert [graph.document(edge).id for edge in range(3)] == ["ann#0", "ann#1", "4#0"]
    assert graph.item_edges(graph.item_number("7")).tolist() == [0, 2]
    assert graph.document(1).fields == {"verified": True}
    assert (graph.document(2).score, graph.document(2).date) == ("2.5", "2020-01-01")
    assert targets.tolist() == [0, 2]
    assert report.mixed == ["item", "user"]
    assert "ids of items: 1 numbers and 2 texts, joined as text" in "\n".join(report.lines())


def test_users_that_stand_twice_are_joined_and_named(tmp_path):
    again = {"id": "ann", "profile": [{"rating": 1, "title": "t", "text": "x", "pid": "9"}]}
    graph, targets, report = from_split_file(_write(tmp_path / "x.json", [*SPLIT, again]))
    assert report.repeated_users == ["ann"]
    assert (graph.n_users, targets.tolist()) == (2, [0, 2])
    assert graph.document(3).id == "ann#2"


def test_users_without_target_stay_in_the_graph(tmp_path):
    """If this fails, a user whose items nobody else reviewed is asked for a review without neighbours."""
    hermit = {"id": "hermit", "target": False, "profile": [dict(SPLIT[0]["profile"][0], pid="cave")]}
    path = _write(tmp_path / "x.json", [hermit, *SPLIT])
    graph, targets, _ = from_split_file(path)
    assert [graph.user_name(u) for u, edge in enumerate(targets.tolist()) if edge < 0] == ["hermit"]
    assert (graph.n_users, graph.n_edges) == (3, 4)
    graph.save(tmp_path / "saved")
    assert from_saved(tmp_path / "saved").targets.tolist() == targets.tolist()
    examples = load_examples("pgraphrag", path=path, task="title")
    assert [example.user for example in examples] == ["ann", "4"]


def test_broken_reviews_are_errors_or_counted(tmp_path):
    users = json.loads(json.dumps(SPLIT))
    users[0]["profile"][1]["rating"] = "five stars"
    users.append(
        {"id": "bob", "profile": [{"rating": 1, "text": "no title", "pid": 1}, users[0]["profile"][0]]}
    )
    users.append({"profile": []})
    path = _write(tmp_path / "x.json", users)
    with pytest.raises(
        RecordError, match=r"x\.json, user 'ann', review 2: 'rating' is no number: 'five stars'"
    ):
        from_split_file(path)
    graph, targets, report = from_split_file(path, bad_records="skip")
    assert (graph.n_edges, graph.n_users, targets.tolist()) == (
        2,
        2,
        [0, 1],
    )  # bob's target is broken: no bob
    assert (report.records, report.reviews, report.skipped) == (4, 2, 3)
    assert "missing or null: title" in report.skipped_records[1]


def _csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def _datasets_table(rows):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_list(
        [{**row, "user": str(row["user"]), "item": str(row["item"])} for row in rows]
    )


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "mappings", "arrow", "datasets"])
def test_all_kinds_of_tables_give_one_graph(tmp_path, kind):
    if kind == "csv":
        read = read_graph(_csv(tmp_path / "x.csv", ROWS))
    elif kind == "jsonl":
        read = read_graph(_write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, ROWS))))
    elif kind == "json":
        read = read_graph(_write(tmp_path / "x.json", ROWS))
    elif kind == "mappings":
        read = from_table(iter(ROWS))
    elif kind == "arrow":
        read = from_table(
            pa.Table.from_pylist([{**r, "user": str(r["user"]), "item": str(r["item"])} for r in ROWS])
        )
    else:
        read = from_table(_datasets_table(ROWS))
    assert read.graph.fingerprint == GRAPH.fingerprint
    assert read.targets is None
    assert (read.report.records, read.report.reviews) == (3, 3)


def test_fields_are_mapped(tmp_path):
    rows = [{"who": "a", "sku": 1, "body": "Good", "stars": 3, "when": datetime.date(2020, 1, 2), "more": []}]
    fields = {"user": "who", "item": "sku", "text": "body", "rating": "stars", "date": "when"}
    document = from_table(rows, fields).graph.document(0)
    assert (document.author, document.item, document.text, document.score) == ("a", "1", "Good", "3")
    assert (document.date, document.title) == ("2020-01-02", "")
    with pytest.raises(ValueError, match="unknown name 'txt'; did you mean 'text'"):
        from_table(rows, {"txt": "body"})
    with pytest.raises(
        RecordError, match=r"table, row 1: the field 'user' is missing; found: 'who'.*fields\.user=NAME"
    ):
        from_table(rows)
    with pytest.raises(ValueError, match=r"several tables \(train, test\)"):
        from_table({"train": rows, "test": rows})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": None}, "row 2: the user is missing"),
        ({"item": ""}, "row 2: the item is missing"),
        ({"item": []}, "row 2: 'item' must be a string or a number"),
        ({"text": None}, "row 2: 'text' must be text"),
        ({"title": 5}, "row 2: 'title' must be text"),
        ({"rating": "good"}, "row 2: 'rating' is no number"),
        ({"rating": float("nan")}, "row 2: 'rating' is no number: nan"),
        ({"rating": "inf"}, "row 2: 'rating' is inf"),
        ({"text": "half \ud83d"}, "row 2: 'text' holds a broken character"),
    ],
)
def test_bad_rows_are_named_or_counted(change, message):
    rows = [ROWS[0], {**ROWS[1], **change}, ROWS[2]]
    with pytest.raises(RecordError, match=message):
        from_table(rows)
    read = from_table(rows, bad_records="skip")
    assert (read.graph.n_edges, read.report.skipped) == (2, 1)
    assert message.split(":")[0] in read.report.lines()[-1]


def test_a_table_without_any_review_is_an_error(tmp_path):
    with pytest.raises(
        RecordError, match=r"none of 1 records holds a review: table, row 1: the field 'user'"
    ):
        from_table([{"a": 1}], bad_records="skip")
    with pytest.raises(RecordError, match="none of 0 records"):
        from_split_file(_write(tmp_path / "x.json", []))
    with pytest.raises(FileNotFoundError, match=r"no such file: .*no\.csv"):
        read_graph(tmp_path / "no.csv")


def test_a_saved_graph_keeps_targets_and_report(tmp_path):
    read = from_split_file(_write(tmp_path / "x.json", SPLIT))
    saved = read_graph(read.graph.save(tmp_path / "graph"))
    assert saved.targets.tolist() == [0, 2]
    assert saved.report == read.report
    table = from_table(ROWS).graph.save(tmp_path / "table")
    assert from_saved(table).targets is None


def test_a_table_is_read_once(tmp_path, monkeypatch):
    path = _csv(tmp_path / "x.csv", ROWS)
    first = cached_graph(path, cache_dir=str(tmp_path / "cache"))
    monkeypatch.setattr("ropg.graph.reading.read_records", None)
    again = cached_graph(path, cache_dir=str(tmp_path / "cache"))
    assert again.graph.fingerprint == first.graph.fingerprint == GRAPH.fingerprint
    assert again.report == first.report
    monkeypatch.undo()
    _csv(path, ROWS[:2])
    assert cached_graph(path, cache_dir=str(tmp_path / "cache")).graph.n_edges == 2
    assert len(list((tmp_path / "cache").iterdir())) == 1
    next((tmp_path / "cache").glob("*/edge_user-*")).write_bytes(b"")
    assert cached_graph(path, cache_dir=str(tmp_path / "cache")).graph.n_edges == 2


#: ann: x (bob too), y (alone); bob: x; cleo: z alone, twice; dan: w and x.
TARGETS = [
    Review("ann", "y", "1"),
    Review("ann", "x", "2"),
    Review("bob", "x", "3"),
    Review("cleo", "z", "4"),
    Review("cleo", "z", "5"),
    Review("dan", "w", "6"),
    Review("dan", "x", "7"),
]


def test_targets_have_neighbours():
    graph = InteractionGraph.from_reviews(TARGETS)
    assert has_neighbor(graph).tolist() == [False, True, True, False, False, False, True]
    assert choose_targets(graph).tolist() == [1, 2, -1, 6]
    only_dan = graph.user_degrees == 2
    only_dan[0] = only_dan[2] = False
    assert has_neighbor(graph, only_dan).tolist() == [False, True, True, False, False, False, False]
    assert choose_targets(graph, serves=only_dan).tolist() == [1, 2, -1, -1]


def test_targets_are_drawn_by_the_seed_and_stay_when_users_are_added():
    reviews = [Review(f"u{n}", f"i{k}", f"{n} {k}") for n in range(40) for k in range(5)]
    graph = InteractionGraph.from_reviews(reviews)
    targets = choose_targets(graph, seed=3)
    assert (
        targets.tolist() == choose_targets(graph, seed=3).tolist() != choose_targets(graph, seed=4).tolist()
    )
    assert (graph.edge_user[targets] == range(40)).all()
    assert len(set(graph.edge_item[targets].tolist())) == 5
    more = choose_targets(graph.add([Review("new", "i0", "x")]), seed=3)
    assert more[:40].tolist() == targets.tolist()


def test_a_header_that_names_a_column_twice(tmp_path):
    """If this fails, the last of two columns "user" decides, silently, whose reviews are whose."""
    path = tmp_path / "reviews.csv"
    path.write_text("user,user,item,text\na,b,1,x\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"reviews\.csv, line 1: the header names 'user' twice"):
        read_graph(path)
