"""The registered objectives are the equations, with their options."""

import dataclasses
import math
import re
import sys
import types
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from ropg.objectives import (
    advantage_scale,
    distillation_loss,
    first_set,
    lambda_loss,
    margin_mse_loss,
    mean_reward,
    policy_divergence,
    policy_entropy,
    policy_gradient_loss,
    policy_log_probs,
    reverse_distillation_loss,
    sample_sets,
    set_policy_gradient_loss,
    set_rewards,
)
from ropg.registry import UnknownName
from ropg.training import ScoreBatch, load_objective

CONF = Path(__file__).parents[2] / "conf" / "method"


def batch(seed=0):
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 4, generator=rng).requires_grad_()
    return ScoreBatch(
        scores=scores,
        initial_scores=torch.randn(3, 4, generator=torch.Generator().manual_seed(1)),
        rewards=torch.rand(3, 4, generator=rng),
        mask=torch.tensor([[True] * 4, [True, True, False, False], [False] * 4]),
        baseline=torch.tensor([0.3, 0.6, 0.0]),
        ranks=torch.tensor([[2, 4, 1, 3], [1, 2, 0, 0], [0, 0, 0, 0]]),
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


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("forward_kl", distillation_loss),
        ("reverse_kl", reverse_distillation_loss),
        ("margin_mse", margin_mse_loss),
        ("lambda", lambda_loss),
    ],
)
def test_kd_loss_by_name_with_both_temperatures(name, function):
    """Each option is the loss of that name; the default is Eq. 4."""
    b = batch()
    loss, logs = load_objective("ropg_kd", loss=name, temperature=2.0, target_temperature=0.1)(b)
    assert loss.item() == function(b.scores, b.rewards, b.mask, 2.0, 0.1).item()
    assert set(logs) == {"target_entropy"}
    assert load_objective("ropg_kd").loss == "forward_kl"


def test_rl_defaults_are_the_papers():
    """What the options add is off: one document, one draw, d_b, nothing beside the expected reward."""
    b = batch(4)
    loss, logs = load_objective("ropg_rl")(b)
    paper = policy_gradient_loss(
        b.scores, b.rewards, b.baseline, b.mask, generator=torch.Generator().manual_seed(4)
    )
    assert loss.item() == paper.item()
    assert set(logs) == {"expected_reward"}


@pytest.mark.parametrize("name", ["mean", "expected", "leave_one_out"])
def test_rl_baselines_with_several_samples(name):
    """Each option subtracts what it says, over the number of draws asked for."""
    b = batch(4)
    loss, _ = load_objective("ropg_rl", baseline=name, samples=3, temperature=2.0)(b)
    pi = policy_log_probs(b.scores.detach(), b.mask, 2.0).exp()
    subtracted = {
        "mean": mean_reward(b.rewards, b.mask),
        "expected": (pi * b.rewards).sum(-1),
        "leave_one_out": "leave_one_out",
    }[name]
    generator = torch.Generator().manual_seed(4)
    by_hand = policy_gradient_loss(
        b.scores / 2, b.rewards, subtracted, b.mask, generator=generator, samples=3
    )
    assert loss.item() == pytest.approx(by_hand.item(), abs=1e-7)


@pytest.mark.parametrize("name", ["mean", "expected", "leave_one_out"])
def test_rl_baselines_leave_the_gradient_of_exact(name):
    """None changes what `exact` trains."""
    b = batch()
    loss, _ = load_objective("ropg_rl", estimator="exact", baseline=name)(b)
    plain, _ = load_objective("ropg_rl", estimator="exact")(b)
    torch.testing.assert_close(grad(loss, b), grad(plain, b))


def test_rl_entropy_is_rewarded_and_divergence_paid_for():
    """loss − c_H H(π) + c_KL KL(π ‖ π₀), at the policy's temperature, and both are logged."""
    b = batch()
    plain, _ = load_objective("ropg_rl", estimator="exact", temperature=2.0)(b)
    loss, logs = load_objective("ropg_rl", estimator="exact", temperature=2.0, entropy=0.3, kl=0.2)(b)
    entropy = policy_entropy(b.scores, b.mask, 2.0).item()
    kl = policy_divergence(b.scores, b.initial_scores, b.mask, 2.0).item()
    assert loss.item() == pytest.approx(plain.item() - 0.3 * entropy + 0.2 * kl)
    assert logs["policy_entropy"] == pytest.approx(entropy)
    assert logs["kl_initial"] == pytest.approx(kl)


