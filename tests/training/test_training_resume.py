"""Interrupted anywhere and resumed, a run ends in the weights and metrics of an undisturbed one, bit for bit."""

import json
import logging
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_training import ToyEncoder, digest, run, weights

PROGRAM = Path(__file__).with_name("tiny_training.py")
CHECKPOINTS = {"checkpoint_every": 2}


class Interruption(Exception):
    pass


def interrupt_after(records):
    """A tracker that raises at the given record."""
    left = [records]

    def track(record):
        left[0] -= 1
        if left[0] == 0:
            raise Interruption

    return track


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    encoder, result = run(folder)
    return weights(encoder), (folder / "metrics.jsonl").read_bytes(), result


def assert_same(folder, encoder, result, undisturbed):
    final, metrics, expected = undisturbed
    assert weights(encoder) == final
    assert (folder / "metrics.jsonl").read_bytes() == metrics
    assert (result.best_step, result.best_value) == (expected.best_step, expected.best_value)
    assert result.history == expected.history
    assert (folder / "model" / "model.safetensors").exists()


@pytest.mark.parametrize("every", [1, 2, 5])
def test_interrupted_anywhere_it_resumes_exactly(tmp_path, undisturbed, every):
    """Mid-epoch, between checkpoints, at an evaluation: order, draws, Adam and the log go on exactly."""
    rng = random.Random(every)
    interruptions = 0
    while True:
        try:
            # a fresh module: only the folder may carry anything over
            encoder, result = run(
                tmp_path, tracker=interrupt_after(rng.randint(2, 9)), checkpoint_every=every
            )
            break
        except Interruption:
            interruptions += 1
            assert interruptions < 200
    assert interruptions >= 2
    assert_same(tmp_path, encoder, result, undisturbed)


def test_interrupted_during_the_first_evaluation(tmp_path, undisturbed):
    """Nothing is saved yet: the run starts anew and the first line is not written twice."""
    with pytest.raises(Interruption):
        run(tmp_path, tracker=interrupt_after(1))
    assert (tmp_path / "metrics.jsonl").read_bytes()
    assert_same(tmp_path, *run(tmp_path), undisturbed)


def test_saving_by_the_clock_changes_nothing(tmp_path, undisturbed):
    """When checkpoints are written may depend on time, what is computed may not."""
    with pytest.raises(Interruption):
        run(tmp_path, checkpoint_seconds=0, keep=1, tracker=interrupt_after(12))
    steps = list((tmp_path / "checkpoints").glob("step-*"))
    assert len(steps) == 1
    assert_same(tmp_path, *run(tmp_path), undisturbed)


def test_failure_while_exporting_is_made_up_for(tmp_path, undisturbed, monkeypatch):
    """A full disk at the very end must not cost the training, nor leave half a model."""
    import tiny_training

    def full_disk(*_):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tiny_training, "save_file", full_disk)
        with pytest.raises(OSError, match="No space"):
            run(tmp_path)
    assert not (tmp_path / "model").exists()
    assert_same(tmp_path, *run(tmp_path), undisturbed)


def stopped(folder):
    """A run that stopped in the middle, with two checkpoints."""
    with pytest.raises(Interruption):
        run(folder, **CHECKPOINTS, tracker=interrupt_after(15))
    newest, before = sorted((folder / "checkpoints").glob("step-*"), reverse=True)
    return newest, before


def tear_tensors(path):
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


def flip_a_bit(path):
    file = path / "optimizer.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def tear_state(path):
    file = path / "state.json"
    file.write_text(file.read_text()[:40])


def lose_tensors(path):
    (path / "optimizer.safetensors").unlink()


@pytest.mark.parametrize("damage", [tear_tensors, flip_a_bit, tear_state, lose_tensors])
def test_a_broken_checkpoint_is_passed_over(tmp_path, undisturbed, caplog, damage):
    """A torn or damaged file must neither crash the resumption nor get into the weights."""
    newest, _ = stopped(tmp_path)
    damage(newest)
    with caplog.at_level(logging.WARNING):
        encoder, result = run(tmp_path, **CHECKPOINTS)
    assert newest.name in caplog.text
    assert "the one before it is used" in caplog.text
    assert_same(tmp_path, encoder, result, undisturbed)


