"""The gradient of a step is exact, however its rows are cut into micro-batches."""

import math

import pytest
import torch
from tiny_training import ToyEncoder, make_rows

from ropg.training import TrainSettings, bi_encoder_scorer, load_objective
from ropg.training.parallel import Processes
from ropg.training.step import Stepper

OBJECTIVES = {
    "ropg_kd": lambda: load_objective("ropg_kd", target_temperature=0.1),
    "exact": lambda: load_objective("ropg_rl", estimator="exact"),
    "sample": lambda: load_objective("ropg_rl"),
    "several samples": lambda: load_objective(
        "ropg_rl", samples=3, baseline="leave_one_out", entropy=0.1, kl=0.1, advantage_floor=0.1
    ),
    "sets": lambda: load_objective("ropg_rl", samples=2, set_size=3, set_reward="any"),
    "lambda": lambda: load_objective("ropg_kd", loss="lambda"),
}


def stepper(rows, objective, encoder=None, **settings):
    encoder = encoder or ToyEncoder()
    return Stepper(
        encoder,
        bi_encoder_scorer(encoder),
        rows,
        objective,
        TrainSettings(**{"clip": None, **settings}),
        Processes(encoder),
    )


def gradients(s, step=0):
    loss, _ = s.accumulate(step, s.live_rows(step))
    return loss, torch.cat([p.grad.flatten() for p in s.parameters])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_accumulation_equals_one_batch_although_rows_differ_in_size(name):
    """7 queries with 1 to 6 documents each: 4 × 1 and 1 × 4 must step alike, the last group of 3 too.

    Sums multiply the gradient, means of uneven micro-batches bias it. The paper's sample estimator draws
    the same documents in both cuts.
    """
    rows = make_rows(7, 5)
    a = stepper(rows, OBJECTIVES[name](), batch_size=4, accumulation=1)
    b = stepper(rows, OBJECTIVES[name](), batch_size=1, accumulation=4)
    assert a.per_epoch == b.per_epoch == 2
    for step in (0, 1):
        assert len(a.live_rows(step)) == (4, 3)[step]
        loss_a, grad_a = gradients(a, step)
        loss_b, grad_b = gradients(b, step)
        assert loss_a == pytest.approx(loss_b, abs=1e-6)
        torch.testing.assert_close(grad_a, grad_b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_8_times_8_equals_one_batch_of_64(name):
    """The paper's step; 70 rows, some without candidates, so that the second step is incomplete."""
    rows = make_rows(70, 6, dead=(0, 13, 50))
    one = [ToyEncoder(dtype=torch.float64), {"batch_size": 64, "accumulation": 1}]
    many = [ToyEncoder(dtype=torch.float64), {"batch_size": 8, "accumulation": 8}]
    for encoder, cut in (one, many):
        s = stepper(rows, OBJECTIVES[name](), encoder, lr=0.01, epochs=2, **cut)
        assert s.total == 4
        for step in range(4):
            s.take(step)
    for p, q in zip(one[0].parameters(), many[0].parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-6, rtol=0)


def test_dead_rows_change_nothing_but_their_place():
    """A query without candidates must not dilute the step's mean."""
    rows = make_rows(8, 7, dead=(2, 5))
    objective = OBJECTIVES["ropg_kd"]()
    with_dead = stepper(rows, objective, batch_size=3, accumulation=3)
    without = stepper([r for r in rows if r.rewards], objective, batch_size=8, accumulation=1)
    torch.testing.assert_close(gradients(with_dead)[1], gradients(without)[1], atol=1e-6, rtol=1e-5)


def test_gradient_is_the_mean_over_rows_by_hand():
    """Mean of the rows' own gradients, each row as often as the others."""
    rows, objective = make_rows(5, 8), OBJECTIVES["exact"]()
    single = [gradients(stepper([r], objective, batch_size=1, accumulation=1))[1] for r in rows]
    whole = gradients(stepper(rows, objective, batch_size=2, accumulation=3))[1]
    torch.testing.assert_close(whole, torch.stack(single).mean(0), atol=1e-6, rtol=1e-5)


def test_clipping_bounds_the_norm_and_reports_it_before():
    """The logged norm is how one sees that clipping bites."""
    s = stepper(make_rows(4, 9), OBJECTIVES["ropg_kd"](), clip=0.01, lr=1e-9, batch_size=4)
    norm = gradients(s)[1].norm().item()
    report = s.take(0)
    assert report.gradient_norm == pytest.approx(norm)
    clipped = torch.cat([p.grad.flatten() for p in s.parameters]).norm().item()
    assert clipped == pytest.approx(0.01, rel=1e-3)


def test_step_follows_adam_written_out():
    """First step of Adam: lr · factor · g / (|g| + ε), with the warm-up's factor."""
    s = stepper(
        make_rows(40, 10), OBJECTIVES["ropg_kd"](), batch_size=4, accumulation=1, lr=0.1, epochs=2, warmup=0.2
    )
    before = torch.cat([p.detach().flatten() for p in s.parameters])
    _, g = gradients(s)
    report = s.take(0)
    after = torch.cat([p.detach().flatten() for p in s.parameters])
    assert report.lr == pytest.approx(0.1 * 1 / 5)
    torch.testing.assert_close(before - after, report.lr * g / (g.abs() + 1e-8), atol=1e-6, rtol=1e-4)


def test_non_finite_loss_names_step_and_examples_and_leaves_the_weights():
    """An overflow must stop the run where it happens, not three epochs later."""
    rows = make_rows(6, 11)

    def broken(batch):
        return batch.scores.sum() * math.nan, {}

    s = stepper(rows, broken, batch_size=2, accumulation=1)
    before = [p.detach().clone() for p in s.parameters]
    ids = ", ".join(r.example_id for r in s.live_rows(1))
    with pytest.raises(FloatingPointError, match=rf"step 2: the loss is nan for example\(s\) {ids}"):
        s.take(1)
    assert all(torch.equal(p, q) for p, q in zip(before, s.parameters, strict=True))


def test_non_finite_gradient_with_a_finite_loss_is_caught():
    """√ at 0: the loss is 0, the gradient infinite."""
    s = stepper(make_rows(2, 12), lambda b: ((b.scores.sum() * 0).sqrt(), {}), batch_size=2, accumulation=1)
    with pytest.raises(FloatingPointError, match="step 1: the gradient's norm is"):
        s.take(0)


def test_an_objectives_own_complaint_gets_step_and_examples():
    """Scores that overflow a small temperature are refused by the loss, which knows no example."""
    s = stepper(make_rows(2, 12), load_objective("ropg_kd", temperature=1e-45), batch_size=2)
    with pytest.raises(ValueError, match=r"step 1: .*no longer finite.* example\(s\) q12-"):
        s.take(0)


def test_a_frozen_module_is_refused():
    """Training nothing for ten epochs looks like training."""
    encoder = ToyEncoder().requires_grad_(False)
    with pytest.raises(ValueError, match="no trainable parameter"):
        stepper(make_rows(2, 1), OBJECTIVES["ropg_kd"](), encoder)


def test_frozen_parameters_stay():
    """Only what requires a gradient is trained."""
    encoder = ToyEncoder()
    encoder.words.weight.requires_grad_(False)
    before = encoder.words.weight.clone()
    s = stepper(make_rows(4, 1), OBJECTIVES["ropg_kd"](), encoder, lr=0.1)
    s.take(0)
    assert torch.equal(before, encoder.words.weight)
    assert encoder.first.weight.grad is not None


def test_dropout_depends_on_seed_and_step_only():
    """With dropout on, a resumed run must drop what the interrupted one would have dropped."""
    losses = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        encoder = ToyEncoder(dropout=0.5).train()
        losses.append(gradients(stepper(make_rows(6, 3), OBJECTIVES["ropg_kd"](), encoder, batch_size=3))[0])
    assert losses[0] == losses[1]
