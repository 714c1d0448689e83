"""Paired tests, intervals and Holm's correction against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropg.evaluation.significance import (
    bootstrap_interval,
    holm,
    mcnemar,
    paired_permutation,
    paired_t_test,
)

TESTS = (paired_t_test, mcnemar, paired_permutation)


def test_t_test_by_hand():
    """A wrong p puts superscripts into the table that are not earned.

    Differences 1, 2, 3: t = 2 / (1/√3) = 2√3 with two degrees of freedom, where p = 1 − t/√(t² + 2).
    """
    t = 2 * math.sqrt(3)
    assert paired_t_test([2, 4, 6], [1, 2, 3]) == pytest.approx(1 - t / math.sqrt(t * t + 2))
    assert paired_t_test([1, 2, 3], [2, 4, 6]) == pytest.approx(
        0.0741799
    )  # two-tailed: the order is no matter


def test_t_test_without_spread_is_not_testable():
    """A constant difference (two users, say, both half a point better) must not come out as p = 0."""
    assert paired_t_test([1, 1, 1], [1, 1, 1]) is None
    assert paired_t_test([1.0, 1.0], [0.5, 0.5]) is None
    assert paired_t_test([0.3, 0.4, 0.5], [0.2, 0.3, 0.4]) is None  # the same but for rounding
    assert paired_t_test([1.0], [0.5]) is None
    assert paired_t_test([], []) is None


def test_mcnemar_exact_by_hand():
    """Five against one of six discordant pairs: 2 · (1 + 6) / 2⁶."""
    a = [1, 1, 1, 1, 1, 0, 1, 0]
    b = [0, 0, 0, 0, 0, 1, 1, 0]
    assert mcnemar(a, b) == pytest.approx(14 / 64)
    assert mcnemar(b, a) == pytest.approx(14 / 64)
    assert mcnemar([1, 0], [0, 1]) == 1.0


def test_mcnemar_chi_squared_by_hand():
    """30 against 10: (|30 − 10| − 1)² / 40 = 9.025, of which p = erfc(√(9.025 / 2))."""
    a, b = [1] * 30 + [0] * 10 + [1] * 7, [0] * 30 + [1] * 10 + [1] * 7
    assert mcnemar(a, b) == pytest.approx(math.erfc(math.sqrt(9.025 / 2)))


def test_mcnemar_changes_to_chi_squared_at_25_discordant_pairs():
    """The documented rule: a reader who recomputes a p-value must know which test it is."""
    exact = mcnemar([1] * 19 + [0] * 5, [0] * 19 + [1] * 5)
    assert exact == pytest.approx(2 * sum(math.comb(24, i) for i in range(6)) / 2**24)
    assert mcnemar([1] * 20 + [0] * 5, [0] * 20 + [1] * 5) == pytest.approx(
        math.erfc(math.sqrt(14**2 / 25 / 2))
    )


def test_mcnemar_refuses_scores():
    """ROUGE values given to McNemar would otherwise count as wrong answers."""
    with pytest.raises(ValueError, match="paired_t_test"):
        mcnemar([0.4, 1.0], [1.0, 1.0])


def test_mcnemar_takes_booleans_and_needs_discordance():
    """Comparisons give booleans; two systems with the same right answers cannot be told apart."""
    assert mcnemar([True, True, True], [False, False, False]) == pytest.approx(0.25)
    assert mcnemar([1, 0, 1], [1, 0, 1]) is None


def test_permutation_by_hand():
    """Of the 2⁵ sign patterns of five equal differences two are as extreme as what was seen: p = 1/16."""
    p = paired_permutation([1.0] * 5 + [0.0], [0.0] * 6)
    assert p == pytest.approx(1 / 16, abs=0.01)


def test_permutation_counts_itself_and_repeats():
    """The smallest p is 1/(n + 1), never 0; the same seed gives the same p."""
    a, b = np.linspace(0.5, 1, 60), np.zeros(60)
    assert paired_permutation(a, b) == 1 / 10_000
    rng = np.random.default_rng(0)
    c, d = rng.random(40), rng.random(40)
    assert paired_permutation(c, d, seed=3) == paired_permutation(c, d, seed=3)


def test_permutation_agrees_with_the_t_test_on_bell_shaped_differences():
    """Two tests of the same hypothesis on well-behaved data come out alike."""
    rng = np.random.default_rng(1)
    a = rng.normal(0.15, 1.0, 300)
    assert paired_permutation(a, np.zeros(300)) == pytest.approx(paired_t_test(a, np.zeros(300)), abs=0.02)


def test_permutation_is_the_same_in_chunks():
    """Large test sets are worked off in pieces; every flip counts once."""
    rng = np.random.default_rng(2)
    a, b = rng.random(5000), rng.random(5000)
    assert 0.0 < paired_permutation(a, b, n=1999) <= 1.0


@pytest.mark.parametrize("test", TESTS)
def test_unequal_lengths_are_refused(test):
    """Values of different examples would be compared with each other."""
    with pytest.raises(ValueError, match="same length"):
        test([1, 0, 1], [1, 0])


@pytest.mark.parametrize("test", TESTS)
def test_nan_is_refused(test):
    """A NaN among the values is a bug to be told, not a p-value."""
    with pytest.raises(ValueError, match="finite"):
        test([1.0, float("nan")], [0.0, 1.0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=30))
def test_p_values_are_probabilities_or_none(pairs):
    """results.json must never hold NaN, whatever the data, and two-tailed tests are symmetric."""
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    p = paired_t_test(a, b)
    assert p is None or 0.0 <= p <= 1.0
    assert p == paired_t_test(b, a)
    p = paired_permutation(a, b, n=99)
    assert p is None or 0.0 < p <= 1.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=80))
def test_mcnemar_is_a_probability_or_none(pairs):
    """As above, for right and wrong answers."""
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    p = mcnemar(a, b)
    assert p is None or 0.0 <= p <= 1.0
    assert p == mcnemar(b, a)


def test_bootstrap_of_a_mean():
    """A hundred answers, half of them right: 0.5 ± 1.96 · 0.05, as textbooks say."""
    values = np.array([0.0, 1.0] * 50)
    low, high = bootstrap_interval(lambda index: values[index].mean(), size=100, n=4000)
    assert low == pytest.approx(0.402, abs=0.015)
    assert high == pytest.approx(0.598, abs=0.015)


def test_bootstrap_recomputes_metrics_that_are_no_means():
    """The interval of an RMSE is of roots of resampled means: with errors 0 and 2, between 0 and 2."""
    errors = np.array([0.0, 2.0])
    low, high = bootstrap_interval(lambda index: float(np.sqrt((errors[index] ** 2).mean())), size=2)
    assert (low, high) == (0.0, 2.0)


def test_bootstrap_of_one_example_and_of_none():
    """One example has no spread; none has no interval, and NaN is not an answer."""
    assert bootstrap_interval(lambda index: 0.25, size=1) == (0.25, 0.25)
    with pytest.raises(ValueError, match="needs examples"):
        bootstrap_interval(lambda index: 0.0, size=0)


def test_holm_by_hand():
    """0.01 · 4, 0.02 · 3, then 0.03 · 2 is below what came before, 0.5; untestable ones do not count."""
    assert holm([0.03, 0.01, None, 0.5, 0.02]) == pytest.approx([0.06, 0.04, None, 0.5, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([None]) == [None]
    assert holm([]) == []
