"""What a finished run says: rewards of every held-out query, what it cost, how it got there."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ropg.runs import RunError, decides, decisive, load_config, read_json

#: The systems whose first-document reward a run reports.
SYSTEMS = ("initial", "trained", "bm25", "random", "oracle")
_REMEDY = "delete it, and the same command writes it again"


@dataclass(frozen=True)
class Outcome:
    """One run.

    example_ids: the held-out queries, Q of them.
    first_reward: system -> (Q,), Eval of its first-ranked candidate.
    dev: the dev evaluation whose weights were kept. history: all of them.
    llm_calls: texts or likelihoods that no run before had asked for.
    cost: seconds, train_seconds, peak_memory_mib, trainable_parameters, as far as the run says them.
    """

    run: Path
    example_ids: tuple[str, ...]
    first_reward: Mapping[str, np.ndarray]
    dev: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    n_train: int
    llm_calls: int
    cost: Mapping[str, float]

    @property
    def room(self) -> float:
        """Mean reward of the best candidates minus that of the initial encoder's first."""
        return float(self.first_reward["oracle"].mean() - self.first_reward["initial"].mean())

    @property
    def dev_gap_closed(self) -> float:
        """Share of the gap to the oracle that the kept weights close on dev: what finalists are chosen by."""
        room = self.dev["oracle_reward"] - self.dev["initial_reward"]
        return (self.dev["first_reward"] - self.dev["initial_reward"]) / room if room > 0 else 0.0


def finished(run: Path, overrides: Sequence[str]) -> bool:
    """Whether a run is done and was made with these overrides.

    Raises RunError where the folder holds another run, as it would when it is run.
    """
    from ropg.cli import compose
    from ropg.runs import changes

    if not all((run / name).exists() for name in ("summary.json", "heldout.json", "model", "config.yaml")):
        return False
    wanted, before = compose(*overrides), load_config(run)
    parts = decides(wanted)
    if differing := changes(decisive(before, parts), decisive(wanted, parts)):
        raise RunError(
            f"{run} was made with other settings ({'; '.join(differing)}); move the folder away, and the study runs it "
            "anew"
        )
    return True


def read_outcome(run: Path) -> Outcome:
    """Read a finished run. Raises RunError, naming the file, for one that is damaged or not finished."""
    from ropg.evaluation.plots import read_metrics
    from ropg.sweep import chosen_by

    summary = read_json(run / "summary.json", _REMEDY)
    path = run / "heldout.json"
    heldout = read_json(path, _REMEDY)
    try:
        ids = tuple(map(str, heldout["example_ids"]))
        first = {name: np.array(heldout["first_reward"][name], dtype=np.float64) for name in SYSTEMS}
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged ({error}); {_REMEDY}") from error
    for name, values in first.items():
        if values.shape != (len(ids),) or not np.isfinite(values).all():
            raise RunError(f"{path}: {name} has no finite reward for each of {len(ids)} queries; {_REMEDY}")
    history = read_metrics(run / "metrics.jsonl")
    if not history:
        raise RunError(f"{run / 'metrics.jsonl'} has no evaluation; delete the run's folder and train again")
    measure = chosen_by(run)
    names = ("seconds", "train_seconds", "peak_memory_mib", "trainable_parameters")
    cost = {n: float(summary[n]) for n in names if _is_number(summary.get(n))}
    return Outcome(
        run=run,
        example_ids=ids,
        first_reward=first,
        dev=max(history, key=lambda record: record[measure]),
        history=history,
        n_train=int(summary.get("n_train", 0)),
        llm_calls=int(summary.get("llm_calls", 0)),
        cost=cost,
    )


def read_end_metric(path: Path, metric: str) -> dict[str, dict[str, Any]]:
    """System -> its record of ``metric`` in an evaluation's results.json. Raises RunError for a damaged file."""
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        return {r["system"]: r for r in records if r["metric"] == metric}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunError(f"{path} is damaged ({error}); {_REMEDY}") from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
