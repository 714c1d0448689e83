"""Eq. 5-7 against numbers worked out by hand, finite differences, and the objective on a batch."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_tensors import F64, INF, NAN, full, gradient, tensor

from ropg.training import TrainingRow, load_objective
from ropg.training.batch import make_batch
from rspg.objectives import Rspg, selection_log_probs, selection_loss, selection_target

# scores 0, log 2, log 5 are 1 : 2 : 5, so P_S = (1, 2, 5) / 8; rewards log 2, 0, 0 give P_TS = (2, 1, 1) / 4;
# the fourth place pads a smaller pool
SCORES = [[0.0, math.log(2.0), math.log(5.0), 50.0]]
REWARDS = [[math.log(2.0), 0.0, 0.0, 50.0]]
MASK = [[True, True, True, False]]


def test_selector_and_target_by_hand():
    """Eq. 5 and 6: if this fails, the selector is trained towards, or reported under, wrong probabilities."""
    mask = torch.tensor(MASK)
    log_probs = selection_log_probs(tensor(SCORES), mask)
    assert log_probs[0, :3].exp().tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    assert log_probs[0, 3].item() == -INF
    assert selection_target(tensor(REWARDS), mask)[0].tolist() == pytest.approx([1 / 2, 1 / 4, 1 / 4, 0.0])


def test_target_of_binary_feedback_by_hand():
    """At the paper's temperature a win among three is e / (e + 2) = 0.576 only; at 0.25, e⁴ / (e⁴ + 2) = 0.965."""
    win = torch.tensor([[1, 0, 0]])  # Eval of a classification task, as whole numbers
    assert selection_target(win, full(1, 3))[0, 0].item() == pytest.approx(math.e / (math.e + 2))
    sharp = selection_target(win, full(1, 3), temperature=0.25)[0].tolist()
    assert sharp == pytest.approx([0.96466, 0.01767, 0.01767], abs=5e-6)


def test_loss_by_hand():
    """Σ P_TS log(P_TS / P_S): the sign printed in Eq. 7 would reward the selector for being wrong."""
    # 1/2 log((1/2)/(1/8)) + 1/4 log((1/4)/(2/8)) + 1/4 log((1/4)/(5/8))
    # = 1/2 log 4 + 1/4 log 1 + 1/4 log 0.4 = 0.693147 + 0 − 0.229073 = 0.464074
    loss = selection_loss(tensor(SCORES), tensor(REWARDS), torch.tensor(MASK))
    assert loss.shape == ()
    assert loss.item() == pytest.approx(0.464074, abs=5e-7)


def test_loss_is_the_mean_over_inputs():
    """A mean over places would weigh an input by the size of its pool."""
    # the second input has two members: P_TS = (1/2, 1/2), P_S = (1/4, 3/4),
    # 1/2 log 2 + 1/2 log(2/3) = 0.143841; with 0.464074 from above the mean is 0.303958
    scores = tensor([SCORES[0], [0.0, math.log(3.0), NAN, NAN]])
    rewards = tensor([REWARDS[0], [0.7, 0.7, NAN, INF]])
    mask = torch.tensor([MASK[0], [True, True, False, False]])
    assert selection_loss(scores, rewards, mask).item() == pytest.approx(0.303958, abs=5e-7)


def test_gradient_by_hand():
    """∂/∂S = (P_S − P_TS) / T: the member that should be chosen more often is pushed up."""
    scores = tensor(SCORES).requires_grad_()
    loss = selection_loss(scores, tensor(REWARDS), torch.tensor(MASK))
    assert gradient(loss, scores)[0].tolist() == pytest.approx([-3 / 8, 0.0, 3 / 8, 0.0])


def test_temperatures_divide_each_side_without_a_factor():
    """`temperature` serves both sides, `target_temperature` overrides it for the rewards; no T² afterwards."""
    scores, rewards, mask = tensor(SCORES), tensor(REWARDS), torch.tensor(MASK)
    both = selection_loss(scores, rewards, mask, temperature=2.0).item()
    assert both == pytest.approx(selection_loss(scores / 2, rewards / 2, mask).item())
    mixed = selection_loss(scores, rewards, mask, temperature=2.0, target_temperature=0.1).item()
    assert mixed == pytest.approx(selection_loss(scores / 2, rewards / 0.1, mask).item())


def test_gradient_against_finite_differences():
    """The analytic gradient, through masks and dead rows, is the gradient of the value."""
    rng = torch.Generator().manual_seed(5)
    scores = torch.randn(3, 4, generator=rng, dtype=F64).requires_grad_()
    rewards = torch.rand(3, 4, generator=rng, dtype=F64)
    mask = torch.tensor([[True] * 4, [True, False, True, False], [False] * 4])
    assert torch.autograd.gradcheck(lambda s: selection_loss(s, rewards, mask, 0.7, 0.2), [scores])


