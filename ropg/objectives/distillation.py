"""Distillation of the LLM's preference (Eq. 4), and the reverse divergence and margin-MSE beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from ropg.objectives.masked import (
    check_rewards,
    check_scores,
    masked_log_softmax,
    mean_divergence,
    mean_over,
    zero_loss,
)


def distillation_loss(
    scores: Tensor,
    rewards: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    target_temperature: float | None = None,
) -> Tensor:
    """KL(p_t ‖ π) between the LLM's preference and the policy (Eq. 4), mean over live rows.

    p_t is the softmax of the rewards, π the softmax of the scores, both over the real documents only.

    Parameters
    ----------
    scores: (B, K) retrieval scores.
    rewards: (B, K) Eval of the answer given each candidate alone; no gradient flows into it.
    mask: (B, K) bool, True at real documents.
    temperature: divides scores and rewards before their softmax. There is no factor T² afterwards.
    target_temperature: divides the rewards instead of ``temperature`` where given; a small one makes the
        target sharper.

    Raises
    ------
    TypeError, ValueError: as :func:`~ropg.objectives.policy_log_probs`; also for real rewards that are not finite.

    >>> p = torch.tensor([[0.7, 0.3], [0.5, 0.5]], dtype=torch.float64)
    >>> q = torch.tensor([[0.6, 0.4], [0.9, 0.1]], dtype=torch.float64)
    >>> mask = torch.ones(2, 2, dtype=torch.bool)
    >>> round(distillation_loss(q.log(), p.log(), mask).item(), 4)
    0.2662
    """
    log_probs, target = _policy_and_target(scores, rewards, mask, temperature, target_temperature)
    return mean_divergence(target, log_probs, mask)


def reverse_distillation_loss(
    scores: Tensor,
    rewards: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    target_temperature: float | None = None,
) -> Tensor:
    """KL(π ‖ p_t): the divergence of Eq. 4 the other way round, mean over live rows. -> ()

    It seeks one of the target's modes where Eq. 4 covers all of them: a document that the target finds
    unlikely costs in proportion to what π gives it. Written out it is −(1/T_t) Σ π r − H(π) + const, so
    ``target_temperature`` times its gradient is that of the exact policy gradient with an entropy bonus of
    ``target_temperature``; a small one therefore gives large values and gradients.

    Parameters, errors: as :func:`distillation_loss`.

    >>> p = torch.tensor([[0.7, 0.3]], dtype=torch.float64)
    >>> q = torch.tensor([[0.6, 0.4]], dtype=torch.float64)
    >>> round(reverse_distillation_loss(q.log(), p.log(), torch.ones(1, 2, dtype=torch.bool)).item(), 4)
    0.0226
    """
    log_probs, target = _policy_and_target(scores, rewards, mask, temperature, target_temperature)
    return mean_divergence(log_probs, target, mask)


def margin_mse_loss(
    scores: Tensor,
    rewards: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    target_temperature: float | None = None,
) -> Tensor:
    """Mean over pairs i < j of ((s_i − s_j)/T − (r_i − r_j)/T_t)², mean over live rows. -> ()

    The difference of two scores is to be that of the rewards, each in units of its temperature; a
    constant added to a row changes nothing. It is 0 where Eq. 4 is, but every pair counts the same,
    where Eq. 4 hardly looks below the target's best. A row with one document has no pair: it costs 0 and
    counts in the mean. With e = s/T − r/T_t the mean over the pairs is 2 Σ (e − ē)² / (n − 1), which is
    how it is computed.

    Parameters, errors: as :func:`distillation_loss`.

    >>> scores = torch.tensor([[3.0, 1.0, 0.0]], dtype=torch.float64)
    >>> rewards, mask = torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([[True, True, False]])
    >>> round(margin_mse_loss(scores, rewards, mask).item(), 6)  # (2 − 1)²
    1.0
    """
    log_probs, target = _policy_and_target(scores, rewards, mask, temperature, target_temperature)
    live = mask.any(dim=-1)  # (B,)
    if not live.any():
        return zero_loss(scores, mask)
    # log-probabilities differ from s/T and r/T_t by a constant of the row, which the centring removes
    zero = torch.zeros_like(log_probs)
    error = torch.where(mask, log_probs, zero) - torch.where(mask, target, zero)  # (B, K)
    n = mask.sum(dim=-1, keepdim=True)  # (B, 1)
    centred = torch.where(mask, error - error.sum(dim=-1, keepdim=True) / n.clamp(min=1), zero)
    return mean_over(2.0 * (centred**2).sum(dim=-1) / (n.squeeze(-1) - 1).clamp(min=1), live)


def _policy_and_target(
    scores: Tensor, rewards: Tensor, mask: Tensor, temperature: float, target_temperature: float | None
) -> tuple[Tensor, Tensor]:
    """log π and log p_t, −inf at masked places. -> (B, K), (B, K)"""
    check_scores(scores, mask)
    check_rewards(rewards, mask)
    log_probs = masked_log_softmax(scores, mask, temperature, "scores")
    target = masked_log_softmax(
        rewards.detach().to(log_probs.dtype),
        mask,
        temperature if target_temperature is None else target_temperature,
        "rewards",
    )
    return log_probs, target
