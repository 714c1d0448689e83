"""Comparisons of variants: numbers worked out by hand, and the family that is corrected over."""

from __future__ import annotations

import numpy as np
import pytest
from finished_runs import rewards, write_run

from ropg.evaluation.significance import holm, paired_permutation
from ropg.study.comparing import choose_finalists, compare, difference, growth, rank_correlation
from ropg.study.outcomes import read_outcome


def outcome(folder, name, gain, **options):
    write_run(folder / name, rewards(gain), **options)
    return read_outcome(folder / name)


def test_gap_closed_and_differences_by_hand(tmp_path):
    """Half of the queries gain 0.2, the oracle gains 0.5 everywhere: 0.1 of 0.5, and 0.05 more against BM25."""
    (found,) = compare({"good": [outcome(tmp_path, "a", 0.2)]})
    assert found.gap_closed == pytest.approx(0.1 / 0.5)
    assert found.against["initial"].mean == pytest.approx(0.1)
    assert found.against["bm25"].mean == pytest.approx(0.15)
    assert found.spread is None
    low, high = found.against["initial"].low, found.against["initial"].high
    assert 0.05 < low < 0.1 < high < 0.15


def test_correction_is_over_variants_and_baselines_together(tmp_path):
    """Two variants against two baselines are a family of four."""
    runs = {"good": [outcome(tmp_path, "a", 0.2)], "slight": [outcome(tmp_path, "b", 0.01)]}
    found = compare(runs)
    raw = [c.against[name].p for c in found for name in ("initial", "bm25")]
    assert [c.against[name].adjusted for c in found for name in ("initial", "bm25")] == holm(raw)
    assert raw[0] == paired_permutation(rewards(0.2)["trained"], rewards(0.2)["initial"])


def test_seeds_are_repetitions_and_no_further_queries(tmp_path):
    """The same run three times has the p-value of one; its mean is that of one."""
    one = outcome(tmp_path, "a", 0.02)
    single, thrice = compare({"x": [one]})[0], compare({"x": [one, one, one]})[0]
    assert thrice.against["initial"].p == single.against["initial"].p
    assert thrice.first_reward == pytest.approx(single.first_reward)
    assert thrice.spread == pytest.approx(0.0)


def test_runs_on_other_queries_or_other_feedback_are_refused(tmp_path):
    """Pairs would pair different things."""
    one = outcome(tmp_path, "a", 0.2)
    write_run(tmp_path / "b", rewards(0.2, queries=39))
    with pytest.raises(ValueError, match="other held-out queries"):
        compare({"x": [one], "y": [read_outcome(tmp_path / "b")]})
    other = rewards(0.2)
    other["initial"][0] += 0.5
    write_run(tmp_path / "c", other)
    with pytest.raises(ValueError, match="rewards of initial differ"):
        compare({"x": [one], "y": [read_outcome(tmp_path / "c")]})


def test_finalists_are_chosen_on_dev_alone(tmp_path):
    """The best on held-out queries is not chosen where dev says otherwise."""
    runs = {
        "best_heldout": [outcome(tmp_path, "a", 0.5, dev=0.25)],
        "best_dev": [outcome(tmp_path, "b", 0.0, dev=0.5)],
        "second": [outcome(tmp_path, "c", 0.0, dev=0.4)],
    }
    assert choose_finalists(runs, 2) == ["best_dev", "second"]


def test_a_variant_that_failed_on_one_data_set_is_no_finalist(tmp_path):
    """Its mean would be over other data sets than the others'."""
    good = outcome(tmp_path, "a", 0.0, dev=0.8)
    fair = outcome(tmp_path, "b", 0.0, dev=0.3)
    assert choose_finalists({"half": [good], "whole": [fair, fair]}, 1) == ["whole"]


def test_growth_recovers_a_line(tmp_path):
    """0.02 more with every doubling; the goal, a quarter of 0.5 above the initial reward, is met by the line."""
    runs = []
    for i, size in enumerate((50, 100, 200, 400)):
        first = rewards(0.0)
        first["trained"] = [value + 0.02 * (i + 1) for value in first["initial"]]
        write_run(tmp_path / str(size), first, n_train=size)
        runs.append(read_outcome(tmp_path / str(size)))
    found = growth(runs)
    assert found.per_doubling == pytest.approx(0.02)
    # 0.125 = 0.02 (log2(n / 50) + 1): n = 50 · 2^5.25
    assert found.needed == pytest.approx(50 * 2**5.25)
    assert found.low == pytest.approx(0.02)


def test_a_falling_curve_predicts_nothing(tmp_path):
    """No number of queries is promised."""
    runs = []
    for i, size in enumerate((50, 100)):
        first = rewards(0.0)
        first["trained"] = [value - 0.02 * i for value in first["initial"]]
        write_run(tmp_path / str(size), first, n_train=size)
        runs.append(read_outcome(tmp_path / str(size)))
    assert growth(runs).needed is None
    with pytest.raises(ValueError, match="at least two"):
        growth(runs[:1])


def test_equal_systems_cannot_be_tested():
    """No difference on any query: no p, and an interval of zero width."""
    found = difference(np.array([0.5, 0.2]), np.array([0.5, 0.2]))
    assert found.p is None
    assert (found.mean, found.low, found.high) == (0.0, 0.0, 0.0)


def test_correlation_needs_three_different_points():
    """Two points always lie on a line."""
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None
    assert rank_correlation([1, 2, 3], [3, 2, 1])[0] == -1.0
