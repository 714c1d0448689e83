"""Which users are held out, users whose data is odd, and that no prediction is lost or repeated."""

from __future__ import annotations

import hashlib
import json
import random

import pipeline_files as files
import pytest

from ropg.cli import Refused, compose
from ropg.comparison import evaluate
from ropg.evaluation import score_predictions
from ropg.pipeline import train
from ropg.sources import ValidationError, load_examples
from ropg.splits import load_splits
from ropg.tasks import get_task
from rspg.pipeline import train as train_any


def settings(overrides, root, *more: str) -> list[str]:
    return overrides("experiment=lamp_4_llama", "data.setting=null", f"data.root={root}", *more)


def predictions(folder, system: str) -> list[dict[str, str]]:
    return json.loads((folder / "predictions" / f"{system}.json").read_text())["golds"]


def test_a_test_split_without_golds(tmp_path, overrides, capsys):
    """LaMP's own test split: dev must be held out then, and never choose the checkpoint it is reported on."""
    sizes = {"train": 30, "dev": 3, "test": 4}
    root = files.write_lamp(tmp_path / "lamp", 4, sizes, golds=("train", "dev"))
    config = compose(*settings(overrides, root))
    splits = load_splits(config)
    ids = {name: [example.id for example in part] for name, part in splits.items()}
    tenth = [f"tr{i}" for i in range(30) if hashlib.sha256(f"tr{i}".encode()).digest()[0] % 10 == 0]
    assert 1 <= len(tenth) <= 8
    assert ids["dev"] == tenth
    assert ids["train"] == [f"tr{i}" for i in range(30) if f"tr{i}" not in tenth]
    assert ids["heldout"] == ["de0", "de1", "de2"]
    assert [example.id for example in splits["train"][2:5]] == ids["train"][2:5]

    folder = train(config)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["n_train"], summary["n_heldout"]) == (30 - len(tenth), 3)
    assert "a tenth of the training users chooses checkpoints, dev is held out" in capsys.readouterr().out

    where = evaluate(config)  # the held-out split that was trained for: dev
    assert "dev is reported" in capsys.readouterr().out
    assert {row["n"] for row in json.loads((where / "results.json").read_text())} == {3}
    assert [entry["id"] for entry in predictions(where, "ropg_kd")] == ids["heldout"]

    only = evaluate(
        compose(*settings(overrides, root, "evaluation.split=test", f"run.dir={tmp_path / 'test'}"))
    )
    assert json.loads((only / "results.json").read_text()) == []
    for system in ("none", "bm25", "initial", "ropg_kd"):
        assert [entry["id"] for entry in predictions(only, system)] == [f"te{i}" for i in range(4)]
    assert "predictions only" in (only / "tables.md").read_text()
    assert (only / "report.html").exists()


def test_one_split_does_not_overwrite_another(tmp_path, overrides):
    """Predictions for the test split must not take the place of the results on dev."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 2, "dev": 3, "test": 4})
    systems = "evaluation.systems=[none,bm25]"
    folders = [
        evaluate(compose(*settings(overrides, root, systems, f"evaluation.split={s}")))
        for s in ("dev", "test")
    ]
    assert [entry["id"] for entry in predictions(folders[0], "bm25")] == ["de0", "de1", "de2"]
    assert [entry["id"] for entry in predictions(folders[1], "bm25")] == ["te0", "te1", "te2", "te3"]


def rewrite(path, change) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(change(content)))


def odd_users(questions: list[dict]) -> list[dict]:
    """Trouble C03's users: no document, documents without a token, and one document."""
    questions[0]["profile"] = []
    for document in questions[1]["profile"]:
        document.update(text="", title="  ")
    questions[1]["profile"] = questions[1]["profile"][:2]
    questions[1]["profile"][1]["text"] = " \t "
    questions[2]["profile"] = questions[2]["profile"][:1]
    return questions


