"""ROPG-KD: distil the LLM's preference among the candidates into the retriever (Eq. 4)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ropg.objectives import distillation_loss, policy_log_probs
from ropg.training.batch import ScoreBatch
from ropg.training.objectives import OBJECTIVES


@OBJECTIVES.register("ropg_kd")
@dataclass(frozen=True)
class RopgKd:
    """KL(p_t ‖ π); ``target_temperature`` below 1 sharpens the target p_t, whose entropy is logged.

    Raises ValueError for a temperature that is not positive.
    """

    temperature: float = 1.0
    target_temperature: float | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "target_temperature"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"ropg_kd: {name} must be positive, not {value!r}")

    def __call__(self, batch: ScoreBatch) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and the mean entropy of the target in nats."""
        loss = distillation_loss(
            batch.scores, batch.rewards, batch.mask, self.temperature, self.target_temperature
        )
        target = policy_log_probs(batch.rewards, batch.mask, self.target_temperature or self.temperature)
        entropy = -(target.exp() * target.masked_fill(~batch.mask, 0.0)).sum(dim=-1)  # (B,)
        live = batch.mask.any(dim=-1).sum().clamp(min=1)
        return loss, {"target_entropy": float(entropy.sum() / live)}
