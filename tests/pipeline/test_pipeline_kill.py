"""SIGKILL of `python train.py` at random moments: resumed, it ends in the bytes of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pipeline_files as files
import pytest

from ropg.cli import compose
from rspg.pipeline import train

ROOT = Path(__file__).parents[2]
BATCH, SECONDS = 2, 0.05  # prompts and seconds of one batch of the slow LLM


class Run:
    """One configuration with a store and a run folder of its own, started as often as needed."""

    def __init__(self, folder: Path, overrides: Callable[..., list[str]], *more: str) -> None:
        folder.mkdir()
        self.log = folder / "log"
        self.log.touch()
        self.folder, self.store = folder / "run", folder / "stores"
        arguments = overrides(f"run.dir={self.folder}", *more, folder=folder)
        self.command = [sys.executable, "train.py", *arguments]
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent),
            "SLOW_LLM_LOG": str(self.log),
            "SLOW_LLM_SECONDS": str(SECONDS),
        }

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output.decode()[-3000:]

    def kill_once(self, reached: Callable[[], bool], seconds: float) -> None:
        """Start the command, wait until it has come so far, and kill it within the next ``seconds``."""
        process = self.start()
        try:
            while not reached():
                assert process.poll() is None, process.communicate()[0].decode()[-3000:]
                time.sleep(0.001)
            time.sleep(seconds)
            assert process.poll() is None, "it ended before it was killed"
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert not (self.folder / "summary.json").exists()

    def prompts(self) -> int:
        """Prompts that the LLM has begun."""
        return self.log.stat().st_size // 65

    def records(self) -> int:
        """Lines of metrics.jsonl."""
        path = self.folder / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def tables(self) -> dict[str, bytes]:
        folder = self.store / "tables"
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}

    def texts(self) -> dict[str, str]:
        return files.texts(self.store)

    def model(self) -> dict[str, bytes]:
        folder = self.folder / "model"
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }

    def summary(self) -> dict:
        return json.loads((self.folder / "summary.json").read_text())


def check_equal(killed: Run, undisturbed: Run, kills: int) -> None:
    """A run whose LLM stage was killed ``kills`` times left what one in one piece left, and little was done twice."""
    assert killed.texts() == undisturbed.texts()
    assert "model.safetensors" in undisturbed.model()
    assert killed.model() == undisturbed.model()
    logs = [(run.folder / "metrics.jsonl").read_bytes() for run in (killed, undisturbed)]
    assert logs[0] == logs[1]
    records = [json.loads(line) for line in logs[0].splitlines()]
    assert len({r["expected_reward"] for r in records if r["event"] == "evaluation"}) > 1

    expected, found = undisturbed.summary(), killed.summary()
    calls = expected["llm_calls"]
    assert calls == len(undisturbed.texts())
    begun = Counter(killed.log.read_text().split())
    assert len(begun) == calls
    assert begun.total() - calls <= BATCH * kills  # at most the batch in flight is generated again
    # a kill between the commit of a batch and its count loses the count, not the batch
    assert calls - BATCH * kills <= found["llm_calls"] <= calls
    for summary in (expected, found):
        for name in ("llm_calls", *files.MEASURED):
            del summary[name]
    assert found == expected


def check_kills(
    tmp_path: Path, overrides: Callable[..., list[str]], kills: int, users: int, epochs: int, *more: str
) -> None:
    """Kill feedback and training ``kills`` times each, finish, and compare with one run in one piece."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": users, "dev": 3, "test": 4}, documents=(5, 6))
    same = [
        "experiment=lamp_4_llama",
        "data.setting=null",
        f"data.root={root}",
        "candidates.l=4",
        f"llm.max_batch_size={BATCH}",
        "method=ropg_rl",  # one draw per query: resuming must go on with the same draws
        "optim.lr=1e-3",
        f"optim.epochs={epochs}",
        "optim.batch_size=1",
        "optim.eval_every=0.5",
        "optim.checkpoint_seconds=0.05",
        *more,
    ]
    chance = random.Random(kills)
    undisturbed = Run(tmp_path / "undisturbed", overrides, *same)
    whole = undisturbed.start()
    killed = Run(tmp_path / "killed", overrides, *same, "llm.kind=slow_llm:SlowLlama")
    try:
        for _ in range(kills):
            target = killed.prompts() + BATCH * chance.randint(1, 3)
            killed.kill_once(lambda: killed.prompts() >= target, chance.uniform(0, 2 * SECONDS))  # noqa: B023
            assert not list(killed.store.rglob("feedback-heldout*")), "the feedback stage was over"
        for _ in range(kills):
            target = killed.records() + chance.randint(1, 5)
            killed.kill_once(lambda: killed.records() >= target, chance.uniform(0, 0.03))  # noqa: B023
        killed.finish(killed.start())
        undisturbed.finish(whole)
    finally:
        whole.kill()
        whole.communicate()

    assert len(undisturbed.tables()) == 6
    assert killed.tables() == undisturbed.tables()
    check_equal(killed, undisturbed, kills)


