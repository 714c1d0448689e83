"""ROPG-RL: the policy gradient of the expected reward (Eq. 2 and 3), and what may be added to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from ropg.objectives import (
    Estimator,
    advantage_scale,
    expected_reward,
    first_set,
    mean_reward,
    policy_divergence,
    policy_entropy,
    policy_gradient_loss,
    policy_log_probs,
    sample_sets,
    set_policy_gradient_loss,
    set_rewards,
)
from ropg.objectives.sets import SetReward
from ropg.training.batch import ScoreBatch
from ropg.training.objectives import OBJECTIVES
from ropg.training.objectives._options import (
    check_choice,
    check_coefficient,
    check_count,
    check_positive,
)

Baseline = Literal["initial", "mean", "expected", "leave_one_out"]


@OBJECTIVES.register("ropg_rl")
@dataclass(frozen=True)
class RopgRl:
    """Policy gradient; the defaults are the paper's. docs/objectives.md says when to use what.

    estimator: "sample" (the paper) or "exact", the expectation over the candidates, without variance.
    temperature: divides the scores before the softmax; an untrained encoder's policy is often peaked.
    baseline: "initial" is the paper's d_b, the reward of the initial retriever's first document (of its
        first k documents, for sets); "mean" the candidates' mean reward; "expected" the policy's own
        expected reward Σ π r, without gradient; "leave_one_out" the mean reward of the other samples.
    samples: draws per query and step under "sample", sets where they are sets.
    entropy: coefficient of the policy's entropy, which is added to what is maximised.
    kl: coefficient of KL(π ‖ π₀), which is subtracted; π₀ is the policy of the candidates' initial scores
        at the same temperature.
    advantage_floor: advantages are divided by the spread of the query's rewards or by this number, the
        larger of the two (:func:`ropg.objectives.advantage_scale`); None leaves them as they are.
    set_size: documents per trajectory, k; 1 is the paper's.
    set_reward: what a set of documents is taken to be worth, "mean", "max" or "any"
        (:func:`ropg.objectives.set_rewards`).

    Raises ValueError for an unknown choice, a number out of its range, or choices that do not go together.
    """

    estimator: Estimator = "sample"
    temperature: float = 1.0
    baseline: Baseline = "initial"
    samples: int = 1
    entropy: float = 0.0
    kl: float = 0.0
    advantage_floor: float | None = None
    set_size: int = 1
    set_reward: SetReward = "max"

    def __post_init__(self) -> None:
        check_choice("ropg_rl", "estimator", self.estimator, get_args(Estimator))
        check_choice("ropg_rl", "baseline", self.baseline, get_args(Baseline))
        check_choice("ropg_rl", "set_reward", self.set_reward, get_args(SetReward))
        check_positive("ropg_rl", "temperature", self.temperature)
        check_positive("ropg_rl", "advantage_floor", self.advantage_floor, optional=True)
        check_coefficient("ropg_rl", "entropy", self.entropy)
        check_coefficient("ropg_rl", "kl", self.kl)
        check_count("ropg_rl", "samples", self.samples)
        check_count("ropg_rl", "set_size", self.set_size)
        if self.estimator == "exact" and self.samples > 1:
            raise ValueError("ropg_rl: estimator=exact draws nothing; leave samples at 1")
        if self.estimator == "sample" and self.baseline == "leave_one_out" and self.samples < 2:
            raise ValueError("ropg_rl: baseline=leave_one_out needs samples of at least 2")
        if self.set_size > 1 and self.estimator != "sample":
            raise ValueError("ropg_rl: sets of documents are sampled; set estimator=sample, or set_size=1")
        if self.set_size > 1 and self.baseline not in ("initial", "leave_one_out"):
            raise ValueError(
                f"ropg_rl: baseline={self.baseline} is worth a single document; for sets set "
                "baseline=initial or leave_one_out"
            )

    def __call__(self, batch: ScoreBatch) -> tuple[Tensor, dict[str, float]]:
        """Return the loss, the expected reward of the policy on this batch, and what was added."""
        log_probs = policy_log_probs(batch.scores.detach(), batch.mask, self.temperature)  # (B, K)
        expected = expected_reward(log_probs, batch.rewards, batch.mask)  # (B,)
        live = batch.mask.any(dim=-1).sum().clamp(min=1)
        logs = {"expected_reward": float(expected.sum() / live)}
        many = self.set_size > 1
        loss = self._of_sets(batch, log_probs) if many else self._of_documents(batch, expected)
        if self.entropy:
            entropy = policy_entropy(batch.scores, batch.mask, self.temperature)
            loss = loss - self.entropy * entropy
            logs["policy_entropy"] = float(entropy.detach())
        if self.kl:
            kl = policy_divergence(batch.scores, batch.initial_scores, batch.mask, self.temperature)
            loss = loss + self.kl * kl
            logs["kl_initial"] = float(kl.detach())
        return loss, logs

    def _of_documents(self, batch: ScoreBatch, expected: Tensor) -> Tensor:
        """The paper's trajectories of one document."""
        rewards = batch.rewards
        baseline: Tensor | Literal["leave_one_out"]
        if self.baseline == "leave_one_out":
            baseline = "leave_one_out"
        else:
            baseline = {
                "initial": batch.baseline,
                "mean": mean_reward(batch.rewards, batch.mask),
                "expected": expected,
            }[self.baseline]
        if self.advantage_floor is not None:
            scale = advantage_scale(rewards, batch.mask, self.advantage_floor)  # (B,)
            rewards = rewards / scale.unsqueeze(-1)
            if not isinstance(baseline, str):
                baseline = baseline / scale
        return policy_gradient_loss(
            batch.scores / self.temperature,
            rewards,
            baseline,
            batch.mask,
            self.estimator,
            batch.generator,
            self.samples,
        )

    def _of_sets(self, batch: ScoreBatch, log_probs: Tensor) -> Tensor:
        """Trajectories of ``set_size`` documents."""
        mask, how = batch.mask, self.set_reward
        sets = sample_sets(log_probs, mask, self.set_size, self.samples, batch.generator)  # (B, S, k)
        rewards = set_rewards(batch.rewards, sets, mask, how)  # (B, S)
        first = set_rewards(batch.rewards, first_set(batch.ranks, mask, self.set_size), mask, how)  # (B, 1)
        if self.advantage_floor is not None:
            scale = advantage_scale(batch.rewards, mask, self.advantage_floor).unsqueeze(-1)  # (B, 1)
            rewards, first = rewards / scale, first / scale
        baseline: Tensor | Literal["leave_one_out"]
        baseline = "leave_one_out" if self.baseline == "leave_one_out" else first.squeeze(-1)
        return set_policy_gradient_loss(batch.scores / self.temperature, sets, rewards, baseline, mask)
