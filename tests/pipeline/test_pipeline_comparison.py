"""evaluate.py with selectors: which columns, which runs, which LLM calls, and users whose data is odd."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pipeline_files as files
import pytest
from pipeline_files import POOL

from ropg import build
from ropg.cli import Refused
from ropg.feedback.store import GenerationStore
from rspg.choice import chosen_rewards
from rspg.comparison import RESTRICTED, RETRAINED, evaluate
from rspg.pipeline import train
from rspg.pool import read_pool
from rspg.selector import choose, load_selector

pytestmark = pytest.mark.usefixtures("no_plots")

UNTRAINED = ("none", "recency", "bm25", "initial")
PART = f"selector.pool=[{','.join(UNTRAINED)}]"


def told(where: Path) -> dict[str, Any]:
    return json.loads((where / "rspg.json").read_text())


def selections(part: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in part["selections"]}


def systems(where: Path) -> set[str]:
    return {row["system"] for row in json.loads((where / "results.json").read_text())}


def predictions(where: Path, system: str) -> dict[str, str]:
    golds = json.loads((where / "predictions" / f"{system}.json").read_text())["golds"]
    return {gold["id"]: gold["output"] for gold in golds}


def heldout(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())["heldout"]


def evaluated(house, folder: Path, names: tuple[str, ...], *more: str) -> Path:
    return evaluate(house.settings(f"evaluation.systems=[{','.join(names)}]", *more, folder=folder))


def test_without_ropg_by_restriction(house):
    """Without a selector of the smaller pool the one of the whole pool chooses from a part, and that is said."""
    found = told(house.runs["evaluation"])
    assert [row["name"] for row in found["pool"]] == list(POOL)
    assert [row["name"] for row in found["without"]["pool"]] == list(UNTRAINED)
    note = "; ".join(RESTRICTED.format(label) for label in ("RSPG-Pre", "RSPG-Post"))
    assert found["without"]["note"] == note
    assert note in (house.runs["evaluation"] / "tables.md").read_text()
    for name in ("rspg_pre", "rspg_post"):
        reward = mean_reward(house, house.runs[name], UNTRAINED)
        assert selections(found["without"])[name]["reward"] == pytest.approx(reward)
        gain = selections(found)[name]["reward"] - reward
        assert found["gains"][name]["reward"] == pytest.approx(gain)


@pytest.fixture(scope="module")
def smaller(house, tmp_path_factory):
    """The runs of the house and a Post of the pool without ROPG, in another order: (folder, its run).

    Its scores are turned round after training, so that it chooses what the other one would never choose.
    """
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("smaller")
    house.copy(folder)
    pool = "selector.pool=[initial,bm25,recency,none]"
    own = train(house.settings("method=rspg_post", pool, folder=folder))
    path = own / "model" / "model.safetensors"
    weights = load_file(path)
    save_file(weights | {"score.weight": -weights["score.weight"]}, path, {"format": "pt"})
    return folder, own


def mean_reward(house, run: Path, names: tuple[str, ...]) -> float:
    """Mean Eval of what the selector of a run chooses from some members on the test split."""
    config, selector = house.settings(), load_selector(run)
    members = [member for name in names for member in selector.members if member.name == name]
    with GenerationStore(Path(config.store.dir) / "generations") as store:
        examples = build.build_examples(config, "test", None)
        table = read_pool(members, examples, selector.task, selector.llm, store, 2, progress=False)
    chosen = np.array(choose(selector.scorer, selector.task, table))
    return float(chosen_rewards(table.rewards, chosen).mean())


def test_without_ropg_by_a_selector_of_that_pool(house, smaller, capsys):
    """Table 5's fair column is a selector that was trained without ROPG's retrievers; it is found and used."""
    folder, own = smaller
    where = evaluated(house, folder, ("none", "rspg_post"))
    said = capsys.readouterr().out
    assert f"rspg_post without ROPG: {own}" in said
    assert f"rspg_post: {folder / 'runs' / house.runs['rspg_post'].name}" in said  # older, and of this pool
    found = told(where)
    note = RETRAINED.format("RSPG-Post")
    assert found["without"]["note"] == note
    assert note in (where / "tables.md").read_text()
    post, whole = selections(found["without"])["rspg_post"], selections(found)["rspg_post"]
    expected = mean_reward(house, own, UNTRAINED)
    assert expected != pytest.approx(mean_reward(house, house.runs["rspg_post"], UNTRAINED))
    assert post["reward"] == pytest.approx(expected)
    assert whole["reward"] == pytest.approx(heldout(house.runs["rspg_post"])["selector"]["reward"])
    assert "Where RSPG-Pre" not in (where / "tables.md").read_text()  # there is no Pre here
    assert systems(where) == {"none", "rspg_post"}


def test_the_best_fixed_retriever_of_the_pool(house, smaller):
    """The strongest simple baseline must not vanish because one of two selectors had a smaller pool."""
    folder, own = smaller
    named = (f"models.rspg_post={own}", f"models.rspg_pre={house.runs['rspg_pre']}")
    where = evaluated(house, folder, ("none", "rspg_post", "rspg_pre"), *named)  # the smaller one comes first
    assert "best_fixed" in selections(told(where))


def test_one_selector_was_trained_without_ropg_and_one_was_not(house, smaller):
    """The legend must not say of Pre, which chose from a part of its pool, that it was trained on that part."""
    where = evaluated(house, smaller[0], ("none", "rspg_pre", "rspg_post"))
    note = f"{RESTRICTED.format('RSPG-Pre')}; {RETRAINED.format('RSPG-Post')}"
    assert told(where)["without"]["note"] == note


def test_without_any_selector(house, tmp_path, capsys):
    """Retrievers alone: the predictors still choose from them, and what is missing is said with its command."""
    runs = house.copy(tmp_path)
    for name in ("rspg_pre", "rspg_post"):
        shutil.rmtree(runs[name])
    where = evaluate(house.settings(folder=tmp_path))
    said = capsys.readouterr().out
    for name in ("rspg_pre", "rspg_post"):
        assert f"{name}: left out" in said
        assert f"python train.py method={name}" in said
    assert systems(where) == set(POOL)
    found = told(where)
    assert {row["kind"] for row in found["selections"]} == {"qpp", "random"}  # no dev rewards, no best fixed
    assert found["agreement"] is None
    assert "(the paper's Table 4)" in (where / "tables.md").read_text()


def test_no_call_for_members_that_nobody_asked_for(house, tmp_path, asked):
    """A table of two systems must not cost the answers of six."""
    where = evaluated(house, tmp_path, ("none", "bm25"))
    assert len(asked) == len(set(asked)) == 12
    assert [row["name"] for row in told(where)["pool"]] == ["none", "bm25"]
    evaluated(house, tmp_path, ("none", "bm25"))
    assert len(asked) == 12
    where = evaluated(house, tmp_path, ("bm25",))  # one retriever is no pool
    assert not (where / "rspg.json").exists()
    assert "Table 4" not in (where / "tables.md").read_text()


def test_a_selector_alone(house, tmp_path, asked):
    """Its pool is read for it, and only it is a row of the table."""
    runs = house.copy(tmp_path)
    shutil.rmtree(tmp_path / "stores")
    where = evaluated(house, tmp_path, ("rspg_post",))
    assert systems(where) == {"rspg_post"}
    assert 12 < len(asked) == len(set(asked))
    found = selections(told(where))["rspg_post"]
    assert found["reward"] == pytest.approx(heldout(runs["rspg_post"])["selector"]["reward"])
    assert predictions(where, "rspg_post") == predictions(house.runs["evaluation"], "rspg_post")


def test_a_selector_of_another_pool_is_said(house, tmp_path, capsys):
    """A table over a selector that never saw a member must not look like an ordinary one."""
    house.copy(tmp_path)
    capsys.readouterr()
    evaluated(house, tmp_path, ("none", "rspg_pre"), "selector.pool=[none,bm25,rrf]", "retrieval.k=1")
    said = capsys.readouterr().out
    assert "rspg_pre was trained with the pool none, recency, bm25, initial, ropg_rl, ropg_kd" in said
    assert "rspg_pre was trained with retrieval.k=2, not 1" in said


def test_other_runs_of_the_members_are_said(house, tmp_path, capsys):
    """models.X at evaluation may name another retriever than the selector learned about."""
    runs = house.copy(tmp_path)
    other = tmp_path / "other"
    shutil.copytree(runs["ropg_kd"], other)
    evaluated(house, tmp_path, ("none", "rspg_pre"), f"models.ropg_kd={other}")
    assert f"rspg_pre was trained with ropg_kd from {runs['ropg_kd']}" in capsys.readouterr().out


def odd(questions: list[dict]) -> list[dict]:
    """No document, one document, and documents without dates."""
    questions[0]["profile"] = []
    questions[1]["profile"] = questions[1]["profile"][:1]
    for document in questions[2]["profile"]:
        del document["date"]
    return questions


def test_odd_users_and_users_without_golds(house, tmp_path, capsys):
    """Empty and short profiles, missing dates and golds: nobody is lost, nothing is trained on without a gold."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 8, "dev": 4, "test": 5})
    for split in ("train", "dev", "test"):
        questions, outputs = files.lamp_files(root, 4, split)
        questions.write_text(json.dumps(odd(json.loads(questions.read_text()))))
        content = json.loads(outputs.read_text())
        content["golds"] = [gold for gold in content["golds"] if gold["id"] != f"{split[:2]}3"]
        outputs.write_text(json.dumps(content))
    more = [PART, f"data.root={root}", "+data.on_problem.missing_gold=keep", "optim.epochs=1"]
    run = train(house.settings("method=rspg_post", *more, folder=tmp_path))
    said = capsys.readouterr().out
    # recency, bm25 and initial have nothing of the empty profile, recency nothing of the undated one
    assert said.count("4 empty rankings") == 3
    assert said.count("1 without target") == 3
    assert "7 inputs," in said
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["n_train"], summary["n_heldout"]) == (7, 4)
    assert summary["pool"] == list(UNTRAINED)
    where = evaluated(house, tmp_path, ("none", "recency", "rspg_post"), *more)
    ids = [f"te{i}" for i in range(5)]
    found = predictions(where, "rspg_post")
    assert list(found) == ids
    assert found["te0"] == predictions(where, "none")["te0"]
    assert {row["n"] for row in json.loads((where / "results.json").read_text())} == {4}
    assert told(where)["n"] == 4
    selector = load_selector(run)
    for example in build.build_examples(house.settings(*more), "test", None):
        choice = selector.select(example)
        assert choice.text == found[example.id]


