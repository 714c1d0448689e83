"""The other ways to learn the LLM's preference, against hand-worked numbers and against Eq. 4."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_tensors import F64, INF, NAN, full, gradient, tensor

from ropg.objectives import (
    distillation_loss,
    lambda_loss,
    margin_mse_loss,
    policy_entropy,
    policy_gradient_loss,
    reverse_distillation_loss,
)

LOSSES = {"reverse_kl": reverse_distillation_loss, "margin_mse": margin_mse_loss, "lambda": lambda_loss}


# ---- reverse divergence


def test_reverse_kl_by_hand():
    """Σ π log(π / p_t), the mean over two queries; the policy is the first argument of the divergence."""
    p, q = tensor([[0.7, 0.3], [0.5, 0.5]]), tensor([[0.6, 0.4], [0.9, 0.1]])
    loss = reverse_distillation_loss(q.log(), p.log(), full(2, 2))
    by_hand = (
        0.6 * math.log(6 / 7) + 0.4 * math.log(4 / 3) + 0.9 * math.log(9 / 5) + 0.1 * math.log(1 / 5)
    ) / 2
    assert loss.item() == pytest.approx(by_hand)
    assert loss.item() == pytest.approx(distillation_loss(p.log(), q.log(), full(2, 2)).item())


def test_reverse_kl_is_the_exact_policy_gradient_with_an_entropy_bonus():
    """T_t · KL(π ‖ p_t) = −Σ π r − T_t H(π) + const: the docs say when the two methods are one."""
    scores = tensor([[0.3, -1.0, 0.7], [1.2, 0.1, 5.0]]).requires_grad_()
    rewards = tensor([[0.9, 0.3, 0.0], [0.2, 0.8, NAN]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    t = 0.2
    reverse = reverse_distillation_loss(scores, rewards, mask, 1.0, t)
    policy = policy_gradient_loss(scores, rewards, tensor([0.0, 0.0]), mask, estimator="exact")
    policy = policy - t * policy_entropy(scores, mask)
    torch.testing.assert_close(t * gradient(reverse, scores), gradient(policy, scores))


# ---- margin-MSE


def test_margin_mse_by_hand():
    """Three documents have three pairs: ((2 − 1)² + (3 − 0.5)² + (1 − (−0.5))²) / 3; padding none."""
    scores, rewards = tensor([[3.0, 1.0, 0.0, INF]]), tensor([[1.0, 0.0, 0.5, NAN]])
    mask = torch.tensor([[True, True, True, False]])
    assert margin_mse_loss(scores, rewards, mask).item() == pytest.approx((1 + 6.25 + 2.25) / 3)


def test_margin_mse_temperatures_divide_scores_and_rewards_apart():
    """T = 2, T_t = 0.5: (2 / 2 − 1 / 0.5)² = 1."""
    value = margin_mse_loss(tensor([[2.0, 0.0]]), tensor([[1.0, 0.0]]), full(1, 2), 2.0, 0.5)
    assert value.item() == pytest.approx(1.0)


def test_margin_mse_gradient_by_hand():
    """∂/∂s_i = (2 / pairs) Σ_j (margin error of i and j): (±2 · 1) for one pair."""
    scores = tensor([[2.0, 0.0]]).requires_grad_()
    loss = margin_mse_loss(scores, tensor([[1.0, 0.0]]), full(1, 2))
    assert gradient(loss, scores)[0].tolist() == pytest.approx([2.0, -2.0])


def test_margin_mse_near_a_flat_target_is_equation_4_up_to_a_factor():
    """KL(uniform ‖ softmax e) = Σ (e − ē)² / 2n + …, and the margins' mean is 2 Σ (e − ē)² / (n − 1)."""
    e = 1e-4 * tensor([[1.0, -2.0, 0.5, 3.0]])
    equal, mask, n = tensor([[0.5] * 4]), full(1, 4), 4
    ratio = distillation_loss(e, equal, mask) / margin_mse_loss(e, equal, mask)
    assert ratio.item() == pytest.approx((n - 1) / (4 * n), rel=1e-3)


