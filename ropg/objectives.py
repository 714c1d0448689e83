"""Eq. 1-4 as pure functions on tensors: the policy, the policy gradient, the distillation loss.

Shapes, everywhere in this module:

    B  queries of the batch
    K  candidates per query, padded to the longest row

A mask is boolean, True at a real document. A row without any True is *dead*: its log-probabilities are
all −inf and it counts nowhere. Losses are scalars, means over the live rows; without a live row the loss
is 0 with zero gradient. What stands at masked places is ignored, NaN and infinities included; a
non-finite number at a real place raises ValueError. Scores in half precision are raised to float32.

Eq. 4 is misprinted in the paper (minimised as printed it trains backwards); what is minimised here is
KL(p_t ‖ π) = Σ p_t log(p_t / π), without a factor T².
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["sample", "exact"]


def policy_log_probs(scores: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probabilities log π(d|x) of the candidates (Eq. 1): a softmax over the real documents of a row.

    Parameters
    ----------
    scores: (B, K) retrieval scores, floating point.
    mask: (B, K) bool, True at real documents.
    temperature: what the scores are divided by before the softmax; the paper's is 1.

    Returns
    -------
    (B, K) log-probabilities, −inf at masked places and in dead rows.

    Raises
    ------
    TypeError: ``scores`` is not floating point or ``mask`` not bool.
    ValueError: shapes differ, a real score is not finite, ``temperature`` is not positive.

    >>> scores = torch.tensor([[0.0, math.log(3.0), 7.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    >>> mask = torch.tensor([[True, True, False], [False, False, False]])
    >>> policy_log_probs(scores, mask).exp().round(decimals=6).tolist()
    [[0.25, 0.75, 0.0], [0.0, 0.0, 0.0]]
    """
    _check_scores(scores, mask)
    return _masked_log_softmax(scores, mask, temperature, "scores")


def policy_gradient_loss(
    scores: Tensor,
    rewards: Tensor,
    baseline: Tensor,
    mask: Tensor,
    estimator: Estimator = "sample",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Loss whose gradient is the policy gradient of the expected reward (Eq. 2 and 3, sign turned).

    ``sample`` draws one document d per row and returns −(r_d − b) log π(d), the paper's estimator;
    ``exact`` returns −Σ_d π(d) (r_d − b) with the gradient through π, its expectation over all draws.
    Compare the two by gradient, not by value. Any baseline leaves the gradient of ``exact`` as it is.

    Parameters
    ----------
    scores: (B, K) retrieval scores; divide them by the temperature first where it is not 1.
    rewards: (B, K) Eval of the answer given each candidate alone; no gradient flows into it.
    baseline: (B,) b of each query, the reward of the initial retriever's first document in the paper.
    mask: (B, K) bool, True at real documents.
    generator: source of the draws of ``sample``: one uniform number per row, dead rows included, so that
        neither padding nor the split into batches changes what is drawn.

    Raises
    ------
    TypeError, ValueError: as :func:`policy_log_probs`; also for rewards and baselines that are not finite
        in live rows, and for an unknown estimator.

    >>> scores = torch.zeros(1, 2, dtype=torch.float64)
    >>> rewards, mask = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, True]])
    >>> policy_gradient_loss(scores, rewards, torch.tensor([0.25]), mask, estimator="exact").item()
    -0.25
    """
    if estimator not in ("sample", "exact"):
        raise ValueError(f"estimator must be 'sample' or 'exact', not {estimator!r}")
    _check_scores(scores, mask)
    _check_rewards(rewards, mask)
    if baseline.shape != scores.shape[:1]:
        raise ValueError(f"baseline must have shape {tuple(scores.shape[:1])}, not {tuple(baseline.shape)}")
    log_probs = _masked_log_softmax(scores, mask, 1.0, "scores")  # (B, K)
    live = mask.any(dim=-1)  # (B,)
    b = _finite_where(baseline.detach().to(log_probs.dtype), live, "baseline")  # (B,)
    r = _finite_where(rewards.detach().to(log_probs.dtype), mask, "rewards")  # (B, K)
    if not live.any():
        return _zero(scores, mask)
    if estimator == "exact":
        per_row = -(log_probs.exp() * (r - b.unsqueeze(-1)).masked_fill(~mask, 0.0)).sum(dim=-1)  # (B,)
    else:
        # 0 in place of −inf, so that a dead row's −inf never meets a gradient
        finite = torch.where(mask, log_probs, torch.zeros_like(log_probs))
        drawn = _draw(log_probs.detach(), mask, generator).unsqueeze(-1)  # (B, 1)
        per_row = -((r.gather(-1, drawn) - b.unsqueeze(-1)) * finite.gather(-1, drawn)).squeeze(-1)  # (B,)
    return _mean_over(per_row, live)


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
    TypeError, ValueError: as :func:`policy_log_probs`; also for real rewards that are not finite.

    >>> p = torch.tensor([[0.7, 0.3], [0.5, 0.5]], dtype=torch.float64)
    >>> q = torch.tensor([[0.6, 0.4], [0.9, 0.1]], dtype=torch.float64)
    >>> mask = torch.ones(2, 2, dtype=torch.bool)
    >>> round(distillation_loss(q.log(), p.log(), mask).item(), 4)
    0.2662
    """
    _check_scores(scores, mask)
    _check_rewards(rewards, mask)
    log_probs = _masked_log_softmax(scores, mask, temperature, "scores")  # (B, K)
    target = _masked_log_softmax(
        rewards.detach().to(log_probs.dtype),
        mask,
        temperature if target_temperature is None else target_temperature,
        "rewards",
    )  # (B, K) log p_t
    live = mask.any(dim=-1)  # (B,)
    if not live.any():
        return _zero(scores, mask)
    # −inf − (−inf) is NaN, so both are replaced before the difference, and the gradient never sees them
    zero = torch.zeros_like(log_probs)
    difference = torch.where(mask, target, zero) - torch.where(mask, log_probs, zero)  # (B, K)
    return _mean_over((target.exp() * difference).sum(dim=-1), live)