def test_a_test_split_without_golds(house, tmp_path):
    """LaMP's own: predictions of the selector to send in, and no table that would have no golds."""
    sizes = {"train": 30, "dev": 3, "test": 4}
    root = files.write_lamp(tmp_path / "lamp", 4, sizes, golds=("train", "dev"))
    more = ["selector.pool=[none,bm25]", f"data.root={root}", "optim.epochs=1"]
    run = train(house.settings("method=rspg_post", *more, folder=tmp_path))
    assert json.loads((run / "summary.json").read_text())["n_heldout"] == 3
    where = evaluated(house, tmp_path, ("none", "rspg_post"), *more, "evaluation.split=test")
    assert list(predictions(where, "rspg_post")) == [f"te{i}" for i in range(4)]
    assert json.loads((where / "results.json").read_text()) == []
    assert not (where / "rspg.json").exists()
    assert "Table 4" not in (where / "tables.md").read_text()
    assert "predictions only" in (where / "tables.md").read_text()


def test_a_split_without_golds_is_refused_before_the_llm_works(house, tmp_path, asked):
    """So few training users that none of them chooses checkpoints: known before the first prompt."""
    sizes = {"train": 9, "dev": 2, "test": 2}
    root = files.write_lamp(tmp_path / "lamp", 4, sizes, golds=("train", "dev"))
    with pytest.raises(Refused, match="none of the 0 dev examples has a gold output"):
        train(house.settings("method=rspg_pre", PART, f"data.root={root}", folder=tmp_path))
    assert not asked