# ---- LambdaLoss


def test_lambda_loss_by_hand():
    """Rewards 0, 1, 0.5 at ranks 1, 2, 3: three pairs, each with the change of DCG by its swap."""
    scores, rewards = tensor([[2.0, 1.0, 0.0, NAN]]), tensor([[0.0, 1.0, 0.5, INF]])
    mask = torch.tensor([[True, True, True, False]])
    d = [1.0, 1 / math.log2(3), 0.5]

    def cost(margin):
        return math.log(1 + math.exp(-margin))

    by_hand = (
        1.0 * (d[0] - d[1]) * cost(1.0 - 2.0)
        + 0.5 * (d[0] - d[2]) * cost(0.0 - 2.0)
        + 0.5 * (d[1] - d[2]) * cost(1.0 - 0.0)
    )
    assert lambda_loss(scores, rewards, mask).item() == pytest.approx(by_hand)


def test_lambda_loss_temperatures():
    """The margin is divided by T, the weight by T_t."""
    scores, rewards, mask = tensor([[0.0, 3.0]]), tensor([[1.0, 0.0]]), full(1, 2)
    by_hand = (1 - 1 / math.log2(3)) / 0.5 * math.log(1 + math.exp(1.5))
    assert lambda_loss(scores, rewards, mask, 2.0, 0.5).item() == pytest.approx(by_hand)


def test_lambda_loss_of_two_documents_is_equation_4_with_a_sharp_target():
    """With one pair of rewards 1 and 0 both are log(1 + exp(−margin)), up to the discount."""
    rewards, mask = tensor([[1.0, 0.0]]), full(1, 2)
    for margin in (-2.0, 0.0, 1.5):
        s = tensor([[margin, 0.0]]).requires_grad_()
        pair, listwise = lambda_loss(s, rewards, mask), distillation_loss(s, rewards, mask, 1.0, 1e-3)
        factor = 1 - 1 / math.log2(3)
        assert pair.item() == pytest.approx(factor * listwise.item())
        torch.testing.assert_close(gradient(pair, s), factor * gradient(listwise, s))


def test_lambda_loss_fades_with_the_differences_of_rewards():
    """A query worth 0.500 and 0.501 must not weigh like one with 0 and 1."""
    scores, mask = tensor([[0.0, 0.4]]), full(1, 2)
    near = lambda_loss(scores, tensor([[0.501, 0.5]]), mask)
    far = lambda_loss(scores, tensor([[1.0, 0.0]]), mask)
    assert near.item() == pytest.approx(1e-3 * far.item())


# ---- every one of them


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_is_that_of_the_value(name):
    """Finite differences through padding, a row of one document, a row of equal rewards and a dead row."""
    rng = torch.Generator().manual_seed(11)
    scores = torch.randn(5, 4, generator=rng, dtype=F64).requires_grad_()
    rewards = torch.rand(5, 4, generator=rng, dtype=F64)
    rewards[2] = 0.5
    mask = torch.tensor(
        [[True] * 4, [True, False, True, False], [True] * 4, [False, True, False, False], [False] * 4]
    )
    assert torch.autograd.gradcheck(lambda s: LOSSES[name](s, rewards, mask, 0.7, 0.3), [scores])


@pytest.mark.parametrize("name", LOSSES)
def test_equal_rewards_are_harmless(name):
    """With nothing to prefer, losses pull to a flat policy (or nowhere), and stay finite when sharp."""
    rewards, mask = tensor([[0.3, 0.3, 0.3]]), full(1, 3)
    flat = torch.zeros(1, 3, dtype=F64, requires_grad=True)
    loss = LOSSES[name](flat, rewards, mask, 1.0, 1e-4)
    assert loss.item() == pytest.approx(0.0, abs=1e-12)
    assert gradient(loss, flat).abs().max().item() < 1e-10
    peaked = tensor([[9.0, 0.0, -9.0]]).requires_grad_()
    grad = gradient(LOSSES[name](peaked, rewards, mask, 1.0, 1e-4), peaked)
    assert torch.isfinite(grad).all()
    assert grad[0, 0] >= grad[0, 2]


