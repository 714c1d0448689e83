"""Query performance predictors as selectors without training (the baselines of the paper's Table 4).

Each predictor reads the scores that one retriever gave to a whole profile and says how well the retrieval
went; the retriever with the highest prediction is selected.

    n  documents of the profile; their scores in descending order are s_1 ≥ … ≥ s_n, in any order given
    q  terms of the query, taken as 1 where it has none
    Q  inputs
    R  retrievers of the pool

Standard deviations are those of the population. An empty profile, an empty set of scores or a denominator
of 0 predicts 0. A predictor depends on the differences of the scores far more than on their level, so all of
them are computed on the distances d_i = s_1 − s_i, which stay exact under a large common offset and are
exactly 0 for equal scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np


def wig(scores: np.ndarray, query_terms: int, k: int = 5) -> float:
    """WIG, (1/k) Σ_{i≤k} (s_i − s̄) / √q: how far the top stands above the profile (Zhou and Croft, 2007).

    Parameters
    ----------
    scores: (n,) scores of the whole profile; s̄ is their mean.
    query_terms: q.
    k: how many documents are the top; n where the profile has fewer.

    Raises ValueError for scores that are not a finite (n,), a negative ``query_terms`` or a k below 1.

    >>> wig(np.array([4.0, 2.0, 0.0]), query_terms=4, k=1)  # (4 − 2) / √4
    1.0
    """
    ranked, exponent = _ranked(scores)
    root = _root(query_terms)
    k = _depth(k)
    if not ranked.size:
        return 0.0
    distances = ranked[0] - ranked  # (n,), so s_i − s̄ is d̄ − d_i
    return _scaled((distances.mean() - distances[:k].mean()) / root, exponent)


def nqc(scores: np.ndarray, k: int = 100) -> float:
    """NQC, std(s_1..s_k) / |s̄|: the spread of the top in units of the mean of the whole profile.

    Parameters
    ----------
    scores: (n,) scores of the whole profile; s̄ is their mean, and counts as 0 where it is no larger than
        the rounding of the scores.
    k: how many documents are the top; n where the profile has fewer.

    Raises ValueError for scores that are not a finite (n,) or a k below 1.

    >>> nqc(np.array([4.0, 2.0, 0.0, -4.0]), k=2)  # std(4, 2) = 1, |mean| = 0.5
    2.0
    """
    ranked, _ = _ranked(scores)  # a ratio has no scale
    k = _depth(k)
    if not ranked.size:
        return 0.0
    mean = math.fsum(ranked) / len(ranked)
    # scores that cancel, such as 0.1, 0.2 and −0.3, leave 1e-17, and a quotient that would always win
    return _std(ranked[:k]) / abs(mean) if abs(mean) > np.finfo(np.float64).eps else 0.0


def sigma_max(scores: np.ndarray) -> float:
    """σ_max, max over k of std(s_1..s_k): the spread where the list spreads most (Cummins et al., 2011).

    Raises ValueError for scores that are not a finite (n,).

    >>> sigma_max(np.array([0.0, 4.0, 0.0]))  # of std(4) = 0, std(4, 0) = 2, std(4, 0, 0) = 1.89
    2.0
    """
    ranked, exponent = _ranked(scores)
    if not ranked.size:
        return 0.0
    distances = ranked[0] - ranked  # (n,)
    count = np.arange(1, len(distances) + 1)  # (n,)
    means = np.cumsum(distances) / count  # (n,) of the first 1, 2, …, n
    # Welford's update: the k-th distance adds (d_k − mean_{k−1})² (k − 1) / k to the sum of squares. Every
    # term is at least 0, so nothing cancels, and no variance can fall below 0.
    steps = (distances[1:] - means[:-1]) ** 2 * count[:-1] / count[1:]  # (n − 1,)
    variances = np.cumsum(steps) / count[1:]  # (n − 1,) of the first 2, …, n; that of the first is 0
    return _scaled(math.sqrt(variances.max(initial=0.0)), exponent)


def sigma_half(scores: np.ndarray, query_terms: int) -> float:
    """σ_50%, std of the scores that are at least half the top score, over √q (Cummins et al., 2011).

    Half of a negative top lies above it: the set is empty and the prediction 0.

    Raises ValueError for scores that are not a finite (n,) or a negative ``query_terms``.

    >>> sigma_half(np.array([4.0, 2.0, 1.9]), query_terms=4)  # std(4, 2) / √4
    0.5
    """
    ranked, exponent = _ranked(scores)
    root = _root(query_terms)
    if not ranked.size:
        return 0.0
    return _scaled(_std(ranked[ranked >= ranked[0] / 2]) / root, exponent)


PREDICTORS: Mapping[str, Callable[[np.ndarray, int], float]] = MappingProxyType(
    {
        "wig": lambda scores, query_terms: wig(scores, query_terms),
        "nqc": lambda scores, query_terms: nqc(scores),
        "sigma_max": lambda scores, query_terms: sigma_max(scores),
        "sigma_half": lambda scores, query_terms: sigma_half(scores, query_terms),
    }
)
"""Every predictor with its usual depth, as a function of scores (n,) and the number of query terms."""

PREDICTOR_LABELS: Mapping[str, str] = MappingProxyType(
    {"wig": "WIG", "nqc": "NQC", "sigma_max": "σ_max", "sigma_half": "σ_50%"}
)
"""What the tables call them."""


def z_scores(values: np.ndarray) -> np.ndarray:
    """Predictions as z-scores of their retriever, since retrievers score on different scales.

    Parameters
    ----------
    values: (Q, R) predictions; the mean and standard deviation are those of a column.

    Returns
    -------
    (Q, R); a constant column gives 0.

    Raises ValueError for values that are not a finite (Q, R).

    >>> z_scores(np.array([[100.0, 7.0], [300.0, 7.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    values = _check_values(values)
    columns = [_standardized(values[:, r]) for r in range(values.shape[1])]
    return np.array(columns, dtype=np.float64).reshape(values.shape[::-1]).T


def select(values: np.ndarray) -> np.ndarray:
    """Index of the retriever with the highest prediction for each input, the first one on ties.

    Parameters
    ----------
    values: (Q, R) predictions.

    Returns
    -------
    (Q,) indices.

    Raises ValueError for values that are not a finite (Q, R) with R at least 1.

    >>> select(np.array([[0.1, 0.3, 0.3], [2.0, 1.0, 0.0]])).tolist()
    [1, 0]
    """
    values = _check_values(values)
    if values.shape[1] == 0:
        raise ValueError("the pool is empty: there is no retriever to select")
    return values.argmax(axis=1)


def _ranked(scores: np.ndarray) -> tuple[np.ndarray, int]:
    """Scores in descending order, divided by 2^e so that the largest size is in [0.5, 1), and e.

    Division by a power of two is exact, and squares of such scores neither overflow nor vanish.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1:
        raise ValueError(f"scores must have shape (documents,), not {scores.shape}")
    if not np.isfinite(scores).all():
        bad = ~np.isfinite(scores)
        raise ValueError(
            f"scores must be finite: found {scores[bad][0]} at place {int(bad.argmax())} and "
            f"{int(bad.sum())} such scores in all"
        )
    exponent = int(np.frexp(np.abs(scores).max(initial=0.0))[1])
    return np.sort(np.ldexp(scores, -exponent))[::-1], exponent


def _scaled(value: float, exponent: int) -> float:
    """value · 2^exponent, infinite rather than an error where that leaves the range of a float."""
    return float(np.ldexp(value, exponent))


def _std(values: np.ndarray) -> float:
    """Population standard deviation, exactly 0 for equal values and for none."""
    # a rounded mean of equal values is not always their value
    return float(np.std(values - values[0])) if values.size else 0.0


def _standardized(column: np.ndarray) -> np.ndarray:
    """(Q,) with mean 0 and standard deviation 1, or all 0 where the values are equal."""
    if not column.size or column.min() == column.max():
        return np.zeros_like(column)
    column = np.ldexp(column, -int(np.frexp(np.abs(column).max())[1]))
    column = column - column[0]  # far from 0, a rounded mean would be far from the middle
    column = column - column.mean()
    return column / np.std(column)


def _root(query_terms: int) -> float:
    """√q, of 1 at least."""
    if query_terms < 0:
        raise ValueError(f"query_terms must be a number of terms, not {query_terms!r}")
    return math.sqrt(max(query_terms, 1))


def _depth(k: int) -> int:
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k!r}")
    return k


def _check_values(values: np.ndarray) -> np.ndarray:
    """Predictions as a float64 (Q, R)."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2:
        raise ValueError(f"predictions must have shape (inputs, retrievers), not {values.shape}")
    if not np.isfinite(values).all():
        q, r = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ValueError(f"predictions must be finite: input {q}, retriever {r} has {values[q, r]}")
    return values
