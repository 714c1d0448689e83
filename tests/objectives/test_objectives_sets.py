"""Plackett-Luce over ordered sets: exact by enumeration, drawn as it says, unbiased."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_tensors import F64, INF, NAN, full, gradient, seeded, tensor

from ropg.objectives import (
    first_set,
    policy_gradient_loss,
    policy_log_probs,
    sample_sets,
    set_log_probs,
    set_policy_gradient_loss,
    set_rewards,
)


def ordered_sets(columns, size):
    """All ordered sets of ``size`` of the columns, as one row. -> (1, S, k)"""
    return torch.tensor([list(itertools.permutations(columns, size))])


SCORES = tensor([[0.3, -1.0, NAN, 0.7, 1.1]])
REWARDS = tensor([[0.9, 0.1, NAN, 0.5, 0.0]])
MASK = torch.tensor([[True, True, False, True, True]])
REAL = (0, 1, 3, 4)


# ---- probabilities


def test_probability_of_an_ordered_set_by_hand():
    """Weights 1, 2, 3: (3, then 1) is 3/6 · 1/3, (1, then 3, then 2) is 1/6 · 3/5 · 1."""
    scores, mask = tensor([[1.0, 2.0, 3.0]]).log(), full(1, 3)
    assert set_log_probs(scores, torch.tensor([[[2, 0]]]), mask).exp().item() == pytest.approx(1 / 6)
    assert set_log_probs(scores, torch.tensor([[[0, 2, 1]]]), mask).exp().item() == pytest.approx(0.1)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_probabilities_of_all_ordered_sets_sum_to_one(size):
    """Over the real documents alone, for every size up to their number."""
    total = set_log_probs(SCORES, ordered_sets(REAL, size), MASK, temperature=0.7).exp().sum()
    assert total.item() == pytest.approx(1.0)


def test_a_set_of_one_document_is_equation_1():
    """k = 1 is the paper's policy, temperature included."""
    one = set_log_probs(SCORES, ordered_sets(REAL, 1), MASK, 2.0)[0]
    torch.testing.assert_close(one, policy_log_probs(SCORES, MASK, 2.0)[0, list(REAL)])


def test_padding_of_a_short_set_adds_nothing():
    """Where a row has fewer documents than k, what is left out has no probability to pay for."""
    short = set_log_probs(SCORES, torch.tensor([[[3, 0, 1, 4], [3, 0, -1, -1], [-1, -1, -1, -1]]]), MASK)
    assert short[0, 1].item() == pytest.approx(set_log_probs(SCORES, torch.tensor([[[3, 0]]]), MASK).item())
    assert short[0, 2].item() == 0.0


def test_log_probabilities_stay_finite_for_large_scores():
    """After the one sure document the others are still told apart."""
    value = set_log_probs(tensor([[1e4, 1.0, 0.0]]), torch.tensor([[[0, 2]]]), full(1, 3)).item()
    assert value == pytest.approx(-math.log(1 + math.e))


# ---- draws


def test_draws_follow_the_probabilities_of_ordered_sets():
    """Gumbel top-k picks as Plackett-Luce says, and never padding."""
    n = 40_000
    log_probs = policy_log_probs(SCORES, MASK)
    drawn = sample_sets(log_probs.expand(n, -1), MASK.expand(n, -1), 2, 1, seeded(1))[:, 0]
    for pair in itertools.permutations(REAL, 2):
        share = (drawn == torch.tensor(pair)).all(-1).double().mean().item()
        expected = set_log_probs(SCORES, torch.tensor([[pair]]), MASK).exp().item()
        assert share == pytest.approx(expected, abs=0.01), pair


def test_the_sets_of_a_row_are_independent():
    """Two samples of a query's first document agree as often as chance says."""
    n = 20_000
    log_probs = policy_log_probs(SCORES, MASK).expand(n, -1)
    drawn = sample_sets(log_probs, MASK.expand(n, -1), 1, 3, seeded(2))[..., 0]  # (n, 3)
    agree = policy_log_probs(SCORES, MASK).exp().square().sum().item()
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert (drawn[:, i] == drawn[:, j]).double().mean().item() == pytest.approx(agree, abs=0.015)


