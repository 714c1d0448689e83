"""Eq. 1-4 against numbers worked out by hand, finite differences, and each other."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_tensors import F64, INF, NAN, full, gradient, tensor

from ropg.objectives import distillation_loss, policy_gradient_loss, policy_log_probs

# scores log 1, log 3 give π = (1/4, 3/4); the third place is padding
SCORES = [[0.0, math.log(3.0), 9.0]]
MASK = [[True, True, False]]


def test_policy_by_hand():
    """If this fails, the retriever is trained and reported under wrong probabilities."""
    log_probs = policy_log_probs(tensor(SCORES), torch.tensor(MASK))
    assert log_probs[0, :2].tolist() == pytest.approx([math.log(0.25), math.log(0.75)])
    assert log_probs[0, 2].item() == -INF


def test_policy_temperature_by_hand():
    """π = softmax(s / T): at T = 1/2, (1, 9) / 10; a temperature that multiplied would give √3."""
    probs = policy_log_probs(tensor(SCORES), torch.tensor(MASK), temperature=0.5).exp()
    assert probs[0].tolist() == pytest.approx([0.1, 0.9, 0.0])


def test_policy_stays_finite_for_large_scores():
    """Unnormalised encoders give scores in the hundreds; log π must not become −inf at a real place."""
    log_probs = policy_log_probs(torch.tensor([[1e4, 0.0, -1e4]]), full(1, 3))
    assert log_probs.tolist() == [[0.0, -1e4, -2e4]]


def test_exact_by_hand():
    """−(1/4 (1 − b) + 3/4 (0 − b)) with b = 1/2 is 1/4; its gradient is −π (r − Σ π r)."""
    scores = tensor(SCORES).requires_grad_()
    loss = policy_gradient_loss(
        scores, tensor([[1.0, 0.0, NAN]]), tensor([0.5]), torch.tensor(MASK), estimator="exact"
    )
    assert loss.item() == pytest.approx(0.25)
    assert gradient(loss, scores)[0].tolist() == pytest.approx([-0.25 * 0.75, 0.75 * 0.25, 0.0])


def test_exact_gradient_ignores_the_baseline():
    """The baseline reduces variance only; where it moves the exact gradient, the objective is wrong."""
    rewards = tensor([[0.3, 0.9, 0.0]])
    gradients = []
    for b in (0.0, 0.7, -3.0):
        scores = tensor(SCORES).requires_grad_()
        loss = policy_gradient_loss(scores, rewards, tensor([b]), torch.tensor(MASK), estimator="exact")
        gradients.append(gradient(loss, scores))
    torch.testing.assert_close(gradients[0], gradients[1])
    torch.testing.assert_close(gradients[0], gradients[2])


def test_sample_by_hand():
    """−(r_d − b) log π(d), its gradient −(r_d − b)(1[d] − π), for whichever d the draw is."""
    seen = set()
    for seed in range(12):
        scores = tensor(SCORES).requires_grad_()
        loss = policy_gradient_loss(
            scores,
            tensor([[1.0, 0.2, NAN]]),
            tensor([0.5]),
            torch.tensor(MASK),
            generator=torch.Generator().manual_seed(seed),
        )
        if loss.item() == pytest.approx(-0.5 * math.log(0.25)):
            seen.add(0)
            expected = [-0.5 * 0.75, 0.5 * 0.75, 0.0]
        else:
            seen.add(1)
            assert loss.item() == pytest.approx(0.3 * math.log(0.75))
            expected = [0.3 * -0.25, 0.3 * 0.25, 0.0]
        assert gradient(loss, scores)[0].tolist() == pytest.approx(expected)
    assert seen == {0, 1}


def test_descending_raises_the_expected_reward():
    """With the sign of the paper's print, training drives the best document down."""
    rewards, mask = tensor([[1.0, 0.0]]), full(1, 2)
    for loss_of in (
        lambda s: policy_gradient_loss(s, rewards, tensor([0.5]), mask, estimator="exact"),
        lambda s: distillation_loss(s, rewards, mask),
    ):
        scores = torch.zeros(1, 2, dtype=F64, requires_grad=True)
        stepped = scores - 0.1 * gradient(loss_of(scores), scores)
        assert stepped[0, 0] > stepped[0, 1]


