"""ROPG-RL: the policy gradient of the expected reward (Eq. 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ropg.objectives import Estimator, policy_gradient_loss, policy_log_probs
from ropg.training.batch import ScoreBatch
from ropg.training.objectives import OBJECTIVES


@OBJECTIVES.register("ropg_rl")
@dataclass(frozen=True)
class RopgRl:
    """Policy gradient with the paper's single draw or the exact expectation over the candidates.

    estimator: "sample" (the paper) or "exact", which has no sampling variance.
    temperature: divides the scores before the softmax; an untrained encoder's policy is often peaked.
    baseline: "initial" is the paper's d_b, the reward of the initial retriever's first document;
        "expected" is the policy's own expected reward Σ π r, without gradient.

    Raises ValueError for an unknown choice or a temperature that is not positive.
    """

    estimator: Estimator = "sample"
    temperature: float = 1.0
    baseline: Literal["initial", "expected"] = "initial"

    def __post_init__(self) -> None:
        if self.estimator not in ("sample", "exact"):
            raise ValueError(f"ropg_rl: estimator must be sample or exact, not {self.estimator!r}")
        if self.baseline not in ("initial", "expected"):
            raise ValueError(f"ropg_rl: baseline must be initial or expected, not {self.baseline!r}")
        if not self.temperature > 0:
            raise ValueError(f"ropg_rl: temperature must be positive, not {self.temperature!r}")

    def __call__(self, batch: ScoreBatch) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and the expected reward of the policy on this batch."""
        log_probs = policy_log_probs(batch.scores.detach(), batch.mask, self.temperature)  # (B, K)
        rewards = batch.rewards.masked_fill(~batch.mask, 0.0)
        expected = (log_probs.exp() * rewards).sum(dim=-1)  # (B,)
        loss = policy_gradient_loss(
            batch.scores / self.temperature,
            batch.rewards,
            batch.baseline if self.baseline == "initial" else expected,
            batch.mask,
            self.estimator,
            batch.generator,
        )
        live = batch.mask.any(dim=-1).sum().clamp(min=1)
        return loss, {"expected_reward": float(expected.sum() / live)}
