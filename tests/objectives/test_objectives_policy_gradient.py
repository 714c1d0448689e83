"""What goes beyond Eq. 1-3 for single documents: several draws, baselines, regularisers, scales."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_tensors import F64, INF, NAN, full, gradient, seeded, tensor

from ropg.objectives import (
    advantage_scale,
    expected_reward,
    leave_one_out,
    mean_reward,
    policy_divergence,
    policy_entropy,
    policy_gradient_loss,
    policy_log_probs,
    score_function_loss,
)
from ropg.objectives.draws import draw_documents, row_uniforms

# π = (1/4, 3/4); the third place is padding
SCORES = [[0.0, math.log(3.0), NAN]]
MASK = torch.tensor([[True, True, False]])


# ---- several draws


def test_mean_over_several_draws_by_hand():
    """−(1/S) Σ (r_d − b) log π(d) over whichever documents are drawn, with its gradient."""
    rewards, b, n = [1.0, 0.2], 0.5, 5
    for seed in range(4):
        scores = tensor(SCORES).requires_grad_()
        loss = policy_gradient_loss(
            scores, tensor([[*rewards, NAN]]), tensor([b]), MASK, generator=seeded(seed), samples=n
        )
        log_probs = policy_log_probs(tensor(SCORES), MASK)
        drawn = draw_documents(log_probs, MASK, seeded(seed), n)[0].tolist()
        pi = [0.25, 0.75]
        assert loss.item() == pytest.approx(-sum((rewards[d] - b) * math.log(pi[d]) for d in drawn) / n)
        by_hand = [-sum((rewards[d] - b) * ((d == i) - pi[i]) for d in drawn) / n for i in (0, 1)]
        assert gradient(loss, scores)[0].tolist() == pytest.approx([*by_hand, 0.0])


def test_one_sample_is_the_papers_draw_and_more_samples_keep_it():
    """Asking for more samples must not change the first one, or runs could not be compared."""
    log_probs = policy_log_probs(torch.randn(50, 6, generator=seeded(1), dtype=F64), full(50, 6))
    one = draw_documents(log_probs, full(50, 6), seeded(3))
    assert one.shape == (50, 1)
    assert torch.equal(draw_documents(log_probs, full(50, 6), seeded(3), 4)[:, :1], one)


def test_several_draws_follow_the_policy_and_are_independent():
    """All pairs of two draws have the product of their probabilities."""
    n = 20_000
    mask = torch.tensor([[False, True, True, False]]).repeat(n, 1)
    log_probs = policy_log_probs(tensor([[7.0, 0.0, math.log(3.0), 7.0]]).repeat(n, 1), mask)
    drawn = draw_documents(log_probs, mask, seeded(0), 3)
    assert set(drawn.unique().tolist()) == {1, 2}
    for i, j in ((0, 1), (0, 2), (1, 2)):
        both = ((drawn[:, i] == 1) & (drawn[:, j] == 1)).double().mean().item()
        assert both == pytest.approx(1 / 16, abs=0.01)


def test_several_draws_are_the_same_under_other_padding_and_other_batches():
    """Neither padding nor micro-batches may change what a row draws."""
    log_probs = policy_log_probs(torch.randn(6, 3, generator=seeded(1), dtype=F64), full(6, 3))
    whole = draw_documents(log_probs, full(6, 3), seeded(7), 5)
    wide = torch.nn.functional.pad(log_probs, (0, 4), value=-INF)
    mask = torch.nn.functional.pad(full(6, 3), (0, 4), value=False)
    assert torch.equal(draw_documents(wide, mask, seeded(7), 5), whole)
    shared = seeded(7)
    parts = [draw_documents(log_probs[i : i + 2], full(2, 3), shared, 5) for i in (0, 2, 4)]
    assert torch.equal(torch.cat(parts), whole)


def test_a_row_spends_one_number_however_many_it_draws():
    """The loop places a micro-batch's generator by counting one number per row."""
    a, b = seeded(2), seeded(2)
    row_uniforms(5, a, more=9)
    row_uniforms(5, b)
    assert torch.equal(a.get_state(), b.get_state())


# ---- baselines