def test_dead_rows_count_nowhere():
    """One input without feedback must neither shrink the loss nor turn the weights into NaN."""
    scores = tensor([SCORES[0], [NAN, INF, -INF, NAN]]).requires_grad_()
    rewards = tensor([REWARDS[0], [NAN, INF, NAN, NAN]])
    mask = torch.tensor([MASK[0], [False] * 4])
    loss = selection_loss(scores, rewards, mask)
    assert loss.item() == pytest.approx(0.464074, abs=5e-7)
    assert gradient(loss, scores)[1].tolist() == [0.0] * 4
    assert selection_log_probs(scores, mask)[1].tolist() == [-INF] * 4
    assert selection_target(rewards, mask)[1].tolist() == [0.0] * 4
    nothing = selection_loss(scores, rewards, torch.zeros(2, 4, dtype=torch.bool))
    assert nothing.item() == 0.0
    assert gradient(nothing, scores).eq(0).all()


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_non_finite_at_real_places_raises(bad):
    """A broken selector or Eval must stop the run, with the place, before it reaches the weights."""
    good, broken = tensor([[0.1, 0.2]]), tensor([[0.1, bad]])
    with pytest.raises(ValueError, match=r"scores must be finite.*\[0, 1\]"):
        selection_loss(broken, good, full(1, 2))
    with pytest.raises(ValueError, match="rewards must be finite"):
        selection_loss(good, broken, full(1, 2))
    with pytest.raises(ValueError, match="scores must be finite"):
        selection_log_probs(broken, full(1, 2))
    with pytest.raises(ValueError, match=r"Eq. 5, where the rewards.*finite.*\[0, 1\]"):
        selection_target(broken, full(1, 2))


def test_wrong_shapes_types_and_temperatures_are_refused():
    """Broadcasting, an integer mask or a temperature of 0 would silently train something else."""
    s, m = tensor([[0.0, 1.0]]), full(1, 2)
    for call in (selection_log_probs, selection_target, lambda s, m, t=1.0: selection_loss(s, s, m, t)):
        with pytest.raises(TypeError, match="bool"):
            call(s, m.long())
        with pytest.raises(ValueError, match="shape"):
            call(s, full(1, 3))
        with pytest.raises(ValueError, match="shape"):
            call(s[0], m[0])
        with pytest.raises(ValueError, match="temperature"):
            call(s, m, 0.0)
    with pytest.raises(ValueError, match="rewards must have the shape"):
        selection_loss(s, s[:, :1], m)
    with pytest.raises(TypeError, match=r"Eq\. 5"):
        selection_target(s.to(torch.complex64), m)


def test_no_gradient_flows_into_rewards():
    """Rewards are the LLM's feedback: data, not parameters."""
    scores, rewards = tensor(SCORES).requires_grad_(), tensor(REWARDS).requires_grad_()
    selection_loss(scores, rewards, torch.tensor(MASK)).backward()
    assert rewards.grad is None
    assert not selection_target(rewards, torch.tensor(MASK)).requires_grad


numbers = st.floats(-5, 5, allow_nan=False)
temperatures = st.floats(0.1, 4.0)


@st.composite
def pools(draw):
    """(B, R) scores, rewards and mask, and an order of the pool."""
    b, r = draw(st.integers(1, 4)), draw(st.integers(1, 5))

    def grid(values):
        return draw(st.lists(st.lists(values, min_size=r, max_size=r), min_size=b, max_size=b))

    order = draw(st.permutations(range(r)))
    return tensor(grid(numbers)), tensor(grid(numbers)), torch.tensor(grid(st.booleans())), list(order)


