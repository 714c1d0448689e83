"""The pgraphrag source's options, and its tables of reviews; what it does by default is tested beside it."""

import json
import re
import sys
import types

import numpy as np
import pytest

from ropg.build import source_options
from ropg.configuration import DataConfig
from ropg.graph import InteractionGraph, Review
from ropg.sources import load_examples

REVIEWS = [
    ("ann", "pan", "Fries well", "Lovely"),
    ("ann", "lid", "Fits", "A lid"),
    ("bob", "pan", "fries  WELL!", "Same words"),
    ("bob", "wok", "Burns", "Bad"),
    ("cleo", "pan", "Heavy", "LOVELY"),
    ("dan", "lid", "Too small", "No"),
    ("eve", "jar", "Nice jar", "A jar"),
]


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "kitchen.jsonl"
    rows = [dict(zip(("user", "item", "text", "title"), review, strict=True), rating=5) for review in REVIEWS]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


@pytest.fixture
def split_file(tmp_path):
    users: dict[str, list] = {}
    for user, item, text, title in REVIEWS:
        users.setdefault(user, []).append({"pid": item, "text": text, "title": title, "rating": 5})
    file = tmp_path / "kitchen_dev.json"
    file.write_text(json.dumps([{"id": user, "profile": profile} for user, profile in users.items()]))
    return file


def _load(path, **options):
    return load_examples("pgraphrag", path=path, **{"task": "title", **options})


def _ids(examples, user="ann"):
    example = next(example for example in examples if example.id == user)
    return [document.id for document in example.profile]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, ["ann#1", "bob#0", "cleo#0"]),
        ({"mode": "own"}, ["ann#1"]),
        ({"mode": "neighbors"}, ["bob#0", "cleo#0"]),
        ({"neighbor_scope": "all_items"}, ["ann#1", "bob#0", "cleo#0", "dan#0"]),
        ({"hops": 2}, ["ann#1", "bob#0", "bob#1", "cleo#0"]),
        ({"leak_filter": "text"}, ["ann#1", "cleo#0"]),
        ({"max_user_degree": 1}, ["ann#1", "cleo#0"]),
        ({"max_documents": 2, "leak_filter": ["text", "title"]}, ["ann#1"]),
    ],
)
def test_options_reach_the_graph(split_file, options, ids):
    assert _ids(_load(split_file, **options)) == ids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "nieghbors"}, "did you mean 'neighbors'"),
        ({"split_by": "item"}, "did you mean 'items'"),
        ({"bad_records": "skipp"}, "did you mean 'skip'"),
        ({"leak_filter": True}, "leak_filter=True: text, title"),
        ({"leak_filter": "txt"}, "did you mean 'text'"),
        ({"hops": True}, "hops=True"),
        ({"hops": "2"}, "hops='2'"),
        ({"bound": "8"}, "bound='8': a whole number"),
        ({"bound": 2.5}, "bound=2.5: a whole number"),
        ({"max_user_degree": "20"}, "max_user_degree='20': a whole number"),
        ({"fractions": "abc", "split": "dev"}, "fractions='abc': three numbers"),
        ({"fractions": [0.5, 0.6, 0.2]}, "that add up to 1"),
        ({"mod": "own"}, "did you mean 'mode'"),
    ],
)
@pytest.mark.parametrize("kind", ["table", "split_file"])
def test_wrong_values_of_options_are_named(kind, options, message, request):
    with pytest.raises(ValueError, match=re.escape(message)):
        _load(request.getfixturevalue(kind), **options)


def test_what_the_options_leave_out_is_reported(split_file):
    lines = "\n".join(_load(split_file, leak_filter=["text", "title"]).report.lines())
    assert "neighbour documents with the target's text (leak_filter): 2" in lines  # ann's and bob's
    assert "neighbour documents with the target's title (leak_filter): 2" in lines
    lines = "\n".join(_load(split_file, max_user_degree=1).report.lines())
    assert "users above max_user_degree: 2" in lines
    assert "by users above max_user_degree: 5" in lines  # 1 of ann, bob and dan each, 2 of cleo
    assert _load(split_file).report.notes == {"documents left out by the cap": 0}


def test_options_change_the_fingerprint(split_file):
    changes = [{}, {"mode": "own"}, {"hops": 2}, {"leak_filter": "text"}, {"neighbor_scope": "all_items"}]
    changes += [{"max_user_degree": 1}, {"community": "extend"}, {"seed": 1}, {"task": "text"}]
    marks = [_load(split_file, **change).fingerprint for change in changes]
    assert len(set(marks)) == len(marks)
    assert _load(split_file).fingerprint == marks[0]


