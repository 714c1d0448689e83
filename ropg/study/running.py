"""Running a study: every run is a command of its own, so that one that fails leaves the others alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from ropg.console import say
from ropg.study.outcomes import finished
from ropg.study.plan import Job, Study, overrides_of

PROJECT = Path(__file__).resolve().parents[2]

#: Runs a command of this project (train.py with its overrides) and returns its exit status.
Run = Callable[[Sequence[str], Path], int]


@dataclass
class Workshop:
    """Where a study works: its data, runs and stores, and how many runs at once.

    data: the folder of the data sets' files, None where none has one.
    run: how a command is run, with the file for what it prints; a test puts its own here.
    failed: the runs that failed -> where to read why.
    """

    study: Study
    data: Path | None
    runs: Path
    stores: Path
    jobs: int = 1
    run: Run = field(default_factory=lambda: run_command)  # looked up late, so that a test can stand in
    failed: dict[str, Path] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)  # to compose a configuration takes a while

    def train(self, jobs: Sequence[Job], title: str) -> int:
        """Train what is not finished, ``jobs`` at once; how many that were.

        A run that fails is noted, and the others go on.
        """
        wanted = [job for job in jobs if not self.is_finished(job)]
        done = len(jobs) - len(wanted)
        if not wanted:
            return 0
        bar = tqdm(total=len(jobs), initial=done, desc=title, unit="run")
        with bar, ThreadPoolExecutor(self.jobs) as pool:
            futures = {pool.submit(self._one, job): job for job in wanted}
            try:
                for future in as_completed(futures):
                    job, status = futures[future], future.result()
                    bar.update()
                    if status:
                        self.failed[job.name] = self.log(job.name)
                        say("study", f"{job.name} failed; see {self.log(job.name)}")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # else leaving would start all that are left
                raise
        return len(wanted)

    def feedback(self, job: Job) -> bool:
        """Make the feedback that all runs on a data set share, before they start; whether it is there now."""
        name = f"{job.dataset.name}/feedback"
        self.command(
            [*self.overrides(job), f'run.dir="{self.runs / name}"', "stage=feedback"], name, "train.py"
        )
        return name not in self.failed

    def command(self, overrides: Sequence[str], name: str, script: str) -> None:
        """Run one command of this project and note where it fails."""
        log = self.log(name)
        if self.run([str(PROJECT / script), *overrides], log):
            self.failed[name] = log
            say("study", f"{name} failed; see {log}")

    def is_finished(self, job: Job) -> bool:
        """Whether a run is done, with these very settings."""
        if job.name not in self._finished and finished(self.runs / job.name, self.overrides(job)):
            self._finished.add(job.name)
        return job.name in self._finished

    def overrides(self, job: Job) -> list[str]:
        """The command line of a run."""
        return overrides_of(job, self.study, self.data, self.runs, self.stores)

    def log(self, name: str) -> Path:
        """What a run prints goes here."""
        return self.runs / "logs" / f"{name.replace('/', '-')}.log"

    def _one(self, job: Job) -> int:
        return self.run([str(PROJECT / "train.py"), *self.overrides(job)], self.log(job.name))


def run_command(command: Sequence[str], log: Path) -> int:
    """Run a Python command in a process of its own, its output in ``log``; the exit status.

    Its threads are what one process would use, divided by how many run: the caller sets OMP_NUM_THREADS for all.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        return subprocess.run(  # noqa: S603 - this program's own scripts, no shell
            [sys.executable, *command], stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        ).returncode


def share_threads(jobs: int) -> None:
    """Give each of several runs its share of this machine's cores, where nobody has said how many."""
    if jobs == 1:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // jobs)))