def check_selector_kills(
    tmp_path: Path,
    overrides: Callable[..., list[str]],
    method: str,
    kills: tuple[int, int],
    users: int,
    epochs: int,
) -> None:
    """Kill the pool stage and the training of a selector ``kills`` times, finish, and compare with one piece."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": users, "dev": 3, "test": 4}, documents=(5, 6))
    same = [
        "experiment=lamp_4_llama",
        "data.setting=null",
        f"data.root={root}",
        f"llm.max_batch_size={BATCH}",
        f"method={method}",
        "selector.pool=[none,recency,bm25,initial]",
        "retrieval.k=2",
        "optim.lr=1e-3",
        f"optim.epochs={epochs}",
        "optim.batch_size=1",
        "optim.eval_every=0.5",
        "optim.checkpoint_seconds=0.05",
    ]
    chance = random.Random(sum(kills))
    undisturbed = Run(tmp_path / "undisturbed", overrides, *same)
    train(compose(*undisturbed.command[2:]))
    killed = Run(tmp_path / "killed", overrides, *same, "llm.kind=slow_llm:SlowLlama")
    pinned = set()
    for _ in range(kills[0]):
        target = killed.prompts() + BATCH * chance.randint(1, 3)
        killed.kill_once(lambda: killed.prompts() >= target, chance.uniform(0, 2 * SECONDS))  # noqa: B023
        assert killed.records() == 0, "the pool stage was over"
        pinned.add((killed.folder / "pool.json").read_bytes())
    for _ in range(kills[1]):
        target = killed.records() + chance.randint(1, 5)
        killed.kill_once(lambda: killed.records() >= target, chance.uniform(0, 0.03))  # noqa: B023
    killed.finish(killed.start())

    assert len(pinned | {(killed.folder / "pool.json").read_bytes()}) == 1
    check_equal(killed, undisturbed, kills[0])


def test_killed_twice_in_each_stage(tmp_path, overrides):
    """A cluster kills jobs: hours of LLM work and of training go on where they stopped, to the same bytes."""
    check_kills(tmp_path, overrides, kills=2, users=8, epochs=16)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["lora", "query"])
def test_killed_while_adapters_or_the_query_side_are_trained(tmp_path, overrides, way):
    """The same for what is not the whole encoder."""
    check_kills(tmp_path, overrides, 2, 8, 16, f"encoder.train={way}", "optim.lr=1e-2")


@pytest.mark.slow
def test_killed_ten_times_in_each_stage(tmp_path, overrides):
    """The same with the full count."""
    check_kills(tmp_path, overrides, kills=10, users=24, epochs=12)


@pytest.mark.slow
def test_a_selector_killed_in_each_stage(tmp_path, overrides):
    """The pool is as expensive as feedback, and a Longformer trains for hours: both go on where they stopped."""
    check_selector_kills(tmp_path, overrides, "rspg_post", kills=(1, 2), users=6, epochs=8)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rspg_pre", "rspg_post"])
def test_a_selector_killed_ten_times_in_each_stage(tmp_path, overrides, method):
    """The same with the full count."""
    check_selector_kills(tmp_path, overrides, method, kills=(10, 10), users=24, epochs=12)
