"""The whole loop: it learns, keeps the best weights, writes everything down, and refuses what is wrong."""

import json
import logging
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_training import ToyEncoder, make_rows, run, weights

from ropg.training import TrainingRow, bi_encoder_scorer, evaluate_policy, load_objective
from ropg.training.checkpoints import ResumeMismatch, load_module, save_module


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "objective",
    [
        load_objective("ropg_kd", target_temperature=0.1),
        load_objective("ropg_rl", estimator="exact", baseline="expected"),
        load_objective("ropg_rl"),
    ],
    ids=["kd", "exact", "sample"],
)
def test_training_learns_what_the_feedback_says(tmp_path, objective):
    """Each objective must find the rewarded documents of held-out queries."""
    encoder, result = run(
        tmp_path,
        objective=objective,
        rows=make_rows(60, 1),
        dev=make_rows(30, 2),
        epochs=12,
        eval_every=3,
        batch_size=8,
        accumulation=1,
    )
    first, best = result.history[0], max(r["expected_reward"] for r in result.history)
    assert result.best_value == best
    assert best > first["expected_reward"] + 0.5 * (first["oracle_reward"] - first["expected_reward"])
    again = evaluate_policy(encoder, bi_encoder_scorer(encoder), make_rows(30, 2)).means()
    assert again["expected_reward"] == best  # the module holds the best weights


def test_metrics_are_complete_and_finite(tmp_path):
    """The curves that a reader needs, one line each, never NaN, no times."""
    seen = []
    _, result = run(tmp_path, tracker=seen.append, epochs=2, eval_every=0.5)
    lines = records(tmp_path)
    assert lines == seen
    steps = [r for r in lines if r["event"] == "step"]
    evaluations = [r for r in lines if r["event"] == "evaluation"]
    assert [r["step"] for r in steps] == list(range(1, 13))
    assert [r["step"] for r in evaluations] == [0, 3, 6, 9, 12]
    assert [r["epoch"] for r in evaluations] == [0, 0.5, 1, 1.5, 2]
    assert tuple(evaluations) == result.history
    assert set(evaluations[1]) == {
        "event", "step", "epoch", "train_loss", "loss", "expected_reward", "first_reward", "entropy",
        "oracle_reward", "initial_reward", "no_signal",
    }  # fmt: skip
    assert "train_loss" not in evaluations[0]
    assert set(steps[0]) == {"event", "step", "lr", "rows", "loss", "gradient_norm", "expected_reward"}
    assert all(math.isfinite(v) for r in lines for v in r.values() if not isinstance(v, str))
    window = steps[:3]
    mean = sum(r["loss"] * r["rows"] for r in window) / sum(r["rows"] for r in window)
    assert evaluations[1]["train_loss"] == pytest.approx(mean)


def test_evaluation_by_hand():
    """π = (1/4, 3/4), rewards (1, 0.2): every reported number from the formula."""
    rows = [
        TrainingRow("a", "q", ("x", "y"), (1.0, 0.2), (0.0, 0.0), (1, 2), 1.0),
        TrainingRow("dead", "q", (), (), (), (), 0.0),
        TrainingRow("b", "q", ("x", "y", "z"), (0.5, 0.5, 0.5), (0.0,) * 3, (1, 2, 3), 0.5),
    ]
    module = torch.nn.Linear(1, 1)

    def score_rows(part):
        table = {"a": [0.0, math.log(3.0)], "b": [2.0, 2.0, 2.0]}
        width = max(len(r.rewards) for r in part)
        return torch.tensor([table[r.example_id] + [99.0] * (width - len(table[r.example_id])) for r in part])

    kd = load_objective("ropg_kd")
    report = evaluate_policy(module, score_rows, rows, objective=kd)
    assert report.example_ids == ("a", "b")
    assert report.dead == 1
    assert report.expected_reward == pytest.approx((0.25 + 0.75 * 0.2, 0.5))
    assert report.first_reward == pytest.approx((0.2, 0.5))
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert report.entropy == pytest.approx((entropy, math.log(3)))
    assert report.oracle_reward == (1.0, 0.5)
    assert report.initial_reward == (1.0, 0.5)
    assert report.signal == (True, False)
    target = np.exp([1.0, 0.2]) / np.exp([1.0, 0.2]).sum()
    assert report.loss == pytest.approx((target @ np.log(target / [0.25, 0.75])) / 2, abs=1e-6)
    assert report.means()["no_signal"] == 0.5
    single = evaluate_policy(module, score_rows, rows, objective=kd, batch_size=1)
    assert single.means() == pytest.approx(report.means())


def test_of_equal_scores_the_first_candidate_counts():
    """Ties keep the initial ranking's order, as retrieval does."""
    row = TrainingRow("a", "q", ("x",) * 40, (0.0, 1.0) + (0.5,) * 38, (0.0,) * 40, tuple(range(1, 41)), 0.0)
    scores = torch.zeros(1, 40)
    scores[0, 0] = -1
    report = evaluate_policy(torch.nn.Linear(1, 1), lambda rows: scores, [row])
    assert report.first_reward == (1.0,)


