"""What a policy is worth on held-out rows, measured on stored feedback: no LLM is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ropg.objectives import policy_log_probs
from ropg.training.batch import ScoreBatch, make_batch, row_generator
from ropg.training.objectives import Objective
from ropg.training.parallel import Processes
from ropg.training.rows import Row
from ropg.training.schedule import derive_seed


@dataclass(frozen=True)
class PolicyEvaluation:
    """Numbers per live row, in the order of the rows, so that two policies can be tested in pairs.

    example_ids: of the live rows.
    expected_reward: Σ_d π(d|x) Eval(d).
    first_reward: Eval of the candidate with the highest score; of equal scores the first counts.
    entropy: of π, in nats.
    oracle_reward: the best candidate's Eval.
    initial_reward: Eval of the initial retriever's first document.
    signal: False where all candidates have the same Eval, so that there is nothing to learn.
    dead: rows without candidates, which count nowhere else.
    loss: mean of the objective over the live rows; None where no objective was given.
    """

    example_ids: tuple[str, ...]
    expected_reward: tuple[float, ...]
    first_reward: tuple[float, ...]
    entropy: tuple[float, ...]
    oracle_reward: tuple[float, ...]
    initial_reward: tuple[float, ...]
    signal: tuple[bool, ...]
    dead: int
    loss: float | None

    def means(self) -> dict[str, float]:
        """Means over the live rows, and ``no_signal``, the share of rows with nothing to learn."""
        names = ("expected_reward", "first_reward", "entropy", "oracle_reward", "initial_reward")
        means = {name: float(np.mean(getattr(self, name))) for name in names}
        means["no_signal"] = 1.0 - float(np.mean(self.signal))
        if self.loss is not None:
            means["loss"] = self.loss
        return means


def evaluate_policy(
    module: nn.Module,
    score_rows: Callable[[Sequence[Any]], Tensor],
    rows: Sequence[Row],
    *,
    temperature: float = 1.0,
    batch_size: int = 8,
    objective: Objective | None = None,
    seed: int = 0,
    precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> PolicyEvaluation:
    """Score the rows without gradient, in evaluation mode, and measure the policy.

    The module's mode is put back afterwards. ``precision`` is the context to score in. An objective that
    draws gets the same draws at every call. Processes share the rows out, and all return the whole.
    Raises ValueError where no row has a candidate, FloatingPointError for scores that are not finite.
    """
    live = [row for row in rows if len(row.rewards)]
    if not live:
        raise ValueError(f"none of the {len(rows)} rows to evaluate has a candidate")
    processes = Processes(module)
    share = processes.share(len(live))
    table = torch.zeros(len(live), 4, dtype=torch.float64)  # expected, first, entropy, loss
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            for start in range(share.start, share.stop, batch_size):
                part = live[start : min(start + batch_size, share.stop)]
                with precision():
                    scores = score_rows(part)
                batch = make_batch(part, scores, row_generator(derive_seed(seed, "evaluation"), start))
                table[start : start + len(part), :3] = _measure(batch, temperature)
                if objective is not None:
                    table[start : start + len(part), 3] = float(objective(batch)[0])
    finally:
        module.train(was_training)
    expected, first, entropy, losses = processes.sum(table.to(processes.device)).cpu().T.tolist()
    return PolicyEvaluation(
        example_ids=tuple(row.example_id for row in live),
        expected_reward=tuple(expected),
        first_reward=tuple(first),
        entropy=tuple(entropy),
        oracle_reward=tuple(float(max(row.rewards)) for row in live),
        initial_reward=tuple(float(row.baseline) for row in live),
        signal=tuple(min(row.rewards) < max(row.rewards) for row in live),
        dead=len(rows) - len(live),
        loss=None if objective is None else float(np.mean(losses)),
    )


def _measure(batch: ScoreBatch, temperature: float) -> Tensor:
    """Expected reward, first reward and entropy of every row of a batch of live rows. -> (B, 3)"""
    log_probs = policy_log_probs(batch.scores.double(), batch.mask, temperature).cpu()  # (B, K)
    rewards, mask = batch.rewards.double().cpu(), batch.mask.cpu()
    probs = log_probs.exp()
    expected = (probs * rewards).sum(dim=-1)
    entropy = -(probs * log_probs.masked_fill(~mask, 0.0)).sum(dim=-1)
    scores = batch.scores.double().cpu().masked_fill(~mask, -torch.inf)
    # numpy promises the first of equal maxima, torch does not
    best = torch.from_numpy(np.argmax(scores.numpy(), axis=-1))
    first = rewards.gather(-1, best.unsqueeze(-1)).squeeze(-1)
    return torch.stack([expected, first, entropy], dim=-1)
