"""What happens at which step, as pure functions of seed, epoch and step.

Nothing here has a state, so a resumed run needs only the number of its step to go on as an undisturbed
one would.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np


def derive_seed(*parts: int | str) -> int:
    """A seed in [0, 2⁶³) that depends on all parts; no two lists of parts are confused.

    >>> derive_seed(0, "draw", 3) == derive_seed(0, "draw", 3) != derive_seed(0, "draw", 4)
    True
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def epoch_order(n: int, seed: int, epoch: int) -> list[int]:
    """The order in which epoch ``epoch`` visits n rows: a seeded shuffle.

    >>> sorted(epoch_order(5, seed=1, epoch=0))
    [0, 1, 2, 3, 4]
    """
    return [int(i) for i in np.random.default_rng([seed, epoch]).permutation(n)]


def steps_per_epoch(n: int, rows_per_step: int) -> int:
    """Optimizer steps in which n rows are seen; the last may see fewer rows than the others.

    >>> steps_per_epoch(7, 4)
    2
    """
    return math.ceil(n / rows_per_step)


def learning_rate_factor(step: int, total: int, warmup: float) -> float:
    """Share of the peak learning rate at step ``step`` (from 0) of ``total``: linear up, linear down.

    The first w = ⌊warmup × total⌋ steps rise, step w is at the peak, and step ``total``, which no longer
    runs, would be at 0: no step is wasted at a rate of 0.

    >>> [round(learning_rate_factor(s, 6, 0.34), 2) for s in range(6)]
    [0.33, 0.67, 1.0, 0.75, 0.5, 0.25]
    """
    rising = math.floor(warmup * total)
    if step < rising:
        return (step + 1) / (rising + 1)
    return (total - step) / (total - rising)


def evaluation_steps(per_epoch: int, epochs: int, eval_every: float) -> set[int]:
    """Numbers of finished steps after which to evaluate; the last step is always among them.

    >>> sorted(evaluation_steps(per_epoch=4, epochs=2, eval_every=0.5))
    [2, 4, 6, 8]
    >>> sorted(evaluation_steps(per_epoch=3, epochs=3, eval_every=2))
    [6, 9]
    """
    total = per_epoch * epochs
    points = range(1, math.floor(epochs / eval_every + 1e-9) + 1)
    return {max(1, min(total, round(i * eval_every * per_epoch))) for i in points} | {total}


def evaluations_since_best(rewards: Sequence[float]) -> int:
    """Evaluations after the best one so far; of equal ones the first is the best. 0 before the first.

    >>> evaluations_since_best([0.2, 0.5, 0.4, 0.5])
    2
    """
    return len(rewards) - 1 - rewards.index(max(rewards)) if rewards else 0
