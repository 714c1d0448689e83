"""rspg.json: what the tables of retriever selection say, as plain data."""

from __future__ import annotations

from typing import Any

from rspg.selections import PoolOutcome, p_values, wilson_interval
from rspg.tables import agreement_of, gain_of, pools_of


def rspg_json(
    with_ropg: PoolOutcome,
    without: PoolOutcome | None = None,
    *,
    note_without: str = "",
    distinct_prompts: float | None = None,
) -> dict[str, Any]:
    """Everything that the tables say, for rspg.json: plain data, None where there is nothing, never NaN.

    ``n``, ``pool`` (a row per retriever), ``bounds``, ``selections`` (a row per way of choosing, p-values of
    selectors against the others), ``agreement`` of Pre (a) and Post (b), ``distinct_prompts``; ``without``: the
    same of the pool without ROPG, with its ``note``; ``gains``: mean Eval with ROPG minus without, and p.
    """
    pools = pools_of(with_ropg, without)
    told = _plain(with_ropg) | {"distinct_prompts": distinct_prompts, "without": None, "gains": None}
    if without is not None:
        told["without"] = _plain(without) | {"note": note_without}
        told["gains"] = {}
        for s in with_ropg.selections:
            gain, p = gain_of(without.selection(s.name), s, binary=all(pool.binary for pool in pools))
            told["gains"][s.name] = {"reward": gain, "p": p}
    return told


def _plain(outcome: PoolOutcome) -> dict[str, Any]:
    """One pool's outcome as plain data."""
    successes, rewards = p_values(outcome), p_values(outcome, of="reward")
    pool = [
        {
            "name": name,
            "label": label,
            "winning_rate": float(win),
            "among_best": float(share),
            "reward": float(mean),
        }
        for name, label, win, share, mean in zip(
            outcome.names,
            outcome.labels,
            outcome.winning,
            outcome.among_best,
            outcome.rewards.mean(axis=0),
            strict=True,
        )
    ]
    selections = []
    for s in outcome.selections:
        low, high = wilson_interval(s.success_rate, len(s.success))
        row = {"name": s.name, "label": s.label, "kind": s.kind, "success_rate": s.success_rate}
        row |= {"ci_low": low, "ci_high": high, "reward": s.mean_reward}
        row |= {"p_success": successes.get(s.name), "p_reward": rewards.get(s.name)}
        selections.append(row)
    return {
        "n": len(outcome.rewards),
        "pool": pool,
        "bounds": {"lower": outcome.lower, "upper": outcome.upper},
        "selections": selections,
        "agreement": agreement_of(outcome),
    }
