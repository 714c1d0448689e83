"""Ways of choosing compared on the same inputs: by hand, as properties, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropg.evaluation.significance import mcnemar, paired_t_test
from rspg.selections import (
    PoolOutcome,
    Selection,
    compare_selections,
    p_values,
    paired_p_value,
    wilson_interval,
)

NAMES, LABELS = ["none", "bm25", "ropg_kd"], ["No personalization", "BM25", "ROPG-KD"]
# the best are {0}, {1, 2}, {2}, {0, 1, 2}
REWARDS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.5]])
WIG = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [5.0, 6.0, 1.0], [0.0, 0.0, 0.0]])
CHOSEN = {"rspg_pre": np.array([0, 0, 2, 1]), "rspg_post": np.array([0, 1, 2, 2])}


def compared(**options):
    given = {"predictions": {"wig": WIG}, "fixed": 2, "selectors": CHOSEN} | options
    return compare_selections(NAMES, LABELS, REWARDS, **given)


def test_every_way_of_choosing_by_hand():
    """Table 4's rows and Table 5's figures, worked out on four inputs."""
    outcome = compared()
    names = ["wig", "wig_z", "best_fixed", "random_choice", "rspg_pre", "rspg_post"]
    assert [s.name for s in outcome.selections] == names
    assert [s.label for s in outcome.selections] == [
        "WIG",
        "WIG, z-scored",
        "Best fixed (ROPG-KD)",
        "Random choice",
        "RSPG-Pre",
        "RSPG-Post",
    ]
    wig = outcome.selection("wig")
    assert wig.chosen == (0, 2, 1, 0)
    assert wig.success == (1.0, 1.0, 0.0, 1.0)
    assert wig.reward == (1.0, 1.0, 0.0, 0.5)
    assert outcome.selection("best_fixed").success == (0.0, 1.0, 1.0, 1.0)
    random = outcome.selection("random_choice")
    assert random.chosen is None
    assert random.success == pytest.approx((1 / 3, 2 / 3, 1 / 3, 1.0))
    assert random.reward == pytest.approx((1 / 3, 2 / 3, 1 / 3, 0.5))
    assert (outcome.selection("rspg_pre").success_rate, outcome.selection("rspg_pre").mean_reward) == (
        0.75,
        0.625,
    )
    assert (outcome.selection("rspg_post").success_rate, outcome.selection("rspg_post").mean_reward) == (
        1.0,
        0.875,
    )
    assert (outcome.lower, outcome.upper) == (0.125, 0.875)
    assert outcome.winning.tolist() == pytest.approx([2 / 7, 2 / 7, 3 / 7])
    assert outcome.among_best.tolist() == [0.5, 0.5, 0.75]
    assert outcome.binary is False


def test_z_scores_undo_the_scale_of_a_retriever():
    """Raw, the retriever that scores in hundreds always wins; z-scored, the better prediction does."""
    predictions = {"nqc": np.array([[1.0, 100.0], [3.0, 100.0]])}
    outcome = compare_selections(["a", "b"], ["A", "B"], np.eye(2), predictions, None, {})
    assert outcome.selection("nqc").chosen == (1, 1)
    assert outcome.selection("nqc_z").chosen == (1, 0)


def test_what_was_not_made_is_left_out():
    """Before a selector is trained, or without dev golds, the baselines can still be compared."""
    outcome = compared(predictions={}, fixed=None, selectors={})
    assert [s.name for s in outcome.selections] == ["random_choice"]
    assert outcome.selection("rspg_pre") is None
    assert outcome.best_predictors == ()
    assert p_values(outcome) == {}


def test_p_values_by_hand():
    """Six inputs where only the selector is right: McNemar 2 · 0.5⁶; against an expectation, the t-test."""
    rewards = np.array([[1.0, 0.0]] * 6 + [[0.5, 0.5]])
    chosen = {"rspg_pre": np.zeros(7, dtype=int), "rspg_post": np.ones(7, dtype=int)}
    outcome = compare_selections(["a", "b"], ["A", "B"], rewards, {}, 1, chosen)
    told = p_values(outcome)
    assert told["rspg_pre"]["rspg_post"] == told["rspg_post"]["rspg_pre"] == 2 * 0.5**6
    assert told["rspg_pre"]["best_fixed"] == 2 * 0.5**6
    assert told["rspg_post"]["best_fixed"] is None  # never differ
    assert told["rspg_pre"]["random_choice"] == paired_t_test([1] * 7, [0.5] * 6 + [1])
    # rewards are no right or wrong here
    expected = paired_t_test([1] * 6 + [0.5], [0] * 6 + [0.5])
    assert p_values(outcome, of="reward")["rspg_pre"]["best_fixed"] == expected


def test_rewards_that_are_right_or_wrong_take_mcnemar():
    """As in the paper's section 6.1: accuracy is tested by McNemar, ROUGE by the t-test."""
    rewards = np.array([[1.0, 0.0]] * 6 + [[0.0, 1.0]])
    outcome = compare_selections(["a", "b"], ["A", "B"], rewards, {}, 1, {"rspg_pre": np.zeros(7, dtype=int)})
    told = p_values(outcome, of="reward")["rspg_pre"]["best_fixed"]
    assert told == mcnemar([1] * 6 + [0], [0] * 6 + [1]) != paired_t_test([1] * 6 + [0], [0] * 6 + [1])
    assert paired_p_value([1, 0, 1], [0, 0, 0], binary=False) == paired_t_test([1, 0, 1], [0, 0, 0])


