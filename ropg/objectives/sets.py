"""Trajectories of k documents without replacement: Plackett-Luce, drawn and scored exactly.

A set is ordered, as the documents of a prompt are. It is a (B, S, k) tensor of column numbers, S sets of
up to k documents for each query; −1 stands where a row has no document left. The policy picks the first
document by Eq. 1 and every next one by Eq. 1 over what is left; k = 1 is the paper's policy.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from ropg.objectives.draws import gumbel_noise
from ropg.objectives.masked import (
    check_rewards,
    check_scores,
    finite_where,
    masked_log_softmax,
    zero_loss,
)
from ropg.objectives.policy_gradient import leave_one_out, score_function_loss

SetReward = Literal["mean", "max", "any"]


def set_log_probs(scores: Tensor, sets: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probability of each ordered set: Σ_j log softmax of its j-th document among those left.

    Parameters
    ----------
    scores: (B, K) retrieval scores.
    sets: (B, S, k) long, columns of the documents in the order they are picked; −1 only after them.
    mask: (B, K) bool, True at real documents.
    temperature: divides the scores.

    Returns
    -------
    (B, S), with gradient; 0 for a set without documents and in dead rows.

    Raises
    ------
    TypeError, ValueError: as :func:`~ropg.objectives.policy_log_probs`; also for a set that names a column
        twice, a masked one, or one that does not exist.

    >>> scores = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64).log()
    >>> sets, mask = torch.tensor([[[2, 0], [0, 2]]]), torch.ones(1, 3, dtype=torch.bool)
    >>> set_log_probs(scores, sets, mask).exp().round(decimals=6).tolist()  # 3/6 · 1/3 and 1/6 · 3/5
    [[0.166667, 0.1]]
    """
    check_scores(scores, mask)
    picked = _check_sets(sets, mask)  # (B, S, k, K) bool
    log_probs = masked_log_softmax(scores, mask, temperature, "scores")  # (B, K)
    if not mask.any() or sets.numel() == 0:
        return scores.new_zeros(sets.shape[:2], dtype=log_probs.dtype) + zero_loss(scores, mask)
    finite = torch.where(mask, log_probs, torch.zeros_like(log_probs))[:, None, None]  # (B, 1, 1, K)
    taken_before = picked.cumsum(dim=2) - picked.long() > 0  # (B, S, k, K)
    left = mask[:, None, None] & ~taken_before
    real = sets >= 0  # (B, S, k)
    # where nothing is picked every place counts as left: a softmax over nothing would be NaN
    left = left | ~real.unsqueeze(-1)
    normaliser = finite.expand(picked.shape).masked_fill(~left, -math.inf).logsumexp(dim=-1)  # (B, S, k)
    chosen = (finite * picked).sum(dim=-1)
    return torch.where(real, chosen - normaliser, torch.zeros_like(chosen)).sum(dim=-1)


def sample_sets(
    log_probs: Tensor, mask: Tensor, size: int, samples: int, generator: torch.Generator | None = None
) -> Tensor:
    """Independent ordered sets of up to ``size`` documents of each row. (B, K) -> (B, S, k) long, −1 padded.

    Gumbel top-k: log π plus standard Gumbel noise, sorted, is distributed as picking without replacement.
    One number per row is taken from ``generator`` and seeds the row's noise, so neither padding nor the
    split into batches changes what is drawn, and the first documents of a set are those of a smaller one.

    Raises ValueError for a size or a number of samples below 1.

    >>> log_probs, mask = torch.tensor([[0.0, -math.inf]]), torch.tensor([[True, False]])
    >>> sample_sets(log_probs, mask, size=2, samples=1).tolist()
    [[[0, -1]]]
    """
    if size < 1 or samples < 1:
        raise ValueError(f"a set needs at least 1 document and 1 sample, not {size!r} and {samples!r}")
    noisy = log_probs.detach().double().unsqueeze(1) + gumbel_noise(mask, samples, generator)  # (B, S, K)
    return _best(noisy.masked_fill(~mask.unsqueeze(1), -math.inf), size)


def first_set(ranks: Tensor, mask: Tensor, size: int) -> Tensor:
    """The set of the ``size`` best-ranked documents, ranks from 1. (B, K) long -> (B, 1, k) long, −1 padded.

    >>> first_set(torch.tensor([[3, 1, 2]]), torch.ones(1, 3, dtype=torch.bool), 2).tolist()
    [[[1, 2]]]
    """
    return _best((-ranks.double()).masked_fill(~mask, -math.inf).unsqueeze(1), size)