def test_ties_keep_the_earlier_weights_and_step_0_counts(tmp_path):
    """Training that does not help must hand back the module as it came."""
    encoder, result = run(tmp_path, objective=lambda b: ((b.scores * 0).sum(), {}), epochs=2)
    assert result.best_step == 0
    assert weights(encoder) == weights(ToyEncoder())
    assert result.steps == 12


def test_export_holds_the_best_weights(tmp_path):
    """What `evaluate.py` loads is what dev rows chose."""
    encoder, result = run(tmp_path, lr=0.5, seed=3, epochs=4)
    assert result.best_step < result.steps
    saved = load_file(tmp_path / "model" / "model.safetensors")
    assert torch.equal(saved["words"], encoder.words.weight)
    best = ToyEncoder(seed=1)
    assert load_module(best, tmp_path / "checkpoints/best/model.safetensors") == {
        "step": str(result.best_step)
    }
    assert weights(best) == weights(encoder)


def test_skipped_steps_are_counted_and_harmless(tmp_path, caplog):
    """A step in which no query has a candidate does nothing, and is not a step of Adam on zeros."""
    rows = make_rows(5, 1, dead=(0, 1, 2, 3))
    with caplog.at_level(logging.WARNING):
        _, result = run(tmp_path, rows=rows, batch_size=1, accumulation=1, epochs=2)
    assert result.steps == 10
    assert result.skipped == 8
    assert "4 train and 1 dev rows have no candidate" in caplog.text
    skipped = [r for r in records(tmp_path) if r["event"] == "step" and r["rows"] == 0]
    assert len(skipped) == 8
    assert all("loss" not in r for r in skipped)


@pytest.mark.parametrize("which", ["rows", "dev"])
def test_empty_or_dead_sets_are_refused_before_anything_is_written(tmp_path, which):
    """Without dev rows no weights can be chosen."""
    for empty in ([], make_rows(2, 1, dead=(0, 1))):
        with pytest.raises(ValueError, match="has a candidate"):
            run(tmp_path / "run", **{which: empty})
    assert not (tmp_path / "run").exists()


def test_a_finished_run_returns_at_once(tmp_path):
    """A sweep that is started again must not train again, nor export again."""
    encoder, result = run(tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    again = ToyEncoder(seed=5)
    seen = []
    _, repeated = run(tmp_path, encoder=again, tracker=seen.append)
    assert repeated == result
    assert not again.embedded
    assert not seen
    assert weights(again) == weights(encoder)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before


def test_another_run_in_the_same_folder_is_refused_with_what_differs(tmp_path):
    """Resuming under other settings or data would mix two runs into one result."""
    run(tmp_path, identity={"encoder": "a"})
    same = {"identity": {"encoder": "a"}}
    with pytest.raises(ResumeMismatch, match=r"settings\.lr was 0\.05, is now 0\.1"):
        run(tmp_path, lr=0.1, **same)
    with pytest.raises(ResumeMismatch, match=r"objective was .RopgRl"):
        run(tmp_path, objective=load_objective("ropg_rl", estimator="exact"), **same)
    with pytest.raises(ResumeMismatch, match="train_rows was"):
        run(tmp_path, rows=make_rows(23, 1), **same)
    with pytest.raises(ResumeMismatch, match="dev_rows was"):
        run(tmp_path, dev=make_rows(9, 3), **same)
    with pytest.raises(ResumeMismatch, match=r"identity\.encoder was 'a', is now 'b'"):
        run(tmp_path, identity={"encoder": "b"})
    run(tmp_path, keep=5, checkpoint_every=1, **same)  # bookkeeping may change


def test_training_leaves_the_global_random_state_alone(tmp_path):
    """A notebook's own random numbers must not depend on a training in between."""
    torch.manual_seed(3)
    expected = torch.rand(4)
    encoder = ToyEncoder()
    torch.manual_seed(3)
    run(tmp_path, encoder=encoder, epochs=1)
    assert torch.equal(torch.rand(4), expected)


def test_mixed_precision_auto_is_full_precision_without_cuda(tmp_path):
    """bf16 on a CPU is slower and less exact; asked for by name it still runs."""
    auto, _ = run(tmp_path / "auto", mixed_precision="auto")
    none, _ = run(tmp_path / "no", mixed_precision="no")
    half, result = run(tmp_path / "half", mixed_precision="bf16")
    assert weights(auto) == weights(none) != weights(half)
    assert math.isfinite(result.best_value)


def test_module_state_round_trips_with_tied_tensors_and_buffers(tmp_path):
    """Shared weights are written once and come back shared; safetensors alone refuses them."""
    encoder = ToyEncoder(seed=4)
    encoder.scale.fill_(0.25)
    save_module(encoder, tmp_path / "m.safetensors")
    assert "second.weight" not in load_file(tmp_path / "m.safetensors")
    other = ToyEncoder(seed=9)
    load_module(other, tmp_path / "m.safetensors")
    assert weights(other) == weights(encoder)
    assert other.second.weight is other.first.weight
