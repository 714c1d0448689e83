"""The four query performance predictors against numbers worked out by hand and naive loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rspg.qpp import PREDICTOR_LABELS, PREDICTORS, nqc, select, sigma_half, sigma_max, wig, z_scores

# six documents; mean (9 + 7 + 5 + 3 + 3 + 3) / 6 = 5
SCORES = np.array([3.0, 9.0, 3.0, 5.0, 7.0, 3.0])
SPREAD_OF_FIVE = math.sqrt(27.2 / 5)  # 9 7 5 3 3, mean 5.4: 12.96 + 2.56 + 0.16 + 5.76 + 5.76 = 27.2


def test_wig_by_hand():
    """The mean of the top five minus the mean of the whole profile, not of the top."""
    # top five 9 7 5 3 3, mean 5.4; 5.4 − 5 = 0.4; four terms: 0.4 / 2 = 0.2
    assert wig(SCORES, 4) == pytest.approx(0.2)
    # k = 2: (9 + 7) / 2 − 5 = 3; nine terms: 1
    assert wig(SCORES, 9, k=2) == pytest.approx(1.0)


def test_nqc_by_hand():
    """The spread of the top over the size of the mean of the whole profile."""
    # k = 100 > n: squares 16 + 4 + 0 + 4 + 4 + 4 = 32; sqrt(32 / 6) / 5
    assert nqc(SCORES) == pytest.approx(math.sqrt(32 / 6) / 5)
    assert nqc(SCORES, k=5) == pytest.approx(SPREAD_OF_FIVE / 5)
    # turned: −3 −3 −3 −5 −7 −9; the top three spread 0, and the mean counts by its size
    assert nqc(-SCORES, k=3) == 0.0
    assert nqc(-SCORES) == pytest.approx(math.sqrt(32 / 6) / 5)


def test_sigma_max_by_hand():
    """The maximum over cuts, not the spread of the whole list."""
    # 9: 0; 9 7: 1; 9 7 5: sqrt(8/3) = 1.633; 9 7 5 3: sqrt(5) = 2.236; with 3: sqrt(5.44) = 2.332; with 3: 2.309
    assert sigma_max(SCORES) == pytest.approx(SPREAD_OF_FIVE)


def test_sigma_half_by_hand():
    """The cut is at half the top score, inclusive."""
    # half of 9 is 4.5: 9 7 5, sqrt(8/3); four terms: / 2
    assert sigma_half(SCORES, 4) == pytest.approx(math.sqrt(8 / 3) / 2)
    # exactly half counts: 6 and 3, spread 1.5
    assert sigma_half(np.array([2.9, 3.0, 6.0]), 1) == pytest.approx(1.5)


def test_cut_offs_use_the_whole_profile_when_it_is_small():
    """k = min(k, n): a profile of three has no top five, and its WIG is exactly 0."""
    small = np.array([0.3, 0.1, 0.2])
    assert wig(small, 1) == 0.0
    assert wig(small, 1, k=3) == wig(small, 1, k=10**6)
    assert nqc(small) == pytest.approx(np.std(small) / 0.2)


def test_nqc_reads_a_hundred_documents():
    """The depth of the design: document 101 changes the mean only."""
    scores = np.concatenate([np.arange(100, 200), [0.0] * 100]).astype(float)
    # std of 100 consecutive numbers sqrt((100² − 1) / 12); mean 149.5 / 2
    assert nqc(scores) == pytest.approx(math.sqrt(9999 / 12) / 74.75)


def test_negative_top_leaves_sigma_half_an_empty_set():
    """Half of −2 is −1, above every score: the rule for an empty set gives 0, not NaN."""
    assert sigma_half(np.array([-2.0, -3.0, -8.0]), 1) == 0.0
    # a top of 0 keeps the zeros, whose spread is 0
    assert sigma_half(np.array([0.0, 0.0, -8.0]), 1) == 0.0


def test_equal_scores_and_empty_profiles_predict_zero():
    """No personalization scores everything 0: it must get 0 from every predictor, and so must an empty profile."""
    for predict in PREDICTORS.values():
        assert predict(np.zeros(7), 3) == 0.0
        assert predict(np.full(7, 0.1), 3) == 0.0  # the rounded mean of seven times 0.1 is not 0.1
        assert predict(np.array([4.2]), 3) == 0.0
        assert predict(np.array([]), 3) == 0.0


def test_a_mean_of_rounding_errors_is_zero():
    """0.1 + 0.2 − 0.3 is 3e-17 in floats; dividing by it would make this retriever win every input."""
    assert nqc(np.array([0.1, 0.2, -0.3])) == 0.0
    assert nqc(np.array([1.0, -1.0])) == 0.0


def test_recency_as_the_paper_scores_it():
    """Reciprocal ranks 1, 1/2, 1/3, 1/4: the numbers that recency contributes to Table 4."""
    ranks = 1 / np.arange(1, 5)
    # mean 25/48; squares sum 205/144; variance 205/576 − 625/2304 = 195/2304
    assert nqc(ranks) == pytest.approx(math.sqrt(195 / 2304) * 48 / 25)
    assert sigma_half(ranks, 1) == pytest.approx(0.25)  # 1 and 1/2
    # cuts: 0, 0.25, sqrt(49/108 − 121/324) = 0.2833, sqrt(195)/48 = 0.2909
    assert sigma_max(ranks) == pytest.approx(math.sqrt(195) / 48)


def test_a_query_without_terms_counts_as_one():
    """A query whose words are all stripped must not divide by zero."""
    assert wig(SCORES, 0, k=2) == wig(SCORES, 1, k=2) == pytest.approx(3.0)
    assert sigma_half(SCORES, 0) == sigma_half(SCORES, 1)


def test_bad_input_is_refused():
    """A predictor on NaN selects at random and nobody notices."""
    for predict in PREDICTORS.values():
        for bad in (math.nan, math.inf, -math.inf):
            with pytest.raises(ValueError, match=r"finite.*place 1 and 1"):
                predict(np.array([0.0, bad]), 2)
        with pytest.raises(ValueError, match="shape"):
            predict(np.zeros((2, 2)), 2)
    with pytest.raises(ValueError, match="k must be"):
        nqc(SCORES, 0)
    with pytest.raises(ValueError, match="k must be"):
        wig(SCORES, 2, k=-1)
    for predict in (wig, sigma_half):
        with pytest.raises(ValueError, match="query_terms"):
            predict(SCORES, -1)


def test_predictors_by_name_are_the_functions():
    """Table 4 must not print one predictor under another's name."""
    assert list(PREDICTORS) == list(PREDICTOR_LABELS) == ["wig", "nqc", "sigma_max", "sigma_half"]
    assert list(PREDICTOR_LABELS.values()) == ["WIG", "NQC", "σ_max", "σ_50%"]
    by_hand = [wig(SCORES, 4), nqc(SCORES), sigma_max(SCORES), sigma_half(SCORES, 4)]
    assert [predict(SCORES, 4) for predict in PREDICTORS.values()] == by_hand
    assert len(set(by_hand)) == 4


