"""Made-up finished runs for the tests of studies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ropg.cli import compose
from ropg.runs import open_run

STUDY = """
title: A study
seeds: [0, 1]
finalists: 1
overrides: [optim.epochs=1]
datasets:
  small: {label: Small sample, overrides: [experiment=sample_quick]}
variants:
  good: {group: Distillation, label: KD | sharp, overrides: [method=ropg_kd]}
  poor: {label: RL, overrides: [method=ropg_rl]}
curve: {variant: good, limits: [50]}
"""


def study_file(folder: Path, text: str = STUDY) -> str:
    """A study of two variants on one data set."""
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def rewards(gain: float, queries: int = 40, seed: int = 0) -> dict[str, list[float]]:
    """First-document rewards of one run whose training gained ``gain`` on every other query."""
    draws = np.random.default_rng(7)
    initial = draws.uniform(0.1, 0.4, queries)
    trained = initial + np.where(np.arange(queries) % 2 == 0, gain, 0.0) + 0.001 * seed
    return {
        "initial": initial.tolist(),
        "trained": trained.tolist(),
        "bm25": (initial - 0.05).tolist(),
        "random": (initial - 0.1).tolist(),
        "oracle": (initial + 0.5).tolist(),
    }


def write_run(run: Path, first: dict[str, list[float]], n_train: int = 100, dev: float = 0.3) -> None:
    """What a finished run leaves, as far as a study reads it (``config.yaml`` is :func:`write_config`'s)."""
    run.mkdir(parents=True, exist_ok=True)
    ids = [f"q{i}" for i in range(len(first["trained"]))]
    heldout = {name: {"first_reward": float(np.mean(values))} for name, values in first.items()}
    summary = {"method": "ropg_kd", "seed": 0, "n_train": n_train, "n_heldout": len(ids), "heldout": heldout}
    summary |= {"p_values": {}, "llm_calls": 7, "seconds": 120.0}
    (run / "summary.json").write_text(json.dumps(summary))
    (run / "heldout.json").write_text(json.dumps({"example_ids": ids, "first_reward": first}))
    (run / "model").mkdir(exist_ok=True)
    records = [
        {"event": "evaluation", "step": step, "expected_reward": value, "first_reward": value}
        | {"oracle_reward": 0.9, "initial_reward": 0.2}
        for step, value in ((0, 0.2), (5, dev))
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def write_config(run: Path, overrides: list[str]) -> None:
    """The configuration that a command line makes."""
    config = compose(*overrides)
    with open_run(config, run):
        pass
