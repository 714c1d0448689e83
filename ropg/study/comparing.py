"""Is a variant better than the initial encoder, than BM25, and by how much: pairs of queries, Holm's correction.

Legend: Q held-out queries, the same ones in the same order for everything that is compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ropg.evaluation.significance import bootstrap_interval, holm, paired_permutation
from ropg.study.outcomes import Outcome

AGAINST = ("initial", "bm25")


@dataclass(frozen=True)
class Difference:
    """A mean difference of two systems over the same queries.

    low, high: 95 % bootstrap interval. p: two-tailed paired permutation, None where no query differs.
    adjusted: p after Holm's correction over the family that it was compared in.
    """

    mean: float
    low: float
    high: float
    p: float | None
    adjusted: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A variant on one data set, over its seeds.

    first_reward: mean first-document reward over queries and seeds. spread: its standard deviation over the
        seeds, None with one.
    gap_closed: (trained − initial) / (oracle − initial), None where there is no gap.
    against: "initial", "bm25" -> the difference to it.
    """

    variant: str
    outcomes: tuple[Outcome, ...]
    first_reward: float
    spread: float | None
    gap_closed: float | None
    against: Mapping[str, Difference]


def compare(runs: Mapping[str, Sequence[Outcome]], flips: int = 9999) -> list[Comparison]:
    """Compare every variant with the initial encoder and BM25; p-values are adjusted over all of them together.

    A query's value is its mean over the seeds: seeds are repetitions and no further queries, so more of them
    make no p-value smaller by their number alone.

    Raises ValueError where two runs were measured on other queries, or on other rewards of the same ones.
    """
    first: Outcome | None = None
    rows: list[tuple[str, tuple[Outcome, ...], np.ndarray]] = []
    for variant, outcomes in runs.items():
        if not outcomes:
            continue
        for outcome in outcomes:
            first = first or outcome
            require_same_queries(first, outcome)
        rows.append(
            (variant, tuple(outcomes), np.mean([o.first_reward["trained"] for o in outcomes], axis=0))
        )
    if first is None:
        return []
    found = [
        {name: difference(values, first.first_reward[name], flips) for name in AGAINST}
        for _, _, values in rows
    ]
    adjusted = iter(holm([row[name].p for row in found for name in AGAINST]))
    compared = []
    for (variant, outcomes, values), row in zip(rows, found, strict=True):
        means = [float(o.first_reward["trained"].mean()) for o in outcomes]
        room = first.room
        compared.append(
            Comparison(
                variant=variant,
                outcomes=outcomes,
                first_reward=float(values.mean()),
                spread=float(np.std(means, ddof=1)) if len(means) > 1 else None,
                gap_closed=float(values.mean() - first.first_reward["initial"].mean()) / room
                if room > 0
                else None,
                against={
                    name: Difference(d.mean, d.low, d.high, d.p, next(adjusted)) for name, d in row.items()
                },
            )
        )
    return compared


def difference(a: np.ndarray, b: np.ndarray, flips: int = 9999) -> Difference:
    """Mean of a − b with its interval and p-value; (Q,) each.

    >>> d = difference(np.array([1.0, 0.5, 0.5]), np.array([0.5, 0.5, 0.0]))
    >>> round(d.mean, 4), round(d.low, 4), d.p
    (0.3333, 0.0, 0.4882)
    """
    values = a - b
    low, high = bootstrap_interval(lambda index: float(values[index].mean()), len(values))
    return Difference(float(values.mean()), low, high, paired_permutation(a, b, n=flips))


def require_same_queries(one: Outcome, other: Outcome) -> None:
    """Raise ValueError unless two runs were measured on the same queries with the same candidates' rewards."""
    if one.example_ids != other.example_ids:
        raise ValueError(
            f"{one.run} and {other.run} were measured on other held-out queries ({len(one.example_ids)} and "
            f"{len(other.example_ids)}); move one of them away"
        )
    for name in ("initial", "bm25", "oracle"):
        if not np.allclose(one.first_reward[name], other.first_reward[name], atol=1e-9):
            raise ValueError(
                f"{one.run} and {other.run}: rewards of {name} differ on the same queries, so their candidates or "
                "feedback do; move one of them away"
            )


def choose_finalists(outcomes: Mapping[str, Sequence[Outcome]], n: int) -> list[str]:
    """The ``n`` variants that close most of the gap on dev, in the mean over the data sets; held-out plays no part.

    outcomes: variant -> its run on each data set. A variant that lacks one that others have is passed over.
    """
    most = max((len(runs) for runs in outcomes.values()), default=0)
    whole = {
        v: float(np.mean([o.dev_gap_closed for o in runs]))
        for v, runs in outcomes.items()
        if runs and len(runs) == most
    }
    return sorted(whole, key=lambda v: (-whole[v], list(outcomes).index(v)))[:n]


@dataclass(frozen=True)
class Growth:
    """Reward against the logarithm of the number of training queries, by least squares.

    per_doubling: what twice the queries add; low, high: its 95 % bootstrap interval over the held-out queries.
    needed: queries at which the line reaches a share of the gap, None where it does not rise.
    """

    per_doubling: float
    low: float
    high: float
    needed: float | None


def growth(runs: Sequence[Outcome], share: float = 0.25) -> Growth:
    """Fit the curve over training queries. Raises ValueError with fewer than two sizes."""
    sizes = np.log2([run.n_train for run in runs])
    if len(set(sizes.tolist())) < 2:
        raise ValueError("a curve needs runs with at least two numbers of training queries")
    values = np.stack([run.first_reward["trained"] for run in runs])  # (sizes, Q)
    centred = (sizes - sizes.mean()) / ((sizes - sizes.mean()) ** 2).sum()
    slopes = centred @ values  # (Q,), the slope is their mean
    slope = float(slopes.mean())
    low, high = bootstrap_interval(lambda index: float(slopes[index].mean()), len(slopes))
    goal = float(runs[0].first_reward["initial"].mean()) + share * runs[0].room
    needed = None
    if slope > 0:
        exponent = (goal - float(values.mean())) / slope + float(sizes.mean())
        needed = 2.0**exponent if exponent < 60 else math.inf
    return Growth(slope, low, high, needed)


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """Spearman's correlation with its two-tailed p; None with fewer than three pairs or where one side is constant.

    >>> rank_correlation([1, 2, 3, 4], [2, 3, 9, 10])[0]
    1.0
    """
    if len(a) < 3 or len(set(a)) < 2 or len(set(b)) < 2:
        return None
    from scipy import stats

    found = stats.spearmanr(a, b)
    return round(float(found.statistic), 12), float(found.pvalue)