def naive(name, scores, q):
    """The formulas of the design, read aloud."""
    s = sorted(scores, reverse=True)
    mean, root = sum(s) / len(s), math.sqrt(q)
    if name == "wig":
        k = min(5, len(s))
        return sum(x - mean for x in s[:k]) / k / root
    if name == "nqc":
        return float(np.std(s[:100])) / abs(mean)
    if name == "sigma_max":
        return max(float(np.std(s[:k])) for k in range(1, len(s) + 1))
    half = [x for x in s if x >= s[0] / 2]
    return float(np.std(half)) / root if half else 0.0


quarters = st.integers(-400, 400).map(lambda i: i / 4)  # sums of these are exact
score_lists = st.lists(quarters, min_size=1, max_size=130)


@settings(max_examples=60, deadline=None)
@given(score_lists, st.integers(1, 30), st.randoms(use_true_random=False))
def test_predictors_equal_their_formulas_in_any_order(scores, q, random):
    """The fast forms are only worth having if they give the numbers of the definitions."""
    shuffled = list(scores)
    random.shuffle(shuffled)
    for name, predict in PREDICTORS.items():
        value = predict(np.array(scores), q)
        assert predict(np.array(shuffled), q) == value
        if name == "nqc" and sum(scores) == 0:
            assert value == 0.0
        else:
            assert value == pytest.approx(naive(name, scores, q), rel=1e-10, abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(score_lists, st.sampled_from([1e6, -1e6, 2.0**40, -(2.0**40)]))
def test_sigma_max_under_a_large_offset(scores, offset):
    """Σs² − (Σs)² loses every digit once scores stand far from 0; the spread must not depend on the level."""
    shifted = np.array(scores) + offset  # exact, scores are quarters
    assert sigma_max(shifted) == pytest.approx(sigma_max(np.array(scores)), rel=1e-12, abs=1e-12)
    assert wig(shifted, 1) == pytest.approx(wig(np.array(scores), 1), rel=1e-9, abs=1e-9)


def test_sigma_max_of_many_scores_against_the_loop():
    """A profile of thousands with one outlier: the spread peaks early and falls again."""
    scores = np.concatenate([[1e4], np.random.default_rng(0).normal(size=3000)])
    ranked = np.sort(scores)[::-1]
    assert sigma_max(scores) == pytest.approx(max(np.std(ranked[:k]) for k in range(1, 3002)), rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20), st.integers(0, 9))
