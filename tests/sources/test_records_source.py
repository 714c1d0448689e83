import csv
import json

import pytest

from ropg.examples import Document
from ropg.sources import ValidationError, load_examples

RECORDS = [
    {
        "id": 1,
        "user": "u1",
        "input": "q one",
        "target": "t one",
        "profile": [{"id": "a", "text": "x", "stars": 3}],
    },
    {
        "id": 2,
        "user": "u1",
        "input": "q two",
        "target": "t two",
        "profile": ["first", "second"],
        "date": "2020",
        "more": [1],
    },
    {"id": 3, "user": "u2", "input": "q three", "profile": []},
]


def _write(path, records):
    lines = path.suffix == ".jsonl"
    path.write_text("\n".join(map(json.dumps, records)) if lines else json.dumps(records), encoding="utf-8")
    return path


def _records(path, **options):
    return load_examples("records", path=path, **options)


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_json(tmp_path, name):
    one, two, three = _records(_write(tmp_path / name, RECORDS))
    assert (one.id, one.user, one.input, one.target) == ("1", "u1", "q one", "t one")
    assert one.profile[0] == Document("a", "x", fields={"stars": 3})
    assert [(d.id, d.text) for d in two.profile] == [("0", "first"), ("1", "second")]
    assert two.meta == {"date": "2020", "more": [1]}
    assert three.target is None


def test_field_map(tmp_path):
    record = {
        "qid": "7",
        "question": "q",
        "answer": 4,
        "history": [{"body": "x", "head": "h", "stars": 2, "by": "me"}],
    }
    fields = {
        "id": "qid", "input": "question", "target": "answer", "profile": "history",
        "profile.text": "body", "profile.title": "head", "profile.score": "stars", "profile.author": "by",
    }  # fmt: skip
    (example,) = _records(_write(tmp_path / "x.jsonl", [record]), fields=fields)
    assert (example.id, example.input, example.target) == ("7", "q", "4")
    assert example.profile[0] == Document("0", "x", title="h", score="2", author="me")


def test_misspelt_fields_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"did you mean 'profile\.text'"):
        _records(_write(tmp_path / "x.jsonl", RECORDS), fields={"profile.txt": "body"})
    with pytest.raises(ValueError, match="did you mean 'fields'"):
        _records(tmp_path / "x.jsonl", feilds={})


def test_csv_with_a_json_column(tmp_path):
    path = tmp_path / "x.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "input", "target", "profile"])
        writer.writerow(
            ["1", "line one\nline two, quoted", "t", json.dumps([{"id": "a", "text": "x" * 200_000}])]
        )
        writer.writerow(["2", "q", "t", ""])
    one, two = _records(path)
    assert one.input == "line one\nline two, quoted"
    assert len(one.profile[0].text) == 200_000  # longer than what csv reads by default
    assert len(two.profile) == 0


@pytest.mark.parametrize("turn", [1, -1])
def test_csv_with_one_row_per_document(tmp_path, turn):
    rows = ["1,q,t,a,x,5", "2,r,s,b,y,", "1,q,t,c,z,4", "3,e,f,,,"]
    header = "id,input,target,profile.id,profile.text,profile.score"
    (tmp_path / "x.csv").write_text("\n".join([header, *rows[::turn]]), encoding="utf-8")
    examples = {example.id: example for example in _records(tmp_path / "x.csv")}
    assert [(d.id, d.text, d.score) for d in examples["1"].profile] == [("a", "x", "5"), ("c", "z", "4")][
        ::turn
    ]
    assert [(d.id, d.score) for d in examples["2"].profile] == [("b", None)]
    assert len(examples["3"].profile) == 0


def test_csv_columns_by_field_map(tmp_path):
    (tmp_path / "x.tsv").write_text("id\tinput\ttext\n1\tq\tone\n1\tq\ttwo\n", encoding="utf-8")
    (example,) = _records(tmp_path / "x.tsv", fields={"profile.text": "text"})
    assert [d.text for d in example.profile] == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,input,profile.text\n1,q,a\n1,other,b\n", "'1'.*rows differ"),
        ("id,input\n1,q\n", "no column holds the profile"),
        ("id,input,profile\n1,q,[\n", "record 1.*no JSON list"),
        ("id,input,profile\n1,q\n", "line 2.*cells"),
        ("id,input,profile.text\n,q,a\n", "'id' is empty"),
    ],
)
def test_wrong_csv(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"x.csv.*{message}"):
        _records(tmp_path / "x.csv")


def test_folder_of_split_files(tmp_path):
    _write(tmp_path / "train.jsonl", RECORDS[:2])
    _write(tmp_path / "test.json", RECORDS[2:])
    assert [e.id for e in _records(tmp_path, split="train")] == ["1", "2"]
    assert [e.id for e in _records(tmp_path, split="test")] == ["3"]
    assert [e.id for e in _records(tmp_path)] == ["1", "2", "3"]
    with pytest.raises(FileNotFoundError, match=r"dev.jsonl"):
        _records(tmp_path, split="dev")


def test_records_that_name_their_split(tmp_path):
    named = [
        {**record, "split": split} for record, split in zip(RECORDS, ("train", "dev", "train"), strict=True)
    ]
    assert [e.id for e in _records(_write(tmp_path / "x.json", named), split="train")] == ["1", "3"]
    with pytest.raises(ValueError, match="1 of 3 records name no split"):
        _records(_write(tmp_path / "y.json", [RECORDS[0], *named[1:]]), split="dev")


def test_seeded_split_keeps_users_together(tmp_path):
    """A user on both sides lets a retriever be tested on what it was trained on."""
    many = [{"id": n, "user": n // 2, "input": f"q{n}", "profile": []} for n in range(60)]
    path = _write(tmp_path / "x.jsonl", many)
    parts = {
        split: _records(path, split=split, fractions=(0.5, 0.2, 0.3)) for split in ("train", "dev", "test")
    }
    users = {split: {e.user for e in part} for split, part in parts.items()}
    assert {split: len(names) for split, names in users.items()} == {"train": 15, "dev": 6, "test": 9}
    assert len(set().union(*users.values())) == 30
    turned = _records(_write(tmp_path / "y.jsonl", many[::-1]), split="dev", fractions=(0.5, 0.2, 0.3))
    assert {e.user for e in turned} == users["dev"]
    assert {e.user for e in _records(path, split="dev", fractions=(0.5, 0.2, 0.3), seed=1)} != users["dev"]
    with pytest.raises(ValueError, match="add up to 1"):
        _records(path, split="dev", fractions=(0.5, 0.5, 0.5))


def test_labels(tmp_path):
    path = _write(tmp_path / "x.jsonl", RECORDS)
    with pytest.raises(ValidationError, match=r"unknown_gold.*1, 2"):
        _records(path, labels=["yes", "no"])
