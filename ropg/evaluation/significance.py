"""Is one system better than another, or was it luck? Paired tests, intervals, Holm's correction.

Legend: n pairs; ``a`` and ``b`` are (n,), the values of two systems on the same examples in the same order.
Every test is two-tailed and returns p as a float in [0, 1], or None where the data cannot be tested. None
is returned, never NaN. A length mismatch and values that are not finite raise ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

Values: TypeAlias = Sequence[float] | np.ndarray

#: With fewer discordant pairs than this, McNemar's test is the exact binomial one.
MCNEMAR_EXACT_BELOW = 25


def _pairs(a: Values, b: Values) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or second.ndim != 1 or first.size != second.size:
        raise ValueError(
            f"paired tests need two lists of the same length, one value per example; got shapes "
            f"{first.shape} and {second.shape}"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("paired tests need finite values; look for NaN in the metric's per-example values")
    return first, second


def paired_t_test(a: Values, b: Values) -> float | None:
    """Student's paired t-test on a − b.

    None with fewer than two pairs and where all differences are the same (all zero, too): their spread,
    which the test divides by, is then unknown, not zero.

    >>> round(paired_t_test([1, 2, 3, 4], [0, 0, 2, 1]), 4)  # differences 1 2 1 3: t = 3.6556, 3 d.f.
    0.0354
    """
    first, second = _pairs(a, b)
    difference = first - second
    if difference.size < 2:
        return None
    # differences that differ by rounding only are the same
    if np.ptp(difference) <= 1e-12 * max(1.0, float(np.abs(first).max()), float(np.abs(second).max())):
        return None
    from scipy import stats

    return float(stats.ttest_1samp(difference, 0.0).pvalue)


def mcnemar(a: Values, b: Values) -> float | None:
    """McNemar's test on right (1) and wrong (0) answers.

    Exact (binomial) with fewer than 25 discordant pairs, else chi-squared with continuity correction. None
    with fewer than two pairs, and where no pair is discordant. Raises ValueError for other values than 0
    and 1.

    >>> mcnemar([1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0])  # six to nil: 2 · 0.5⁶
    0.03125
    """
    first, second = _pairs(a, b)
    if not (np.isin(first, (0.0, 1.0)).all() and np.isin(second, (0.0, 1.0)).all()):
        raise ValueError("McNemar's test is for right (1) and wrong (0); use paired_t_test for other values")
    only_first = int(((first == 1) & (second == 0)).sum())
    only_second = int(((first == 0) & (second == 1)).sum())
    discordant = only_first + only_second
    if first.size < 2 or discordant == 0:
        return None
    from statsmodels.stats.contingency_tables import mcnemar as test

    table = [[0, only_first], [only_second, 0]]  # concordant pairs play no part
    outcome = test(table, exact=discordant < MCNEMAR_EXACT_BELOW, correction=True)
    return float(outcome.pvalue)


def paired_permutation(a: Values, b: Values, n: int = 9999, seed: int = 0) -> float | None:
    """Randomization test of mean(a) = mean(b): ``n`` random sign flips of the differences.

    p = (flips at least as extreme as what was seen + 1) / (n + 1), so the smallest p is 1 / (n + 1). None
    with fewer than two pairs and where all differences are zero.

    >>> paired_permutation([0.5] * 20, [0.25] * 20)  # 2 of 2²⁰ sign patterns are as extreme
    0.0001
    """
    first, second = _pairs(a, b)
    difference = (first - second)[first != second]  # a zero stays zero under any sign
    if first.size < 2 or difference.size == 0:
        return None
    generator = np.random.default_rng(seed)
    seen = abs(difference.sum())
    seen -= 1e-12 * np.abs(difference).sum()  # another order of summing must not make a tie less extreme
    extreme = 0
    step = max(1, 4_000_000 // difference.size)  # flips at once: some 32 MB of signs
    for start in range(0, n, step):
        signs = generator.choice((-1.0, 1.0), size=(min(step, n - start), difference.size))
        extreme += int((np.abs(signs @ difference) >= seen).sum())
    return (extreme + 1) / (n + 1)


def bootstrap_interval(
    metric: Callable[[np.ndarray], float], size: int, n: int = 1000, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of any corpus metric.

    ``metric`` gets (size,) example indices drawn with replacement and recomputes the metric on them, which
    is right for metrics that are no means (RMSE, macro F1) as well. The same ``size`` and ``seed`` draw the
    same examples, so systems are resampled alike. Raises ValueError without examples or resamples.

    >>> values = np.array([0.0, 1.0])
    >>> bootstrap_interval(lambda index: values[index].mean(), size=2)
    (0.0, 1.0)
    """
    if size < 1 or n < 1:
        raise ValueError(f"a bootstrap interval needs examples and resamples; got {size} and {n}")
    generator = np.random.default_rng(seed)
    values = [metric(generator.integers(0, size, size=size)) for _ in range(n)]
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment; compare the adjusted values with α. Untestable ones (None) do not count.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    tested = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - rank) * p))
        adjusted[i] = highest
    return adjusted
