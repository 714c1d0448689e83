"""What choices are worth: success, rewards, winning rates, bounds and agreement, by hand and as properties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rspg.choice import (
    agreement,
    best_fixed,
    bounds,
    chosen_rewards,
    random_choice,
    successes,
    winning_rates,
)

# five inputs, three retrievers; the best are {0}, {1, 2}, {0, 1, 2}, {2}, {1}
REWARDS = np.array(
    [
        [1.0, 0.0, 0.5],
        [0.2, 0.8, 0.8],
        [0.4, 0.4, 0.4],
        [0.0, 0.1, 0.3],
        [0.3, 0.6, 0.0],
    ]
)


def test_success_and_reward_of_choices_by_hand():
    """Table 4: choosing any of the tied best is a success."""
    chosen = np.array([0, 2, 1, 1, 0])
    assert successes(REWARDS, chosen).tolist() == [True, True, True, False, False]
    assert chosen_rewards(REWARDS, chosen).tolist() == [1.0, 0.8, 0.4, 0.1, 0.3]


def test_winning_rates_by_hand():
    """Figure 3: every tied best counts one, so 8 wins of 5 inputs are shared 2 : 3 : 3."""
    # retriever 0 wins inputs 0, 2; retriever 1 wins 1, 2, 4; retriever 2 wins 1, 2, 3
    assert winning_rates(REWARDS).tolist() == pytest.approx([2 / 8, 3 / 8, 3 / 8])


def test_random_choice_by_hand():
    """The floor that a selector must beat: the share of best members and the mean reward of each input."""
    success, reward = random_choice(REWARDS)
    assert success.tolist() == pytest.approx([1 / 3, 2 / 3, 1.0, 1 / 3, 1 / 3])
    assert reward.tolist() == pytest.approx([0.5, 0.6, 0.4, 0.4 / 3, 0.3])


def test_random_choice_among_equals_stays_within_the_bounds():
    """The rounded mean of three times 0.1 is above 0.1: chance would beat the oracle."""
    rewards = np.full((1, 3), 0.1)
    assert rewards.mean() > 0.1
    assert random_choice(rewards)[1].tolist() == [0.1]


def test_bounds_and_best_fixed_by_hand():
    """Table 5: the oracle takes the best, or worst, of each input; a fixed retriever the best mean."""
    lower, upper = bounds(REWARDS)
    assert lower.tolist() == [0.0, 0.2, 0.4, 0.0, 0.0]
    assert upper.tolist() == [1.0, 0.8, 0.4, 0.3, 0.6]
    # sums 1.9, 1.9, 2.0
    assert best_fixed(REWARDS) == 2
    assert best_fixed(REWARDS[:, :2]) == 0


def test_ties_within_rounding_count_as_ties():
    """Two ROUGE scores that differ in the last bit are one answer: the win is shared, not given to noise."""
    rewards = np.array([[0.1 + 0.2, 0.3, 0.3 - 2e-9]])
    assert [bool(successes(rewards, np.array([i]))[0]) for i in range(3)] == [True, True, False]
    assert winning_rates(rewards).tolist() == [0.5, 0.5, 0.0]
    # the same rewards summed in another order differ by rounding; the first retriever still wins the tie
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    assert best_fixed(np.array([[0.3, 0.1], [0.2, 0.2], [0.1, 0.3]])) == 0
    for a, b in ((0, 1), (1, 0)):
        told = agreement(np.array([a]), np.array([b]), rewards)
        assert (told["same_reward"], told["a_better"], told["b_better"]) == (1.0, 0.0, 0.0)


def test_agreement_by_hand():
    """The table of where Pre and Post part ways must add up and say who is right there."""
    a = np.array([0, 1, 0, 1, 1])
    b = np.array([0, 2, 1, 2, 0])
    # input 0: same; 1 and 2: different with equal reward; 3: 0.1 against 0.3; 4: 0.6 against 0.3
    # within inputs 1 to 4, a is right on 1, 2, 4 and b on 1, 2, 3
    assert agreement(a, b, REWARDS) == {
        "n": 5,
        "same_choice": 0.2,
        "same_reward": 0.4,
        "a_better": 0.2,
        "b_better": 0.2,
        "n_different": 4,
        "a_success": 0.75,
        "b_success": 0.75,
    }


def test_agreement_of_a_selector_with_itself():
    """Without disagreement there is no success rate: None, which JSON can hold, and not NaN."""
    a = np.zeros(5, dtype=int)
    told = agreement(a, a, REWARDS)
    assert told["same_choice"] == 1.0
    assert told["n_different"] == 0
    assert told["a_success"] is None
    assert told["b_success"] is None


def test_two_equal_retrievers_share_the_win_by_hand():
    """A member listed twice must not look twice as good, nor half."""
    twice = REWARDS[:, [0, 1, 1]]
    # retriever 0 wins 0 and 2, its rivals 1, 2, 3, 4 each: 2 : 4 : 4
    assert winning_rates(twice).tolist() == pytest.approx([0.2, 0.4, 0.4])


evals = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]))


@st.composite
def feedback(draw):
    """(Q, R) rewards and two (Q,) choices."""
    q, r = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rewards = draw(st.lists(st.lists(evals, min_size=r, max_size=r), min_size=q, max_size=q))
    choices = [draw(st.lists(st.integers(0, r - 1), min_size=q, max_size=q)) for _ in range(2)]
    return np.array(rewards), np.array(choices[0]), np.array(choices[1])


@settings(max_examples=60, deadline=None)
@given(feedback())
def test_bounds_enclose_every_choice(case):
    """A selector outside the oracle bounds would mean that the table mixes rewards."""
    rewards, chosen, _ = case
    lower, upper = bounds(rewards)
    for values in (chosen_rewards(rewards, chosen), random_choice(rewards)[1]):
        assert (lower <= values).all()
        assert (values <= upper).all()
    best = rewards.argmax(axis=1)
    assert np.array_equal(chosen_rewards(rewards, best), upper)
    assert successes(rewards, best).all()


@settings(max_examples=60, deadline=None)
@given(feedback())
def test_winning_rates_are_shares(case):
    """Figure 3 is a distribution over the pool, and a copy of a member gets exactly what the member gets."""
    rewards, _, _ = case
    assert winning_rates(rewards).sum() == pytest.approx(1.0)
    with_copy = winning_rates(np.hstack([rewards, rewards[:, :1]]))
    assert with_copy[0] == with_copy[-1]


@settings(max_examples=60, deadline=None)
@given(feedback(), st.randoms(use_true_random=False))
def test_the_order_of_the_pool_does_not_matter(case, random):
    """Permuting the pool permutes winning rates and leaves what choices are worth."""
    rewards, chosen, _ = case
    order = list(range(rewards.shape[1]))
    random.shuffle(order)
    mixed = rewards[:, order]
    renamed = np.argsort(order)[chosen]
    assert np.array_equal(winning_rates(mixed), winning_rates(rewards)[order])
    assert np.array_equal(successes(mixed, renamed), successes(rewards, chosen))
    assert np.array_equal(bounds(mixed), bounds(rewards))
    np.testing.assert_allclose(random_choice(mixed), random_choice(rewards), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(feedback())
def test_random_choice_is_the_mean_over_all_fixed_choices(case):
    """The expectation is exact: no draw, so no seed in the table."""
    rewards, _, _ = case
    q, r = rewards.shape
    fixed = [np.full(q, i) for i in range(r)]
    success, reward = random_choice(rewards)
    np.testing.assert_allclose(success, np.mean([successes(rewards, c) for c in fixed], axis=0))
    np.testing.assert_allclose(reward, np.mean([chosen_rewards(rewards, c) for c in fixed], axis=0))
    # and no fixed retriever beats the best one
    best = chosen_rewards(rewards, fixed[best_fixed(rewards)]).mean()
    assert all(chosen_rewards(rewards, c).mean() <= best + 1e-9 for c in fixed)


@settings(max_examples=60, deadline=None)
@given(feedback())
def test_agreement_adds_up_and_is_symmetric(case):
    """The four shares are of the same inputs, and swapping the selectors swaps their columns."""
    rewards, a, b = case
    told, swapped = agreement(a, b, rewards), agreement(b, a, rewards)
    assert sum(told[k] for k in ("same_choice", "same_reward", "a_better", "b_better")) == pytest.approx(1.0)
    assert (told["a_better"], told["b_better"]) == (swapped["b_better"], swapped["a_better"])
    assert (told["a_success"], told["b_success"]) == (swapped["b_success"], swapped["a_success"])


OF_REWARDS = {
    "successes": lambda r: successes(r, np.zeros(len(r), dtype=int)),
    "chosen_rewards": lambda r: chosen_rewards(r, np.zeros(len(r), dtype=int)),
    "winning_rates": winning_rates,
    "random_choice": random_choice,
    "bounds": bounds,
    "best_fixed": best_fixed,
    "agreement": lambda r: agreement(np.zeros(len(r), dtype=int), np.zeros(len(r), dtype=int), r),
}


@pytest.mark.parametrize("name", OF_REWARDS)
def test_bad_rewards_are_refused(name):
    """A missing generation shows as NaN: it must stop the table, with its place, and not count as a loss."""
    function = OF_REWARDS[name]
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="input 1, retriever 0 has"):
            function(np.array([[0.0, 1.0], [bad, 1.0]]))
    with pytest.raises(ValueError, match="shape"):
        function(np.zeros(3))
    with pytest.raises(ValueError, match="the pool is empty"):
        function(np.zeros((3, 0)))


@pytest.mark.parametrize("name", ["winning_rates", "best_fixed", "agreement"])
def test_rates_without_inputs_are_refused(name):
    """0 / 0 is no rate."""
    with pytest.raises(ValueError, match="no input"):
        OF_REWARDS[name](np.zeros((0, 2)))


def test_no_inputs_give_no_values():
    """What is one value per input is simply empty."""
    none = np.zeros((0, 2))
    for name in ("successes", "chosen_rewards"):
        assert OF_REWARDS[name](none).shape == (0,)
    assert [v.shape for v in (*bounds(none), *random_choice(none))] == [(0,)] * 4


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([0, 1], "one index for each of the 5 inputs"),
        ([[0], [1], [0], [1], [0]], "one index for each"),
        ([0.0, 1.0, 0.0, 1.0, 2.0], "whole numbers"),
        ([True, False, True, False, True], "whole numbers"),
        ([0, 1, 2, 3, 0], "0 to 2: found 3"),
        ([0, 1, 2, -1, 0], "0 to 2: found -1"),
    ],
)
def test_bad_choices_are_refused(chosen, message):
    """Index −1 would quietly be the last retriever of the pool; a bool mask would pick by accident."""
    chosen = np.array(chosen)
    with pytest.raises(ValueError, match=message):
        successes(REWARDS, chosen)
    with pytest.raises(ValueError, match=message):
        chosen_rewards(REWARDS, chosen)
    with pytest.raises(ValueError, match=message):
        agreement(np.zeros(5, dtype=int), chosen, REWARDS)