def _masked_log_softmax(values: Tensor, mask: Tensor, temperature: float, what: str) -> Tensor:
    """Log-softmax over the True places of each row; −inf elsewhere. (B, K) -> (B, K)."""
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"the temperature of the {what} must be a positive number, not {temperature!r}")
    values = _finite_where(values, mask, what) / temperature
    if not torch.isfinite(values).all():
        raise ValueError(f"{what} divided by the temperature {temperature!r} are no longer finite")
    dead = ~mask.any(dim=-1, keepdim=True)  # (B, 1)
    # masking comes before the softmax; a dead row keeps its zeros, since a softmax over nothing is NaN
    masked = values.masked_fill(~(mask | dead), -math.inf)
    log_probs = torch.log_softmax(masked, dim=-1)
    if not torch.isfinite(log_probs.detach()[mask]).all():
        raise ValueError(f"{what} are so far apart that a probability leaves the range of {values.dtype}")
    return log_probs.masked_fill(~mask, -math.inf)


def _finite_where(values: Tensor, mask: Tensor, what: str) -> Tensor:
    """``values`` with 0 at masked places, through which no gradient (NaN or not) flows."""
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    values = torch.where(mask, values, torch.zeros_like(values))
    bad = ~torch.isfinite(values.detach())
    if bad.any():
        where = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"{what} must be finite at real places: found {values[where].item()} at {list(where)} and "
            f"{int(bad.sum())} such values in all"
        )
    return values


def _draw(log_probs: Tensor, mask: Tensor, generator: torch.Generator | None) -> Tensor:
    """One column per row, drawn from exp(log_probs) by inverting its distribution function. -> (B,) long.

    Inverting spends exactly one number per row, where torch.multinomial spends one per column and would
    draw differently for the same row under other padding. Dead rows get column 0.
    """
    device = torch.device("cpu") if generator is None else generator.device
    uniform = torch.rand(log_probs.shape[0], dtype=torch.float64, device=device, generator=generator)
    probs = log_probs.to(device, torch.float64).exp()  # (B, K), 0 at masked places
    cumulative = probs.cumsum(dim=-1)  # (B, K)
    below = cumulative <= (uniform * cumulative[:, -1]).unsqueeze(
        -1
    )  # a place of probability 0 is never first
    last = (probs > 0).long().mul(torch.arange(probs.shape[-1], device=device)).amax(dim=-1)  # (B,)
    return torch.minimum(below.sum(dim=-1), last).to(mask.device)


def _mean_over(per_row: Tensor, live: Tensor) -> Tensor:
    """Mean of (B,) over the live rows. -> ()"""
    return torch.where(live, per_row, torch.zeros_like(per_row)).sum() / live.sum()


def _zero(scores: Tensor, mask: Tensor) -> Tensor:
    """0 that depends on the scores with zero gradient, so that ``backward`` works. -> ()"""
    total = torch.where(mask, scores, torch.zeros_like(scores)).sum()
    return total.float() if total.dtype in (torch.float16, torch.bfloat16) else total


def _check_scores(scores: Tensor, mask: Tensor) -> None:
    if scores.dim() != 2:
        raise ValueError(f"scores must have shape (B, K), not {tuple(scores.shape)}")
    if not scores.is_floating_point():
        raise TypeError(f"scores must be floating point, not {scores.dtype}")
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be torch.bool, True at real documents, not {mask.dtype}")
    if mask.shape != scores.shape:
        raise ValueError(
            f"mask must have the shape of the scores {tuple(scores.shape)}, not {tuple(mask.shape)}"
        )


def _check_rewards(rewards: Tensor, mask: Tensor) -> None:
    if rewards.shape != mask.shape:
        raise ValueError(
            f"rewards must have the shape of the scores {tuple(mask.shape)}, not {tuple(rewards.shape)}"
        )
    if rewards.is_complex():
        raise TypeError(f"rewards must be real numbers, not {rewards.dtype}")