def baselines(scores, rewards, mask):
    log_probs = policy_log_probs(scores.detach(), mask)
    return {
        "initial": tensor([0.9, 0.1]),
        "mean": mean_reward(rewards, mask),
        "expected": expected_reward(log_probs, rewards, mask),
        "leave_one_out": "leave_one_out",
    }


ROWS = (
    tensor([[0.3, -1.0, 0.7], [1.2, 0.1, 5.0]]),
    tensor([[0.9, 0.3, 0.0], [0.2, 0.8, NAN]]),
    torch.tensor([[True, True, True], [True, True, False]]),
)


def test_mean_and_expected_reward_by_hand():
    """π = (1/4, 3/4) with rewards 1 and 0.2: 0.6 under a uniform policy, 0.4 under π; 0 for a dead row."""
    rewards, mask = tensor([[1.0, 0.2, NAN], [NAN] * 3]), torch.tensor([[True, True, False], [False] * 3])
    log_probs = policy_log_probs(tensor([SCORES[0], [NAN] * 3]), mask)
    assert mean_reward(rewards, mask).tolist() == pytest.approx([0.6, 0.0])
    assert expected_reward(log_probs, rewards, mask).tolist() == pytest.approx([0.4, 0.0])


@pytest.mark.parametrize("name", ["mean", "expected", "leave_one_out"])
def test_no_baseline_changes_the_gradient_of_exact(name):
    """A baseline reduces variance and nothing else."""
    scores, rewards, mask = ROWS
    gradients = []
    for which in ("initial", name):
        s = scores.clone().requires_grad_()
        b = baselines(s, rewards, mask)[which]
        gradients.append(gradient(policy_gradient_loss(s, rewards, b, mask, estimator="exact"), s))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", ["initial", "mean", "expected"])
def test_sampled_gradient_is_exact_in_expectation_under_every_baseline(name):
    """Enumerated over the draws, each baseline's estimator has the gradient of the expected reward."""
    scores, rewards, mask = ROWS
    s = scores.clone().requires_grad_()
    b = baselines(s, rewards, mask)[name].unsqueeze(-1)
    log_probs = policy_log_probs(s, mask).masked_fill(~mask, 0.0)
    pi = policy_log_probs(scores, mask).exp()
    total = 0.0
    for d in range(3):
        one = log_probs[:, d : d + 1]
        # each row by itself, since the probability of a draw is the row's
        for row in range(2):
            live = torch.tensor([row == 0, row == 1]) & mask[:, d]
            r = rewards[:, d : d + 1].masked_fill(~mask[:, d : d + 1], 0.0)
            if live.any():
                total = total + pi[row, d] * score_function_loss(one, r, b, live) / 2
    exact = policy_gradient_loss(s, rewards, tensor([0.0, 0.0]), mask, estimator="exact")
    torch.testing.assert_close(gradient(total, s), gradient(exact, s))


def test_leave_one_out_is_unbiased_where_the_mean_of_all_draws_shrinks_the_gradient():
    """Over all 3³ outcomes of three draws, weighted by their probability."""
    scores, rewards = tensor([[0.3, -1.0, 0.7]]), tensor([0.9, 0.3, 0.0])
    s = scores.clone().requires_grad_()
    log_probs, live = policy_log_probs(s, full(1, 3)), full(1)
    loo = own = 0.0
    for outcome in itertools.product(range(3), repeat=3):
        drawn = list(outcome)
        r, weight = rewards[drawn].unsqueeze(0), log_probs.detach()[0, drawn].sum().exp()
        loo = loo + weight * score_function_loss(log_probs[:, drawn], r, leave_one_out(r), live)
        own = own + weight * score_function_loss(log_probs[:, drawn], r, r.mean(-1, keepdim=True), live)
    exact = policy_gradient_loss(s, rewards.unsqueeze(0), tensor([0.0]), full(1, 3), estimator="exact")
    exact = gradient(exact, s)
    torch.testing.assert_close(gradient(loo, s), exact)
    torch.testing.assert_close(gradient(own, s), exact * 2 / 3)


