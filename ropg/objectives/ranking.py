"""A ranking objective on pairs of candidates, weighted by what swapping them is worth (LambdaLoss)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropg.objectives.masked import check_rewards, check_scores, divided, mean_over, zero_loss


def lambda_loss(
    scores: Tensor,
    rewards: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    target_temperature: float | None = None,
) -> Tensor:
    """Σ over pairs with r_i > r_j of w_ij log(1 + exp(−(s_i − s_j)/T)), mean over live rows. -> ()

    w_ij = (r_i − r_j)/T_t |1/log₂(1 + rank_i) − 1/log₂(1 + rank_j)| is what DCG with gain r/T_t changes by
    when the two are swapped in the order of the present scores (of equal scores the first is ranked higher); it
    is a constant to the gradient. DCG is not divided by the ideal one, as NDCG is: the division would make
    a query whose candidates are worth 0.500 and 0.501 count like one with 0 and 1. So weights go to 0 with
    the differences, and a row of equal rewards costs 0 with zero gradient.

    Parameters
    ----------
    scores: (B, K) retrieval scores.
    rewards: (B, K) Eval of the answer given each candidate alone; no gradient flows into it.
    mask: (B, K) bool, True at real documents.
    temperature: divides scores and rewards.
    target_temperature: divides the rewards instead where given, as in the other losses; here it scales the
        loss and nothing else.

    Raises
    ------
    TypeError, ValueError: as :func:`~ropg.objectives.policy_log_probs`; also for real rewards that are not
        finite.

    >>> scores, mask = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool)
    >>> loss = lambda_loss(scores, torch.tensor([[1.0, 0.0]]), mask)
    >>> math.isclose(loss.item(), (1 - 1 / math.log2(3)) * math.log(2))
    True
    """
    check_scores(scores, mask)
    check_rewards(rewards, mask)
    s = divided(scores, mask, temperature, "scores")  # (B, K)
    target = temperature if target_temperature is None else target_temperature
    r = divided(rewards.detach().to(s.dtype), mask, target, "rewards")  # (B, K)
    live = mask.any(dim=-1)  # (B,)
    if not live.any():
        return zero_loss(scores, mask)
    order = s.detach().masked_fill(~mask, -math.inf).argsort(dim=-1, descending=True, stable=True)
    rank = order.argsort(dim=-1) + 1  # (B, K), from 1; padding is last
    discount = 1.0 / torch.log2(1.0 + rank.to(s.dtype))
    gain = (r.unsqueeze(-1) - r.unsqueeze(-2)).clamp(min=0.0)  # (B, K, K), r_i − r_j where i is better
    weight = gain * (discount.unsqueeze(-1) - discount.unsqueeze(-2)).abs()
    weight = weight.masked_fill(~(mask.unsqueeze(-1) & mask.unsqueeze(-2)), 0.0)
    cost = torch.nn.functional.softplus(s.unsqueeze(-2) - s.unsqueeze(-1))  # (B, K, K), −(s_i − s_j)
    return mean_over((weight * cost).sum(dim=(-2, -1)), live)