@pytest.fixture(scope="module")
def undated(house, tmp_path_factory):
    """A selector whose pool names recency on data without dates: (settings, run)."""
    folder = tmp_path_factory.mktemp("undated")
    root = files.write_lamp(folder / "lamp", 4, {"train": 5, "dev": 2, "test": 3}, dated=False)

    def settings(*more: str) -> Any:
        return house.settings("method=rspg_pre", f"data.root={root}", "optim.epochs=1", *more, folder=folder)

    return settings, train(settings("selector.pool=[recency,bm25,initial]"))


def test_data_without_dates(undated, capsys):
    """User-based splits have no dates: recency is left out of the pool in training and in the tables."""
    settings, run = undated
    assert json.loads((run / "summary.json").read_text())["pool"] == ["bm25", "initial"]
    where = evaluate(settings("selector.pool=[recency,bm25,initial]", "evaluation.systems=[none,rspg_pre]"))
    assert "recency: left out" in capsys.readouterr().out
    assert [row["name"] for row in told(where)["pool"]] == ["bm25", "initial"]


def test_a_selector_of_data_without_dates_has_the_pool_it_was_trained_with(undated):
    """A member that was left out must not be chosen under its name for the prompt without documents."""
    _, run = undated
    assert [member.name for member in load_selector(run).members] == ["bm25", "initial"]


