"""What the training split alone learns from; dev and held-out are measured as ever."""

from __future__ import annotations

import json
from pathlib import Path

import pipeline_files as files
import pytest

from ropg.cli import Refused, compose
from ropg.pipeline import check, train
from ropg.runs import decisive, run_folder
from rspg.pipeline import train as train_any

SIZES = {"train": 6, "dev": 3, "test": 4}


@pytest.fixture
def settings(tmp_path, overrides):
    """Overrides of a small run; the data is written once per test."""
    root = files.write_lamp(tmp_path / "lamp", 4, SIZES, documents=(6, 8))

    def build(*more: str) -> list[str]:
        return overrides("experiment=lamp_4_llama", "data.setting=null", f"data.root={root}", *more)

    return build


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def records(folder: Path, event: str) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["event"] == event]


def tables(tmp_path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (tmp_path / "stores" / "tables").rglob("*.parquet")}


# -- another Eval -----------------------------------------------------------------------------------


def test_training_on_likelihoods_while_dev_and_held_out_are_measured_in_eval(tmp_path, settings):
    """Distilling from the LLM's likelihood must not change the measure by which it is compared with other targets."""
    plain = train(compose(*settings()))
    before = tables(tmp_path)
    mixed = train(compose(*settings("feedback.train_eval=likelihood")))
    added = tables(tmp_path).keys() - before.keys()
    assert len(added) == 1  # dev and held-out are the tables of before
    assert next(iter(added)).startswith("feedback-train-")
    assert summary(mixed)["llm_calls"] == 6 * 3  # the likelihoods of the training candidates
    for system in ("initial", "bm25", "random", "oracle"):
        assert summary(mixed)["heldout"][system] == summary(plain)["heldout"][system]
    assert (
        records(mixed, "evaluation")[0]["oracle_reward"] == records(plain, "evaluation")[0]["oracle_reward"]
    )

    everywhere = train(compose(*settings("feedback.eval=likelihood")))
    steps = [records(folder, "step") for folder in (mixed, everywhere, plain)]
    assert steps[0] == steps[1] != steps[2]  # the same rewards are learned from
    assert records(mixed, "evaluation") != records(everywhere, "evaluation")


def test_a_selector_may_learn_from_likelihoods_too(settings):
    """A key that one method reads and another passes over would be believed to work."""
    options = ["method=rspg_pre", "selector.pool=[none,recency,bm25]", "retrieval.k=1"]
    plain, mixed = (
        train_any(compose(*settings(*options, *more))) for more in ([], ["feedback.train_eval=likelihood"])
    )
    assert summary(mixed)["llm_calls"] > 0
    assert summary(mixed)["heldout"]["upper"] == summary(plain)["heldout"]["upper"]
    assert records(mixed, "step") != records(plain, "step")


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["feedback.train_eval=likelyhood"], r"feedback\.train_eval=likelyhood: it is metric or likelihood"),
    ],
)
def test_what_a_training_split_cannot_have_is_refused(arguments, message):
    """Hours of feedback before a misspelt name is noticed are hours lost."""
    with pytest.raises(Refused, match=message):
        check(compose(*arguments))


NEW = {"feedback.train_eval": ("likelihood", None)}


@pytest.mark.parametrize("key", NEW)
def test_a_key_decides_the_run_folder_where_it_is_set_and_only_there(key):
    """Runs of before these keys must be found again, and two settings must not meet in one folder."""
    part, name = key.split(".")
    value, default = NEW[key]
    plain = compose()
    assert name not in decisive(plain)[part]
    assert run_folder(compose(f"{key}={json.dumps(default)}")) == run_folder(plain)
    assert run_folder(compose(f"{key}={value}")) != run_folder(plain)
