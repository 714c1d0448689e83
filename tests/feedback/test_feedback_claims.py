"""Claims: of two that want the same text one generates it, and nobody waits for the dead."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from feedback_fakes import FakeLLM

from ropg.feedback.claims import Claims
from ropg.feedback.generation import generate_missing
from ropg.feedback.likelihood import likelihoods_missing
from ropg.feedback.store import GenerationStore

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from ropg.feedback.claims import Claims
claims = Claims(sys.argv[1])
assert claims.take(["a", "b"])
print("held", flush=True)
time.sleep(600)
"""


def test_a_claim_is_all_or_nothing_and_ends_with_its_holder(tmp_path):
    """A job that is killed while a batch is in flight must not block the others for ever."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        ours = Claims(tmp_path)
        assert not ours.take(["c", "b"])
        assert Claims(tmp_path).take(["c"])  # nothing of a refused claim is kept
    finally:
        process.kill()
        process.communicate()
    assert ours.take(["a", "b"])
    assert not Claims(tmp_path).take(["a"])
    ours.release(["a"])
    assert Claims(tmp_path).take(["a"])


def test_without_locks_claims_are_granted_and_said(tmp_path, caplog):
    """A file system without locks costs doubled work at worst, never the run."""
    blocked = tmp_path / "file"
    blocked.touch()
    claims = Claims(blocked)  # no folder: nothing can be locked there
    assert claims.take(["a"])
    assert claims.take(["b"])
    claims.release_all()
    assert caplog.text.count("cannot be locked") == 1


def test_two_that_read_ahead_share_overlapping_work(tmp_path):
    """Jobs of a sweep that hold many batches each and want each other's: no deadlock, nothing done twice."""
    prompts = [f"prompt {n}" for n in range(40)]
    barrier = threading.Barrier(2)
    asked: Counter[str] = Counter()
    reports, errors = {}, []

    def job(name: str, mine: list[str]) -> None:
        class Llm(FakeLLM):  # reads all batches that it can have, and answers the last first
            def answer_batches(self, batches):
                taken = list(batches)
                if not self.met:
                    self.met = True
                    barrier.wait(30)
                for batch in reversed(taken):
                    asked.update(batch)
                    yield batch, self.generate_batch(batch)

        llm = Llm()
        llm.met = False
        try:
            with GenerationStore(tmp_path) as store:
                reports[name] = generate_missing(llm, mine, store, progress=False)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    jobs = [
        threading.Thread(target=job, args=("front", prompts[:30])),
        threading.Thread(target=job, args=("back", prompts[:9:-1])),
    ]
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join(60)
    assert not errors
    assert set(asked) == set(prompts)
    assert asked.total() == len(prompts)
    assert sum(report.n_generated for report in reports.values()) == len(prompts)
    with GenerationStore(tmp_path) as store:
        assert sum(kinds["generations"] for kinds in store.contents().values()) == len(prompts)


def test_an_error_gives_back_what_was_claimed(tmp_path):
    """A process that goes on after a failed batch must not keep others from it."""

    class Fails(FakeLLM):
        def generate_batch(self, prompts):
            raise RuntimeError("out of memory")

    with GenerationStore(tmp_path) as store:
        with pytest.raises(RuntimeError, match="out of memory"):
            generate_missing(Fails(), ["a", "b"], store, progress=False)
        with GenerationStore(tmp_path) as other:
            assert generate_missing(FakeLLM(), ["a", "b"], other, progress=False).n_generated == 2


def test_likelihoods_are_claimed_too(tmp_path):
    """The Eval by likelihood costs as much as a generation: what another process computed is read."""
    pairs = [("a", "x"), ("b", "y"), ("c", "z")]
    with GenerationStore(tmp_path) as first, GenerationStore(tmp_path) as second:
        keys, values, made = likelihoods_missing(FakeLLM(), pairs, first, progress=False)
        assert made == 3
        assert likelihoods_missing(FakeLLM(), pairs, second, progress=False) == (keys, values, 0)
        assert second.claims.take(keys)