def test_leave_one_out_by_hand():
    """Each draw against the other ones; equal rewards leave nothing to learn."""
    assert leave_one_out(tensor([[1.0, 0.0, 0.5]])).tolist() == [[0.25, 0.75, 0.5]]
    scores = tensor([[0.4, 0.0]]).requires_grad_()
    loss = policy_gradient_loss(
        scores, tensor([[0.5, 0.5]]), "leave_one_out", full(1, 2), generator=seeded(), samples=3
    )
    assert gradient(loss, scores).tolist() == [[0.0, 0.0]]


def test_leave_one_out_through_the_loss_is_its_definition():
    """The loss must subtract the baseline of the very draws it scores."""
    scores, rewards, mask = ROWS
    loss = policy_gradient_loss(scores, rewards, "leave_one_out", mask, generator=seeded(5), samples=4)
    log_probs = policy_log_probs(scores, mask)
    drawn = draw_documents(log_probs, mask, seeded(5), 4)
    r = rewards.gather(-1, drawn)
    by_hand = -((r - leave_one_out(r)) * log_probs.gather(-1, drawn)).mean()
    assert loss.item() == pytest.approx(by_hand.item())


# ---- entropy and divergence


def test_entropy_by_hand():
    """−(1/4 log 1/4 + 3/4 log 3/4); its derivative is −π (log π + H)."""
    scores = tensor(SCORES).requires_grad_()
    entropy = policy_entropy(scores, MASK)
    h = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert entropy.item() == pytest.approx(h)
    by_hand = [-0.25 * (math.log(0.25) + h), -0.75 * (math.log(0.75) + h), 0.0]
    assert gradient(entropy, scores)[0].tolist() == pytest.approx(by_hand)


def test_divergence_by_hand():
    """KL of (1/4, 3/4) from (1/2, 1/2) is log 2 minus the entropy; the policy is the first argument."""
    value = policy_divergence(tensor(SCORES), tensor([[2.0, 2.0, NAN]]), MASK).item()
    assert value == pytest.approx(math.log(2) - policy_entropy(tensor(SCORES), MASK).item())


def test_divergence_is_zero_at_the_initial_policy_and_pulls_back_to_it():
    """Scores may differ by a constant; away from π₀ a step downhill comes nearer."""
    initial = tensor([[0.3, -1.0, 0.7]])
    at = (initial + 5.0).requires_grad_()
    loss = policy_divergence(at, initial, full(1, 3), 2.0)
    assert loss.item() == pytest.approx(0.0, abs=1e-15)
    assert gradient(loss, at).abs().max().item() < 1e-15
    away = tensor([[2.0, 0.0, 0.0]]).requires_grad_()
    before = policy_divergence(away, initial, full(1, 3))
    stepped = away - 0.1 * gradient(before, away)
    assert policy_divergence(stepped, initial, full(1, 3)) < before


def test_initial_scores_get_no_gradient_and_must_be_finite():
    """They are data; a ranker that gives −inf would make the divergence infinite."""
    initial = tensor([[0.3, 0.1]]).requires_grad_()
    policy_divergence(tensor([[0.0, 1.0]]).requires_grad_(), initial, full(1, 2)).backward()
    assert initial.grad is None
    with pytest.raises(ValueError, match="initial scores must be finite"):
        policy_divergence(tensor([[0.0, 1.0]]), tensor([[0.0, -INF]]), full(1, 2))
    with pytest.raises(ValueError, match="shape"):
        policy_divergence(tensor([[0.0, 1.0]]), tensor([[0.0]]), full(1, 2))


# ---- the scale of advantages


def test_advantage_scale_by_hand():
    """The spread of the rewards, at least the floor; padding is not part of it, a dead row has the floor."""
    rewards = tensor([[0.9, 0.2, NAN], [0.5, 0.5, 0.5], [NAN] * 3])
    mask = torch.tensor([[True, True, False], [True] * 3, [False] * 3])
    assert advantage_scale(rewards, mask, 0.1).tolist() == pytest.approx([0.7, 0.1, 0.1])
    for floor in (0.0, -1.0, NAN, INF):
        with pytest.raises(ValueError, match="floor"):
            advantage_scale(rewards, mask, floor)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1e-12, 0.3, 0.3 + 1e-9, 1.0]), min_size=1, max_size=16),
    st.lists(st.floats(-50, 50), min_size=16, max_size=16),
    st.sampled_from([0.01, 0.1]),
)
def test_scaled_advantages_never_explode(rewards, scores, floor):
    """Sparse, equal or nearly equal rewards, under any policy: advantages stay within 1 and 1 / floor."""
    r, mask = tensor([rewards]), full(1, len(rewards))
    log_probs = policy_log_probs(tensor([scores[: len(rewards)]]), mask)
    scale = advantage_scale(r, mask, floor)
    for b in (r[:, 0], mean_reward(r, mask), expected_reward(log_probs, r, mask)):
        plain = r - b.unsqueeze(-1)
        scaled = plain / scale.unsqueeze(-1)
        assert scaled.abs().max() <= 1 + 1e-9
        assert (scaled.abs() <= plain.abs() / floor + 1e-12).all()


