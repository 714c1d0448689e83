"""results.json: one row per task, system and metric, with interval and p-values against the others."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, get_type_hints

import numpy as np
from tqdm import tqdm

from ropg.evaluation.metrics import CorpusMetric, corpus_metric
from ropg.evaluation.significance import bootstrap_interval
from ropg.files import write_json


class Result(TypedDict):
    """One row. ``ci_low`` and ``ci_high``: 95 % bootstrap interval. ``n``: examples with a gold.

    ``p_values``: two-tailed, against each other system on the same examples, uncorrected; None where the two
    cannot be tested (no difference on any example).
    """

    task: str
    system: str
    metric: str
    value: float
    n: int
    ci_low: float
    ci_high: float
    higher_is_better: bool
    p_values: dict[str, float | None]


def compute_results(
    task: Any,
    targets: Mapping[str, str],
    predictions: Mapping[str, Mapping[str, str]],
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> list[Result]:
    """The task's metrics for every system, with intervals and tests. No target: no rows.

    Parameters
    ----------
    targets: example id -> gold. predictions: system -> example id -> output, parsed or not; more ids than
    targets are allowed (they have no gold). resamples, seed: of the bootstrap; all systems are resampled
    alike.

    Raises ValueError for a gold that is none of the task's labels, and for a prediction that is missing.

    >>> from ropg.tasks import get_task
    >>> outputs = {"bm25": {"1": "2", "2": "5"}, "none": {"1": "4", "2": "5"}}
    >>> rows = compute_results(get_task("LaMP-3"), {"1": "2", "2": "4"}, outputs)
    >>> [(row["system"], row["metric"], round(row["value"], 3)) for row in rows]
    [('bm25', 'mae', 0.5), ('bm25', 'rmse', 0.707), ('none', 'mae', 1.5), ('none', 'rmse', 1.581)]
    """
    ids = list(targets)
    if not ids:
        return []
    golds = [task.check_target(targets[i], i) for i in ids]
    texts: dict[str, list[str]] = {}
    for system, outputs in predictions.items():
        missing = [i for i in ids if i not in outputs]
        if missing:
            raise ValueError(
                f"system {system!r} has no prediction for {listed(missing)}; each with a gold needs one"
            )
        texts[system] = [task.parse(outputs[i]) for i in ids]
    metrics = [corpus_metric(name, task) for name in task.metrics]
    jobs = [(metric, system) for metric in metrics for system in texts]
    cases: dict[tuple[str, str], np.ndarray] = {}
    for metric, system in tqdm(jobs, desc="scores", unit=" system", disable=not progress, delay=2.0):
        cases[metric.name, system] = metric.cases(texts[system], golds)
    rows: list[Result] = []
    for system in texts:
        rows += [_row(task.name, system, metric, cases, list(texts), resamples, seed) for metric in metrics]
    return rows


def _row(
    task: str,
    system: str,
    metric: CorpusMetric,
    cases: Mapping[tuple[str, str], np.ndarray],
    systems: Sequence[str],
    resamples: int,
    seed: int,
) -> Result:
    own = cases[metric.name, system]
    low, high = bootstrap_interval(
        functools.partial(_value_on, metric, own), size=len(own), n=resamples, seed=seed
    )
    others = [other for other in systems if other != system]
    return Result(
        task=task,
        system=system,
        metric=metric.name,
        value=metric.value(own),
        n=len(own),
        ci_low=low,
        ci_high=high,
        higher_is_better=metric.higher_is_better,
        p_values={other: metric.p_value(own, cases[metric.name, other]) for other in others},
    )


def _value_on(metric: CorpusMetric, cases: np.ndarray, index: np.ndarray) -> float:
    return metric.value(cases[index])


def write_results(path: Path, results: Sequence[Result]) -> Path:
    """Write results.json, whole or not at all. Raises ValueError for a number that is not finite."""
    check_results(results, str(path))
    return write_json(path, list(results))


def read_results(*paths: Path) -> list[Result]:
    """The rows of one or several results.json files, of several tasks, say, for one table.

    Raises ValueError, naming the file, for what is no results.json, and for a row that stands in two files.
    """
    rows: list[Result] = []
    for path in paths:
        try:
            new = json.loads(Path(path).read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is no JSON: {error}") from error
        check_results(new, str(path))
        rows += new
    check_results(rows, " + ".join(map(str, paths)))
    return rows


def check_results(results: Any, where: str) -> None:
    """Raise ValueError for rows that lack a field, hold NaN or stand twice."""
    if not isinstance(results, Sequence) or not all(isinstance(row, Mapping) for row in results):
        raise ValueError(f"{where}: a results.json is a list of rows; write it again with evaluate.py")
    seen: set[tuple[str, str, str]] = set()
    for row in results:
        name = f"{where}: row {row.get('task')} / {row.get('system')} / {row.get('metric')}"
        lacking = [field for field in get_type_hints(Result) if field not in row]
        if lacking:
            raise ValueError(f"{name} lacks {', '.join(lacking)}")
        numbers = [row["value"], row["ci_low"], row["ci_high"], *row["p_values"].values()]
        if not all(number is None or math.isfinite(number) for number in numbers) or row["value"] is None:
            raise ValueError(f"{name} holds a number that is not finite: {numbers}")
        key = (row["task"], row["system"], row["metric"])
        if key in seen:
            raise ValueError(f"{name} stands twice; one table holds one run of each system on each task")
        seen.add(key)


def listed(ids: Sequence[str], most: int = 10) -> str:
    """Ids for a message.

    >>> listed(["1", "2", "3"], most=2)
    "'1', '2' and 1 more"
    """
    shown = ", ".join(repr(i) for i in ids[:most])
    return shown + (f" and {len(ids) - most} more" if len(ids) > most else "")
