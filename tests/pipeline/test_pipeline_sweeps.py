"""Sweeps as they are typed: two at once on one store, jobs that fail, a search that is killed and goes on."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import hydra
import pipeline_files as files
import pytest
from hydra.core.config_store import ConfigStore

from ropg.cli import CONF
from ropg.configuration import Config

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sweep(tmp_path, overrides):
    """Starts `train.py --multirun` with tiny models and a slow LLM; stores and runs below a folder."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 6, "dev": 3, "test": 4}, documents=(4, 5))

    def start(*more: str, folder: Path = tmp_path / "both", log: Path = tmp_path / "log") -> subprocess.Popen:
        same = ["experiment=lamp_4_llama", "data.setting=null", f"data.root={root}", "llm.max_batch_size=2"]
        arguments = overrides(*same, "llm.kind=slow_llm:SlowLlama", "optim.lr=1e-2", *more, folder=folder)
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent),
            "SLOW_LLM_LOG": str(log),
            "SLOW_LLM_SECONDS": "0.05",
        }
        return subprocess.Popen(
            [sys.executable, "train.py", "--multirun", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def keys(folder: Path) -> list[str]:
    """The key of every row of every file of a store."""
    found: list[str] = []
    for path in (folder / "stores" / "generations").glob("*.sqlite"):
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        found += [key for (key,) in connection.execute("SELECT key FROM generations")]
        connection.close()
    return found


def summaries(folder: Path) -> dict[str, dict]:
    """Run name -> its summary, without what depends on who generated first."""
    found = {p.parent.name: json.loads(p.read_text()) for p in (folder / "runs").rglob("summary.json")}
    for summary in found.values():
        for name in ("llm_calls", *files.MEASURED):
            del summary[name]
    return found


def test_two_sweeps_at_once_on_one_store(sweep, tmp_path):
    """Two users, or two terminals: no error, every text generated once, the results of one after the other."""
    jobs = (["method=ropg_kd", "seed=0,1"], ["method=ropg_kd,ropg_rl", "seed=1"])  # one job is in both
    both = [sweep(*job) for job in jobs]
    printed = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    found = keys(tmp_path / "both")
    begun = (tmp_path / "log").read_text().split()
    assert len(found) == len(set(found)) == len(begun) == len(set(begun)) > 0
    for job in jobs:
        process = sweep(*job, folder=tmp_path / "alone", log=tmp_path / "alone.log")
        assert process.communicate(timeout=300)
        assert process.returncode == 0
    assert sorted(keys(tmp_path / "alone")) == sorted(found)
    assert len(summaries(tmp_path / "alone")) == 3
    assert summaries(tmp_path / "both") == summaries(tmp_path / "alone")


def test_a_failed_job_does_not_end_the_sweep(sweep, tmp_path):
    """A night's sweep must not stop at its second job; what failed is said with the remedy, and by the status."""
    process = sweep("optim.lr=1e30,1e-2", "optim.epochs=3")
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "lower optim.lr (now 1e+30)" in printed
    assert "2 jobs: 1 done, 1 failed" in printed
    (folder,) = (tmp_path / "both" / "runs" / "multirun").iterdir()
    found = json.loads((folder / "sweep.json").read_text())
    assert sorted(job["status"] for job in found["jobs"]) == ["done", "failed"]
    assert len(found["runs"]) == 1
    assert "diverged" in (folder / "sweep.md").read_text()
    assert "<svg" not in (folder / "sweep.html").read_text()


@pytest.mark.slow
def test_a_search_goes_on_with_its_trials(sweep, tmp_path):
    """A killed search has its trials; the same command with more of them searches on, elsewhere in the space."""
    pytest.importorskip("optuna")
    space = ["sweep=optuna", "method=ropg_kd"]
    first = sweep(*space, "hydra.sweeper.n_trials=2")
    printed, _ = first.communicate(timeout=300)
    assert first.returncode == 0, printed
    (folder,) = (tmp_path / "both" / "runs" / "multirun").iterdir()
    trials = json.loads((folder / "trials.json").read_text())
    trials[1] |= {"state": "running", "value": None}  # as it stands where the process was killed
    (folder / "trials.json").write_text(json.dumps(trials))
    second = sweep(*space, "hydra.sweeper.n_trials=3")
    printed, _ = second.communicate(timeout=300)
    assert second.returncode == 0, printed
    after = json.loads((folder / "trials.json").read_text())
    assert [trial["state"] for trial in after] == ["complete"] * 3
    assert after[0] == trials[0]
    assert after[1]["params"] == trials[1]["params"]
    assert (
        len({trial["params"]["method.temperature"] for trial in after}) == 3
    )  # optim.lr is given, so not searched
    assert all("optim.lr" not in trial["params"] for trial in after)
    runs = json.loads((folder / "sweep.json").read_text())["runs"]
    values = sorted(run["values"]["dev_expected"] for run in runs)
    assert values == pytest.approx(sorted(trial["value"] for trial in after))  # dev, never the held-out users


@pytest.mark.parametrize("number", ["n_trials=0", "n_jobs=0"])
def test_a_search_of_nothing_is_refused(sweep, tmp_path, number):
    """It would end at once with nothing to show and no word why, or never."""
    pytest.importorskip("optuna")
    process = sweep("sweep=optuna", "method=ropg_kd", f"hydra.sweeper.{number}")
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"error: hydra.sweeper.{number.replace('=', ' is ')}; it must be at least 1" in printed
    assert "Traceback" not in printed


@pytest.mark.slow
def test_jobs_of_a_queue(sweep, tmp_path):
    """submitit runs every job in a process of its own: outcomes come back, and the exit status with them."""
    pytest.importorskip("submitit")
    process = sweep("launcher=local", "seed=0,1", "optim.lr=1e-2,-1")
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 1, printed
    assert "4 jobs: 2 done, 2 failed" in printed
    found = keys(tmp_path / "both")
    assert len(found) == len(set(found))


def test_the_launcher_for_slurm_composes():
    """A queue that refuses its settings does so after hours of waiting."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    ConfigStore.instance().store(name="schema", node=Config)
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        found = hydra.compose("config", ["launcher=slurm"], return_hydra_config=True)
    launcher = found.hydra.launcher
    assert launcher._target_.endswith("SlurmLauncher")
    assert launcher.timeout_min > 0
    assert launcher.gpus_per_node == 1
    assert launcher.additional_parameters == {"requeue": True}