# ---- every one of them


VALUES = {
    "samples": lambda s, r, b, i, m: policy_gradient_loss(s, r, b, m, generator=seeded(5), samples=3),
    "leave_one_out": lambda s, r, b, i, m: policy_gradient_loss(
        s, r, "leave_one_out", m, generator=seeded(5), samples=3
    ),
    "entropy": lambda s, r, b, i, m: policy_entropy(s, m, 0.7),
    "divergence": lambda s, r, b, i, m: policy_divergence(s, i, m, 0.7),
}


@pytest.mark.parametrize("name", VALUES)
def test_gradient_is_that_of_the_value(name):
    """Finite differences, through padding and a dead row."""
    rng = seeded(11)
    scores = torch.randn(3, 4, generator=rng, dtype=F64).requires_grad_()
    rewards, initial = torch.rand(3, 4, generator=rng, dtype=F64), torch.randn(3, 4, generator=rng, dtype=F64)
    mask = torch.tensor([[True] * 4, [True, False, True, False], [False] * 4])
    b = tensor([0.2, 0.6, NAN])
    assert torch.autograd.gradcheck(lambda s: VALUES[name](s, rewards, b, initial, mask), [scores])


@pytest.mark.parametrize("name", VALUES)
def test_dead_rows_and_padding_count_nowhere(name):
    """Poison at masked places changes neither value nor gradient; no live row is 0 with zero gradient."""
    alive = tensor([[0.3, 0.1]]).requires_grad_()
    both = tensor([[0.3, 0.1, INF], [NAN, INF, NAN]]).requires_grad_()
    mask = torch.tensor([[True, True, False], [False] * 3])
    r, b, i = tensor([[1.0, 0.0, NAN], [NAN] * 3]), tensor([0.5, NAN]), tensor([[0.0, 2.0, INF], [NAN] * 3])
    one = VALUES[name](alive, r[:1, :2], b[:1], i[:1, :2], full(1, 2))
    two = VALUES[name](both, r, b, i, mask)
    assert two.item() == pytest.approx(one.item())
    grad = gradient(two, both)
    torch.testing.assert_close(grad[:1, :2], gradient(one, alive))
    assert grad[1].tolist() == [0.0] * 3
    for shape in ((2, 3), (0, 3), (2, 0)):
        s = torch.full(shape, NAN, dtype=F64, requires_grad=True)
        none = VALUES[name](
            s, s.detach(), torch.full(shape[:1], NAN), s.detach(), torch.zeros(shape, dtype=torch.bool)
        )
        none.backward()
        assert none.item() == 0.0
        assert torch.equal(s.grad, torch.zeros(shape, dtype=F64))


def test_numbers_of_samples_that_do_not_fit_are_refused():
    """One draw has no other to compare with, and the exact estimator draws none."""
    s, b, m = tensor([[0.0, 1.0]]), tensor([0.0]), full(1, 2)
    with pytest.raises(ValueError, match="at least 2 samples"):
        policy_gradient_loss(s, s, "leave_one_out", m)
    with pytest.raises(ValueError, match="samples must be at least 1"):
        policy_gradient_loss(s, s, b, m, samples=0)
    with pytest.raises(ValueError, match="1 for the exact"):
        policy_gradient_loss(s, s, b, m, estimator="exact", samples=2)
    with pytest.raises(ValueError, match="leave_one_out"):
        policy_gradient_loss(s, s, "expected", m)
