"""Candidates that the encoder in training names anew, by the command's own function."""

from __future__ import annotations

import json
from pathlib import Path

import pipeline_files as files
import pytest

from ropg import pipeline
from ropg.cli import Refused, compose
from ropg.feedback import CandidateTable, FeedbackTable
from ropg.llms.local import LocalLLM
from ropg.pipeline import check, train
from ropg.runs import RunError, decisive, run_folder
from ropg.training.metrics_log import MetricsLog

SIZES = {"train": 6, "dev": 3, "test": 4}
REFRESH = ["candidates.refresh=1", "optim.epochs=3", "optim.lr=3e-2", "optim.eval_every=2"]
STEPS = 2  # of an epoch


@pytest.fixture
def settings(tmp_path, overrides):
    """A configuration whose stores and runs lie below a folder of their own."""
    root = files.write_lamp(tmp_path / "lamp", 4, SIZES, documents=(6, 8))

    def build(folder, *more):
        common = ("experiment=lamp_4_llama", "data.setting=null", f"data.root={root}", *REFRESH)
        return compose(*overrides(*common, *more, folder=tmp_path / folder))

    return build


def records(folder: Path, event: str) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["event"] == event]


def stored(folder: Path) -> dict[str, bytes]:
    """Tables of the store, which all runs share."""
    return {p.name: p.read_bytes() for p in (folder / "stores" / "tables").rglob("*.parquet")}


def rounds(run: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in run.glob("*-round-*.parquet")}


def check_rounds(run: Path, folder: Path) -> int:
    """What the tables of all rounds must hold; returns the number of new candidates."""
    every = [CandidateTable.read(p) for p in (folder / "stores" / "tables").rglob("candidates-train.parquet")]
    (initial,) = [table for table in every if table.identity["l"] == 3]
    (whole,) = [table for table in every if table.identity["l"] == "all"]
    seen = {(r["example_id"], r["document_id"]) for r in initial.table.to_pylist()}
    total = 0
    for number, record in enumerate(records(run, "refresh"), start=1):
        table = CandidateTable.read(run / f"candidates-round-{number}.parquet")
        assert table.example_ids == initial.example_ids
        for example_id in table.example_ids:
            mine, first = table.rows(example_id), whole.rows(example_id)
            places = dict(zip(first.document_ids, zip(first.ranks, first.scores, strict=True), strict=True))
            assert len(mine.document_ids) == 3
            assert [places[d] for d in mine.document_ids] == list(zip(mine.ranks, mine.scores, strict=True))
            assert mine.ranks == tuple(sorted(mine.ranks))
        rows = table.table.to_pylist()
        assert {(r["source"], r["round"]) for r in rows} == {("trained", number)}
        pairs = {(r["example_id"], r["document_id"]) for r in rows}
        assert record == {
            "event": "refresh",
            "step": number * STEPS,
            "round": number,
            "candidates": 6 * 3,
            "new_candidates": len(pairs - seen),
        }
        feedback = FeedbackTable.read(run / f"feedback-round-{number}.parquet").table
        asked = zip(*(feedback.column(n).to_pylist() for n in ("example_id", "document_id")), strict=True)
        assert list(asked) == [(r["example_id"], r["document_id"]) for r in rows]
        total += len(pairs - seen)
        seen |= pairs
    return total


class Stop(Exception):
    pass


def test_only_new_candidates_are_asked_about(settings, tmp_path, asked, monkeypatch, capsys):
    """A refresh costs its new prompts and no more; dev, held-out and d_b are those of any run."""
    learned = []
    learn = pipeline.learn

    def watch(config, folder, module, score_rows, rows, *rest):
        def refresh(round, begins):
            found = rest[-1](round, begins)
            learned.append((rows["train"], found.rows))
            return found

        return learn(config, folder, module, score_rows, rows, *rest[:-1], refresh)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "learn", watch)
        whole = train(settings("whole"))
    printed = capsys.readouterr().out
    new = check_rounds(whole, tmp_path / "whole")
    assert new > 2
    assert len(learned) == 2
    for before, now in learned:
        assert [q.example_id for q in now] == [q.example_id for q in before]
        assert [q.baseline for q in now] == [q.baseline for q in before]
        assert [q.document_ids for q in now] != [q.document_ids for q in before]
    singles = 3 * sum(SIZES.values())
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["llm_calls"] == len(asked) == len(set(asked)) == singles + new
    assert json.loads((whole / "feedback.json").read_text()) == {"llm_calls": singles + new}
    assert "[rank] round 1: 18 candidates by the encoder as it is now, " in printed

    plain = train(settings("plain", "candidates.refresh=null"))
    assert plain.name != whole.name
    assert not rounds(plain)
    assert not records(plain, "refresh")
    mine, others = stored(tmp_path / "whole"), stored(tmp_path / "plain")
    kept = {name for name in others if not name.startswith("candidates-train")}
    assert {name: mine[name] for name in kept} == {name: others[name] for name in kept}
    assert records(plain, "step")[:STEPS] == records(whole, "step")[:STEPS]
    assert records(plain, "evaluation")[0] == records(whole, "evaluation")[0]


