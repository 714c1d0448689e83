"""summary.json of a selector: success rate and Eval on held-out users beside the baselines' and the bounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ropg.cli import Refused
from ropg.configuration import Config
from ropg.console import say
from ropg.costs import cost_line
from ropg.files import write_json
from rspg.choice import best_fixed, successes
from rspg.pool import PoolTable
from rspg.scorer import Scorer
from rspg.selections import PoolOutcome, compare_selections, p_values
from rspg.selector import choose
from rspg.tables import p_text


def outcome_of(
    table: PoolTable, choices: Mapping[str, list[int]], dev_rewards: Mapping[str, float] | None
) -> PoolOutcome | None:
    """All ways of choosing from a pool on the examples with a target; None where there is none.

    choices: selector -> an index into the pool for every example of the table. dev_rewards: member -> mean
    Eval on dev, from which the best fixed one follows; without them there is none.
    """
    scored = table.scored
    if not scored.any():
        return None
    fixed = None
    if dev_rewards is not None and all(name in dev_rewards for name in table.names):
        fixed = best_fixed(np.array([[dev_rewards[name] for name in table.names]]))
    return compare_selections(
        table.names,
        table.labels,
        table.rewards[scored],
        {name: values[scored] for name, values in table.predictions.items()},
        fixed,
        {name: np.asarray(chosen)[scored] for name, chosen in choices.items()},
    )


def write_summary(
    config: Config,
    task: Any,
    scorer: Scorer,
    tables: Mapping[str, PoolTable],
    folder: Path,
    llm_calls: int,
    seconds: float,
    costs: Mapping[str, Any],
) -> dict[str, Any]:
    """Choose for every held-out example and write ``summary.json``.

    ``costs``: of training, from :func:`ropg.costs.training_costs`.
    """
    dev = tables["dev"]
    dev_rewards = dict(zip(dev.names, dev.rewards[dev.scored].mean(axis=0).tolist(), strict=True))
    name = config.method.name
    outcome = outcome_of(tables["heldout"], {name: choose(scorer, task, tables["heldout"])}, dev_rewards)
    if outcome is None:
        raise Refused("no held-out example has a gold output; the trained selector lies in model/")
    found = {s.name: _means(s.success, s.reward) for s in outcome.selections}
    summary = {
        "method": name,
        "task": task.name,
        "seed": config.seed,
        "n_train": int(tables["train"].scored.sum()),
        "n_heldout": len(outcome.rewards),
        "pool": list(outcome.names),
        "heldout": {
            "selector": found.pop(name),
            "best_fixed": found.pop("best_fixed"),
            "random": found.pop("random_choice"),
            "upper": {"success_rate": 1.0, "reward": outcome.upper},
            "lower": {"success_rate": _lower_success(outcome), "reward": outcome.lower},
        },
        "qpp": found,
        "fixed": outcome.names[best_fixed(np.array([list(dev_rewards.values())]))],
        "dev_rewards": dev_rewards,
        "p_values": {
            "success_rate": p_values(outcome, of="success")[name],
            "reward": p_values(outcome, of="reward")[name],
        },
        "llm_calls": llm_calls,
        "seconds": round(seconds, 1),
        **costs,
    }
    write_json(folder / "summary.json", summary)
    for line in (*summary_lines(summary), cost_line(summary)):
        say("heldout", line)
    return summary


def _means(success: tuple[float, ...], reward: tuple[float, ...]) -> dict[str, float]:
    return {"success_rate": float(np.mean(success)), "reward": float(np.mean(reward))}


def _lower_success(outcome: PoolOutcome) -> float:
    """The success rate of the worst choice: right where all members are equal."""
    return float(successes(outcome.rewards, outcome.rewards.argmin(axis=1)).mean())


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """The summary in words."""
    heldout, p = summary["heldout"], summary["p_values"]
    rewards = ", ".join(f"{name.replace('_', ' ')} {v['reward']:.3f}" for name, v in heldout.items())
    best = max(summary["qpp"], key=lambda name: summary["qpp"][name]["success_rate"])
    shown = {
        "best fixed": p["reward"]["best_fixed"],
        "random": p["reward"]["random_choice"],
    }
    words = ", ".join(f"{'not testable' if v is None else p_text(v)} against {n}" for n, v in shown.items())
    return [
        f"Eval: {rewards} (best fixed is {summary['fixed']}); p {words}; n = {summary['n_heldout']}",
        f"success rate: selector {heldout['selector']['success_rate']:.3f}, best fixed "
        f"{heldout['best_fixed']['success_rate']:.3f}, random {heldout['random']['success_rate']:.3f}, best predictor "
        f"{best} {summary['qpp'][best]['success_rate']:.3f}",
    ]
