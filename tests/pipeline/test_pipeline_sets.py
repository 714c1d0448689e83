"""Training that asks the LLM about sets, and training that stops early, by the command's own function."""

from __future__ import annotations

import json

import pipeline_files as files
import pytest

from ropg.cli import Refused, compose
from ropg.feedback.sets import SetFeedback
from ropg.llms.local import LocalLLM
from ropg.pipeline import check
from rspg.pipeline import train

SETS = [
    "method=ropg_rl",
    "method.options.estimator=sample",
    "method.options.set_size=2",
    "method.options.set_reward=llm",
    "optim.epochs=2",
    "optim.lr=1e-2",
    "optim.checkpoint_seconds=0",
]


@pytest.fixture
def settings(overrides, tmp_path):
    """A configuration whose stores and runs lie below a folder of their own."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 6, "dev": 3, "test": 4})

    def build(folder, *more):
        common = ("experiment=lamp_4_llama", "data.setting=null", f"data.root={root}")
        return compose(*overrides(*common, *more, folder=tmp_path / folder))

    return build


def test_sets_are_asked_while_training_and_a_broken_run_goes_on(
    settings, tmp_path, asked, monkeypatch, capsys
):
    """Calls are counted with those of the feedback, and no try asks again for what an earlier one had."""
    whole = train(settings("whole", *SETS))
    printed = capsys.readouterr().out
    summary = json.loads((whole / "summary.json").read_text())
    singles = 3 * (6 + 3 + 4)  # candidates of every query, asked before the training
    assert summary["llm_calls"] == len(asked) == len(set(asked)) > singles
    assert f"[train] {len(asked) - singles} LLM calls about sets while training; " in printed
    assert json.loads((whole / "feedback.json").read_text()) == {"llm_calls": len(asked)}
    each = json.loads((whole / "heldout.json").read_text())
    assert len(each["example_ids"]) == summary["n_heldout"]
    for what in ("first_reward", "expected_reward"):
        for name, values in each[what].items():
            assert sum(values) / len(values) == pytest.approx(summary["heldout"][name][what])
    everything = sorted(asked)

    plain, room, tries = LocalLLM.generate_batch, singles + 1, 0

    def generate_batch(self, batch):
        nonlocal room
        if room < len(batch):
            room = (len(everything) - singles) // 2
            raise KeyboardInterrupt
        room -= len(batch)
        return plain(self, batch)

    asked.clear()
    monkeypatch.setattr(LocalLLM, "generate_batch", generate_batch)
    broken = None
    while broken is None and tries < 9:
        tries += 1
        try:
            broken = train(settings("broken", *SETS, "llm.max_batch_size=2"))
        except KeyboardInterrupt:
            assert not list((tmp_path / "broken").rglob("summary.json"))
    assert broken is not None
    assert tries > 2
    assert sorted(asked) == everything
    assert files.texts(tmp_path / "broken" / "stores") == files.texts(tmp_path / "whole" / "stores")
    for name in ("metrics.jsonl", "model/model.safetensors", "feedback.json"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    again = json.loads((broken / "summary.json").read_text())
    measured = dict.fromkeys(files.MEASURED, 0)
    assert again | measured == summary | measured


def test_sets_are_rewarded_as_the_training_split_is(settings, asked, monkeypatch):
    """A baseline and a reward of two different Evals could not be compared."""
    evals = []

    class Spy(SetFeedback):
        def __init__(self, *arguments):
            evals.append(arguments[-1])
            super().__init__(*arguments)

    monkeypatch.setattr("ropg.asking.SetFeedback", Spy)
    train(settings("whole", *SETS, "feedback.train_eval=likelihood", "optim.epochs=1"))
    assert evals == ["likelihood"]
    assert len(asked) == 3 * (3 + 4)  # texts for dev and held-out alone


def test_where_nobody_could_ask_it_is_refused_at_once(settings, monkeypatch):
    """Before hours of feedback."""
    with pytest.raises(Refused, match="a selector chooses retrievers"):
        check(settings("x", *SETS, "method.reads=pre"))
    with pytest.raises(ValueError, match="leave it at null with set_reward=llm"):
        check(settings("x", *SETS, "method.options.advantage_floor=0.1"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    check(settings("x", *SETS, "method.options.set_reward=max"))
    with pytest.raises(Refused, match="start one, without launcher"):
        check(settings("x", *SETS))