def set_rewards(rewards: Tensor, sets: Tensor, mask: Tensor, how: SetReward = "max") -> Tensor:
    """A guess at a set's reward from the feedback on its documents alone, which costs no LLM call.

    ``mean``: the documents' mean, the reward of showing one of them by lot; each helps by its own worth
    and none makes up for another. ``max``: the best one's: the LLM reads all and follows the one that
    helps, which is what retrieving k documents hopes for. ``any``: 1 − Π (1 − r), the chance that at
    least one helps if each did with chance r on its own; between the two a second good document is worth
    something, but less than the first. With one document the three are its reward.

    Parameters
    ----------
    rewards: (B, K) Eval of the answer given each candidate alone.
    sets: (B, S, k) long, as :func:`set_log_probs` takes them; mask: (B, K) bool.

    Returns
    -------
    (B, S), 0 for a set without documents.

    Raises
    ------
    ValueError: unknown ``how``, rewards that are not finite, for ``any`` rewards outside [0, 1], sets as
        in :func:`set_log_probs`.

    >>> rewards, mask = torch.tensor([[0.5, 0.25, 1.0]]), torch.ones(1, 3, dtype=torch.bool)
    >>> [set_rewards(rewards, torch.tensor([[[0, 1]]]), mask, how).item() for how in ("mean", "max", "any")]
    [0.375, 0.5, 0.625]
    """
    if how not in get_args(SetReward):
        raise ValueError(f"the reward of a set must be one of {', '.join(get_args(SetReward))}, not {how!r}")
    check_rewards(rewards, mask)
    _check_sets(sets, mask)
    r = finite_where(rewards.detach(), mask, "rewards")  # (B, K)
    if how == "any" and bool(((r < 0) | (r > 1)).any()):
        raise ValueError("the set reward 'any' reads rewards as chances: they must be between 0 and 1")
    if sets.numel() == 0 or r.shape[-1] == 0:
        return r.new_zeros(sets.shape[:2])
    real = sets >= 0  # (B, S, k)
    rows = r.unsqueeze(1).expand(-1, sets.shape[1], -1)  # (B, S, K)
    each = rows.gather(-1, sets.clamp(min=0))  # (B, S, k)
    if how == "mean":
        return each.masked_fill(~real, 0.0).sum(dim=-1) / real.sum(dim=-1).clamp(min=1)
    if how == "any":
        return 1.0 - (1.0 - each).masked_fill(~real, 1.0).prod(dim=-1)
    best = each.masked_fill(~real, -math.inf).amax(dim=-1)
    return torch.where(real.any(dim=-1), best, torch.zeros_like(best))


def set_policy_gradient_loss(
    scores: Tensor,
    sets: Tensor,
    rewards: Tensor,
    baseline: Tensor | Literal["leave_one_out"],
    mask: Tensor,
) -> Tensor:
    """Mean over sets drawn from the policy of −(r − b) log p(set), mean over live rows. -> ()

    Its gradient is unbiased for that of minus the expected reward of a set, whatever the reward is: an
    LLM's for that set, or :func:`set_rewards`. With sets of one document it is Eq. 2 and 3.

    Parameters
    ----------
    scores: (B, K) retrieval scores, divided by the temperature that the sets were drawn with.
    sets: (B, S, k) long, drawn by :func:`sample_sets` from these scores.
    rewards: (B, S) of each set; no gradient flows into it.
    baseline: (B,), such as the reward of the initial retriever's first k documents, or "leave_one_out".
    mask: (B, K) bool, True at real documents.

    Raises
    ------
    TypeError, ValueError: as :func:`set_log_probs`; also for shapes that do not fit, rewards and baselines
        that are not finite in live rows, and leave_one_out with a single set.

    >>> scores, mask = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool)
    >>> sets, rewards = torch.tensor([[[0, 1]]]), torch.tensor([[1.0]])
    >>> loss = set_policy_gradient_loss(scores, sets, rewards, torch.tensor([0.25]), mask)
    >>> math.isclose(loss.item(), 0.75 * math.log(2))
    True
    """
    log_probs = set_log_probs(scores, sets, mask)  # (B, S)
    if rewards.shape != log_probs.shape:
        raise ValueError(
            f"rewards of sets must have shape {tuple(log_probs.shape)}, not {tuple(rewards.shape)}"
        )
    live = mask.any(dim=-1)  # (B,)
    r = finite_where(rewards.detach().to(log_probs.dtype), live.unsqueeze(-1).expand_as(rewards), "rewards")
    if isinstance(baseline, str):
        if baseline != "leave_one_out":
            raise ValueError(f"baseline must be a tensor of shape (B,) or 'leave_one_out', not {baseline!r}")
        if sets.shape[1] < 2:
            raise ValueError(
                "the leave_one_out baseline needs at least 2 samples: with one there is no other"
            )
        b = leave_one_out(r)
    else:
        if baseline.shape != live.shape:
            raise ValueError(f"baseline must have shape {tuple(live.shape)}, not {tuple(baseline.shape)}")
        b = finite_where(baseline.detach().to(log_probs.dtype), live, "baseline").unsqueeze(-1)
    if not live.any():
        return zero_loss(scores, mask)
    return score_function_loss(log_probs, r, b, live)


def _best(values: Tensor, size: int) -> Tensor:
    """The columns of the ``size`` highest values, highest first; −1 for −inf. (B, S, K) -> (B, S, k)"""
    found = values.sort(dim=-1, descending=True, stable=True)
    columns = found.indices.masked_fill(found.values == -math.inf, -1)[..., :size]
    return torch.nn.functional.pad(columns, (0, size - columns.shape[-1]), value=-1)


def _check_sets(sets: Tensor, mask: Tensor) -> Tensor:
    """Which document each place picks, none for −1. (B, S, k) -> (B, S, k, K) bool. Raises as said above."""
    if sets.dim() != 3 or sets.shape[0] != mask.shape[0] or sets.is_floating_point():
        raise ValueError(
            f"sets must be whole numbers of shape ({mask.shape[0]}, S, k), not {sets.dtype} {tuple(sets.shape)}"
        )
    picked = sets.unsqueeze(-1) == torch.arange(mask.shape[-1], device=sets.device)  # (B, S, k, K)
    unknown = (sets >= 0) & ~(picked & mask[:, None, None]).any(dim=-1)
    if bool(unknown.any()) or bool((sets < -1).any()):
        raise ValueError("sets must name columns of real documents, and −1 where there is none")
    if bool((picked.sum(dim=2) > 1).any()):
        raise ValueError("a set names a document twice; documents are picked without replacement")
    gap = (sets[..., 1:] >= 0) & (sets[..., :-1] < 0)
    if bool(gap.any()):
        raise ValueError("−1 stands only after the documents of a set")
    return picked