def test_exact_is_the_mean_of_many_samples():
    """`exact` replaces the paper's estimator only if it is its expectation."""
    rng = torch.Generator().manual_seed(3)
    scores = torch.randn(2, 4, generator=rng, dtype=F64)
    rewards = torch.rand(2, 4, generator=rng, dtype=F64)
    mask = torch.tensor([[True, True, True, True], [True, False, True, False]])
    baseline = tensor([0.5, 0.1])
    n = 40_000  # copies of both rows in one batch: the mean over rows is the mean over draws
    many = scores.repeat(n, 1).requires_grad_()
    loss = policy_gradient_loss(
        many, rewards.repeat(n, 1), baseline.repeat(n), mask.repeat(n, 1), generator=rng
    )
    sampled = gradient(loss, many).reshape(n, 2, 4).sum(dim=0)
    one = scores.clone().requires_grad_()
    exact = gradient(policy_gradient_loss(one, rewards, baseline, mask, estimator="exact"), one)
    torch.testing.assert_close(sampled, exact, atol=3e-3, rtol=0)


def test_draws_follow_the_policy_and_never_padding():
    """A padded document has no text: drawing it would reward nothing."""
    n = 20_000
    scores = tensor([[7.0, 0.0, math.log(3.0), 7.0]]).repeat(n, 1)
    mask = torch.tensor([[False, True, True, False]]).repeat(n, 1)
    # the reward of a place tells the place: loss of a row is r · (−log π)
    rewards = tensor([[NAN, 1.0, 0.0, NAN]]).repeat(n, 1)
    loss = policy_gradient_loss(
        scores, rewards, torch.zeros(n), mask, generator=torch.Generator().manual_seed(0)
    )
    share = loss.item() / -math.log(0.25)
    assert share == pytest.approx(0.25, abs=0.01)


def test_same_draws_under_other_padding_and_other_batches():
    """Padding or the size of a micro-batch must not change which document a row draws."""
    rng = torch.Generator().manual_seed(1)
    scores, rewards = torch.randn(6, 3, generator=rng), torch.rand(6, 3, generator=rng)
    baseline, mask = torch.zeros(6), full(6, 3)

    def loss(rows, generator, pad=0):
        wide = [torch.nn.functional.pad(t[rows], (0, pad), value=v) for t, v in ((scores, 5.0), (rewards, 1))]
        m = torch.nn.functional.pad(mask[rows], (0, pad), value=False)
        return policy_gradient_loss(wide[0], wide[1], baseline[rows], m, generator=generator).item()

    whole = loss(slice(None), torch.Generator().manual_seed(7))
    assert loss(slice(None), torch.Generator().manual_seed(7), pad=4) == pytest.approx(whole)
    shared = torch.Generator().manual_seed(7)
    parts = 2 / 6 * loss(slice(0, 2), shared) + 4 / 6 * loss(slice(2, 6), shared)
    assert parts == pytest.approx(whole)


def test_distillation_by_hand():
    """Mean over queries, not over places (0.1331): else the loss shrinks with the number of documents."""
    p, q = tensor([[0.7, 0.3], [0.5, 0.5]]), tensor([[0.6, 0.4], [0.9, 0.1]])
    loss = distillation_loss(q.log(), p.log(), full(2, 2))
    by_hand = (0.7 * math.log(7 / 6) + 0.3 * math.log(3 / 4) + 0.5 * math.log(5 / 9) + 0.5 * math.log(5)) / 2
    assert loss.item() == pytest.approx(by_hand)
    assert loss.item() == pytest.approx(0.2662, abs=5e-5)


def test_distillation_gradient_by_hand():
    """∂/∂s = (π − p_t) / T per row, divided by the number of live rows."""
    scores = tensor(SCORES).requires_grad_()
    loss = distillation_loss(scores, tensor([[math.log(9.0), 0.0, NAN]]), torch.tensor(MASK))
    assert gradient(loss, scores)[0].tolist() == pytest.approx([0.25 - 0.9, 0.75 - 0.1, 0.0])


def test_distillation_temperature_divides_both_sides():
    """T = 2: softmax of halved scores and rewards, and no factor T² afterwards."""
    scores, rewards = tensor([[0.4, 1.6, 0.0]]), tensor([[2.0, 0.0, 1.0]])
    loss = distillation_loss(scores, rewards, full(1, 3), temperature=2.0)
    assert loss.item() == pytest.approx(distillation_loss(scores / 2, rewards / 2, full(1, 3)).item())
    p, q = (rewards / 2).softmax(-1), (scores / 2).softmax(-1)
    assert loss.item() == pytest.approx((p * (p / q).log()).sum().item())


def test_target_temperature_overrides_for_the_rewards_only():
    """The sample's setting: temperature 1 for the scores, 0.1 for the rewards."""
    scores, rewards = tensor([[0.4, 1.6]]), tensor([[0.9, 0.3]])
    loss = distillation_loss(scores, rewards, full(1, 2), temperature=1.0, target_temperature=0.1)
    assert loss.item() == pytest.approx(distillation_loss(scores, rewards * 10, full(1, 2)).item())