def test_same_sets_under_other_padding_and_other_batches():
    """Neither padding, wherever it stands, nor micro-batches may change what a row draws."""
    log_probs, mask = (
        policy_log_probs(torch.randn(6, 9, generator=seeded(1), dtype=F64), full(6, 9)),
        full(6, 9),
    )
    whole = sample_sets(log_probs, mask, 4, 5, seeded(7))
    for before, after in ((0, 13), (3, 2)):
        wide = torch.nn.functional.pad(log_probs, (before, after), value=-INF)
        m = torch.nn.functional.pad(mask, (before, after), value=False)
        assert torch.equal(sample_sets(wide, m, 4, 5, seeded(7)) - before, whole)
    shared = seeded(7)
    parts = [sample_sets(log_probs[i : i + 2], mask[:2], 4, 5, shared) for i in (0, 2, 4)]
    assert torch.equal(torch.cat(parts), whole)


def test_a_smaller_set_is_the_beginning_of_a_larger_one():
    """So that k can be varied with the noise held fixed."""
    log_probs, mask = policy_log_probs(SCORES, MASK), MASK
    large = sample_sets(log_probs, mask, 6, 8, seeded(3))
    assert torch.equal(sample_sets(log_probs, mask, 2, 8, seeded(3)), large[..., :2])
    assert (large[..., 4:] == -1).all()  # four real documents
    assert [sorted(s) for s in large[0, :, :4].tolist()] == [list(REAL)] * 8


def test_dead_rows_draw_nothing_and_leave_the_others_their_draws():
    """A query without documents spends its number all the same."""
    log_probs, mask = policy_log_probs(SCORES, MASK), MASK
    dead = torch.cat([torch.full_like(log_probs, -INF), log_probs])
    both = sample_sets(dead, torch.cat([torch.zeros_like(mask), mask]), 2, 3, seeded(4))
    assert (both[0] == -1).all()
    generator = seeded(4)
    torch.rand(1, dtype=F64, generator=generator)
    assert torch.equal(both[1:], sample_sets(log_probs, mask, 2, 3, generator))


def test_first_set_takes_the_best_ranks():
    """Ranks from 1; padding has rank 0 and must not come first; a short row is filled with −1."""
    ranks = torch.tensor([[3, 1, 0, 2], [1, 0, 0, 0], [0, 0, 0, 0]])
    assert first_set(ranks, ranks > 0, 2).tolist() == [[[1, 3]], [[0, -1]], [[-1, -1]]]


# ---- rewards


def test_set_rewards_by_hand():
    """(0.5, 0.25): mean 0.375, best 0.5, any 1 − 0.5 · 0.75; a set of one is its document."""
    rewards, mask = tensor([[0.5, 0.25, 1.0, NAN]]), torch.tensor([[True, True, True, False]])
    sets = torch.tensor([[[0, 1], [1, -1], [-1, -1]]])
    for how, pair in (("mean", 0.375), ("max", 0.5), ("any", 0.625)):
        assert set_rewards(rewards, sets, mask, how).tolist() == [[pair, 0.25, 0.0]]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_set_rewards_are_ordered(values):
    """mean ≤ max ≤ any ≤ 1, whatever the documents are worth; the order inside a set does not matter."""
    k = len(values)
    rewards, mask = tensor([values]), full(1, k)
    sets = torch.tensor([[list(range(k)), list(reversed(range(k)))]])
    mean, best, anyone = (set_rewards(rewards, sets, mask, how) for how in ("mean", "max", "any"))
    assert (mean <= best + 1e-12).all()
    assert (best <= anyone + 1e-12).all()
    assert (anyone <= 1).all()
    for value in (mean, best, anyone):
        assert value[0, 0].item() == pytest.approx(value[0, 1].item())


# ---- gradients


def every(scores, size, rewards_of):
    """−Σ p(set) R(set) over all ordered sets, with the gradient through p: what sampling estimates."""
    sets = ordered_sets(REAL, size)
    return -(set_log_probs(scores, sets, MASK).exp() * rewards_of(sets)).sum()