def test_no_predictor_is_ever_nan_or_negative(scores, q):
    """A NaN loses or wins every comparison, depending on its place; the tops are never below the profile."""
    for predict in PREDICTORS.values():
        with np.errstate(over="ignore"):
            value = predict(np.array(scores), q)
        assert type(value) is float
        assert value >= 0


@settings(max_examples=40, deadline=None)
@given(score_lists, st.integers(-60, 60))
def test_scaling_the_scores_scales_the_predictions(scores, exponent):
    """All but NQC have the unit of the scores, exactly; NQC has none."""
    scores = np.array(scores)
    for name, predict in PREDICTORS.items():
        factor = 1.0 if name == "nqc" else 2.0**exponent
        assert predict(scores * 2.0**exponent, 2) == factor * predict(scores, 2)


def test_z_scores_by_hand():
    """BM25's WIG of tens must not beat a cosine's WIG of tenths by its unit alone."""
    # column 1: mean 5, squares 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, deviation sqrt(32 / 8) = 2
    first = np.array([2.0, 4, 4, 4, 5, 5, 7, 9])
    z = z_scores(np.stack([first, np.full(8, 0.1), -first / 1000], axis=1))
    assert z[:, 0].tolist() == pytest.approx([-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0])
    assert z[:, 1].tolist() == [0.0] * 8
    assert z[:, 2].tolist() == pytest.approx((-z[:, 0]).tolist())


def test_z_scores_far_from_zero():
    """Predictions 2^50 + (0, 0, 1) have the z-scores of (0, 0, 1): −1/√2, −1/√2, √2."""
    z = z_scores(np.array([[0.0], [0.0], [1.0]]) + 2.0**50)
    assert z[:, 0].tolist() == pytest.approx([-math.sqrt(0.5), -math.sqrt(0.5), math.sqrt(2)])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 2)])
def test_z_scores_of_degenerate_tables(shape):
    """One input has no spread: every retriever stands at its own mean, 0."""
    assert np.array_equal(z_scores(np.ones(shape)), np.zeros(shape))


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=8))
def test_z_scores_are_finite_and_standard(rows):
    """Whatever the scale of a retriever, its z-scores have mean 0 and deviation 1 or are all 0."""
    values = np.array(rows)
    z = z_scores(values)
    assert z.shape == values.shape
    assert np.abs(z.mean(axis=0)).max() < 1e-9
    constant = values.min(axis=0) == values.max(axis=0)
    np.testing.assert_allclose(z.std(axis=0), np.where(constant, 0.0, 1.0), atol=1e-9)


def test_select_takes_the_highest_and_the_first_on_ties():
    """A selection must be reproducible: ties go to the member named first."""
    assert select(np.array([[0.0, 2.0, 1.0], [3.0, 3.0, 1.0], [-1.0, -1.0, -1.0]])).tolist() == [1, 0, 0]
    assert select(np.zeros((0, 2))).tolist() == []


def test_tables_of_predictions_are_checked():
    """A NaN in a table would be selected (it is argmax's favourite)."""
    for function in (select, z_scores):
        with pytest.raises(ValueError, match="input 1, retriever 0 has nan"):
            function(np.array([[0.0, 1.0], [math.nan, 1.0]]))
        with pytest.raises(ValueError, match="shape"):
            function(np.zeros(3))
    with pytest.raises(ValueError, match="empty"):
        select(np.zeros((3, 0)))
