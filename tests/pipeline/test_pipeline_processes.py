"""`accelerate launch`: however many processes share the work, tables, losses and results are those of one."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pipeline_files as files
import pytest

from ropg.cli import compose
from rspg.comparison import evaluate
from rspg.pipeline import train

ROOT = Path(__file__).parents[2]
BATCH = 2
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1"]


class Shared:
    """One configuration in a folder of its own, run by any number of processes."""

    def __init__(self, folder: Path, lamp: Path, models: object, *more: str) -> None:
        self.folder, self.log = folder, folder / "log"
        folder.mkdir(exist_ok=True)
        self.log.touch()
        self.arguments = files.overrides(
            models,
            folder,
            "experiment=lamp_4_llama",
            "data.setting=null",
            f"data.root={lamp}",
            "candidates.l=4",
            f"llm.max_batch_size={BATCH}",
            "retrieval.k=2",
            "selector.pool=[none,bm25,initial]",
            "evaluation.systems=[none,bm25,initial,ropg_kd]",
            "optim.lr=1e-3",
            "optim.epochs=6",
            "optim.batch_size=3",
            "optim.accumulation=2",
            "optim.eval_every=0.5",
            "optim.checkpoint_seconds=0.05",
            *more,
        )

    def start(self, processes: int, *more: str, program: str = "train.py") -> subprocess.Popen[bytes]:
        command = [*LAUNCH, "--num_processes", str(processes), "--main_process_port", "0"]
        return subprocess.Popen(
            [*command, program, *self.arguments, *more],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parent),
                "SLOW_LLM_LOG": str(self.log),
                "SLOW_LLM_SECONDS": "0.05",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, processes: int, *more: str, program: str = "train.py") -> str:
        output, _ = self.start(processes, *more, program=program).communicate(timeout=300)
        return output.decode()

    def kill_when(self, reached: Callable[[], bool], processes: int, *more: str) -> None:
        """Start the command and kill all its processes at once as soon as it has come so far."""
        process = self.start(processes, *more)
        try:
            while not reached():
                assert process.poll() is None, process.communicate()[0].decode()[-3000:]
                time.sleep(0.002)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            # the launcher's children have sessions of their own, and outlive it
            subprocess.run(["pkill", "-KILL", "-f", f"train.py.*{self.folder}/"], check=False)
            process.communicate()

    def tables(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted((self.folder / "stores" / "tables").rglob("*.parquet"))
        }

    def rows(self) -> Counter[tuple[str, str]]:
        """(key, text) -> how often the store holds it."""
        found: Counter[tuple[str, str]] = Counter()
        for path in (self.folder / "stores" / "generations").glob("*.sqlite"):
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            found.update(connection.execute("SELECT key, text FROM generations").fetchall())
            connection.close()
        return found

    def only_run(self) -> Path:
        (found,) = [path.parent for path in (self.folder / "runs").rglob("config.yaml")]
        return found

    def records(self) -> list[dict]:
        path = next((self.folder / "runs").rglob("metrics.jsonl"), None)
        # the last line may be in the middle of being written
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path else []

    def summary(self) -> dict:
        return json.loads((self.only_run() / "summary.json").read_text())


def assert_same_run(found: Shared, expected: Shared) -> None:
    assert found.tables() == expected.tables()
    assert len(expected.tables()) in (0, 6)  # a selector has none
    assert found.rows() == expected.rows()
    assert set(expected.rows().values()) == {1}
    pairs = list(zip(found.records(), expected.records(), strict=True))
    for mine, other in pairs:
        assert mine.keys() == other.keys()
        for name, value in other.items():
            assert mine[name] == (pytest.approx(value, abs=1e-5) if isinstance(value, float) else value)
    assert len({other["loss"] for _, other in pairs if other["event"] == "step"}) > 3
    mine, other = found.summary(), expected.summary()
    assert mine["llm_calls"] == other["llm_calls"] == len(expected.rows())
    for system, values in other["heldout"].items():
        assert mine["heldout"][system] == pytest.approx(values, abs=1e-5)


@pytest.fixture(scope="module")
def lamp(tmp_path_factory):
    root = tmp_path_factory.mktemp("lamp")
    return files.write_lamp(root, 4, {"train": 8, "dev": 3, "test": 4}, documents=(5, 6))


@pytest.fixture(scope="module")
def alone(tmp_path_factory, models, lamp):
    """One process, no launcher."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROPG_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        shared = Shared(tmp_path_factory.mktemp("alone"), lamp, models, "method=ropg_kd")
        train(compose(*shared.arguments))
    return shared


