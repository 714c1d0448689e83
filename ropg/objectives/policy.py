"""The policy π (Eq. 1), and two regularisers of it: its entropy, and its distance from another policy."""

from __future__ import annotations

import torch
from torch import Tensor

from ropg.objectives.masked import check_scores, masked_log_softmax, mean_divergence, mean_over, zero_loss


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

    >>> import math
    >>> scores = torch.tensor([[0.0, math.log(3.0), 7.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    >>> mask = torch.tensor([[True, True, False], [False, False, False]])
    >>> policy_log_probs(scores, mask).exp().round(decimals=6).tolist()
    [[0.25, 0.75, 0.0], [0.0, 0.0, 0.0]]
    """
    check_scores(scores, mask)
    return masked_log_softmax(scores, mask, temperature, "scores")


def policy_entropy(scores: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """Entropy −Σ π log π of the policy in nats, mean over live rows. -> ()

    It is log n for a uniform policy over n documents, 0 for one document. Its gradient is exact, since
    the sum runs over all candidates and not over sampled ones.

    Raises TypeError, ValueError as :func:`policy_log_probs`.

    >>> import math
    >>> scores, mask = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[True, True, False]])
    >>> policy_entropy(scores, mask).item() == math.log(2)
    True
    """
    check_scores(scores, mask)
    log_probs = masked_log_softmax(scores, mask, temperature, "scores")  # (B, K)
    live = mask.any(dim=-1)  # (B,)
    if not live.any():
        return zero_loss(scores, mask)
    finite = torch.where(mask, log_probs, torch.zeros_like(log_probs))
    return mean_over(-(log_probs.exp() * finite).sum(dim=-1), live)


def policy_divergence(scores: Tensor, other_scores: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(π ‖ π₀) in nats of the policy from another one, mean over live rows. -> ()

    π and π₀ are the softmax of the two scores, both divided by ``temperature``. No gradient flows into
    ``other_scores``. The expectation is over π, so that π pays for what π₀ finds unlikely.

    Raises TypeError, ValueError as :func:`policy_log_probs`, for either scores.

    >>> p = torch.tensor([[0.7, 0.3]], dtype=torch.float64)
    >>> q = torch.tensor([[0.6, 0.4]], dtype=torch.float64)
    >>> round(policy_divergence(p.log(), q.log(), torch.ones(1, 2, dtype=torch.bool)).item(), 4)
    0.0216
    """
    check_scores(scores, mask)
    check_scores(other_scores, mask, "initial scores")
    log_probs = masked_log_softmax(scores, mask, temperature, "scores")  # (B, K)
    other = masked_log_softmax(
        other_scores.detach().to(log_probs.dtype), mask, temperature, "initial scores"
    )  # (B, K)
    return mean_divergence(log_probs, other, mask)
