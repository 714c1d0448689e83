"""What a choice of retrievers is worth, from the feedback on every pool member.

Shapes, everywhere in this module:

    Q  inputs
    R  retrievers of the pool

``rewards`` is (Q, R): Eval of the answer that the LLM gave to input q with what retriever r found, higher
is better. ``chosen`` is (Q,): the index of the retriever that a selector picked for each input. Rewards
closer than ``TIE`` count as equal, since Eval is a ratio computed in floating point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TIE = 1e-9


def successes(rewards: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Whether each choice is among the best of the pool for its input. -> (Q,) bool

    The mean is the success rate of the paper's Table 4.

    Raises ValueError for rewards that are not a finite (Q, R) with R at least 1, and for choices that are
    not one index from 0 to R − 1 for each input.

    >>> successes(np.array([[0.2, 0.9, 0.9], [0.5, 0.1, 0.0]]), np.array([2, 1])).tolist()
    [True, False]
    """
    rewards = _check_rewards(rewards)
    return chosen_rewards(rewards, chosen) >= rewards.max(axis=1) - TIE


def chosen_rewards(rewards: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Eval of each choice. -> (Q,)

    Raises ValueError as :func:`successes`.

    >>> chosen_rewards(np.array([[0.2, 0.9, 0.9], [0.5, 0.1, 0.0]]), np.array([2, 1])).tolist()
    [0.9, 0.1]
    """
    rewards = _check_rewards(rewards)
    return rewards[np.arange(len(rewards)), _check_chosen(chosen, rewards, "chosen")]


def winning_rates(rewards: np.ndarray) -> np.ndarray:
    """How often each retriever is the best of the pool (the paper's Figure 3). -> (R,)

    Every tied best counts one; the counts are divided by their sum, so the rates sum to 1.

    Raises ValueError for rewards that are not a finite (Q, R) with Q and R at least 1.

    >>> winning_rates(np.array([[1.0, 1.0], [0.0, 0.4], [0.3, 0.2]])).tolist()
    [0.5, 0.5]
    """
    counts = _is_best(_check_rewards(rewards, at_least_one=True)).sum(axis=0)  # (R,)
    return counts / counts.sum()


def random_choice(rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expectations under a uniform choice from the pool: success and Eval of each input. -> (Q,), (Q,)

    Raises ValueError for rewards that are not a finite (Q, R) with R at least 1.

    >>> success, reward = random_choice(np.array([[0.25, 1.0, 1.0, 0.75]]))
    >>> success.tolist(), reward.tolist()
    ([0.5], [0.75])
    """
    rewards = _check_rewards(rewards)
    # the rounded mean of three times 0.1 is above 0.1, and no expectation may leave the bounds
    mean = np.clip(rewards.mean(axis=1), *bounds(rewards))
    return _is_best(rewards).mean(axis=1), mean


def bounds(rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The oracle's lower and upper bound of Eval for each input (the paper's Table 5). -> (Q,), (Q,)

    They enclose every choice, input by input and so in the mean. Corpus metrics such as F1 have no such
    guarantee.

    Raises ValueError for rewards that are not a finite (Q, R) with R at least 1.

    >>> lower, upper = bounds(np.array([[0.2, 0.9, 0.4], [0.5, 0.5, 0.5]]))
    >>> lower.tolist(), upper.tolist()
    ([0.2, 0.5], [0.9, 0.5])
    """
    rewards = _check_rewards(rewards)
    return rewards.min(axis=1), rewards.max(axis=1)


def best_fixed(rewards: np.ndarray) -> int:
    """Index of the retriever with the highest mean Eval, the first one on ties.

    Give it the rewards of dev: chosen on the inputs it is reported for, it would be an oracle.

    Raises ValueError for rewards that are not a finite (Q, R) with Q and R at least 1.

    >>> best_fixed(np.array([[0.0, 0.5, 1.0], [0.5, 0.5, 0.0]]))
    1
    """
    means = _check_rewards(rewards, at_least_one=True).mean(axis=0)  # (R,)
    return int((means >= means.max() - TIE).argmax())


def agreement(a: np.ndarray, b: np.ndarray, rewards: np.ndarray) -> dict[str, Any]:
    """Where two selectors part ways, and which of them is right there.

    Parameters
    ----------
    a, b: (Q,) choices of the two selectors.
    rewards: (Q, R).

    Returns
    -------
    ``n``: the number of inputs. Four shares of all inputs that sum to 1: ``same_choice``, both chose the
    same retriever; ``same_reward``, different ones of equal Eval; ``a_better``; ``b_better``.
    ``n_different``: the number of inputs where the choices differ; ``a_success`` and ``b_success``: the
    success rate of each selector within those, None where there are none.

    Raises ValueError as :func:`successes`, and where there are no inputs.

    >>> rewards = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.2, 0.2, 0.9], [0.0, 0.3, 0.6]])
    >>> for name, value in agreement(np.array([0, 0, 0, 1]), np.array([0, 1, 1, 2]), rewards).items():
    ...     print(name, value)
    n 4
    same_choice 0.25
    same_reward 0.25
    a_better 0.25
    b_better 0.25
    n_different 3
    a_success 0.3333333333333333
    b_success 0.3333333333333333
    """
    rewards = _check_rewards(rewards, at_least_one=True)
    a, b = _check_chosen(a, rewards, "a"), _check_chosen(b, rewards, "b")
    different = a != b  # (Q,)
    gain = chosen_rewards(rewards, a) - chosen_rewards(rewards, b)  # (Q,), 0 where the choice is the same
    n_different = int(different.sum())
    return {
        "n": len(rewards),
        "same_choice": float(np.mean(~different)),
        "same_reward": float(np.mean(different & (np.abs(gain) <= TIE))),
        "a_better": float(np.mean(gain > TIE)),
        "b_better": float(np.mean(gain < -TIE)),
        "n_different": n_different,
        "a_success": float(successes(rewards, a)[different].mean()) if n_different else None,
        "b_success": float(successes(rewards, b)[different].mean()) if n_different else None,
    }


def _is_best(rewards: np.ndarray) -> np.ndarray:
    """Which retrievers are the best for each input, all the tied ones. (Q, R) -> (Q, R) bool"""
    return rewards >= rewards.max(axis=1, keepdims=True) - TIE


def _check_rewards(rewards: np.ndarray, at_least_one: bool = False) -> np.ndarray:
    """The rewards as a float64 (Q, R)."""
    rewards = np.asarray(rewards, dtype=np.float64)
    if rewards.ndim != 2:
        raise ValueError(f"rewards must have shape (inputs, retrievers), not {rewards.shape}")
    if rewards.shape[1] == 0:
        raise ValueError("the pool is empty: rewards need a column for each retriever, at least one")
    if at_least_one and len(rewards) == 0:
        raise ValueError("rewards hold no input: there is nothing to take a mean over")
    bad = ~np.isfinite(rewards)
    if bad.any():
        q, r = (int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"rewards must be finite: input {q}, retriever {r} has {rewards[q, r]}, and {int(bad.sum())} "
            "are not in all; score every pool member on every input first"
        )
    return rewards


def _check_chosen(chosen: np.ndarray, rewards: np.ndarray, name: str) -> np.ndarray:
    """The choices as whole numbers (Q,) within the pool."""
    chosen = np.asarray(chosen)
    q, r = rewards.shape
    if chosen.shape != (q,):
        raise ValueError(f"{name} must hold one index for each of the {q} inputs, not shape {chosen.shape}")
    if not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(f"{name} must be whole numbers, indices of retrievers, not {chosen.dtype}")
    outside = chosen[(chosen < 0) | (chosen >= r)]
    if outside.size:
        raise ValueError(f"{name} must be indices from 0 to {r - 1}: found {int(outside[0])}")
    return chosen