@settings(max_examples=40, deadline=None)
@given(pools(), temperatures)
def test_permuting_the_pool_permutes_the_probabilities(pool, temperature):
    """The order in which a configuration names the pool must not matter."""
    scores, rewards, mask, order = pool
    for function in (
        lambda m, o: selection_log_probs(scores[:, o], m[:, o], temperature).exp(),
        lambda m, o: selection_target(rewards[:, o], m[:, o], temperature),
    ):
        torch.testing.assert_close(function(mask, order), function(mask, slice(None))[:, order])
    mixed = selection_loss(scores[:, order], rewards[:, order], mask[:, order], temperature).item()
    assert mixed == pytest.approx(selection_loss(scores, rewards, mask, temperature).item(), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(pools(), temperatures, temperatures)
def test_loss_is_smallest_at_the_scaled_rewards(pool, temperature, target_temperature):
    """At S = Eval · T / T_target the loss and its gradient are 0, and nothing is below: else perfect selectors unlearn."""
    scores, rewards, mask, _ = pool
    perfect = (rewards * temperature / target_temperature).requires_grad_()
    loss = selection_loss(perfect, rewards, mask, temperature, target_temperature)
    assert loss.item() == pytest.approx(0.0, abs=1e-12)
    assert gradient(loss, perfect).abs().max().item() < 1e-12
    assert selection_loss(scores, rewards, mask, temperature, target_temperature).item() >= -1e-12


@settings(max_examples=40, deadline=None)
@given(pools())
def test_target_sums_to_one_and_follows_the_rewards(pool):
    """A member with a better answer never gets less of the target than one with a worse answer."""
    _, rewards, mask, _ = pool
    target = selection_target(rewards, mask)
    torch.testing.assert_close(target.sum(-1), mask.any(-1).to(F64))
    for r, p, m in zip(rewards, target, mask, strict=True):
        by_reward = r[m].argsort()
        assert (p[m][by_reward].diff() >= 0).all()


def row(name, *rewards):
    n = len(rewards)
    return TrainingRow(name, "x", ("text",) * n, rewards, (0.0,) * n, tuple(range(1, n + 1)), 0.0)


def score_batch(rows, scores):
    return make_batch(rows, scores, torch.Generator())


def test_objective_is_equation_7_with_its_options():
    """The preset's temperatures must reach the loss of the training loop."""
    # a pool of three whose highest score stands at the worst answer; a pool of two tied at the best answer
    scores = torch.tensor([[0.1, 2.0, 0.3], [1.0, 0.5, 7.0]], requires_grad=True)
    batch = score_batch([row("a", 1.0, 0.0, 0.5), row("b", 0.4, 0.4)], scores)
    objective = load_objective("rspg.objectives:Rspg", temperature=2.0, target_temperature=0.5)
    loss, logs = objective(batch)
    expected = selection_loss(batch.scores, batch.rewards, batch.mask, 2.0, 0.5)
    assert loss.item() == expected.item()
    # P_TS = softmax(2, 0, 1) = (0.665241, 0.090031, 0.244728), whose entropy is 0.832396; two tied: log 2
    entropy = (0.832396 + math.log(2)) / 2
    assert logs == {"target_entropy": pytest.approx(entropy, abs=1e-6), "success": 0.5}
    loss.backward()
    assert scores.grad[1, 2].item() == 0.0


def test_objective_takes_the_temperature_for_the_target_by_default():
    """Without a target temperature both sides share one, in the loss and in the log."""
    batch = score_batch([row("a", 2.0, 0.0)], torch.tensor([[1.0, 0.0]]))
    loss, logs = Rspg(temperature=2.0)(batch)
    assert loss.item() == pytest.approx(
        selection_loss(batch.scores / 2, batch.rewards / 2, batch.mask).item()
    )
    p = 1 / (1 + math.exp(-1))  # softmax(1, 0)
    assert logs["target_entropy"] == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), abs=1e-6)
    assert logs["success"] == 1.0


def test_objective_success_ignores_padding_and_dead_rows():
    """A dead row that counted as success or failure would move the curve that a user watches."""
    scores = torch.tensor([[0.2, 9.0], [3.0, 9.0], [1.0, 0.0]])
    batch = score_batch([row("single", 0.3), row("dead"), row("wrong", 0.1, 0.2)], scores)
    # padding with a high score and a high reward must not be chosen
    batch = dataclasses.replace(batch, rewards=batch.rewards.masked_fill(~batch.mask, INF))
    _, logs = Rspg()(batch)
    assert logs["success"] == 0.5
    p = 1 / (1 + math.exp(-0.1))  # of "wrong"; the entropy of a pool of one is 0
    assert logs["target_entropy"] == pytest.approx(
        (-p * math.log(p) - (1 - p) * math.log(1 - p)) / 2, abs=1e-6
    )


def test_objective_success_counts_ties_within_rounding():
    """The logged rate must agree with the success rate of the tables."""
    batch = score_batch([row("a", 0.1 + 0.2, 0.3)], tensor([[0.0, 1.0]]))
    assert batch.rewards[0, 0] > batch.rewards[0, 1]
    assert Rspg()(batch)[1]["success"] == 1.0


@pytest.mark.parametrize("rows", [[], [row("dead"), row("dead too")]])
def test_objective_without_a_live_row_is_zero(rows):
    """A micro-batch of dead rows must be harmless."""
    scores = torch.zeros(len(rows), 0, requires_grad=True)
    loss, logs = Rspg()(score_batch(rows, scores))
    loss.backward()
    assert loss.item() == 0.0
    assert logs == {"target_entropy": 0.0, "success": 0.0}


@pytest.mark.parametrize("value", [0, -1.0, NAN, INF])
@pytest.mark.parametrize("name", ["temperature", "target_temperature"])
def test_objective_refuses_bad_temperatures_when_built(name, value):
    """The mistake must show before the first generation is scored, not at the first step."""
    with pytest.raises(ValueError, match=f"rspg: {name} must be"):
        Rspg(**{name: value})


def test_objective_is_frozen_and_refuses_unknown_options():
    """A misspelt option must not train with the default."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Rspg().temperature = 2.0
    with pytest.raises(ValueError, match="did you mean temperature"):
        load_objective("rspg.objectives:Rspg", temperatur=2.0)