def test_distillation_is_zero_at_the_target():
    """A softmax taken twice leaves a floor (0.551): perfect scores must give loss and gradient 0."""
    rewards = tensor([[1.0, 0.0, 0.5], [0.2, 0.2, 9.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    scores = (rewards + 3.0).requires_grad_()
    loss = distillation_loss(scores, rewards, mask)
    assert loss.item() == pytest.approx(0.0, abs=1e-15)
    assert gradient(loss, scores).abs().max().item() < 1e-15


def test_distillation_masked_place_with_log_probability_minus_infinity():
    """0 · −inf is NaN in a naive KL."""
    scores = tensor([[0.0, -INF]]).requires_grad_()
    loss = distillation_loss(scores, tensor([[1.0, 0.0]]), torch.tensor([[True, False]]))
    assert loss.item() == 0.0
    assert gradient(loss, scores).tolist() == [[0.0, 0.0]]


def test_a_sharp_target_underflows_without_nan():
    """Target temperatures near 0 make p_t exactly 0 somewhere."""
    scores = tensor([[0.0, 0.0]]).requires_grad_()
    loss = distillation_loss(scores, tensor([[1.0, 0.0]]), full(1, 2), target_temperature=1e-6)
    assert loss.item() == pytest.approx(math.log(2))
    assert gradient(loss, scores)[0].tolist() == pytest.approx([-0.5, 0.5])


LOSSES = {
    "exact": lambda s, r, b, m: policy_gradient_loss(s, r, b, m, estimator="exact"),
    "sample": lambda s, r, b, m: policy_gradient_loss(s, r, b, m, generator=torch.Generator().manual_seed(5)),
    "distillation": lambda s, r, b, m: distillation_loss(s, r, m, 0.7, 0.3),
}


@pytest.mark.parametrize("name", LOSSES)
def test_dead_row_counts_nowhere(name):
    """One query whose documents are all padding made every weight NaN, or shrank the loss by half."""
    poison = [NAN, INF]
    alive = tensor([[0.3, 0.1]]).requires_grad_()
    both = tensor([[0.3, 0.1], poison]).requires_grad_()
    mask = torch.tensor([[True, True], [False, False]])
    rewards, baseline = tensor([[1.0, 0.0], poison]), tensor([0.5, NAN])
    one = LOSSES[name](alive, rewards[:1], baseline[:1], mask[:1])
    two = LOSSES[name](both, rewards, baseline, mask)
    assert two.item() == pytest.approx(one.item())
    grad = gradient(two, both)
    torch.testing.assert_close(grad[:1], gradient(one, alive))
    assert grad[1].tolist() == [0.0, 0.0]
    assert policy_log_probs(both, mask)[1].tolist() == [-INF, -INF]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)])
def test_no_live_row_is_zero_with_zero_gradient(name, shape):
    """A step without a live row must be harmless: 0, and `backward` works."""
    scores = torch.full(shape, NAN, dtype=F64, requires_grad=True)
    mask = torch.zeros(shape, dtype=torch.bool)
    loss = LOSSES[name](scores, torch.full(shape, NAN), torch.full(shape[:1], NAN), mask)
    assert loss.shape == ()
    assert loss.item() == 0.0
    loss.backward()
    assert torch.equal(scores.grad, torch.zeros(shape, dtype=F64))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_non_finite_at_real_places_raises(name, bad):
    """A broken encoder or reward must stop the run, with the place, before it reaches the weights."""
    good, broken, b = tensor([[0.1, 0.2]]), tensor([[0.1, bad]]), tensor([0.0])
    with pytest.raises(ValueError, match=r"scores must be finite.*\[0, 1\]"):
        LOSSES[name](broken, good, b, full(1, 2))
    with pytest.raises(ValueError, match="rewards must be finite"):
        LOSSES[name](good, broken, b, full(1, 2))
    if name != "distillation":
        with pytest.raises(ValueError, match="baseline must be finite"):
            LOSSES[name](good, good, tensor([bad]), full(1, 2))
    with pytest.raises(ValueError, match="scores must be finite"):
        policy_log_probs(broken, full(1, 2))


@pytest.mark.parametrize("name", ["exact", "distillation", "sample"])
def test_gradient_against_finite_differences(name):
    """The analytic gradient through masks is the gradient of the value."""
    rng = torch.Generator().manual_seed(11)
    scores = torch.randn(3, 4, generator=rng, dtype=F64).requires_grad_()
    rewards = torch.rand(3, 4, generator=rng, dtype=F64)
    mask = torch.tensor([[True] * 4, [True, False, True, False], [False] * 4])
    baseline = tensor([0.2, 0.6, NAN])
    assert torch.autograd.gradcheck(lambda s: LOSSES[name](s, rewards, baseline, mask), [scores])


numbers = st.floats(-5, 5, allow_nan=False)