def test_users_without_documents_stop_nothing(tmp_path, overrides, capsys):
    """Trouble C03: one user without documents, or with empty ones, must not end a run of thousands."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 8, "dev": 4, "test": 5})
    for split in ("train", "dev", "test"):
        rewrite(files.lamp_files(root, 4, split)[0], odd_users)
    keep = ["+data.on_problem.duplicate_text=keep"]
    config = compose(*settings(overrides, root, *keep))
    folder = train(config)
    printed = capsys.readouterr().out
    assert "8 examples, 6 kept, 2 skipped profiles" in printed  # counted, not silently dropped
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["n_train"], summary["n_heldout"]) == (6, 3)
    where = evaluate(config)
    for system in ("none", "random", "recency", "bm25", "initial", "rrf", "ropg_kd"):
        entries = predictions(where, system)
        assert [entry["id"] for entry in entries] == [f"te{i}" for i in range(5)]
        assert entries[0] == predictions(where, "none")[0]  # no documents: the prompt without personalization
    assert {row["n"] for row in json.loads((where / "results.json").read_text())} == {5}


def test_undated_documents(tmp_path, overrides, capsys):
    """User-based splits have no dates: recency must say so, and not rank at random under its name."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 6, "dev": 3, "test": 3}, dated=False)
    folder = train(compose(*settings(overrides, root)))
    assert (folder / "summary.json").exists()
    rows = json.loads((evaluate(compose(*settings(overrides, root))) / "results.json").read_text())
    assert "recency: left out" in capsys.readouterr().out
    assert {row["system"] for row in rows} == {"none", "random", "bm25", "initial", "rrf", "ropg_kd"}


def mixed_ids(questions: list[dict]) -> list[dict]:
    for number, question in enumerate(questions):
        question["id"] = number if number % 2 else str(number)
    return questions


def other_ids(outputs: dict) -> dict:
    for number, gold in enumerate(sorted(outputs["golds"], key=lambda gold: gold["id"])):
        gold["id"] = str(number) if number % 2 else number
    return outputs


def test_predictions_are_complete_and_load_back(tmp_path, overrides):
    """Troubles C26 and C36: five questions with ids of mixed types give five predictions under string ids."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 2, "dev": 2, "test": 5})
    questions, outputs = files.lamp_files(root, 4, "test")
    rewrite(questions, mixed_ids)
    rewrite(outputs, other_ids)
    config = compose(
        *settings(overrides, root, "evaluation.systems=[none,bm25]", "llm.max_batch_size=2", "retrieval.k=2")
    )
    where = evaluate(config)
    examples = load_examples("lamp", task="LaMP_4", root=str(root), split="test")
    for system in ("none", "bm25"):
        ids = [entry["id"] for entry in predictions(where, system)]
        assert ids == [example.id for example in examples] == ["0", "1", "2", "3", "4"]
    rows = json.loads((where / "results.json").read_text())
    task = get_task("LaMP-4", template="paper")
    again = score_predictions(where / "predictions", examples, task, resamples=20, seed=0, progress=False)
    kept = {(row["system"], row["metric"]): row["value"] for row in rows}
    assert {(row["system"], row["metric"]): row["value"] for row in again} == pytest.approx(kept)


def test_ids_that_do_not_belong_together(tmp_path, overrides):
    """Trouble C36: a gold for another question would be learned from; all such ids stand in one error."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 4, "dev": 2, "test": 2})
    questions, outputs = files.lamp_files(root, 4, "train")
    rewrite(questions, lambda content: [*content[:3], content[2]])
    rewrite(
        outputs, lambda content: {**content, "golds": [*content["golds"], {"id": "7", "output": "Night"}]}
    )
    with pytest.raises(ValidationError) as refused:
        train(compose(*settings(overrides, root)))
    message = str(refused.value)
    for part in ("extra_gold", "7", "tr3", "duplicate_id", "tr2", "Remedy"):
        assert part in message