@pytest.mark.parametrize("estimator", ["sample", "exact"])
@pytest.mark.parametrize("baseline", ["initial", "mean", "expected"])
def test_rl_advantage_floor_divides_every_query_by_its_spread(estimator, baseline):
    """A query's own loss is divided by its spread, here of rows of one query each."""
    whole = batch()
    for row in (0, 1):
        parts = {}
        for floor in (None, 0.05):
            b = ScoreBatch(
                **{
                    name: getattr(whole, name)[row : row + 1]
                    for name in ("scores", "initial_scores", "rewards", "mask", "baseline", "ranks")
                },
                generator=torch.Generator().manual_seed(0),
            )
            options = {"estimator": estimator, "baseline": baseline, "advantage_floor": floor}
            parts[floor], _ = load_objective("ropg_rl", **options)(b)
        scale = advantage_scale(whole.rewards, whole.mask, 0.05)[row]
        torch.testing.assert_close(parts[0.05] * scale, parts[None])


@pytest.mark.parametrize("how", ["mean", "max", "any"])
@pytest.mark.parametrize("baseline", ["initial", "leave_one_out"])
def test_rl_with_sets_of_documents(how, baseline):
    """Sets drawn from the policy, worth what their documents are; d_b is the set ranked first."""
    b = batch(4)
    options = {"set_size": 2, "set_reward": how, "samples": 8, "baseline": baseline, "temperature": 2.0}
    loss, _ = load_objective("ropg_rl", **options)(b)
    log_probs = policy_log_probs(b.scores.detach(), b.mask, 2.0)
    sets = sample_sets(log_probs, b.mask, 2, 8, torch.Generator().manual_seed(4))
    # the two best ranks: columns 2 and 0, and 0 and 1
    first = first_set(b.ranks, b.mask, 2)
    assert first[:2].tolist() == [[[2, 0]], [[0, 1]]]
    initial = set_rewards(b.rewards, first, b.mask, how)
    by_hand = set_policy_gradient_loss(
        b.scores / 2,
        sets,
        set_rewards(b.rewards, sets, b.mask, how),
        initial[:, 0] if baseline == "initial" else "leave_one_out",
        b.mask,
    )
    assert loss.item() == by_hand.item()
    assert abs(loss.item()) > 1e-3  # the draws differ
    floor = float(b.rewards.max()) * 10  # above every spread, so that all are divided by it
    scaled, _ = load_objective("ropg_rl", **options, advantage_floor=floor)(batch(4))
    assert scaled.item() == pytest.approx(by_hand.item() / floor, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "exakt"}, "did you mean exact"),
        ({"baseline": "leave_one_ou"}, "did you mean leave_one_out"),
        ({"set_reward": "maxx"}, "did you mean max"),
        ({"sample": 3}, "did you mean samples"),
        ({"advantage_flor": 0.1}, "did you mean advantage_floor"),
        ({"samples": 0}, "samples must be a whole number from 1"),
        ({"samples": 2.5}, "samples must be a whole number from 1"),
        ({"samples": True}, "samples must be a whole number from 1"),
        ({"set_size": 0}, "set_size must be a whole number from 1"),
        ({"entropy": -0.1}, "entropy must be a number from 0"),
        ({"kl": math.nan}, "kl must be a number from 0"),
        ({"kl": "much"}, "kl must be a number from 0"),
        ({"advantage_floor": 0.0}, "advantage_floor must be a positive number"),
        ({"temperature": math.inf}, "temperature must be a positive number"),
        ({"estimator": "exact", "samples": 2}, "leave samples at 1"),
        ({"baseline": "leave_one_out"}, "samples of at least 2"),
        ({"set_size": 2, "estimator": "exact"}, "estimator=sample"),
        ({"set_size": 2, "baseline": "expected"}, "baseline=initial or leave_one_out"),
        ({"set_size": 2, "baseline": "mean"}, "baseline=initial or leave_one_out"),
    ],
)
def test_rl_options_that_cannot_be_are_refused_with_the_remedy(options, message):
    """Before the training starts, not after an hour, and never by training something else."""
    with pytest.raises(ValueError, match=message):
        load_objective("ropg_rl", **options)


def test_kd_options_that_cannot_be_are_refused_with_the_remedy():
    """The nearest name is told."""
    with pytest.raises(ValueError, match="did you mean reverse_kl"):
        load_objective("ropg_kd", loss="reverse-kl")
    with pytest.raises(ValueError, match="did you mean loss"):
        load_objective("ropg_kd", los="lambda")


@pytest.mark.parametrize("name", ["ropg_rl", "ropg_kd"])
def test_configuration_files_name_every_option_with_the_objectives_default(name):
    """An option that the file lacks could not be set on the command line; another default would hide."""
    yaml = OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"))
    built = load_objective(name, temperature=yaml["temperature"], **yaml["options"])
    assert built == load_objective(name)
    assert {"temperature", *yaml["options"]} == {field.name for field in dataclasses.fields(built)}
    page = (CONF.parents[1] / "docs" / "objectives.md").read_text(encoding="utf-8")
    for option in yaml["options"]:
        assert re.search(rf"\| `{option}[`=]", page), f"docs/objectives.md does not explain {option}"


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
