"""Eq. 5-7: the target over a pool of retrievers, the selector's distribution, and the loss between them.

Shapes, everywhere in this module:

    B  inputs of the batch
    R  retrievers of the pool, padded to the largest pool

The mathematics is that of :mod:`ropg.objectives` with a retriever in a document's place, and so are the
conventions: a mask is boolean, True at a real pool member; a row without any True is dead and counts
nowhere; what stands at masked places is ignored; a non-finite number at a real place raises ValueError.
What differs is the meaning of a reward: here it is Eval of the answer given *all* that a retriever found.

Eq. 7 is misprinted as Eq. 4 is (minimised as printed it trains backwards); what is minimised here is
KL(P_TS ‖ P_S) = Σ P_TS log(P_TS / P_S), without a factor T².
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ropg.objectives import distillation_loss, policy_log_probs
from ropg.training.batch import ScoreBatch
from rspg.choice import TIE


def selection_log_probs(scores: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probabilities log P_S(R_i|x) of the pool members (Eq. 6): a softmax over the pool.

    Parameters
    ----------
    scores: (B, R) selection scores S(R_i, x), floating point.
    mask: (B, R) bool, True at real pool members.
    temperature: what the scores are divided by before the softmax; the paper's is 1.

    Returns
    -------
    (B, R) log-probabilities, −inf at masked places and in dead rows.

    Raises
    ------
    TypeError, ValueError: as :func:`ropg.objectives.policy_log_probs`.

    >>> scores = torch.tensor([[0.0, math.log(3.0), 7.0]], dtype=torch.float64)
    >>> selection_log_probs(scores, torch.tensor([[True, True, False]])).exp().round(decimals=6).tolist()
    [[0.25, 0.75, 0.0]]
    """
    return policy_log_probs(scores, mask, temperature)


def selection_target(rewards: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """Target probabilities P_TS(R_i|x; u, y) of the pool members (Eq. 5): a softmax of their rewards.

    Parameters
    ----------
    rewards: (B, R) Eval of the answer given what each pool member retrieved; no gradient flows into it.
    mask: (B, R) bool, True at real pool members.
    temperature: what the rewards are divided by before the softmax; the paper's is 1, which leaves the
        target nearly flat for an Eval in [0, 1].

    Returns
    -------
    (B, R) probabilities, 0 at masked places and in dead rows.

    Raises
    ------
    TypeError, ValueError: as :func:`ropg.objectives.policy_log_probs`, for rewards; whole numbers are fine.

    >>> rewards, mask = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[True, True, True]])
    >>> [round(p, 4) for p in selection_target(rewards, mask)[0].tolist()]
    [0.5761, 0.2119, 0.2119]
    """
    rewards = rewards.detach()
    if not (rewards.is_floating_point() or rewards.is_complex()):
        rewards = rewards.float()
    try:
        return policy_log_probs(rewards, mask, temperature).exp()
    except (TypeError, ValueError) as error:
        raise type(error)(f"Eq. 5, where the rewards take the place of scores: {error}") from error


def selection_loss(
    scores: Tensor,
    rewards: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    target_temperature: float | None = None,
) -> Tensor:
    """KL(P_TS ‖ P_S) between the target and the selector (Eq. 7), mean over live rows. -> ()

    Parameters
    ----------
    scores: (B, R) selection scores.
    rewards: (B, R) Eval of the answer given what each pool member retrieved; no gradient flows into it.
    mask: (B, R) bool, True at real pool members.
    temperature: divides scores and rewards before their softmax. There is no factor T² afterwards.
    target_temperature: divides the rewards instead of ``temperature`` where given.

    Raises
    ------
    TypeError, ValueError: as :func:`ropg.objectives.distillation_loss`.

    The loss is 0 where scores / temperature and rewards / target temperature differ by a constant:

    >>> rewards, mask = torch.tensor([[0.75, 0.25, 0.5]]), torch.ones(1, 3, dtype=torch.bool)
    >>> selection_loss(rewards * 4 + 2, rewards, mask, target_temperature=0.25).item()
    0.0
    """
    return distillation_loss(scores, rewards, mask, temperature, target_temperature)


@dataclass(frozen=True)
class Rspg:
    """The objective of RSPG-Pre and RSPG-Post: ``load_objective("rspg.objectives:Rspg", …)``.

    ``target_temperature`` below 1 sharpens the target; None takes ``temperature`` for it.

    Raises ValueError for a temperature that is not a positive number.
    """

    temperature: float = 1.0
    target_temperature: float | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "target_temperature"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"rspg: {name} must be a positive number, not {value!r}")

    def __call__(self, batch: ScoreBatch) -> tuple[Tensor, dict[str, float]]:
        """Return the loss, the target's mean entropy in nats, and the share of successful selections.

        A selection is successful where the highest score stands at one of the best rewards of its row.
        """
        loss = selection_loss(
            batch.scores, batch.rewards, batch.mask, self.temperature, self.target_temperature
        )
        live = batch.mask.any(dim=-1)  # (B,)
        if not live.any():
            return loss, {"target_entropy": 0.0, "success": 0.0}
        target = selection_target(batch.rewards, batch.mask, self.target_temperature or self.temperature)
        entropy = torch.special.entr(target).sum(dim=-1)  # (B,), 0 in dead rows
        success = _is_success(batch.scores.detach(), batch.rewards, batch.mask)  # (B,)
        return loss, {
            "target_entropy": float(entropy[live].mean()),
            "success": float(success[live].float().mean()),
        }


def _is_success(scores: Tensor, rewards: Tensor, mask: Tensor) -> Tensor:
    """Whether the highest score of a row has one of its best rewards. (B, R) each, R >= 1 -> (B,) bool"""
    rewards = rewards.double().masked_fill(~mask, -math.inf)
    chosen = scores.masked_fill(~mask, -math.inf).argmax(dim=-1, keepdim=True)  # (B, 1), first on ties
    return rewards.gather(-1, chosen).squeeze(-1) >= rewards.amax(dim=-1) - TIE