def test_predictors_that_tie_for_the_best_are_all_named():
    """Beating one of two equally good baselines is not yet beating the best one."""
    constant = {"wig": np.ones((4, 3)), "nqc": WIG, "sigma_max": WIG}
    outcome = compared(predictions=constant)
    assert {"nqc", "sigma_max"} <= {s.name for s in outcome.best_predictors}
    assert "wig" not in {s.name for s in outcome.best_predictors}


def test_wilson_by_hand():
    """p = 1/2, n = 4, z = 1.96: 1/2 ± √(z²/16 + z⁴/64) / (1 + z²/4)."""
    z = 1.959963984540054
    half = math.sqrt(z**2 / 16 + z**4 / 64) / (1 + z**2 / 4)
    assert wilson_interval(0.5, 4) == pytest.approx((0.5 - half, 0.5 + half))
    for n in (1, 3, 1000):
        assert wilson_interval(0.0, n)[0] == 0.0
        assert wilson_interval(1.0, n)[1] == 1.0
    with pytest.raises(ValueError, match="at least one input"):
        wilson_interval(0.5, 0)


evals = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 1.0]))


@st.composite
def outcomes(draw):
    """Any pool, with or without predictors, a fixed retriever and selectors."""
    q, r = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    rewards = np.array(draw(st.lists(st.lists(evals, min_size=r, max_size=r), min_size=q, max_size=q)))
    scores = st.lists(st.lists(st.floats(-9, 9), min_size=r, max_size=r), min_size=q, max_size=q)
    choices = st.lists(st.integers(0, r - 1), min_size=q, max_size=q)
    predictions = {name: np.array(draw(scores)) for name in draw(st.sets(st.sampled_from(["wig", "nqc"])))}
    selectors = {
        name: np.array(draw(choices)) for name in draw(st.sets(st.sampled_from(["rspg_pre", "rspg_post"])))
    }
    names = [f"r{i}" for i in range(r)]
    fixed = draw(st.none() | st.integers(0, r - 1))
    return compare_selections(names, names, rewards, predictions, fixed, selectors)


@settings(max_examples=60, deadline=None)
@given(outcomes())
def test_bounds_enclose_every_selection(outcome):
    """A way of choosing outside the oracle's bounds would mean that the table mixes inputs."""
    for s in outcome.selections:
        assert outcome.lower - 1e-9 <= s.mean_reward <= outcome.upper + 1e-9
        assert 0 <= s.success_rate <= 1 + 1e-12
        low, high = wilson_interval(s.success_rate, len(s.success))
        assert 0 <= low <= s.success_rate + 1e-12
        assert s.success_rate - 1e-12 <= high <= 1
    assert outcome.winning.sum() == pytest.approx(1.0)
    for of in ("success", "reward"):
        for row in p_values(outcome, of).values():
            assert all(p is None or 0 <= p <= 1 for p in row.values())


def test_a_selection_of_other_inputs_is_refused_by_name():
    """Choices joined in another order than the rewards would make a table that looks right."""
    other = Selection("rspg_pre", "RSPG-Pre", (0, 0), (1.0, 1.0), (0.9, 0.0))
    with pytest.raises(ValueError, match=r"rspg_pre: input 0 has Eval 0\.9, outside the pool's 0\.5 to 0\.5"):
        PoolOutcome(("a",), ("A",), np.array([[0.5], [0.0]]), (other,))
    with pytest.raises(ValueError, match="rspg_pre: 2 successes and 2 rewards for 3 inputs"):
        PoolOutcome(("a",), ("A",), np.zeros((3, 1)), (other,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predictions": {"wig": WIG[:, :2]}}, r"wig: predictions have shape \(4, 2\)"),
        ({"predictions": {"wig": WIG * math.nan}}, "wig: predictions must be finite"),
        ({"fixed": 3}, "best_fixed must be an index from 0 to 2, not 3"),
        ({"fixed": -1}, "best_fixed must be an index"),
        ({"selectors": {"rspg_pre": np.array([0, 0, 0, 3])}}, "rspg_pre: chosen must be indices from 0 to 2"),
        ({"selectors": {"rspg_pre": np.array([0, 0])}}, "rspg_pre: chosen must hold one index"),
        ({"selectors": {"wig": CHOSEN["rspg_pre"]}}, "'wig' stands twice among the ways of choosing"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, message):
    """The message says which predictor or selector to look into."""
    with pytest.raises(ValueError, match=message):
        compared(**change)


@pytest.mark.parametrize(
    ("names", "rewards", "message"),
    [
        (["a"], np.zeros((2, 2)), "1 names and 1 labels for rewards of 2 retrievers"),
        (["a", "a"], np.zeros((2, 2)), "'a' stands twice among the retrievers"),
        (["a", "b"], np.zeros((0, 2)), "no input with a gold"),
        ([], np.zeros((2, 0)), "the pool is empty"),
        (["a", "b"], np.array([[0.0, math.nan]]), "rewards must be finite"),
    ],
)
def test_a_pool_that_is_none_is_refused(names, rewards, message):
    """Before anything is chosen from it."""
    with pytest.raises(ValueError, match=message):
        compare_selections(names, names, rewards, {}, None, {})


def test_an_outcome_keeps_its_own_rewards():
    """What a caller does with the matrix later does not change a table."""
    rewards = np.array([[0.2, 0.4]])
    outcome = compare_selections(["a", "b"], ["A", "B"], rewards, {}, None, {})
    rewards[:] = 0.0
    assert outcome.upper == 0.4
    with pytest.raises(ValueError, match="read-only"):
        outcome.rewards[0, 0] = 1.0
