"""The log-likelihood of a target from logits. Shapes: B pairs, T target tokens, V vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropg.llms.decoding import raise_non_finite

if TYPE_CHECKING:
    from torch import Tensor

IGNORED = -100  # the label of a place that is not the target's


def mean_log_probabilities(logits: Tensor, labels: Tensor) -> list[float]:
    """(B, T, V) logits and (B, T) labels -> for each pair (1/|y|) Σ_t log p(y_t | y_<t, prompt).

    Places labelled :data:`IGNORED` do not count. Computed in float32. Raises NonFiniteLogits, and
    ValueError for a row without a target token.

    >>> import torch
    >>> logits = torch.tensor([[[0.0, 0.0], [9.0, 9.0]]])
    >>> [round(value, 4) for value in mean_log_probabilities(logits, torch.tensor([[1, IGNORED]]))]
    [-0.6931]
    """
    real = labels != IGNORED  # (B, T)
    counts = real.sum(dim=1)
    if bool((counts == 0).any()):
        raise ValueError("a target without tokens has no likelihood")
    logits = logits.float()
    chosen = logits.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)  # (B, T)
    log_probabilities = (chosen - logits.logsumexp(dim=-1)).masked_fill(~real, 0.0)  # (B, T)
    means = log_probabilities.sum(dim=1) / counts
    bad = (~means.isfinite()).nonzero().flatten().tolist()
    if bad:
        raise_non_finite(bad, len(means))
    return means.tolist()