def test_a_table_gives_targets_that_have_neighbours(table):
    """eve stands alone: no example. bob is asked about the pan, since no one else has his wok."""
    examples = _load(table, task="text")
    assert [e.id for e in examples] == ["ann", "bob", "cleo", "dan"]
    assert [e.meta["item"] for e in examples][1:] == ["pan", "pan", "lid"]
    assert all(any(d.provenance == "neighbor" for d in e.profile) for e in examples)
    assert examples.report.notes["users without a target that has a neighbour"] == 1
    assert [e.id for e in _load(table, task="text", limit=2)] == ["ann", "bob"]


def test_a_table_with_other_names(tmp_path, table):
    text = table.read_text().replace('"user"', '"who"').replace("Too small", "")
    table.write_text(text + '\n{"item": "pan", "text": "by no one"}')
    with pytest.raises(ValueError, match=r"kitchen\.jsonl, record 8: the field 'who' is missing"):
        _load(table, fields={"user": "who"})
    examples = _load(table, fields={"user": "who"}, bad_records="skip", task="rating")
    assert len(examples) == 4
    assert examples.report.notes["records that were skipped"] == 1


def test_a_review_without_a_rating_in_a_rating_task(tmp_path):
    """It is said when the file is read, not by the prompt of some later example."""
    file = tmp_path / "some.jsonl"
    rows = [
        {"user": u, "item": "pan", "text": f"by {u}", "rating": r}
        for u, r in zip("abc", (5, None, 4), strict=True)
    ]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(ValueError, match=r"a/b#0, c/b#0\. Remedy: .* set on_problem\.missing_field=skip"):
        _load(file, task="rating")
    examples = _load(file, task="rating", on_problem={"missing_field": "skip"})
    assert [(e.id, [d.score for d in e.profile]) for e in examples] == [("a", ["4"]), ("c", ["5"])]
    assert examples.report.counts == {"empty_target": 1, "missing_field": 2}
    assert _ids(_load(file, task="text", on_problem={"empty_input": "keep"}), "a") == ["b#0", "c#0"]


def test_a_saved_graph(tmp_path):
    graph = InteractionGraph.from_reviews(Review(*review) for review in REVIEWS)
    examples = _load(graph.save(tmp_path / "graph"), neighbor_scope="all_items")
    assert _ids(examples) in (["ann#1", "bob#0", "cleo#0", "dan#0"], ["ann#0", "bob#0", "cleo#0", "dan#0"])


def test_neighbours_from_inside_a_split_by_items(split_file, monkeypatch):
    """The splitter decides who is in a split; whoever is outside serves no one inside."""
    asked = []

    def assign_splits(edge_user, edge_item, targets, fractions, seed):
        asked.append((edge_user.tolist(), edge_item.tolist(), targets.tolist(), tuple(fractions), seed))
        return np.array([0, 0, 2, 1, 2], np.int8)

    module = types.ModuleType("ropg.graph.split")
    module.assign_splits = assign_splits
    monkeypatch.setitem(sys.modules, "ropg.graph.split", module)
    train = _load(split_file, split="train", split_by="items", fractions=(0.5, 0.2, 0.3), seed=7)
    assert [e.id for e in train] == ["ann", "bob"]
    assert _ids(train) == ["ann#1", "bob#0"]
    assert [e.id for e in _load(split_file, split="test", split_by="items")] == ["cleo", "eve"]
    assert len(_load(split_file, split_by="items")) == 5
    assert asked[0] == ([0, 0, 1, 1, 2, 3, 4], [0, 1, 0, 2, 0, 1, 3], [0, 2, 4, 5, 6], (0.5, 0.2, 0.3), 7)
    with pytest.raises(ValueError, match="did you mean 'items'"):
        _load(split_file, split_by="item")


def test_targets_of_a_table_keep_a_neighbour_inside_their_split(table, monkeypatch):
    """ann, who may be asked about the pan or the lid, is alone with dan in a split: there it is the lid."""
    module = types.ModuleType("ropg.graph.split")
    module.assign_splits = lambda *arguments: np.array([2, 0, 0, 2, 2], np.int8)
    monkeypatch.setitem(sys.modules, "ropg.graph.split", module)
    for seed in range(4):
        test = _load(table, split="test", split_by="items", seed=seed)
        assert [(e.id, e.meta["item"], len(e.profile)) for e in test] == [
            ("ann", "lid", 2),
            ("dan", "lid", 1),
        ]
        train = _load(table, split="train", split_by="items", seed=seed)
        assert [(e.id, e.meta["item"]) for e in train] == [("bob", "pan"), ("cleo", "pan")]


def test_configuration_reaches_the_source(table):
    table.write_text(table.read_text().replace('"user"', '"who"'), encoding="utf-8")
    data = DataConfig(source="pgraphrag", path=str(table), fields={"user": "who"}, options={"mode": "own"})
    examples = load_examples("pgraphrag", **source_options(data, "pgraphrag_text"))
    assert [len(example.profile) for example in examples] == [1, 1, 0, 0]
