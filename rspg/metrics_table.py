"""The paper's Table 5 in the task's own metrics: Pre and Post with and without ROPG beside the oracle's bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ropg.evaluation.metrics import metric_title
from ropg.evaluation.results import Result, compute_results
from ropg.evaluation.tables import LABELS, Cell
from rspg.pool import PoolTable
from rspg.tables import ALPHA, SelectionTable

LOWER, UPPER = "oracle_lower", "oracle_upper"
_WITHOUT = " without"


def metrics_table(
    task: Any,
    table: PoolTable,
    choices: Mapping[str, Mapping[str, Sequence[int]]],
    untrained: Sequence[str],
    *,
    alpha: float = ALPHA,
    seed: int = 0,
) -> SelectionTable:
    """A column per metric of the task, a row per selector and pool, and the oracle's bounds of the whole pool.

    Parameters
    ----------
    choices: "with" and "without" -> selector -> Q indices into the whole pool, and into that of ``untrained``.

    The oracle chooses by Eval, input by input: metrics of a whole corpus, F1 and RMSE, need not lie between its
    bounds. Raises ValueError where no example has a target.
    """
    if not table.scored.any():
        raise ValueError("no example has a target: there is nothing to compute a metric of")
    golds = {i: y for i, y in zip(table.example_ids, table.targets, strict=True) if y is not None}
    rewards = np.where(table.scored[:, None], table.rewards, 0.0)
    ways = {}
    for name, chosen in choices["with"].items():
        if name in choices["without"]:
            ways[name + _WITHOUT] = table.restricted(untrained).texts(choices["without"][name])
        ways[name] = table.texts(chosen)
    ways[LOWER] = table.texts(rewards.argmin(axis=1).tolist())
    ways[UPPER] = table.texts(rewards.argmax(axis=1).tolist())
    results = compute_results(task, golds, ways, resamples=1, seed=seed, progress=False)
    found = {(row["metric"], row["system"]): row for row in results}
    metrics = list(dict.fromkeys(row["metric"] for row in results))
    rows = [(Cell(_label(way)), *(_cell(found, metric, way, alpha) for metric in metrics)) for way in ways]
    notes = [
        f"n (inputs with a gold): {len(golds)}. ↑ higher is better, ↓ lower is better.",
        "The oracle chooses the worst or the best retriever of the whole pool by Eval, input by input; a metric of "
        "the whole corpus (F1, RMSE) need not lie between its bounds.",
    ]
    if choices["without"]:
        notes.append(f"* significantly better than w/o ROPG (p < {alpha:g}, two-tailed, not corrected).")
    return SelectionTable(
        "Table 5 in the task's metrics",
        ("Chosen by", *(_title(metric, results) for metric in metrics)),
        tuple(rows),
        tuple(notes),
    )


def _cell(found: Mapping[tuple[str, str], Result], metric: str, way: str, alpha: float) -> Cell:
    row, other = found[metric, way], found.get((metric, way + _WITHOUT))
    mark = ""
    if other is not None:
        p = row["p_values"][way + _WITHOUT]
        better = (row["value"] > other["value"]) == row["higher_is_better"] and row["value"] != other["value"]
        mark = "*" if better and p is not None and p < alpha else ""
    return Cell(f"{row['value']:.3f}", mark)


def _title(metric: str, results: Sequence[Result]) -> str:
    higher = next(row["higher_is_better"] for row in results if row["metric"] == metric)
    return f"{metric_title(metric)} {'↑' if higher else '↓'}"


def _label(way: str) -> str:
    name = way.removesuffix(_WITHOUT)
    label = {LOWER: "Oracle, lower", UPPER: "Oracle, upper"}.get(way) or LABELS.get(name, name)
    return f"{label} w/o ROPG" if way.endswith(_WITHOUT) else label