@st.composite
def batches(draw):
    b, k = draw(st.integers(1, 4)), draw(st.integers(1, 5))

    def grid(values):
        return draw(st.lists(st.lists(values, min_size=k, max_size=k), min_size=b, max_size=b))

    return tensor(grid(numbers)), tensor(grid(numbers)), torch.tensor(grid(st.booleans()), dtype=torch.bool)


@settings(max_examples=40, deadline=None)
@given(batches(), st.randoms(use_true_random=False))
def test_order_and_padding_do_not_matter(batch, random):
    """Losses depend on the set of candidates, not on their order nor on what stands in the padding."""
    scores, rewards, mask = batch
    baseline = rewards.new_zeros(len(scores))
    order = list(range(scores.shape[1]))
    random.shuffle(order)
    pad = (0, 3)
    for name in ("exact", "distillation"):
        whole = LOSSES[name](scores, rewards, baseline, mask).item()
        mixed = LOSSES[name](scores[:, order], rewards[:, order], baseline, mask[:, order]).item()
        padded = LOSSES[name](
            torch.nn.functional.pad(scores, pad, value=NAN),
            torch.nn.functional.pad(rewards, pad, value=INF),
            baseline,
            torch.nn.functional.pad(mask, pad, value=False),
        ).item()
        assert mixed == pytest.approx(whole, abs=1e-12)
        assert padded == pytest.approx(whole, abs=1e-12)
        if name == "distillation":
            assert whole >= -1e-12


@settings(max_examples=40, deadline=None)
@given(batches())
def test_probabilities_sum_to_one_over_real_documents(batch):
    """Masked places have no probability and live rows have all of it."""
    scores, _, mask = batch
    probs = policy_log_probs(scores, mask).exp()
    assert probs[~mask].eq(0).all()
    torch.testing.assert_close(probs.sum(-1), mask.any(-1).to(F64))


@pytest.mark.parametrize("temperature", [0.0, -1.0, NAN, INF])
def test_temperature_must_be_positive(temperature):
    """A temperature of 0 divides by zero; a negative one trains backwards."""
    scores, mask = tensor([[0.0, 1.0]]), full(1, 2)
    with pytest.raises(ValueError, match="temperature"):
        policy_log_probs(scores, mask, temperature)
    with pytest.raises(ValueError, match="temperature"):
        distillation_loss(scores, scores, mask, temperature)
    with pytest.raises(ValueError, match="temperature"):
        distillation_loss(scores, scores, mask, 1.0, temperature)


def test_scores_that_overflow_the_temperature_raise():
    """Finite scores over a tiny temperature become inf, whose softmax is NaN."""
    with pytest.raises(ValueError, match="no longer finite"):
        policy_log_probs(torch.tensor([[1e30, 0.0]]), full(1, 2), 1e-10)


def test_wrong_shapes_and_types_are_refused():
    """Broadcasting or an integer mask would silently compute something else."""
    s, m = tensor([[0.0, 1.0]]), full(1, 2)
    with pytest.raises(TypeError, match="bool"):
        policy_log_probs(s, m.long())
    with pytest.raises(ValueError, match="mask must have the shape"):
        policy_log_probs(s, full(1, 3))
    with pytest.raises(ValueError, match=r"\(B, K\)"):
        policy_log_probs(s[0], m[0])
    with pytest.raises(TypeError, match="floating point"):
        policy_log_probs(s.long(), m)
    with pytest.raises(ValueError, match="rewards must have the shape"):
        distillation_loss(s, s[:, :1], m)
    with pytest.raises(ValueError, match="baseline must have shape"):
        policy_gradient_loss(s, s, s, m)
    with pytest.raises(ValueError, match="estimator"):
        policy_gradient_loss(s, s, s[:, 0], m, estimator="all")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised_to_float32(dtype):
    """A softmax in bf16 has two digits."""
    scores = torch.tensor([[0.5, 1.0]], dtype=dtype, requires_grad=True)
    loss = distillation_loss(scores, torch.tensor([[1, 0]]), full(1, 2))
    assert loss.dtype == torch.float32
    loss.backward()
    assert scores.grad.dtype == dtype


def test_no_gradient_flows_into_rewards_or_baseline():
    """Rewards are the LLM's feedback: data, not parameters."""
    scores, rewards = tensor([[0.0, 1.0]]).requires_grad_(), tensor([[1.0, 0.0]]).requires_grad_()
    baseline = tensor([0.5]).requires_grad_()
    (
        policy_gradient_loss(scores, rewards, baseline, full(1, 2), estimator="exact")
        + distillation_loss(scores, rewards, full(1, 2))
    ).backward()
    assert rewards.grad is None
    assert baseline.grad is None
