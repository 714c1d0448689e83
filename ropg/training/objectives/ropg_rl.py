"""ROPG-RL: the policy gradient of the expected reward (Eq. 2 and 3), and what may be added to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
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
_SET_REWARDS = (*get_args(SetReward), "llm")


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
    set_reward: what a set of documents is taken to be worth, "mean", "max" or "any" of its documents'
        (:func:`ropg.objectives.set_rewards`), or "llm", what the LLM makes of the whole set, asked while
        training. A set of one document is worth its stored feedback in each case.

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
    set_reward: SetReward | Literal["llm"] = "max"

    def __post_init__(self) -> None:
        check_choice("ropg_rl", "estimator", self.estimator, get_args(Estimator))
        check_choice("ropg_rl", "baseline", self.baseline, get_args(Baseline))
        check_choice("ropg_rl", "set_reward", self.set_reward, _SET_REWARDS)
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
        if self.asks_sets and self.advantage_floor is not None:
            raise ValueError(
                "ropg_rl: advantage_floor divides by the spread of the documents' own rewards, which says nothing "
                "of what the LLM makes of sets; leave it at null with set_reward=llm"
            )

    @property
    def asks_sets(self) -> bool:
        """Whether batches have to come with ``set_rewards``."""
        return self.set_reward == "llm" and self.set_size > 1

    def __call__(self, batch: ScoreBatch) -> tuple[Tensor, dict[str, float]]:
        """Return the loss, the expected reward of the policy on this batch, and what was added."""
        log_probs = policy_log_probs(batch.scores.detach(), batch.mask, self.temperature)  # (B, K)
        expected = expected_reward(log_probs, batch.rewards, batch.mask)  # (B,)
        live = batch.mask.any(dim=-1).sum().clamp(min=1)
        logs = {"expected_reward": float(expected.sum() / live)}
        if self.set_size > 1:
            loss, more = self._of_sets(batch, log_probs)
            logs |= more
        else:
            loss = self._of_documents(batch, expected)
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

    def _of_sets(self, batch: ScoreBatch, log_probs: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Trajectories of ``set_size`` documents: the loss, and what the LLM said where it was asked."""
        mask, logs = batch.mask, {}
        sets = sample_sets(log_probs, mask, self.set_size, self.samples, batch.generator)  # (B, S, k)
        if self.baseline == "initial":
            sets = torch.cat([sets, first_set(batch.ranks, mask, self.set_size)], dim=1)  # (B, S + 1, k)
        if self.set_reward == "llm":
            rewards = self._asked(batch, sets)  # (B, S + 1)
        else:
            rewards = set_rewards(batch.rewards, sets, mask, self.set_reward)
        sets, rewards, first = sets[:, : self.samples], rewards[:, : self.samples], rewards[:, self.samples :]
        if self.asks_sets:
            live = mask.any(dim=-1)
            logs["set_reward"] = float(rewards[live].mean()) if live.any() else 0.0
        if self.advantage_floor is not None:
            scale = advantage_scale(batch.rewards, mask, self.advantage_floor).unsqueeze(-1)  # (B, 1)
            rewards, first = rewards / scale, first / scale
        baseline: Tensor | Literal["leave_one_out"]
        baseline = "leave_one_out" if self.baseline == "leave_one_out" else first.squeeze(-1)
        loss = set_policy_gradient_loss(batch.scores / self.temperature, sets, rewards, baseline, mask)
        return loss, logs

    def _asked(self, batch: ScoreBatch, sets: Tensor) -> Tensor:
        """The LLM's rewards of the sets. (B, S, k) -> (B, S)"""
        if batch.set_rewards is None:
            raise ValueError(
                "ropg_rl: set_reward=llm asks the LLM while training, and nobody is there to ask: give "
                "ropg.training.train its ask_sets (see ropg.feedback.SetFeedback), or choose another set_reward"
            )
        return batch.set_rewards(sets)