@pytest.mark.slow
def test_killed_anywhere_it_ends_as_undisturbed(settings, tmp_path, asked, monkeypatch):
    """No try asks again for what an earlier one had, and none trains on what other weights had named."""
    whole = train(settings("whole"))
    singles, everything = 3 * sum(SIZES.values()), sorted(asked)
    new = len(everything) - singles
    assert new > 2
    asked.clear()
    generate, write = LocalLLM.generate_batch, MetricsLog.write
    room, stop_at = singles, ("", 0)

    def generate_batch(self, batch):
        nonlocal room
        if room < len(batch):
            raise Stop
        room -= len(batch)
        return generate(self, batch)

    def write_record(self, record):
        write(self, record)
        if (record["event"], record["step"]) == stop_at:
            raise Stop

    monkeypatch.setattr(LocalLLM, "generate_batch", generate_batch)
    monkeypatch.setattr(MetricsLog, "write", write_record)
    first = records(whole, "refresh")[0]["new_candidates"]
    tries = [
        (singles, ("step", 2)),  # before the boundary
        (singles + first // 2, ("", 0)),  # while the new candidates are asked about
        (singles + new, ("refresh", 2)),  # right after
        (singles + new, ("step", 4)),
        (singles + new, ("refresh", 4)),
        (singles + new, ("step", 6)),
    ]
    for allowed, after in tries:
        room, stop_at = allowed - len(asked), after
        with pytest.raises(Stop):
            train(settings("broken", "llm.max_batch_size=1", "optim.checkpoint_seconds=0"))
        assert not list((tmp_path / "broken").rglob("summary.json"))
    stop_at = ("", 0)
    broken = train(settings("broken", "llm.max_batch_size=1", "optim.checkpoint_seconds=0"))
    assert sorted(asked) == everything
    assert files.texts(tmp_path / "broken" / "stores") == files.texts(tmp_path / "whole" / "stores")
    assert stored(tmp_path / "broken") == stored(tmp_path / "whole")
    assert rounds(broken) == rounds(whole)
    for name in ("metrics.jsonl", "model/model.safetensors", "feedback.json", "heldout.json"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    summary, again = (json.loads((run / "summary.json").read_text()) for run in (whole, broken))
    assert {**again, **dict.fromkeys(files.MEASURED)} == {**summary, **dict.fromkeys(files.MEASURED)}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["query", "lora"])
def test_what_is_not_the_whole_encoder_refreshes_too(settings, tmp_path, monkeypatch, way):
    """Documents keep their vectors under encoder.train=query, also those that a refresh brings."""
    more = [f"encoder.train={way}", "optim.lr=1e-1", "feedback.train_eval=likelihood"]
    whole = train(settings("whole", *more))
    assert check_rounds(whole, tmp_path / "whole") > 0
    write = MetricsLog.write

    def write_record(self, record):
        write(self, record)
        if (record["event"], record["step"]) == ("step", 2 * STEPS + 2):
            raise Stop

    more.append("optim.checkpoint_seconds=0")
    with monkeypatch.context() as patch:
        patch.setattr(MetricsLog, "write", write_record)
        with pytest.raises(Stop):
            train(settings("broken", *more))
    broken = train(settings("broken", *more))
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_round_that_was_learned_from_and_is_gone(settings, tmp_path, monkeypatch):
    """Later weights would name other candidates: the run says what is missing, and what to do."""
    write = MetricsLog.write

    def write_record(self, record):
        write(self, record)
        if (record["event"], record["step"]) == ("step", STEPS + 2):
            raise Stop

    config = settings("x", "optim.checkpoint_seconds=0")
    with monkeypatch.context() as patch:
        patch.setattr(MetricsLog, "write", write_record)
        with pytest.raises(Stop):
            train(config)
    (run_folder(config) / "feedback-round-1.parquet").unlink()
    with pytest.raises(RunError, match=r"feedback-round-1\.parquet, .*remove .*checkpoints to train anew"):
        train(config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["candidates.refresh=0"], r"candidates\.refresh=0: it is a number of epochs from 1"),
        (["candidates.proposers=[initial,bm25]"], "candidates.refresh and candidates.proposers"),
        (["candidates.negatives=2"], "candidates.refresh and candidates.negatives"),
        (["candidates.l=all"], "leave candidates.refresh out"),
        (["optim.epochs=1"], "would never refresh"),
        (["method=rspg_pre"], "candidates.refresh is for retrievers"),
        (
            [
                "method=ropg_rl",
                "method.options.estimator=sample",
                "method.options.set_size=2",
                "method.options.set_reward=llm",
            ],
            "candidates.refresh and method.options.set_reward=llm",
        ),
    ],
)
def test_what_does_not_go_with_a_refresh_is_refused(arguments, message):
    """Before hours of feedback."""
    with pytest.raises(Refused, match=message):
        check(compose("candidates.refresh=1", *arguments))


def test_the_key_decides_the_run_folder_where_it_is_set_and_only_there():
    """Runs of before the key must be found again."""
    assert "refresh" not in decisive(compose())["candidates"]
    assert run_folder(compose("candidates.refresh=null")) == run_folder(compose())
    assert run_folder(compose("candidates.refresh=2")) != run_folder(compose("candidates.refresh=1"))
