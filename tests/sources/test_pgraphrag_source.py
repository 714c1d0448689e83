import json

import pytest

from ropg.sources import load_examples


def _review(pid, title, text, rating=5):
    return {"rating": rating, "title": title, "text": text, "pid": pid}


USERS = [
    {
        "id": "ann",
        "profile": [
            _review(7, "Lovely pan", "Fries well"),
            _review("8", "Nice pot", "Boils well", 4),
            _review("7", "Lovely pan", "Fries well"),  # the target once more
            _review("9", "A lid", "Fits", 3),
        ],
    },
    {"id": "bob", "profile": [_review("7", "Too heavy", "My arm hurts", 2)]},
    {"id": "cleo", "profile": [_review("8", "Small", "Tiny pot"), _review(7, "So so", "It is a pan", 3)]},
    {"id": 4, "profile": [_review("9", "Blank", "")]},
]


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "kitchen_dev.json"
    file.write_text(json.dumps(USERS), encoding="utf-8")
    return file


def _load(path, **options):
    return load_examples("pgraphrag", path=path, **{"task": "title", **options})


def test_profile_of_the_graph(path):
    """Own documents exclude the target's item, so the target's copy cannot be retrieved; pid 7 is '7'."""
    ann = _load(path)[0]
    assert (ann.id, ann.user, ann.input, ann.target, ann.meta["item"]) == (
        "ann",
        "ann",
        "Fries well",
        "Lovely pan",
        "7",
    )
    assert [(d.id, d.provenance, d.author, d.item, d.score) for d in ann.profile] == [
        ("ann#1", "own", "ann", "8", "4"),
        ("ann#3", "own", "ann", "9", "3"),
        ("bob#0", "neighbor", "bob", "7", "2"),
        ("cleo#1", "neighbor", "cleo", "7", "3"),
    ]
    assert (ann.profile[2].title, ann.profile[2].text) == ("Too heavy", "My arm hurts")


def test_tasks(path):
    assert (_load(path, task="text")[1].input, _load(path, task="text")[1].target) == (
        "Too heavy",
        "My arm hurts",
    )
    rating = _load(path, task="rating")[1]
    assert (rating.input, rating.target) == ("Too heavy\nMy arm hurts", "2")
    with pytest.raises(ValueError, match="did you mean 'rating'"):
        _load(path, task="ratings")


@pytest.mark.parametrize(("task", "kind"), [("title", "empty_input"), ("text", "empty_target")])
def test_empty_reviews_are_counted_skips(path, task, kind):
    examples = _load(path, task=task)
    assert [e.id for e in examples] == ["ann", "bob", "cleo"]
    assert examples.report.records[kind] == ["4"]
    assert len(_load(path, task="rating")) == 4


def test_reviews_are_not_copied(path):
    """333 neighbours per target would otherwise be held 333 times."""
    ann, bob = _load(path)[:2]
    assert bob.profile[1] is ann.profile[3]


def test_cap_keeps_own_documents_and_is_seeded(tmp_path):
    users = [
        {"id": f"u{n}", "profile": [_review("1", f"t{n}", f"x{n}"), _review(f"own{n}", "mine", f"y{n}")]}
        for n in range(30)
    ]
    file = tmp_path / "x.json"
    file.write_text(json.dumps(users), encoding="utf-8")
    examples = _load(file, max_documents=5)
    ids = [d.id for d in examples[3].profile]
    assert len(ids) == 5
    assert ids[0] == "u3#1"
    assert ids == sorted(ids, key=lambda name: (name != "u3#1", int(name[1:].partition("#")[0])))
    assert ids == [d.id for d in _load(file, max_documents=5)[3].profile]
    assert ids != [d.id for d in _load(file, max_documents=5, seed=1)[3].profile]
    assert examples.report.n_documents == 150
    assert examples.report.notes == {"documents left out by the cap": 30 * 25}
    assert "documents left out by the cap: 750" in "\n".join(examples.report.lines())


def test_splits_partition_the_users(tmp_path):
    users = [{"id": f"u{n}", "profile": [_review("1", f"t{n}", f"x{n}")]} for n in range(50)]
    file = tmp_path / "x.json"
    file.write_text(json.dumps(users), encoding="utf-8")
    parts = [{e.id for e in _load(file, split=split)} for split in ("train", "dev", "test")]
    assert [len(part) for part in parts] == [30, 5, 15]
    assert len(set.union(*parts)) == 50
    file.write_text(json.dumps(users[::-1]), encoding="utf-8")
    assert {e.id for e in _load(file, split="dev")} == parts[1]
    assert len(_load(file, split="train", limit=7)) == 7
    with pytest.raises(ValueError, match="split='deb'"):
        _load(file, split="deb")


def test_leak_by_another_account(tmp_path):
    """People post one review under two names; the second one gives the answer away."""
    users = [
        {"id": "Kay", "profile": [_review("1", "Great bag", "Holds all my things")]},
        {"id": "KAY", "profile": [_review("1", "Great bag!", "Holds all  my things.")]},
        {"id": "Lee", "profile": [_review("1", "Other", "Else")]},
    ]
    file = tmp_path / "x.json"
    file.write_text(json.dumps(users), encoding="utf-8")
    examples = _load(file)
    assert [d.id for d in examples[0].profile] == ["Lee#0"]
    assert examples.report.counts == {"leak": 2}
    assert len(_load(file, on_problem={"leak": "keep"})[0].profile) == 2


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (
            {"id": "z", "profile": [{"rating": 5, "title": "t", "pid": 1}]},
            "'z', review 1: missing or null: text",
        ),
        ({"id": "z", "profile": [_review(None, "t", "x")]}, "missing or null: pid"),
        ({"id": "z", "profile": []}, "'z'.*first of them the target"),
        ({"profile": []}, "record 5"),
    ],
)
def test_wrong_users_are_named(tmp_path, user, message):
    file = tmp_path / "x.json"
    file.write_text(json.dumps([*USERS, user]), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        _load(file)


def test_a_user_listed_twice(path):
    path.write_text(json.dumps([*USERS, USERS[1]]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"duplicate_id.*bob"):
        _load(path)
    assert len(_load(path, on_problem={"duplicate_id": "skip"})) == 3
