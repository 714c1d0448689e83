"""The held-out numbers of summary.json."""

from __future__ import annotations

import json
import math

import pytest

from ropg.evaluation.summary import expected_rewards, first_rewards, heldout_rewards, heldout_summary

REWARDS = [[0.0, 1.0], [0.2, 0.4, 0.9], [0.5]]
INITIAL = [[2.0, 1.0], [3.0, 2.0, 1.0], [0.0]]
TRAINED = [[0.0, math.log(3)], [0.0, 0.0, 0.0], [7.0]]
BM25 = [[1.0, 0.0], [0.0, 1.0, 0.0], [0.0]]


def test_by_hand_and_in_the_agreed_form():
    """Other tools read summary.json by these names; every number here can be checked on paper."""
    summary = heldout_summary(REWARDS, INITIAL, TRAINED, BM25)
    heldout = summary["heldout"]
    assert summary["n_heldout"] == 3
    assert heldout["initial"]["first_reward"] == pytest.approx((0.0 + 0.2 + 0.5) / 3)
    assert heldout["trained"]["first_reward"] == pytest.approx(
        (1.0 + 0.2 + 0.5) / 3
    )  # of equal scores the first
    assert heldout["trained"]["expected_reward"] == pytest.approx((0.75 + 0.5 + 0.5) / 3)
    assert heldout["bm25"] == {"first_reward": pytest.approx((0.0 + 0.4 + 0.5) / 3)}
    assert heldout["random"] == {"first_reward": pytest.approx((0.5 + 0.5 + 0.5) / 3)}
    assert heldout["oracle"] == {"first_reward": pytest.approx((1.0 + 0.9 + 0.5) / 3)}
    assert set(heldout) == {"initial", "trained", "bm25", "random", "oracle"}
    assert set(heldout["initial"]) == set(heldout["trained"]) == {"first_reward", "expected_reward"}
    assert set(summary["p_values"]) == {"initial", "bm25"}
    json.dumps(summary, allow_nan=False)


def test_rewards_per_query_have_the_summarys_means():
    """Runs are compared in pairs by them."""
    found = heldout_rewards(REWARDS, INITIAL, TRAINED, BM25, temperature=2.0)
    summary = heldout_summary(REWARDS, INITIAL, TRAINED, BM25, temperature=2.0)["heldout"]
    assert found["first_reward"]["trained"].tolist() == [1.0, 0.2, 0.5]
    means = {name: {"first_reward": v.mean()} for name, v in found["first_reward"].items()}
    for name, values in found["expected_reward"].items():
        means[name]["expected_reward"] = values.mean()
    assert means == summary


def test_p_values_are_the_permutation_tests():
    """Ten queries, all better than before: 2 of 2¹⁰ sign patterns are as extreme; BM25 is as good: no test."""
    n = 10
    summary = heldout_summary([[0.0, 1.0]] * n, [[1.0, 0.0]] * n, [[0.0, 1.0]] * n, [[0.0, 2.0]] * n)
    assert summary["p_values"]["initial"] == pytest.approx(2 / 2**n, abs=0.002)
    assert summary["p_values"]["bm25"] is None


def test_temperature_flattens_the_policy_only():
    """The temperature of Eq. 1 changes the expected reward, never the order."""
    hot = expected_rewards(REWARDS, TRAINED, temperature=1e9)
    assert hot.tolist() == pytest.approx([0.5, 0.5, 0.5])
    assert first_rewards(REWARDS, TRAINED).tolist() == [1.0, 0.2, 0.5]


def test_large_scores_do_not_overflow():
    """Dot products of unnormalised encoders reach hundreds."""
    assert expected_rewards([[0.0, 1.0]], [[1e4, -1e4]]).tolist() == [0.0]


@pytest.mark.parametrize(
    ("rewards", "scores", "message"),
    [
        ([[1.0]], [[1.0, 2.0]], "query 0"),
        ([[]], [[]], "query 0"),
        ([[float("nan")]], [[1.0]], "not finite"),
        ([[1.0]], [[float("inf")]], "not finite"),
        ([[1.0], [1.0]], [[1.0]], "2 queries"),
        ([], [], "no held-out query"),
    ],
)
def test_what_does_not_fit_is_refused(rewards, scores, message):
    """A summary over mismatched candidates would look fine and mean nothing."""
    with pytest.raises(ValueError, match=message):
        heldout_summary(rewards, scores, scores, scores)