@pytest.mark.parametrize("how", ["mean", "max", "any"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_expected_gradient_is_the_enumerated_one_under_any_baseline(how, size):
    """Each ordered set's loss, weighted by its probability, has the gradient of the expected reward."""
    s = SCORES.clone().requires_grad_()
    sets = ordered_sets(REAL, size)
    rewards = set_rewards(REWARDS, sets, MASK, how)
    enumerated = gradient(every(s, size, lambda _: rewards), s)
    probs = set_log_probs(SCORES, sets, MASK).exp()[0]
    for b in (0.0, 0.4):
        total = sum(
            p * set_policy_gradient_loss(s, sets[:, i : i + 1], rewards[:, i : i + 1], tensor([b]), MASK)
            for i, p in enumerate(probs)
        )
        torch.testing.assert_close(gradient(total, s), enumerated)


def test_leave_one_out_over_two_sets_is_unbiased():
    """Over all pairs of ordered sets, weighted by their probability."""
    s = SCORES.clone().requires_grad_()
    sets = ordered_sets(REAL, 2)
    rewards = set_rewards(REWARDS, sets, MASK, "any")
    probs = set_log_probs(SCORES, sets, MASK).exp()[0]
    total = 0.0
    for i, j in itertools.product(range(sets.shape[1]), repeat=2):
        pair = [i, j]
        loss = set_policy_gradient_loss(s, sets[:, pair], rewards[:, pair], "leave_one_out", MASK)
        total = total + probs[i] * probs[j] * loss
    torch.testing.assert_close(gradient(total, s), gradient(every(s, 2, lambda _: rewards), s))


def test_many_drawn_sets_have_the_enumerated_gradient():
    """The draws, the probabilities and the loss together."""
    n = 40_000
    one, mask = SCORES.clone().requires_grad_(), MASK.expand(n, -1)
    many = SCORES.repeat(n, 1).requires_grad_()
    rewards = REWARDS.expand(n, -1)
    sets = sample_sets(policy_log_probs(SCORES, MASK).expand(n, -1), mask, 2, 2, seeded(9))
    loss = set_policy_gradient_loss(many, sets, set_rewards(rewards, sets, mask), "leave_one_out", mask)
    sampled = gradient(loss, many).sum(0, keepdim=True)
    enumerated = gradient(every(one, 2, lambda sets: set_rewards(REWARDS, sets, MASK)), one)
    torch.testing.assert_close(sampled, enumerated, atol=3e-3, rtol=0)


def test_sets_of_one_document_reduce_to_equations_2_and_3():
    """In expectation over the draws the gradient is that of `exact`."""
    s = SCORES.clone().requires_grad_()
    singles = every(s, 1, lambda sets: set_rewards(REWARDS, sets, MASK))
    exact = policy_gradient_loss(s, REWARDS, tensor([0.3]), MASK, estimator="exact")
    torch.testing.assert_close(gradient(singles, s), gradient(exact, s))


def test_set_loss_and_gradient_by_hand():
    """Two documents of equal score, (a, then b) with reward 1 and b = 1/4: 3/4 log 2, gradient ∓ 3/8."""
    scores = tensor([[0.0, 0.0]]).requires_grad_()
    loss = set_policy_gradient_loss(
        scores, torch.tensor([[[0, 1]]]), tensor([[1.0]]), tensor([0.25]), full(1, 2)
    )
    assert loss.item() == pytest.approx(0.75 * math.log(2))
    assert gradient(loss, scores)[0].tolist() == pytest.approx([-0.375, 0.375])


@pytest.mark.parametrize("baseline", ["given", "leave_one_out"])
def test_gradient_is_that_of_the_value(baseline):
    """Finite differences through padding, a row shorter than its sets, and a dead row."""
    scores = torch.randn(3, 4, generator=seeded(11), dtype=F64).requires_grad_()
    mask = torch.tensor([[True, True, False, True], [False, True, False, False], [False] * 4])
    sets = torch.tensor([[[3, 0], [1, 3]], [[1, -1], [1, -1]], [[-1, -1], [-1, -1]]])
    rewards = tensor([[0.9, 0.2], [0.4, 0.4], [NAN, NAN]])
    b = tensor([0.5, 0.1, NAN]) if baseline == "given" else baseline
    assert torch.autograd.gradcheck(lambda s: set_policy_gradient_loss(s, sets, rewards, b, mask), [scores])


def test_dead_rows_and_padding_count_nowhere():
    """Poison at masked places changes neither value nor gradient."""
    alive = tensor([[0.3, 0.1]]).requires_grad_()
    both = tensor([[0.3, 0.1, INF], [NAN, INF, NAN]]).requires_grad_()
    mask = torch.tensor([[True, True, False], [False] * 3])
    sets = torch.tensor([[[0, 1], [1, 0]], [[-1, -1], [-1, -1]]])
    r, b = tensor([[1.0, 0.2], [NAN, NAN]]), tensor([0.5, NAN])
    one = set_policy_gradient_loss(alive, sets[:1], r[:1], b[:1], full(1, 2))
    two = set_policy_gradient_loss(both, sets, r, b, mask)
    assert two.item() == pytest.approx(one.item())
    grad = gradient(two, both)
    torch.testing.assert_close(grad[:1, :2], gradient(one, alive))
    assert grad[1].tolist() == [0.0] * 3


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)])
def test_no_live_row_is_zero_with_zero_gradient(shape):
    """A step without a live row must be harmless, from the draw to the gradient."""
    s = torch.full(shape, NAN, dtype=F64, requires_grad=True)
    mask = torch.zeros(shape, dtype=torch.bool)
    sets = sample_sets(policy_log_probs(s.detach(), mask), mask, 2, 3, seeded())
    assert sets.shape == (shape[0], 3, 2)
    rewards = set_rewards(s.detach(), sets, mask)
    loss = set_policy_gradient_loss(s, sets, rewards, torch.full(shape[:1], NAN), mask)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(s.grad, torch.zeros(shape, dtype=F64))


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([[[0, 0]]], "twice"),
        ([[[0, 2]]], "real documents"),
        ([[[0, 5]]], "real documents"),
        ([[[0, -2]]], "real documents"),
        ([[[-1, 0]]], "only after"),
        ([[0, 1]], "shape"),
        ([[[0.0, 1.0]]], "whole numbers"),
    ],
)
def test_sets_that_cannot_be_drawn_are_refused(sets, message):
    """A probability of something impossible would train on nonsense."""
    for use in (
        lambda s: set_log_probs(SCORES, s, MASK),
        lambda s: set_rewards(REWARDS, s, MASK),
    ):
        with pytest.raises(ValueError, match=message):
            use(torch.tensor(sets))


