"""--multirun: every job is carried out, whatever becomes of the others, and the sweep ends with a summary.

A sweep has a folder below ``run.root/multirun``, named after its command, so that the same command finds it again. Each
job leaves its outcome there as ``jobs/<hash of its overrides>.json``, whichever process it ran in.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from ropg.console import say
from ropg.files import write_json
from ropg.sweep import best_dev_reward, job_files, read_jobs, write_sweep

# what may change from one try of a sweep to the next without making it another sweep
_SAME_SWEEP = re.compile(
    r"-|launcher=|run\.|store\.|tracking\.|\+*hydra\.(launcher|sweeper\.(n_trials|n_jobs|max_failure_rate)\b)"
)
_OPTUNA = "hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper"
_folders: list[Path] = []  # of the sweep that this process has begun


class NoteFolder(Callback):
    """Called by Hydra at the start of a sweep; see ``hydra.callbacks`` in conf/config.yaml."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Note where the sweep's folder is; make it."""
        folder = Path(config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        _folders.append(folder)
        if config.hydra.sweeper._target_ == _OPTUNA:
            from hydra.core.plugins import Plugins

            from ropg.optuna_sweeper import ResumableSweeper

            # Hydra refuses a sweeper by a name outside its own package of plugins, but takes ours for its own
            Plugins.instance().class_name_to_class[_OPTUNA] = ResumableSweeper


def is_multirun(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for a sweep."""
    return any(a in ("--multirun", "-m") for a in arguments)


def with_sweep_folder(arguments: Sequence[str]) -> list[str]:
    """Name the sweep's folder after what is swept and set, unless the command names one.

    >>> with_sweep_folder(["--multirun", "seed=0,1"])[1]
    'hydra.sweep.dir=${run.root}/multirun/05f7f191'
    """
    if any(a.lstrip("+").startswith("hydra.sweep.dir=") for a in arguments):
        return list(arguments)
    kept = sorted(a for a in arguments if not _SAME_SWEEP.match(a))
    name = hashlib.sha256("\n".join(kept).encode()).hexdigest()[:8]
    # among the overrides: argparse takes no option between two of them
    place = next((i for i, a in enumerate(arguments) if "=" in a and a[0] != "-"), len(arguments))
    return [*arguments[:place], f"hydra.sweep.dir=${{run.root}}/multirun/{name}", *arguments[place:]]


def job_of_sweep(
    function: Callable[[], Any], command: str, known: tuple[type[Exception], ...]
) -> float | None:
    """Carry out one job and write its outcome down; the best dev expected reward, None where there is none.

    ``command`` identifies the command that started the job. An error of a ``known`` kind has a message for the
    user, any other is shown with its traceback; neither ends the sweep.
    """
    from ropg.runs import RunBusy

    hydra = HydraConfig.get()
    overrides = list(hydra.overrides.task)
    record: dict[str, Any] = {"overrides": overrides, "command": command, "run": None, "message": ""}
    file = _job_file(Path(hydra.sweep.dir), overrides)
    say("sweep", f"job {hydra.job.num}: {' '.join(overrides)}")
    value = None
    try:
        folder = function()
        record["status"] = "done"
        if folder is not None:
            record["run"] = os.path.relpath(folder, hydra.sweep.dir)
            value = best_dev_reward(Path(folder))
    except (
        RunBusy
    ) as error:  # another command has the very same job: it will be in the store, and in the table
        record |= {
            "status": "elsewhere",
            "message": str(error),
            "run": os.path.relpath(error.folder, hydra.sweep.dir),
        }
    except Exception as error:
        record |= {"status": "failed", "message": str(error) or type(error).__name__}
        if os.environ.get("ROPG_DEBUG") or not isinstance(error, known) or type(error) is RuntimeError:
            traceback.print_exc()
    if record["message"]:
        print(f"{record['status']}: {record['message']}", file=sys.stderr)
    if record["status"] != "elsewhere" or not file.exists():
        write_json(file, record)
    return value


def _job_file(sweep: Path, overrides: Sequence[str]) -> Path:
    kept = sorted(a for a in overrides if not _SAME_SWEEP.match(a))
    return job_files(sweep) / f"{hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16]}.json"


def finish_sweep(command: str) -> int:
    """Print and write the summary of the sweep that ``command`` ran; the exit status: 1 where a job of it failed."""
    if not _folders:  # help, or a configuration that was only shown
        return 0
    folder = _folders.pop()
    jobs = read_jobs(folder)
    if not jobs:
        return 0
    write_sweep([folder], folder)
    failed = [job for job in jobs if job["status"] == "failed" and job["command"] == command]
    numbers = {
        status: sum(job["status"] == status for job in jobs) for status in ("done", "failed", "elsewhere")
    }
    words = {
        "done": "done",
        "failed": "failed",
        "elsewhere": "left to another process, which is at work on them",
    }
    say(
        "sweep",
        f"{len(jobs)} jobs: " + ", ".join(f"{n} {words[status]}" for status, n in numbers.items() if n),
    )
    for job in failed:
        print(f"error: {' '.join(job['overrides'])}: {job['message']}", file=sys.stderr)
    return 1 if failed else 0
