"""The registered objectives are the equations, with their options."""

import sys
import types

import pytest
import torch

from ropg.objectives import distillation_loss, policy_gradient_loss
from ropg.registry import UnknownName
from ropg.training import ScoreBatch, load_objective


def batch(seed=0):
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 4, generator=rng).requires_grad_()
    return ScoreBatch(
        scores=scores,
        initial_scores=torch.zeros(3, 4),
        rewards=torch.rand(3, 4, generator=rng),
        mask=torch.tensor([[True] * 4, [True, True, False, False], [False] * 4]),
        baseline=torch.tensor([0.3, 0.6, 0.0]),
        ranks=torch.zeros(3, 4, dtype=torch.long),
        generator=torch.Generator().manual_seed(seed),
    )


def grad(loss, b):
    return torch.autograd.grad(loss, b.scores, retain_graph=True)[0]


def test_kd_is_equation_4_with_its_options():
    """The preset's target temperature must reach the loss."""
    b = batch()
    loss, logs = load_objective("ropg_kd", temperature=2.0, target_temperature=0.1)(b)
    assert loss.item() == distillation_loss(b.scores, b.rewards, b.mask, 2.0, 0.1).item()
    targets = [torch.softmax(b.rewards[0] / 0.1, -1), torch.softmax(b.rewards[1, :2] / 0.1, -1)]
    entropy = sum(-(p * p.log()).sum().item() for p in targets) / 2
    assert logs == {"target_entropy": pytest.approx(entropy, abs=1e-5)}


@pytest.mark.parametrize("estimator", ["sample", "exact"])
def test_rl_is_the_policy_gradient_with_the_initial_first_document(estimator):
    """d_b of the paper is the default, one draw the paper's estimator."""
    b = batch(4)
    loss, _ = load_objective("ropg_rl", estimator=estimator, temperature=2.0)(b)
    expected = policy_gradient_loss(
        b.scores / 2, b.rewards, b.baseline, b.mask, estimator, torch.Generator().manual_seed(4)
    )
    assert loss.item() == expected.item()
    assert load_objective("ropg_rl").estimator == "sample"


def test_rl_with_the_expected_reward_as_baseline():
    """With b = Σ π r the exact loss is 0 and its gradient unchanged: no gradient may leak through b."""
    b = batch()
    loss, logs = load_objective("ropg_rl", estimator="exact", baseline="expected")(b)
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    plain, _ = load_objective("ropg_rl", estimator="exact")(b)
    torch.testing.assert_close(grad(loss, b), grad(plain, b))
    pi = [torch.softmax(b.scores[0], -1), torch.softmax(b.scores[1, :2], -1)]
    by_hand = (pi[0] @ b.rewards[0] + pi[1] @ b.rewards[1, :2]) / 2
    assert logs["expected_reward"] == pytest.approx(by_hand.item())


def test_wrong_names_options_and_values_are_refused_with_the_remedy():
    """A misspelt option must not train with the default."""
    with pytest.raises(UnknownName, match="ropg_kd"):
        load_objective("ropg_kb")
    with pytest.raises(ValueError, match="did you mean target_temperature"):
        load_objective("ropg_kd", target_temprature=0.1)
    with pytest.raises(ValueError, match="estimator"):
        load_objective("ropg_rl", estimator="both")
    with pytest.raises(ValueError, match="baseline"):
        load_objective("ropg_rl", baseline="none")
    for name, option in (("ropg_rl", "temperature"), ("ropg_kd", "target_temperature")):
        with pytest.raises(ValueError, match=option):
            load_objective(name, **{option: 0.0})


def test_a_users_own_objective_needs_no_file_here(monkeypatch):
    """`package.module:attribute` names one."""
    module = types.ModuleType("users_objectives")
    module.margin = lambda width=1.0: lambda b: (b.scores.sum() * width, {})
    monkeypatch.setitem(sys.modules, "users_objectives", module)
    loss, logs = load_objective("users_objectives:margin", width=0.0)(batch())
    assert loss.item() == 0.0
    assert logs == {}