def test_too_few_users_are_said_to_be_too_few(tmp_path, overrides):
    """An empty split must not end in a division by zero after the LLM's work."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 3, "dev": 2, "test": 2}, documents=(1, 1))
    with pytest.raises(Refused, match="profiles need two documents"):
        train(compose(*settings(overrides, root)))


def test_reviews_of_a_graph(tmp_path, overrides):
    """One released review file: its users are split, and the documents of others count as theirs do."""
    rng = random.Random(0)
    users = [
        {
            "id": f"u{u}",
            "profile": [
                {
                    "pid": str(rng.randint(0, 5)),
                    "rating": 4,
                    "title": files.title(rng),
                    "text": files.sentence(rng),
                }
                for _ in range(4)
            ],
        }
        for u in range(20)
    ]
    path = tmp_path / "hotel_dev.json"
    path.write_text(json.dumps(users), encoding="utf-8")
    limits = ["data.limit_train=9", "data.limit_dev=2", "data.limit_test=4", "data.max_documents=6"]
    for task, metric in (("title", "rouge1"), ("rating", "mae")):
        preset = ["experiment=reviews", f"task=pgraphrag_{task}", f"data.path={path}", *limits]
        config = compose(*overrides(*preset, "evaluation.systems=[none,random,bm25,initial,ropg_kd]"))
        folder = train(config)
        summary = json.loads((folder / "summary.json").read_text())
        assert (summary["task"], summary["n_heldout"]) == (f"pgraphrag_{task}", 4)
        rows = json.loads((evaluate(config) / "results.json").read_text())
        assert metric in {row["metric"] for row in rows}


def ids_of(overrides, root, method: str, *more: str) -> dict[str, list[str]]:
    splits = load_splits(compose(*settings(overrides, root, f"method={method}", *more)))
    return {name: [example.id for example in part] for name, part in splits.items()}


@pytest.mark.parametrize("golds", [("train", "dev", "test"), ("train", "dev")])
def test_users_that_train_selectors_and_no_retriever(tmp_path, overrides, golds):
    """A selector that learns from users whom ROPG was trained on learns how good ROPG is where it overfits."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 60, "dev": 3, "test": 4}, golds=golds)
    everyone = [f"tr{i}" for i in range(60)]

    def learning(method: str, *more: str) -> list[str]:
        """The training users that a method may see at all, checkpoints' included."""
        found = ids_of(overrides, root, method, *more)
        held = ["te0", "te1", "te2", "te3"] if "test" in golds else ["de0", "de1", "de2"]
        assert found["heldout"] == held
        if "test" in golds:
            assert found["dev"] == ["de0", "de1", "de2"]
            return found["train"]
        assert found["dev"]
        assert not set(found["train"]) & set(found["dev"])
        return sorted(found["train"] + found["dev"], key=everyone.index)

    for share in (0.5, 0.2):
        some = f"data.reserved={share}"
        kd, rl = learning("ropg_kd", some), learning("ropg_rl", some)
        pre, post = learning("rspg_pre", some), learning("rspg_post", some, "seed=3")
        assert kd == rl
        assert pre == post
        assert not set(kd) & set(pre)
        assert sorted(kd + pre, key=everyone.index) == everyone
        assert abs(len(pre) / 60 - share) < 0.15
    assert set(learning("rspg_pre", "data.reserved=0.2")) < set(learning("rspg_pre", "data.reserved=0.5"))
    assert learning("ropg_kd") == learning("rspg_pre") == learning("rspg_pre", "data.reserved=0") == everyone


def test_a_users_examples_stay_together(tmp_path, overrides):
    """Several inputs of one person on both sides would be the same leak."""
    path = tmp_path / "own.jsonl"
    records = [
        {
            "id": f"{split}{u}-{i}",
            "user": f"{split}{u}",
            "split": split,
            "input": f"Name this: river {u} {i}",
            "target": "Song",
            "profile": [{"id": "a", "text": f"stone {u}"}, {"id": "b", "text": f"garden {u}"}],
        }
        for split, users in (("train", 20), ("dev", 2), ("test", 2))
        for u in range(users)
        for i in range(3)
    ]
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    own = ["task=lamp_4", "data=records", f"data.path={path}", "data.reserved=0.4"]
    users = []
    for method in ("ropg_kd", "rspg_post"):
        train_split = load_splits(compose(*overrides(*own, f"method={method}")))["train"]
        found = [example.user for example in train_split]
        assert {found.count(user) for user in found} == {3}
        users.append(set(found))
    assert not users[0] & users[1]
    assert users[0] | users[1] == {f"train{u}" for u in range(20)}


@pytest.mark.parametrize("share", ["1", "1.0", "-0.1", "7", "nan"])
def test_a_share_of_users_that_is_none(tmp_path, overrides, share):
    """Before anything is read twice or generated: the range is in the message."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 4, "dev": 2, "test": 2})
    for method in ("ropg_kd", "rspg_pre"):
        with pytest.raises(Refused, match=r"data\.reserved=.*: it is a share .* from 0 to below 1"):
            train_any(compose(*settings(overrides, root, f"method={method}", f"data.reserved={share}")))


def test_a_share_of_users_that_leaves_nobody(tmp_path, overrides):
    """Few users and a small share: said, with the number there is."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 3, "dev": 2, "test": 2})
    with pytest.raises(Refused, match=r"data\.reserved=0\.0001 leaves no training user of 3; choose another"):
        train_any(compose(*settings(overrides, root, "method=rspg_pre", "data.reserved=0.0001")))
