"""ROPG-KD: distil the LLM's preference among the candidates into the retriever (Eq. 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from ropg.objectives import (
    distillation_loss,
    lambda_loss,
    margin_mse_loss,
    policy_log_probs,
    reverse_distillation_loss,
)
from ropg.training.batch import ScoreBatch
from ropg.training.objectives import OBJECTIVES
from ropg.training.objectives._options import check_choice, check_positive

Loss = Literal["forward_kl", "reverse_kl", "margin_mse", "lambda"]

_LOSSES = {
    "forward_kl": distillation_loss,
    "reverse_kl": reverse_distillation_loss,
    "margin_mse": margin_mse_loss,
    "lambda": lambda_loss,
}


@OBJECTIVES.register("ropg_kd")
@dataclass(frozen=True)
class RopgKd:
    """KL(p_t ‖ π), or another way to learn the same preference; docs/objectives.md says when to use what.

    temperature: divides the scores, and the rewards where ``target_temperature`` is not given.
    target_temperature: divides the rewards; below 1 it sharpens the target p_t, whose entropy is logged.
    loss: "forward_kl" is the paper's; "reverse_kl", "margin_mse" and "lambda" are in :mod:`ropg.objectives`.

    Raises ValueError for an unknown loss or a temperature that is not positive.
    """

    temperature: float = 1.0
    target_temperature: float | None = None
    loss: Loss = "forward_kl"

    def __post_init__(self) -> None:
        check_choice("ropg_kd", "loss", self.loss, get_args(Loss))
        check_positive("ropg_kd", "temperature", self.temperature)
        check_positive("ropg_kd", "target_temperature", self.target_temperature, optional=True)

    def __call__(self, batch: ScoreBatch) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and the mean entropy of the target in nats."""
        loss = _LOSSES[self.loss](
            batch.scores, batch.rewards, batch.mask, self.temperature, self.target_temperature
        )
        target = policy_log_probs(batch.rewards, batch.mask, self.target_temperature or self.temperature)
        entropy = -(target.exp() * target.masked_fill(~batch.mask, 0.0)).sum(dim=-1)  # (B,)
        live = batch.mask.any(dim=-1).sum().clamp(min=1)
        return loss, {"target_entropy": float(entropy.sum() / live)}