def test_bad_numbers_are_refused():
    """With the place or the remedy."""
    sets = torch.tensor([[[0, 1]]])
    with pytest.raises(ValueError, match="scores must be finite"):
        set_log_probs(tensor([[0.0, NAN]]), sets, full(1, 2))
    with pytest.raises(ValueError, match="rewards must be finite"):
        set_policy_gradient_loss(SCORES, sets, tensor([[INF]]), tensor([0.0]), MASK)
    with pytest.raises(ValueError, match="baseline must be finite"):
        set_policy_gradient_loss(SCORES, sets, tensor([[1.0]]), tensor([NAN]), MASK)
    with pytest.raises(ValueError, match="rewards of sets must have shape"):
        set_policy_gradient_loss(SCORES, sets, tensor([1.0]), tensor([0.0]), MASK)
    with pytest.raises(ValueError, match="baseline must have shape"):
        set_policy_gradient_loss(SCORES, sets, tensor([[1.0]]), tensor([[0.0]]), MASK)
    with pytest.raises(ValueError, match="at least 2 samples"):
        set_policy_gradient_loss(SCORES, sets, tensor([[1.0]]), "leave_one_out", MASK)
    with pytest.raises(ValueError, match="between 0 and 1"):
        set_rewards(tensor([[1.5, 0.0]]), sets, full(1, 2), "any")
    with pytest.raises(ValueError, match="mean, max, any"):
        set_rewards(REWARDS, sets, MASK, "best")
    with pytest.raises(ValueError, match="at least 1"):
        sample_sets(policy_log_probs(SCORES, MASK), MASK, 0, 1)
