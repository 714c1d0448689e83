"""SIGKILL at random moments of the feedback stage: the resumed table equals an undisturbed one bit for bit."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from feedback_fakes import ByLength, FakeLLM, FakeTask, make_examples

from ropg.feedback import GenerationStore, build_candidates, score_candidates

BATCH, SLEEP = 4, 0.02


def run(folder: Path, n: int, log: str | None = None, eval: str = "metric", sleep: float = 0.0) -> None:
    """The whole feedback stage on n examples: 4 n prompts in n batches."""
    examples, task = make_examples(n), FakeTask()
    candidates = build_candidates(examples, task, ByLength(), progress=False)
    llm = FakeLLM(batch=BATCH, sleep=sleep, log=log)
    with GenerationStore(folder / "store") as store:
        table = score_candidates(examples, task, candidates, llm, store, eval=eval, progress=False)
    table.write(folder / "feedback.parquet")


def wait_until(log: Path, size: int, child: subprocess.Popen) -> None:
    """Return once the child has begun so many prompts (a line of 65 bytes each); 0 more: at once."""
    while log.stat().st_size < size and child.poll() is None:
        time.sleep(0.001)


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_feedback_kill
print("ready", flush=True)
test_feedback_kill.run(Path(sys.argv[2]), int(sys.argv[6]), sys.argv[3], sys.argv[4], float(sys.argv[5]))
"""


@pytest.mark.parametrize(("eval", "kills", "n"), [("metric", 10, 100), ("likelihood", 2, 25)])
def test_killed_and_resumed_equals_undisturbed(tmp_path, eval, kills, n):
    """Hours of LLM work: a kill costs at most the batch in flight, and changes no byte of the result."""
    whole, broken, log = tmp_path / "whole", tmp_path / "broken", tmp_path / "log"
    run(whole, n, eval=eval)
    log.touch()
    command = [
        sys.executable,
        "-c",
        CHILD,
        str(Path(__file__).parent),
        str(broken),
        str(log),
        eval,
        str(SLEEP),
        str(n),
    ]
    chance, killed = random.Random(7), 0
    for _ in range(kills):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        wait_until(log, log.stat().st_size + 65 * BATCH * chance.randint(0, 6), child)
        time.sleep(chance.uniform(0.0, 2 * SLEEP))  # inside a batch, a commit, or between the two
        killed += child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert killed == kills, "every child must die at work"
    assert 0 < len(log.read_text().split()) < 4 * n
    run(broken, n, log=str(log), eval=eval)
    assert (broken / "feedback.parquet").read_bytes() == (whole / "feedback.parquet").read_bytes()
    begun = Counter(log.read_text().split())
    assert len(begun) == 4 * n
    repeated = begun.total() - len(begun)
    assert repeated <= kills * BATCH, "at most one batch per kill is generated twice"