@pytest.mark.parametrize("name", LOSSES)
def test_descending_prefers_the_better_document(name):
    """A sign error trains backwards."""
    scores = torch.zeros(1, 3, dtype=F64, requires_grad=True)
    grad = gradient(LOSSES[name](scores, tensor([[1.0, 0.0, 0.5]]), full(1, 3)), scores)[0]
    assert grad[0] < grad[2] < grad[1]


@pytest.mark.parametrize("name", LOSSES)
def test_dead_rows_and_padding_count_nowhere(name):
    """Poison at masked places changes neither value nor gradient; no live row is 0 with zero gradient."""
    alive = tensor([[0.3, 0.1]]).requires_grad_()
    both = tensor([[0.3, 0.1, INF], [NAN, INF, NAN]]).requires_grad_()
    mask = torch.tensor([[True, True, False], [False] * 3])
    rewards = tensor([[1.0, 0.0, NAN], [NAN] * 3])
    one = LOSSES[name](alive, rewards[:1, :2], full(1, 2))
    two = LOSSES[name](both, rewards, mask)
    assert two.item() == pytest.approx(one.item())
    grad_one, grad_two = gradient(one, alive), gradient(two, both)
    torch.testing.assert_close(grad_two[:1, :2], grad_one)
    assert grad_two[1].tolist() == [0.0] * 3
    for shape in ((2, 3), (0, 3), (2, 0)):
        s = torch.full(shape, NAN, dtype=F64, requires_grad=True)
        none = LOSSES[name](s, s.detach(), torch.zeros(shape, dtype=torch.bool))
        none.backward()
        assert none.item() == 0.0
        assert torch.equal(s.grad, torch.zeros(shape, dtype=F64))


@pytest.mark.parametrize("name", LOSSES)
def test_a_single_document_leaves_nothing_to_learn(name):
    """A profile with one document has no preference."""
    scores = tensor([[3.0, NAN]]).requires_grad_()
    loss = LOSSES[name](scores, tensor([[0.4, NAN]]), torch.tensor([[True, False]]))
    assert loss.item() == 0.0
    assert gradient(loss, scores).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("name", LOSSES)
def test_bad_input_is_refused(name):
    """The same checks as Eq. 4's."""
    s, m = tensor([[0.0, 1.0]]), full(1, 2)
    for bad in (NAN, INF):
        with pytest.raises(ValueError, match="scores must be finite"):
            LOSSES[name](tensor([[0.0, bad]]), s, m)
        with pytest.raises(ValueError, match="rewards must be finite"):
            LOSSES[name](s, tensor([[0.0, bad]]), m)
    for bad in (0.0, -1.0, NAN, INF):
        with pytest.raises(ValueError, match="temperature of the scores"):
            LOSSES[name](s, s, m, bad, 1.0)
        with pytest.raises(ValueError, match="temperature of the rewards"):
            LOSSES[name](s, s, m, 1.0, bad)
    with pytest.raises(TypeError, match="bool"):
        LOSSES[name](s, s, m.long())


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=5, unique=True),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_order_and_padding_do_not_matter(values, random, data):
    """A loss depends on the set of candidates and is never negative."""
    n = len(values)
    scores = tensor([values])
    rewards = tensor([data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))])
    order = list(range(n))
    random.shuffle(order)
    for name, loss in LOSSES.items():
        whole = loss(scores, rewards, full(1, n)).item()
        assert whole >= -1e-12, name
        mixed = loss(scores[:, order], rewards[:, order], full(1, n)).item()
        padded = [torch.nn.functional.pad(t, (2, 1), value=NAN) for t in (scores, rewards)]
        mask = torch.nn.functional.pad(full(1, n), (2, 1), value=False)
        assert mixed == pytest.approx(whole, abs=1e-9), name
        assert loss(*padded, mask).item() == pytest.approx(whole, abs=1e-9), name
