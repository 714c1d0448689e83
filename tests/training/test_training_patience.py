"""Early stopping: training ends once the held-out reward has not risen for so many evaluations."""

import dataclasses
import json
import logging

import pytest
from tiny_training import ToyEncoder, make_rows, run, weights

from ropg.training import TrainSettings, load_objective
from ropg.training.checkpoints import ResumeMismatch

# its held-out rewards by evaluation, every three steps: 0.50, 0.62, 0.61, 0.56, 0.57, 0.62 (the best), 0.56, 0.52, …
RUN = {"lr": 0.5, "seed": 3, "epochs": 6}


class Interruption(Exception):
    pass


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run without patience."""
    folder = tmp_path_factory.mktemp("whole")
    _, result = run(folder, **RUN)
    rewards = [record["expected_reward"] for record in result.history]
    assert rewards.index(max(rewards[:5])) == 1
    assert rewards.index(max(rewards)) == 5
    return records(folder), result


@pytest.mark.parametrize(("patience", "best", "stop"), [(3, 3, 12), (4, 15, 27), (7, 15, 36)])
def test_training_stops_after_so_many_evaluations_without_a_better_one(
    tmp_path, whole, caplog, patience, best, stop
):
    """Counted anew from every better one; up to the stop nothing differs, the learning rate included."""
    with caplog.at_level(logging.INFO, "ropg.training.loop"):
        encoder, result = run(tmp_path, **RUN, patience=patience)
    assert (result.best_step, result.steps, result.planned_steps) == (best, stop, 36)
    found = records(tmp_path)
    last = {"event": "stopped", "step": stop, "best_step": best, "patience": patience}
    shared = [r for r in whole[0] if r["step"] <= stop]
    if stop < 36:
        assert found == [*shared, last]
        assert f"stopped at step {stop} of 36: {patience} evaluations since step {best}" in caplog.text
    else:  # patience that ends with the last epoch has stopped nothing
        assert found == shared
        assert "stopped" not in caplog.text
    assert result.history == whole[1].history[: len(result.history)]
    assert result.best_value == max(r["expected_reward"] for r in result.history)
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert weights(encoder) != weights(ToyEncoder())


def test_equal_rewards_are_no_better_ones(tmp_path):
    """A module that no longer changes would train to the last epoch."""
    _, result = run(tmp_path, objective=lambda b: ((b.scores * 0).sum(), {}), patience=2)
    assert (result.best_step, result.steps) == (0, 6)


@pytest.mark.parametrize("before_the_end", [0, 1, 2])
def test_interrupted_around_the_stop_it_stops_at_the_same_step(tmp_path, before_the_end):
    """At the record of the stop, at the evaluation that decides it, a step before: all as in one piece."""
    settings = {**RUN, "patience": 3}
    encoder, expected = run(tmp_path / "undisturbed", **settings)
    metrics = (tmp_path / "undisturbed" / "metrics.jsonl").read_bytes()
    left = metrics.count(b"\n") - before_the_end

    def interrupt(record):
        nonlocal left
        left -= 1
        if left == 0:
            raise Interruption

    folder = tmp_path / "interrupted"
    with pytest.raises(Interruption):
        run(folder, **settings, checkpoint_every=2, tracker=interrupt)
    resumed, result = run(folder, **settings, checkpoint_every=2)
    assert weights(resumed) == weights(encoder)
    assert (folder / "metrics.jsonl").read_bytes() == metrics
    assert dataclasses.replace(result, seconds=0.0) == dataclasses.replace(expected, seconds=0.0)
    assert (folder / "model").exists()


def test_ended_before_the_export_it_only_exports(tmp_path, monkeypatch):
    """Killed after the evaluation that stopped it, a run has nothing left to train."""
    import tiny_training

    def full_disk(*_):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tiny_training, "save_file", full_disk)
        with pytest.raises(OSError, match="No space"):
            run(tmp_path, **RUN, patience=3)
    metrics = (tmp_path / "metrics.jsonl").read_bytes()
    assert not (tmp_path / "model").exists()
    again = ToyEncoder(seed=8)
    _, result = run(tmp_path, **RUN, patience=3, encoder=again)
    assert not again.embedded
    assert (tmp_path / "metrics.jsonl").read_bytes() == metrics
    assert (tmp_path / "model").exists()
    assert result.steps == 12


def test_a_stopped_run_is_finished(tmp_path):
    """The same command again returns what it found, and trains no further."""
    encoder, result = run(tmp_path, **RUN, patience=3)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    again = ToyEncoder(seed=5)
    seen = []
    _, repeated = run(tmp_path, **RUN, patience=3, encoder=again, tracker=seen.append)
    assert repeated == result
    assert not again.embedded
    assert not seen
    assert weights(again) == weights(encoder)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before


def test_another_patience_is_another_run(tmp_path):
    """What is selected depends on it; runs of before it was a setting are resumed as they were."""
    run(tmp_path, **RUN, patience=3)
    with pytest.raises(ResumeMismatch, match=r"settings\.patience was 3"):
        run(tmp_path, **RUN)
    assert "patience" not in TrainSettings().identity()
    assert TrainSettings(patience=2).identity()["patience"] == 2
    with pytest.raises(ValueError, match="patience=0 is out of range"):
        TrainSettings(patience=0)


def test_every_objective_can_be_stopped(tmp_path):
    """Distillation as well."""
    objective = load_objective("ropg_kd", target_temperature=0.1)
    _, result = run(tmp_path, objective=objective, rows=make_rows(8, 1), lr=5.0, epochs=20, patience=1)
    assert result.steps < result.planned_steps


def test_the_first_documents_reward_may_choose(tmp_path, whole):
    """The kept weights are those of its best evaluation, the first of equal ones, and patience watches it."""
    _, result = run(tmp_path / "a", **RUN, choose_by="first_reward")
    assert result.history == whole[1].history
    rewards = [record["first_reward"] for record in result.history]
    best = rewards.index(max(rewards))
    assert result.best_value == max(rewards)
    assert result.best_step == result.history[best]["step"] != whole[1].best_step
    _, stopped = run(tmp_path / "b", **RUN, choose_by="first_reward", patience=1)
    falls = next(i for i in range(1, len(rewards)) if rewards[i] <= max(rewards[:i]))
    assert stopped.steps == result.history[falls]["step"]


def test_nothing_else_chooses():
    """A mistyped measure would be met after the first evaluation."""
    with pytest.raises(ValueError, match="choose_by"):
        TrainSettings(choose_by="entropy")