@pytest.mark.parametrize("processes", [2, 3])
def test_any_number_of_processes_gives_the_run_of_one(tmp_path, models, lamp, alone, processes):
    """Nobody should have to ask how many GPUs a result was made with."""
    shared = Shared(tmp_path, lamp, models, "method=ropg_kd")
    output = shared.run(processes)
    assert "[done]" in output, output[-3000:]
    assert output.count("[done]") == 1  # one process talks
    assert_same_run(shared, alone)
    writers = list((tmp_path / "stores" / "generations").glob("*.sqlite"))
    assert len(writers) == processes  # everyone took part


def test_killed_with_two_processes_and_resumed_with_one(tmp_path, models, lamp, alone):
    """A cluster takes a machine away: what two began, one ends, in the feedback stage as in training."""
    shared = Shared(tmp_path, lamp, models, "method=ropg_kd")
    slow = ("llm.kind=slow_llm:SlowLlama",)
    shared.kill_when(lambda: len(shared.log.read_bytes()) >= 65 * 3 * BATCH, 2, *slow)
    begun = len(shared.log.read_bytes()) // 65
    assert begun < len(alone.rows())
    assert not shared.records()
    shared.kill_when(lambda: len(shared.records()) >= 4, 2, *slow)
    assert not list(shared.folder.rglob("summary.json"))
    assert (
        begun < len(shared.log.read_bytes()) // 65 <= len(alone.rows()) + 2 * BATCH
    )  # two batches were in flight
    train(compose(*shared.arguments, *slow))
    summary = shared.summary()
    assert shared.tables() == alone.tables()
    assert shared.rows() == alone.rows()
    for system, values in alone.summary()["heldout"].items():
        assert summary["heldout"][system] == pytest.approx(values, abs=1e-5)
    for mine, other in zip(shared.records(), alone.records(), strict=True):
        assert mine.get("loss") == pytest.approx(other.get("loss"), abs=1e-5)


@pytest.mark.slow
def test_selectors_and_evaluation_with_two_processes(tmp_path, models, lamp):
    """The pool's answers and those of all systems are the other half of the LLM's hours."""
    one = Shared(tmp_path / "one", lamp, models, "method=rspg_post")
    train(compose(*one.arguments))
    evaluate(compose(*one.arguments, "run.dir=" + str(tmp_path / "one-evaluation")))
    two = Shared(tmp_path / "two", lamp, models, "method=rspg_post")
    assert "[done]" in two.run(2)
    assert_same_run(two, one)
    output = two.run(2, "run.dir=" + str(tmp_path / "two-evaluation"), program="evaluate.py")
    results = [tmp_path / f"{name}-evaluation" / "results.json" for name in ("two", "one")]
    assert results[0].exists(), output[-3000:]
    assert json.loads(results[0].read_text()) == json.loads(results[1].read_text())
    assert two.rows() == one.rows()


def test_a_refusal_is_said_once_and_ends_all(tmp_path, models, lamp):
    """Eight processes that hang after one has refused would hold eight GPUs."""
    shared = Shared(tmp_path, lamp, models, "method=ropg_kd", "data.root=/nowhere/at/all")
    output = shared.run(2)
    assert output.count("error: ") == 1, output
    assert "/nowhere/at/all" in output
