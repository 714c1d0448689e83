"""Ways of choosing a retriever compared on the same inputs: predictors, fixed, random, trained selectors.

    Q  inputs with a gold
    R  retrievers of the pool

Plain data, computed once: :mod:`rspg.tables`, :mod:`rspg.plots` and the report only write it down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ropg.evaluation.significance import Values, mcnemar, paired_t_test
from ropg.evaluation.tables import LABELS
from rspg import choice
from rspg.qpp import PREDICTOR_LABELS, select, z_scores

Kind = Literal["qpp", "fixed", "random", "selector"]


@dataclass(frozen=True, slots=True)
class Selection:
    """What one way of choosing did on Q inputs.

    ``name`` for files (``wig_z``), ``label`` for tables ("WIG, z-scored"). ``chosen``: (Q,) indices into the
    pool, None where the choice is an expectation (random). ``success``: (Q,) 0 or 1, expectations for random.
    ``reward``: (Q,) Eval of the choice. ``kind``: what sort of way it is; selectors are the trained ones.
    """

    name: str
    label: str
    chosen: tuple[int, ...] | None
    success: tuple[float, ...]
    reward: tuple[float, ...]
    kind: Kind = "selector"

    @property
    def success_rate(self) -> float:
        """Share of inputs whose choice is among the best of the pool (Table 4)."""
        return float(np.mean(self.success))

    @property
    def mean_reward(self) -> float:
        """Mean Eval of the choices."""
        return float(np.mean(self.reward))


@dataclass(frozen=True, slots=True, eq=False)
class PoolOutcome:
    """One pool on Q inputs with golds.

    ``names``, ``labels``: (R,) its retrievers. ``rewards``: (Q, R) Eval of each. ``selections``: the ways of
    choosing, in the order of the tables.

    Raises ValueError, by name, for rewards that are not a finite (Q, R) with Q and R at least 1, names that
    do not fit them or stand twice, and a selection that is not Q long or leaves the oracle's bounds.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    rewards: np.ndarray
    selections: tuple[Selection, ...]

    def __post_init__(self) -> None:
        rewards = np.array(self.rewards, dtype=np.float64)  # a copy, so that no one else writes into it
        rewards.setflags(write=False)
        object.__setattr__(self, "rewards", rewards)
        low, high = choice.bounds(rewards)  # (Q,), (Q,); refuses what is no (Q, R)
        if not len(rewards):
            raise ValueError("no input with a gold: there is nothing to compare selections on")
        if not len(self.names) == len(self.labels) == rewards.shape[1]:
            raise ValueError(
                f"the pool has {len(self.names)} names and {len(self.labels)} labels for rewards of "
                f"{rewards.shape[1]} retrievers; give one of each"
            )
        _check_once(self.names, "retrievers")
        _check_once([selection.name for selection in self.selections], "ways of choosing")
        for selection in self.selections:
            if not len(selection.success) == len(selection.reward) == len(rewards):
                raise ValueError(
                    f"{selection.name}: {len(selection.success)} successes and {len(selection.reward)} "
                    f"rewards for {len(rewards)} inputs; give one of each"
                )
            reward = np.asarray(selection.reward)
            inside = (low - choice.TIE <= reward) & (reward <= high + choice.TIE)  # (Q,), False for NaN
            if not inside.all():
                q = int((~inside).argmax())
                raise ValueError(
                    f"{selection.name}: input {q} has Eval {reward[q]}, outside the pool's {low[q]} to "
                    f"{high[q]}, and {int((~inside).sum())} such inputs in all; its choices and the pool's "
                    "rewards are not of the same inputs in the same order"
                )

    @property
    def lower(self) -> float:
        """Mean Eval of the oracle that always chooses the worst."""
        return float(choice.bounds(self.rewards)[0].mean())

    @property
    def upper(self) -> float:
        """Mean Eval of the oracle that always chooses the best."""
        return float(choice.bounds(self.rewards)[1].mean())

    @property
    def winning(self) -> np.ndarray:
        """(R,) winning rates, which sum to 1 (Figure 3)."""
        return choice.winning_rates(self.rewards)

    @property
    def among_best(self) -> np.ndarray:
        """(R,) share of inputs where each retriever is the best or ties with it."""
        chosen = [np.full(len(self.rewards), r) for r in range(len(self.names))]
        return np.array([choice.successes(self.rewards, c).mean() for c in chosen])

    @property
    def binary(self) -> bool:
        """Whether every Eval is 0 or 1, right or wrong."""
        return bool(np.isin(self.rewards, (0.0, 1.0)).all())

    @property
    def selectors(self) -> tuple[Selection, ...]:
        """The trained ones."""
        return self.of_kind("selector")

    @property
    def best_predictors(self) -> tuple[Selection, ...]:
        """The QPP baselines with the highest success rate: several on ties, none where there are none."""
        predictors = self.of_kind("qpp")
        highest = max((p.success_rate for p in predictors), default=0.0)
        return tuple(p for p in predictors if p.success_rate >= highest - choice.TIE)

    def of_kind(self, kind: Kind) -> tuple[Selection, ...]:
        """The selections of one kind."""
        return tuple(selection for selection in self.selections if selection.kind == kind)

    def selection(self, name: str) -> Selection | None:
        """The selection of a name, None where it was not made."""
        return next((selection for selection in self.selections if selection.name == name), None)