def test_without_a_whole_checkpoint_it_starts_anew(tmp_path, undisturbed, caplog):
    """And says so."""
    for path in stopped(tmp_path):
        tear_state(path)
    with caplog.at_level(logging.WARNING):
        encoder, result = run(tmp_path, **CHECKPOINTS)
    assert "training starts from the beginning" in caplog.text
    assert_same(tmp_path, encoder, result, undisturbed)


def test_a_half_written_checkpoint_is_removed(tmp_path, undisturbed):
    """What a killed process left under a temporary name is no checkpoint."""
    stopped(tmp_path)
    (tmp_path / "checkpoints" / ".tmp-step-000099").mkdir()
    encoder, result = run(tmp_path, **CHECKPOINTS)
    assert not list((tmp_path / "checkpoints").glob(".tmp-*"))
    assert_same(tmp_path, encoder, result, undisturbed)


def test_lost_best_weights_are_an_error_with_the_remedy(tmp_path):
    """Resuming without them could end with nothing to restore."""
    stopped(tmp_path)
    (tmp_path / "checkpoints" / "best" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(FileNotFoundError, match=r"best so far; remove .*checkpoints to train anew"):
        run(tmp_path)


def test_lost_metrics_are_reported_and_the_run_goes_on(tmp_path, undisturbed, caplog):
    """The curves are a by-product; the weights are not lost with them, nor is the file filled with zeros."""
    stopped(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    with caplog.at_level(logging.WARNING):
        encoder, result = run(tmp_path)
    assert "earlier records are lost" in caplog.text
    assert weights(encoder) == undisturbed[0]
    assert result.history == undisturbed[2].history
    assert all(json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())


def test_checkpoint_names_and_files(tmp_path):
    """No "=" (command lines would have to quote it), no pickle, no more folders than asked for."""
    run(tmp_path, checkpoint_every=1, keep=3)
    names = sorted(p.name for p in (tmp_path / "checkpoints").iterdir())
    assert names == ["best", "exported", "step-000016", "step-000017", "step-000018"]
    files = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {"metrics.jsonl", "exported", "state.json", "model.safetensors", "optimizer.safetensors"}


def program(folder, *options, environment=None):
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder), *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
    )


def check_kills(folder, kills, seed):
    """Kill the program at random moments, then let it end, and compare it with a run in one piece."""
    options, rng, done = ("epochs=6", "checkpoint_every=2"), random.Random(seed), 0
    while done < kills:
        process = program(folder / "killed", *options)
        for _ in range(rng.randint(1, 4)):
            line = process.stdout.readline()
        assert line.strip().isdigit(), "the run ended before it was killed often enough"
        try:  # anywhere within the milliseconds of a step, an evaluation or a save
            process.wait(rng.random() * 0.02)
        except subprocess.TimeoutExpired:
            done += 1
        process.send_signal(signal.SIGKILL)
        process.communicate()
    output, _ = program(folder / "killed", *options).communicate(timeout=120)
    encoder, result = run(folder / "undisturbed", epochs=6)
    assert output.splitlines()[-1] == f"done {digest(encoder)} {result.best_step}"
    files = [(folder / name / "metrics.jsonl").read_bytes() for name in ("undisturbed", "killed")]
    assert files[0] == files[1]


def test_killed_it_resumes_exactly(tmp_path):
    """SIGKILL at random moments, as a cluster does it."""
    check_kills(tmp_path, kills=2, seed=0)


@pytest.mark.slow
def test_killed_ten_times_it_resumes_exactly(tmp_path):
    """The same with the full count."""
    check_kills(tmp_path, kills=10, seed=1)


def test_a_fresh_module_is_all_a_resumption_needs(tmp_path, undisturbed):
    """Whatever weights the module comes with, the checkpoint's replace them."""
    stopped(tmp_path)
    assert_same(tmp_path, *run(tmp_path, encoder=ToyEncoder(seed=77)), undisturbed)
