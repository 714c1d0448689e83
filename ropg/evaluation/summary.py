"""The held-out part of summary.json: what a trained retriever is worth on stored feedback, without an LLM.

Legend: Q queries; query i has K_i candidates, the same ones for every system. ``rewards`` and the scores of a
system are Q lists of K_i numbers in one candidate order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ropg.evaluation.significance import paired_permutation

Rows: TypeAlias = Sequence[Sequence[float]]


def first_rewards(rewards: Rows, scores: Rows) -> np.ndarray:
    """Eval of each query's highest-scored candidate, (Q,); of equal scores the first counts.

    >>> first_rewards([[0.1, 0.9], [0.5, 0.2]], [[2.0, 1.0], [3.0, 3.0]]).tolist()
    [0.1, 0.5]
    """
    return np.array([r[int(np.argmax(s))] for r, s in _rows(rewards, scores)], dtype=np.float64)


def expected_rewards(rewards: Rows, scores: Rows, temperature: float = 1.0) -> np.ndarray:
    """Σ_d π(d|x) Eval(d) of each query, (Q,); π is Eq. 1, the softmax of score / temperature.

    >>> expected_rewards([[0.0, 1.0]], [[0.0, float(np.log(3.0))]]).round(6).tolist()
    [0.75]
    """
    values = []
    for r, s in _rows(rewards, scores):
        weights = np.exp((s - s.max()) / temperature)
        values.append(float(weights @ r / weights.sum()))
    return np.array(values, dtype=np.float64)


def heldout_rewards(
    rewards: Rows, initial: Rows, trained: Rows, bm25: Rows, *, temperature: float = 1.0
) -> dict[str, dict[str, np.ndarray]]:
    """``first_reward`` and ``expected_reward`` of each system per query, (Q,), whose means the summary holds.

    Raises ValueError as :func:`heldout_summary`.

    >>> heldout_rewards([[0.0, 1.0]], [[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 1.0]])["first_reward"]["trained"].tolist()
    [1.0]
    """
    if not len(rewards):
        raise ValueError("no held-out query has feedback; look at the counts of the candidates")
    return {
        "first_reward": {
            "initial": first_rewards(rewards, initial),
            "trained": first_rewards(rewards, trained),
            "bm25": first_rewards(rewards, bm25),
            "random": np.array([float(np.mean(r)) for r in rewards]),
            "oracle": np.array([float(np.max(r)) for r in rewards]),
        },
        "expected_reward": {
            name: expected_rewards(rewards, scores, temperature)
            for name, scores in (("initial", initial), ("trained", trained))
        },
    }


def heldout_summary(
    rewards: Rows,
    initial: Rows,
    trained: Rows,
    bm25: Rows,
    *,
    temperature: float = 1.0,
    flips: int = 9999,
    seed: int = 0,
) -> dict[str, Any]:
    """``n_heldout``, ``heldout`` and ``p_values`` of summary.json.

    ``first_reward``: mean Eval of the first-ranked candidate; ``random``: its expectation for a candidate
    drawn uniformly; ``oracle``: of the best candidate; ``expected_reward``: mean of Σ_d π(d|x) Eval(d).
    ``p_values``: the trained retriever's first reward against the initial one's and BM25's, two-tailed paired
    permutation with ``flips`` sign flips; None where no query differs.

    Raises ValueError without queries, for a query without candidates, for numbers that are not finite, and
    where rewards and scores differ in length.

    >>> s = heldout_summary([[0.0, 1.0]] * 3, [[1.0, 0.0]] * 3, [[0.0, 1.0]] * 3, [[0.0, 1.0]] * 3)
    >>> s["heldout"]["trained"]["first_reward"], s["heldout"]["random"], s["p_values"]["bm25"]
    (1.0, {'first_reward': 0.5}, None)
    """
    found = heldout_rewards(rewards, initial, trained, bm25, temperature=temperature)
    first = found["first_reward"]
    heldout: dict[str, dict[str, float]] = {
        name: {"first_reward": float(values.mean())} for name, values in first.items()
    }
    for name, values in found["expected_reward"].items():
        heldout[name]["expected_reward"] = float(values.mean())
    p_values = {
        name: paired_permutation(first["trained"], first[name], n=flips, seed=seed)
        for name in ("initial", "bm25")
    }
    return {"n_heldout": len(rewards), "heldout": heldout, "p_values": p_values}


def _rows(rewards: Rows, scores: Rows) -> list[tuple[np.ndarray, np.ndarray]]:
    if len(rewards) != len(scores):
        raise ValueError(f"rewards of {len(rewards)} queries and scores of {len(scores)}")
    rows = []
    for i, (reward, score) in enumerate(zip(rewards, scores, strict=True)):
        r, s = np.asarray(reward, dtype=np.float64), np.asarray(score, dtype=np.float64)
        if r.ndim != 1 or r.shape != s.shape or r.size == 0:
            raise ValueError(
                f"query {i}: rewards of shape {r.shape}, scores of shape {s.shape}; one each per candidate"
            )
        if not (np.isfinite(r).all() and np.isfinite(s).all()):
            raise ValueError(
                f"query {i}: a reward or a score is not finite; check the weights of the retriever"
            )
        rows.append((r, s))
    return rows
