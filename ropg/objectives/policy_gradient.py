"""The policy gradient (Eq. 2 and 3): one draw or the expectation, baselines, the scale of advantages."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ropg.objectives.draws import draw_documents
from ropg.objectives.masked import (
    check_rewards,
    check_scores,
    finite_where,
    masked_log_softmax,
    mean_over,
    zero_loss,
)

Estimator = Literal["sample", "exact"]


def policy_gradient_loss(
    scores: Tensor,
    rewards: Tensor,
    baseline: Tensor | Literal["leave_one_out"],
    mask: Tensor,
    estimator: Estimator = "sample",
    generator: torch.Generator | None = None,
    samples: int = 1,
) -> Tensor:
    """Loss whose gradient is the policy gradient of the expected reward (Eq. 2 and 3, sign turned).

    ``sample`` draws ``samples`` documents d per row, independently, and returns the mean of
    −(r_d − b) log π(d) over them: with one draw the paper's estimator. ``exact`` returns
    −Σ_d π(d) (r_d − b) with the gradient through π, the expectation over all draws. Compare the two by
    gradient, not by value. Any baseline leaves the gradient of ``exact`` as it is.

    Parameters
    ----------
    scores: (B, K) retrieval scores; divide them by the temperature first where it is not 1.
    rewards: (B, K) Eval of the answer given each candidate alone; no gradient flows into it.
    baseline: (B,) b of each query, the reward of the initial retriever's first document in the paper; or
        "leave_one_out": each draw's is the mean reward of the row's other draws (:func:`leave_one_out`).
        For ``exact`` that is its limit of many draws, the expected reward.
    mask: (B, K) bool, True at real documents.
    generator: source of the draws of ``sample``: one uniform number per row, dead rows included, so that
        neither padding nor the split into batches changes what is drawn. Further draws of a row come
        from a stream which that number seeds.
    samples: draws per row; ``exact`` draws nothing and takes 1 only.

    Raises
    ------
    TypeError, ValueError: as :func:`~ropg.objectives.policy_log_probs`; also for rewards and baselines
        that are not finite in live rows, for an unknown estimator, and for a number of draws that does
        not fit estimator or baseline.

    >>> scores = torch.zeros(1, 2, dtype=torch.float64)
    >>> rewards, mask = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, True]])
    >>> policy_gradient_loss(scores, rewards, torch.tensor([0.25]), mask, estimator="exact").item()
    -0.25
    """
    if estimator not in ("sample", "exact"):
        raise ValueError(f"estimator must be 'sample' or 'exact', not {estimator!r}")
    if samples < 1 or (estimator == "exact" and samples != 1):
        raise ValueError(f"samples must be at least 1, and 1 for the exact estimator, not {samples!r}")
    check_scores(scores, mask)
    check_rewards(rewards, mask)
    log_probs = masked_log_softmax(scores, mask, 1.0, "scores")  # (B, K)
    live = mask.any(dim=-1)  # (B,)
    r = finite_where(rewards.detach().to(log_probs.dtype), mask, "rewards")  # (B, K)
    b: Tensor | None = None  # (B,)
    if isinstance(baseline, str):
        if baseline != "leave_one_out":
            raise ValueError(f"baseline must be a tensor of shape (B,) or 'leave_one_out', not {baseline!r}")
        if estimator == "sample" and samples < 2:
            raise ValueError(
                "the leave_one_out baseline needs at least 2 samples: with one there is no other"
            )
    else:
        if baseline.shape != scores.shape[:1]:
            raise ValueError(
                f"baseline must have shape {tuple(scores.shape[:1])}, not {tuple(baseline.shape)}"
            )
        b = finite_where(baseline.detach().to(log_probs.dtype), live, "baseline")
    if not live.any():
        return zero_loss(scores, mask)
    if estimator == "exact":
        if b is None:
            b = (log_probs.detach().exp() * r).sum(dim=-1)
        per_row = -(log_probs.exp() * (r - b.unsqueeze(-1)).masked_fill(~mask, 0.0)).sum(dim=-1)  # (B,)
        return mean_over(per_row, live)
    # 0 in place of −inf, so that a dead row's −inf never meets a gradient
    finite = torch.where(mask, log_probs, torch.zeros_like(log_probs))
    drawn = draw_documents(log_probs.detach(), mask, generator, samples)  # (B, S)
    r = r.gather(-1, drawn)  # (B, S)
    return score_function_loss(
        finite.gather(-1, drawn), r, leave_one_out(r) if b is None else b.unsqueeze(-1), live
    )


def score_function_loss(log_probs: Tensor, rewards: Tensor, baseline: Tensor, live: Tensor) -> Tensor:
    """Mean over the live rows and their draws of −(r − b) log p. -> ()

    Its gradient is unbiased for that of −E[r] where each b is independent of the draw it is taken from.

    Parameters
    ----------
    log_probs: (B, S) log-probabilities of what was drawn, with gradient.
    rewards: (B, S) without gradient; baseline: (B, S) or (B, 1) without gradient; live: (B,) bool.
    """
    return mean_over(-((rewards - baseline) * log_probs).mean(dim=-1), live)


def leave_one_out(rewards: Tensor) -> Tensor:
    """For each of S >= 2 draws the mean reward of the other draws of its row. (B, S) -> (B, S)

    Independent of the draw's own reward, so the estimator stays unbiased, where the mean over all draws,
    the draw's own included, would shrink every gradient by (S − 1) / S.

    >>> leave_one_out(torch.tensor([[1.0, 0.0, 0.5]])).tolist()
    [[0.25, 0.75, 0.5]]
    """
    return (rewards.sum(dim=-1, keepdim=True) - rewards) / (rewards.shape[-1] - 1)


def mean_reward(rewards: Tensor, mask: Tensor) -> Tensor:
    """Mean reward of a row's candidates, 0 for a dead row. (B, K) -> (B,)

    The expected reward of a uniform policy: a baseline that does not move while the policy trains.
    """
    total = rewards.masked_fill(~mask, 0.0).sum(dim=-1)
    return total / mask.sum(dim=-1).clamp(min=1)


def expected_reward(log_probs: Tensor, rewards: Tensor, mask: Tensor) -> Tensor:
    """Σ_d π(d) r_d of each row, 0 for a dead row. (B, K), (B, K) -> (B,)"""
    return (log_probs.exp() * rewards.masked_fill(~mask, 0.0)).sum(dim=-1)


def advantage_scale(rewards: Tensor, mask: Tensor, floor: float) -> Tensor:
    """What to divide a row's advantages r − b by: its spread max r − min r, but at least ``floor``. -> (B,)

    Rewards differ in spread from query to query, and the queries with the widest dominate the gradient.
    Divided by the spread, every query counts alike. The usual divisor, the standard deviation of the
    sampled advantages, explodes where it nears 0: on equal rewards it divides noise by noise, and under
    a peaked policy, or where one document of many is rewarded, a rare draw gets an advantage of √(n−1)
    deviations. Here

    - the spread is over all n candidates, whose rewards are known: it depends on neither draws nor policy
      nor other rows, so the gradient stays unbiased, for the expected reward in units of the row's spread,
      and stays the same however a batch is split;
    - a baseline between min r and max r (all of them are) leaves advantages in [−1, 1], however sparse;
    - no difference is magnified more than 1 / ``floor`` times, and equal rewards keep the advantages of a
      constant, 0 for each baseline. Set the floor to the smallest difference in Eval worth learning.

    Raises ValueError for a floor that is not a positive number.

    >>> rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]])
    >>> advantage_scale(rewards, torch.ones(2, 4, dtype=torch.bool), 0.125).tolist()
    [1.0, 0.125]
    """
    if not (floor > 0 and math.isfinite(floor)):
        raise ValueError(f"the floor of the advantages' scale must be a positive number, not {floor!r}")
    check_rewards(rewards, mask)
    r = finite_where(rewards.detach(), mask, "rewards")
    if r.shape[-1] == 0:
        return torch.full(r.shape[:1], floor, dtype=r.dtype, device=r.device)
    highest = r.masked_fill(~mask, -math.inf).amax(dim=-1)
    lowest = r.masked_fill(~mask, math.inf).amin(dim=-1)
    return (highest - lowest).clamp(min=floor)  # −inf − inf, a dead row, becomes the floor