def test_a_pool_that_is_the_same_is_not_called_another(undated, capsys):
    """A warning that is always there is read by nobody."""
    settings, _ = undated
    evaluate(settings("selector.pool=[recency,bm25,initial]", "evaluation.systems=[none,rspg_pre]"))
    assert "was trained with the pool" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "run"), [("rspg_post", "rspg_pre"), ("ropg_kd", "ropg_rl"), ("ropg_rl", "rspg_pre")]
)
def test_a_run_of_another_method_is_refused(house, tmp_path, name, run):
    """A row called RSPG-Post that holds Pre's choices, or KD's that holds RL's, looks like any other row."""
    with pytest.raises(Refused, match=f"that is the run of a .*, {run}"):
        evaluated(house, tmp_path, ("none", name), f"models.{name}={house.runs[run]}")


def test_data_that_changed_since_the_training_is_said(house, tmp_path, capsys):
    """Held-out users that a run was trained on make a fine table of nothing."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 4, "dev": 2, "test": 3})
    more = (f"data.root={root}", "optim.epochs=1")
    train(house.settings("method=ropg_kd", *more, folder=tmp_path))
    evaluated(house, tmp_path, ("none", "ropg_kd"), *more)
    assert "other data" not in capsys.readouterr().out
    for part in ("questions", "outputs"):
        (train_file,) = root.rglob(f"train_{part}.json")
        (test_file,) = root.rglob(f"test_{part}.json")
        both = train_file.read_bytes(), test_file.read_bytes()
        test_file.write_bytes(both[0])
        train_file.write_bytes(both[1])
    evaluated(house, tmp_path, ("none", "ropg_kd"), *more)
    assert "ropg_kd was trained on other data: train, heldout changed since" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["rspg_post", "ropg_kd"])
def test_a_damaged_model_is_named_and_written_again(house, tmp_path, asked, name):
    """A full disk cuts a file of weights: the remedy that the message names must work."""
    runs = house.copy(tmp_path)
    weights = runs[name] / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    with pytest.raises(FileNotFoundError, match=r"delete that folder, and the command") as refused:
        evaluated(house, tmp_path, ("none", name))
    assert str(weights.parent) in str(refused.value)
    shutil.rmtree(weights.parent)
    train(house.settings(f"method={name}", folder=tmp_path))
    assert weights.read_bytes() == whole
    assert not asked


def test_a_curve_that_cannot_be_read_costs_no_table(house, tmp_path, capsys):
    """All answers are there; one optional picture must not lose them."""
    runs = house.copy(tmp_path)
    for name, damage in (("rspg_post", b"\xff\n"), ("ropg_kd", b"{nothing\n{}\n")):
        with (runs[name] / "metrics.jsonl").open("ab") as log:
            log.write(damage)
    where = evaluated(house, tmp_path, ("none", "bm25", "ropg_kd", "rspg_post"))
    said = capsys.readouterr().out
    for name in ("rspg_post", "ropg_kd"):
        assert f"learning curve left out: {runs[name] / 'metrics.jsonl'} cannot be read" in said
    assert systems(where) == {"none", "bm25", "ropg_kd", "rspg_post"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("retrieval.k=0", "retrieval.k=0: a prompt takes at least one document"),
        ("evaluation.systems=[]", r"evaluation\.systems is empty"),
        (
            "selector.pool=[none,foo]",
            r"selector\.pool: unknown retriever 'foo'\. Known: bm25, .* Or initial, or a trained",
        ),
    ],
)
def test_an_evaluation_that_cannot_be_is_refused_before_the_llm_works(house, tmp_path, asked, wrong, message):
    """After an hour of answers, the same words come an hour late."""
    with pytest.raises(Refused, match=message):
        evaluated(house, tmp_path, ("none", "bm25"), f"store.dir={tmp_path / 'empty'}", wrong)
    assert not asked