def compare_selections(
    names: Sequence[str],
    labels: Sequence[str],
    rewards: np.ndarray,
    predictions: Mapping[str, np.ndarray],
    fixed: int | None,
    selectors: Mapping[str, np.ndarray],
) -> PoolOutcome:
    """What every way of choosing is worth on the same inputs.

    Parameters
    ----------
    names, labels: (R,) the retrievers of the pool.
    rewards: (Q, R) Eval of each.
    predictions: name in :data:`rspg.qpp.PREDICTORS` -> (Q, R) its predictions; each is used raw and as z-scores
        over these Q inputs.
    fixed: index of the retriever that is best on dev (:func:`rspg.choice.best_fixed`), None where no one
        looked.
    selectors: ``rspg_pre``, ``rspg_post``, … -> (Q,) indices of the retrievers they chose.

    Raises ValueError as :class:`PoolOutcome` does, and for predictions or choices that do not fit the rewards.

    >>> rewards = np.array([[1.0, 0.0], [0.0, 0.5]])
    >>> outcome = compare_selections(
    ...     ["none", "bm25"], ["None", "BM25"], rewards, {"wig": np.array([[0.0, 2.0], [0.0, 4.0]])}, 0,
    ...     {"rspg_pre": np.array([0, 1])})
    >>> for s in outcome.selections:
    ...     print(s.label, s.success_rate, s.mean_reward)
    WIG 0.5 0.25
    WIG, z-scored 1.0 0.75
    Best fixed (None) 0.5 0.5
    Random choice 0.5 0.375
    RSPG-Pre 1.0 0.75
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    names, labels = tuple(names), tuple(labels)
    PoolOutcome(names, labels, rewards, ())  # refuses a pool that is none before anything is chosen from it
    selections = []
    for name, values in predictions.items():
        label = PREDICTOR_LABELS.get(name, name)
        if np.shape(values) != rewards.shape:
            raise ValueError(
                f"{name}: predictions have shape {np.shape(values)} and the rewards {rewards.shape}"
            )
        try:
            raw, scored = select(values), select(z_scores(values))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        selections.append(_selection(name, label, rewards, raw, "qpp"))
        selections.append(_selection(f"{name}_z", f"{label}, z-scored", rewards, scored, "qpp"))
    if fixed is not None:
        if not 0 <= fixed < len(names):
            raise ValueError(f"best_fixed must be an index from 0 to {len(names) - 1}, not {fixed}")
        always = np.full(len(rewards), fixed)
        selections.append(_selection("best_fixed", f"Best fixed ({labels[fixed]})", rewards, always, "fixed"))
    success, reward = choice.random_choice(rewards)
    expected = (tuple(success.tolist()), tuple(reward.tolist()))
    selections.append(Selection("random_choice", "Random choice", None, *expected, kind="random"))
    for name, chosen in selectors.items():
        selections.append(_selection(name, LABELS.get(name, name), rewards, chosen, "selector"))
    return PoolOutcome(names, labels, rewards, tuple(selections))


def p_values(
    outcome: PoolOutcome, of: Literal["success", "reward"] = "success"
) -> dict[str, dict[str, float | None]]:
    """Every selector against every other way of choosing: {selector: {other: p}}.

    McNemar's test on successes, and on rewards where the whole pool's are 0 or 1; else, and against the random
    choice, whose values are expectations, the paired t-test. Two-tailed, not corrected, None where the two
    cannot be tested, as where they never differ.

    >>> rewards = np.array([[1.0, 0.0]] * 6)
    >>> chosen = {"rspg_pre": np.zeros(6, dtype=int)}
    >>> p_values(compare_selections(["a", "b"], ["A", "B"], rewards, {}, 1, chosen))
    {'rspg_pre': {'best_fixed': 0.03125, 'random_choice': None}}
    """
    binary = of == "success" or outcome.binary
    values = {s.name: s.success if of == "success" else s.reward for s in outcome.selections}
    return {
        selector.name: {
            other: paired_p_value(values[selector.name], values[other], binary)
            for other in values
            if other != selector.name
        }
        for selector in outcome.selectors
    }


def paired_p_value(a: Values, b: Values, binary: bool) -> float | None:
    """McNemar's test for right-or-wrong data (``binary``), else the paired t-test; (n,), (n,) -> p or None.

    >>> paired_p_value([1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0], binary=True)
    0.03125
    """
    if binary and np.isin(np.concatenate([a, b]), (0.0, 1.0)).all():
        return mcnemar(a, b)
    return paired_t_test(a, b)


def wilson_interval(rate: float, n: int) -> tuple[float, float]:
    """95 % Wilson interval of a rate over n inputs. Raises ValueError for no inputs.

    The mean of expectations varies less than that of as many successes and failures, so for the random choice
    it is a little wide.

    >>> [round(limit, 3) for limit in wilson_interval(1.0, 10)]
    [0.722, 1.0]
    """
    if n < 1:
        raise ValueError("an interval needs at least one input")
    z2 = 1.959963984540054**2
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = (z2 * rate * (1 - rate) / n + (z2 / (2 * n)) ** 2) ** 0.5 / (1 + z2 / n)
    # rounding must not put the interval beside its own rate
    return max(0.0, min(rate, middle - half)), min(1.0, max(rate, middle + half))


def _selection(name: str, label: str, rewards: np.ndarray, chosen: np.ndarray, kind: Kind) -> Selection:
    try:
        success, reward = choice.successes(rewards, chosen), choice.chosen_rewards(rewards, chosen)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    indices = tuple(int(i) for i in chosen)
    return Selection(name, label, indices, tuple(map(float, success)), tuple(map(float, reward)), kind)


def _check_once(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{name!r} stands twice among the {what}; give each a name of its own")
        seen.add(name)
