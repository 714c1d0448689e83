"""What every objective needs: checks, a softmax over the real documents of a row, a mean over live rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def masked_log_softmax(values: Tensor, mask: Tensor, temperature: float, what: str) -> Tensor:
    """Log-softmax over the True places of each row; −inf elsewhere. (B, K) -> (B, K)."""
    values = divided(values, mask, temperature, what)
    dead = ~mask.any(dim=-1, keepdim=True)  # (B, 1)
    # masking comes before the softmax; a dead row keeps its zeros, since a softmax over nothing is NaN
    masked = values.masked_fill(~(mask | dead), -math.inf)
    log_probs = torch.log_softmax(masked, dim=-1)
    if not torch.isfinite(log_probs.detach()[mask]).all():
        raise ValueError(f"{what} are so far apart that a probability leaves the range of {values.dtype}")
    return log_probs.masked_fill(~mask, -math.inf)


def divided(values: Tensor, mask: Tensor, temperature: float, what: str) -> Tensor:
    """``values`` / ``temperature``, 0 at masked places. Raises ValueError for either out of its range."""
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"the temperature of the {what} must be a positive number, not {temperature!r}")
    values = finite_where(values, mask, what) / temperature
    if not torch.isfinite(values).all():
        raise ValueError(f"{what} divided by the temperature {temperature!r} are no longer finite")
    return values


def finite_where(values: Tensor, mask: Tensor, what: str) -> Tensor:
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


def mean_over(per_row: Tensor, live: Tensor) -> Tensor:
    """Mean of (B,) over the live rows. -> ()"""
    return torch.where(live, per_row, torch.zeros_like(per_row)).sum() / live.sum()


def mean_divergence(log_p: Tensor, log_q: Tensor, mask: Tensor) -> Tensor:
    """KL(p ‖ q) in nats of (B, K) log-probabilities that are −inf at masked places, mean over live rows. -> ()"""
    live = mask.any(dim=-1)  # (B,)
    if not live.any():
        return zero_loss(log_p, mask) + zero_loss(log_q, mask)
    # −inf − (−inf) is NaN, so both are replaced before the difference, and the gradient never sees them
    zero = torch.zeros_like(log_p)
    difference = torch.where(mask, log_p, zero) - torch.where(mask, log_q, zero)  # (B, K)
    return mean_over((log_p.exp() * difference).sum(dim=-1), live)


def zero_loss(scores: Tensor, mask: Tensor) -> Tensor:
    """0 that depends on the scores with zero gradient, so that ``backward`` works. -> ()"""
    total = torch.where(mask, scores, torch.zeros_like(scores)).sum()
    return total.float() if total.dtype in (torch.float16, torch.bfloat16) else total


def check_scores(scores: Tensor, mask: Tensor, what: str = "scores") -> None:
    """Raise TypeError or ValueError unless scores are (B, K) floating point and the mask is bool of that shape."""
    if scores.dim() != 2:
        raise ValueError(f"{what} must have shape (B, K), not {tuple(scores.shape)}")
    if not scores.is_floating_point():
        raise TypeError(f"{what} must be floating point, not {scores.dtype}")
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be torch.bool, True at real documents, not {mask.dtype}")
    if mask.shape != scores.shape:
        raise ValueError(
            f"mask must have the shape of the {what} {tuple(scores.shape)}, not {tuple(mask.shape)}"
        )


def check_rewards(rewards: Tensor, mask: Tensor) -> None:
    """Raise TypeError or ValueError unless rewards are real numbers of the mask's shape."""
    if rewards.shape != mask.shape:
        raise ValueError(
            f"rewards must have the shape of the scores {tuple(mask.shape)}, not {tuple(rewards.shape)}"
        )
    if rewards.is_complex():
        raise TypeError(f"rewards must be real numbers, not {rewards.dtype}")
