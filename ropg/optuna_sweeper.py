"""Hydra's Optuna sweeper with a memory: a search that was interrupted goes on where it stopped.

The trials are kept as ``trials.json`` in the sweep's folder and told to Optuna when the search begins. Optuna 2's own
storage in a database is not used: it does not work with SQLAlchemy 2.1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from hydra_plugins.hydra_optuna_sweeper.optuna_sweeper import OptunaSweeper
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.trial import TrialState

from ropg.console import say
from ropg.files import write_json


class ResumableSweeper(OptunaSweeper):
    """``n_trials`` trials in all, those of earlier tries of the same command included."""

    def setup(self, **parts: Any) -> None:
        """Called by Hydra before the sweep."""
        super().setup(**parts)
        self.sweeper: Any
        self._file = Path(self.sweeper.sweep_dir) / "trials.json"
        sampler = parts["config"].hydra.sweeper.sampler
        self._seed, self._startup = int(sampler.seed or 0), int(sampler.n_startup_trials)
        self.sweeper.launcher = _Noting(self.sweeper.launcher, self._write)

    def sweep(self, arguments: list[str]) -> None:
        """Search, from the trials that the folder holds already."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        search = self.sweeper
        for name, remedy in (
            ("n_trials", "it counts earlier tries too"),
            ("n_jobs", "1 is one trial at a time"),
        ):
            if getattr(search, name) < 1:
                raise ValueError(
                    f"hydra.sweeper.{name} is {getattr(search, name)}; it must be at least 1: {remedy}"
                )
        search.storage = optuna.storages.InMemoryStorage()
        self._study = optuna.create_study(
            study_name=search.study_name, storage=search.storage, directions=search._get_directions()
        )
        known = json.loads(self._file.read_text(encoding="utf-8")) if self._file.exists() else []
        finished = [trial for trial in known if trial["state"] != "running"]
        for trial in finished:
            self._study.add_trial(
                optuna.trial.create_trial(
                    state=TrialState.COMPLETE if trial["state"] == "complete" else TrialState.FAIL,
                    value=trial["value"],
                    params=trial["params"],
                    distributions={n: json_to_distribution(d) for n, d in trial["distributions"].items()},
                )
            )
        for trial in known:  # a run that was begun is finished first
            if trial["state"] == "running":
                self._study.enqueue_trial(trial["params"])
        if finished:
            say("sweep", f"{len(finished)} trials are done already; {self._file} holds them")
            # else the sampler would draw again what it drew for the first trials
            search.sampler = optuna.samplers.TPESampler(
                seed=self._seed + len(finished), n_startup_trials=self._startup
            )
        search.n_trials = max(0, search.n_trials - len(finished))
        try:
            super().sweep(arguments)
        except ValueError as error:
            if "No trials are completed" not in str(error):
                raise
        self._write()

    def _write(self) -> None:
        trials = [
            {
                "state": {"COMPLETE": "complete", "FAIL": "failed"}.get(trial.state.name, "running"),
                "value": trial.value if trial.state == TrialState.COMPLETE else None,
                "params": trial.params or trial.system_attrs.get("fixed_params", {}),
                "distributions": {n: distribution_to_json(d) for n, d in trial.distributions.items()},
            }
            for trial in self._study.trials
        ]
        write_json(self._file, trials)


class _Noting:
    """A launcher before whose every start ``note`` is called."""

    def __init__(self, launcher: Any, note: Any) -> None:
        self._launcher, self._note = launcher, note

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Any:
        self._note()
        return self._launcher.launch(job_overrides, initial_job_idx)
