"""ScoreBatch: everything an objective may look at, padded to one rectangle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ropg.training.rows import Row

#: rows, and for each its sets, each the places of its candidates in order -> the reward of every set
AskSets: TypeAlias = Callable[[Sequence[Any], list[list[list[int]]]], Sequence[Sequence[float]]]


@dataclass(frozen=True, slots=True)
class ScoreBatch:
    """B queries with up to K candidates each; places beyond a row's candidates are padding.

    scores: (B, K) from the module in training, with gradient.
    initial_scores: (B, K) from the ranker that proposed the candidates.
    rewards: (B, K) Eval of the answer given each candidate.
    mask: (B, K) bool, True at candidates.
    baseline: (B,) reward of the initial retriever's first document, d_b.
    ranks: (B, K) long, the proposing ranker's ranks from 1; 0 at padding.
    generator: where an objective takes its random numbers from. An objective that takes one number per
        row, in order, from it draws the same however the rows are split into batches.
    set_rewards: (B, S, k) long, sets of columns padded with −1 -> (B, S), what each set is worth, asked now,
        without gradient; None where nobody can be asked.
    """

    scores: Tensor
    initial_scores: Tensor
    rewards: Tensor
    mask: Tensor
    baseline: Tensor
    ranks: Tensor
    generator: torch.Generator
    set_rewards: Callable[[Tensor], Tensor] | None = None


def make_batch(
    rows: Sequence[Row], scores: Tensor, generator: torch.Generator, ask_sets: AskSets | None = None
) -> ScoreBatch:
    """Pad what the rows hold to the shape of their scores.

    ``scores``: (B, K), a row's candidates first, K the largest number of candidates. ``ask_sets`` becomes the
    batch's ``set_rewards``. Raises ValueError for another shape, FloatingPointError, naming the examples, for
    candidates whose score is not finite.
    """
    shape = (len(rows), max((len(row.rewards) for row in rows), default=0))
    if tuple(scores.shape) != shape:
        raise ValueError(
            f"the scoring function returned {tuple(scores.shape)} for {shape[0]} rows of at most {shape[1]} "
            f"candidates; it must return {shape}"
        )
    width = shape[1]

    def padded(values: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:  # -> (B, K)
        full = [[*row, *[0] * (width - len(row))] for row in values]
        return torch.tensor(full, dtype=dtype, device=scores.device).reshape(shape)

    mask = padded([[1] * len(row.rewards) for row in rows], torch.bool)
    bad = (mask & ~torch.isfinite(scores.detach())).any(dim=-1).tolist()  # (B,)
    if any(bad):
        names = ", ".join(row.example_id for row, is_bad in zip(rows, bad, strict=True) if is_bad)
        raise FloatingPointError(f"scores are not finite for example(s) {names}")
    dtype = torch.float64 if scores.dtype == torch.float64 else torch.float32
    return ScoreBatch(
        scores=scores,
        initial_scores=padded([row.initial_scores for row in rows], dtype),
        rewards=padded([row.rewards for row in rows], dtype),
        mask=mask,
        baseline=torch.tensor([row.baseline for row in rows], dtype=dtype, device=scores.device),
        ranks=padded([row.ranks for row in rows], torch.long),
        generator=generator,
        set_rewards=None if ask_sets is None else _on_tensors(ask_sets, rows, dtype),
    )


def _on_tensors(ask_sets: AskSets, rows: Sequence[Row], dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """``ask_sets`` for the rows of a batch as a function of columns: (B, S, k) long -> (B, S)."""

    def set_rewards(sets: Tensor) -> Tensor:
        chosen = [[[c for c in columns if c >= 0] for columns in row] for row in sets.tolist()]
        rewards = torch.tensor(ask_sets(rows, chosen), dtype=dtype, device=sets.device)
        if rewards.shape != sets.shape[:2]:
            raise ValueError(
                f"sets of shape {tuple(sets.shape)} got rewards of shape {tuple(rewards.shape)}, not one each"
            )
        return rewards

    return set_rewards


def row_generator(seed: int, first_row: int) -> torch.Generator:
    """A generator that stands where one that had served ``first_row`` rows, a number each, would stand.

    So the micro-batch that starts at row i of a step draws what it would have drawn as part of one
    large batch, in whatever process it is computed.
    """
    generator = torch.Generator().manual_seed(seed)
    torch.rand(first_row, dtype=torch.float64, generator=generator)
    return generator
