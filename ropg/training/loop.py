"""The training loop: one for every objective, for retrievers and for selectors alike.

What happens at a step (its rows, its draws, its learning rate) is a function of the settings and the
step's number alone, see :mod:`ropg.training.step`. Weights, optimizer and the number of the step are
therefore all that a checkpoint needs for a killed run to end in the very weights, and the very
metrics.jsonl, of an undisturbed one, on hardware that computes the same twice.

    folder/
        metrics.jsonl   one record per step, evaluation and refresh, and one where patience ended the run
        checkpoints/    see :mod:`ropg.training.checkpoints`
        model/          what ``save_model`` wrote of the best weights
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from ropg.hardware import refuse_launch
from ropg.training import checkpoints
from ropg.training.batch import AskSets
from ropg.training.evaluation import evaluate_policy
from ropg.training.metrics_log import MetricsLog
from ropg.training.objectives import Objective
from ropg.training.parallel import Processes
from ropg.training.rows import Refresh, Row, check_rows, rows_fingerprint
from ropg.training.schedule import evaluation_steps, evaluations_since_best
from ropg.training.settings import TrainSettings
from ropg.training.step import ScoreRows, Stepper, StepReport, scoring_precision
from ropg.training.tracking import Tracker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """What a finished run has to tell.

    best_step, best_value: the evaluation with the highest held-out reward, that of ``TrainSettings.choose_by``
        (the earlier of two equals), whose weights the module now has; step 0 is the module as it came.
    history: the evaluation records, as in metrics.jsonl.
    steps: steps of the run, ``skipped`` among them, in which no row had a candidate.
    planned_steps: steps of all epochs; more than ``steps`` where ``TrainSettings.patience`` ended the run.
    seconds: time spent training and evaluating, over all interruptions.
    """

    best_step: int
    best_value: float
    history: tuple[Mapping[str, Any], ...]
    steps: int
    seconds: float
    skipped: int
    planned_steps: int


def train(
    module: nn.Module,
    score_rows: ScoreRows,
    train_rows: Sequence[Row],
    dev_rows: Sequence[Row],
    objective: Objective,
    settings: TrainSettings,
    folder: Path | str,
    *,
    save_model: Callable[[Path], None],
    tracker: Tracker | None = None,
    identity: Mapping[str, Any] | None = None,
    ask_sets: AskSets | None = None,
    refresh: Refresh | None = None,
    progress: bool = True,
) -> TrainResult:
    """Train ``module`` in place, resuming from ``folder`` where an earlier call left off.

    A finished run is not run again: its best weights are loaded and its result is returned.

    Parameters
    ----------
    module: whatever ``score_rows`` computes with; its trainable parameters are optimised.
    score_rows: rows -> (B, K) scores with gradient, a row's candidates first, any padding after.
    train_rows, dev_rows: feedback to learn from, and to choose the best weights on.
    save_model: writes the module, with the best weights in it, into the empty folder it is given.
    tracker: gets every record of metrics.jsonl.
    identity: anything else that decides the result, JSON only (which encoder, how long its texts are).
        Resuming with another identity, other settings or other rows is refused.
    ask_sets: for an objective that asks what sets of documents are worth (``ScoreBatch.set_rewards``). It must
        answer the same twice, and is not asked about dev rows: their loss is left out.
    refresh: gives the training rows of each round of ``TrainSettings.refresh_every`` epochs but the first, whose rows
        are ``train_rows``: the same queries in the same order. It is asked where a round begins, after a checkpoint,
        so that a run killed meanwhile asks again with the very weights; and where a run is resumed within a round.
    progress: show a bar.

    Raises
    ------
    ValueError: rows without a single candidate, rewards that are not finite, nothing trainable, weights of 16 bits;
        a launch under FSDP or DeepSpeed; refreshed rows of other queries.
    ResumeMismatch: the folder belongs to another run, or a round's rows are not those of before the interruption.
    FloatingPointError: a score, loss or gradient that is not finite, naming the step and the examples;
        weights and checkpoints are then as before that step.
    """
    if (refresh is None) != (settings.refresh_every is None):
        raise ValueError("refresh and TrainSettings.refresh_every go together; give both, or neither")
    dead = check_rows(train_rows, "train", "see what the feedback stage skipped, and why")
    dead_dev = check_rows(dev_rows, "dev", "the best weights are chosen on dev rows, so give at least one")
    refuse_launch(os.environ)
    processes = Processes(module)
    if processes.is_main and dead + dead_dev:
        log.warning("%d train and %d dev rows have no candidate and are passed over", dead, dead_dev)
    module.to(processes.device)
    processes.copy_from_main(module)
    stepper = Stepper(module, score_rows, train_rows, objective, settings, processes, ask_sets)
    identities = {
        "settings": settings.identity(),
        "objective": _describe(objective),
        "train_rows": rows_fingerprint(train_rows),
        "dev_rows": rows_fingerprint(dev_rows),
        "parameters": {name: list(p.shape) for name, p in module.named_parameters() if p.requires_grad},
        "identity": dict(identity or {}),
    }
    fingerprint = json.loads(json.dumps(identities))  # as a checkpoint will give it back
    evaluate = partial(
        evaluate_policy,
        module,
        score_rows,
        dev_rows,
        temperature=settings.temperature,
        batch_size=settings.batch_size,
        objective=objective if ask_sets is None else None,
        seed=settings.seed,
        precision=partial(scoring_precision, settings.mixed_precision, processes.device),
    )
    run = _Run(
        module,
        stepper,
        processes,
        settings,
        Path(folder),
        lambda: evaluate().means(),
        fingerprint,
        tracker if processes.is_main else None,
        refresh,
    )
    try:
        with _own_random_state(processes.device):
            run.begin_or_resume()
            run.fit(progress)
    finally:
        run.close()
    run.restore_best()
    run.export(save_model)
    return run.result()


@dataclass
class _Progress:
    """What a checkpoint knows besides tensors."""

    step: int = 0  # steps done
    skipped: int = 0
    loss_sum: float = 0.0  # over the live rows since the last evaluation
    loss_rows: int = 0
    best_step: int = -1
    best_value: float = -math.inf
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class _Run:
    """One call of :func:`train`: the steps, and what is measured, written and kept between them."""

    module: nn.Module
    stepper: Stepper
    processes: Processes
    settings: TrainSettings
    folder: Path
    evaluate: Callable[[], dict[str, float]]
    fingerprint: Mapping[str, Any]
    tracker: Tracker | None
    refresh: Refresh | None = None

    def __post_init__(self) -> None:
        self.progress = _Progress()
        self.checkpoints = self.folder / "checkpoints"
        self.best_file = self.checkpoints / "best" / "model.safetensors"
        self.metrics: MetricsLog | None = None  # only in the main process
        self.last_saved = self.last_tick = time.monotonic()
        self.saved_step = -1
        self.round = 0  # whose rows the stepper has
        self.rows: str = self.fingerprint["train_rows"]  # the fingerprint of those of the step that comes

    def begin_or_resume(self) -> None:
        """Go on from the newest complete checkpoint, or begin by evaluating the module as it came."""
        found = checkpoints.newest_checkpoint(self.checkpoints)
        position = 0
        if found:
            path, state = found
            checkpoints.require_same(state["fingerprint"], self.fingerprint, self.checkpoints)
            self.progress = _Progress(**state["progress"])
            self._require_best_weights(newer_is_fine=True)
            checkpoints.load_checkpoint(path, self.module, self.stepper.optimizer)
            position = state["metrics_bytes"]
            self.saved_step = self.progress.step
            self.rows = state.get("rows", self.rows)
        self.processes.wait()  # nobody writes before everybody has read
        if self.processes.is_main:
            self.metrics = MetricsLog(self.folder / "metrics.jsonl", position)
        if not found:
            if self.processes.is_main:
                (self.checkpoints / "exported").unlink(missing_ok=True)
            self._evaluate()
            self._save()

    def fit(self, show: bool) -> None:
        """Take all remaining steps, evaluating and saving when due."""
        settings, total = self.settings, self.stepper.total
        evaluate_after = evaluation_steps(self.stepper.per_epoch, settings.epochs, settings.eval_every)
        self.module.train()
        with self._bar(show) as advance:
            while self.progress.step < total and not self._patience_is_over():
                self._refresh_if_due()
                report = self.stepper.take(self.progress.step)
                self._note(report)
                if self.progress.step in evaluate_after:
                    self._evaluate()
                    if self.progress.step < total and self._patience_is_over():
                        self._note_stop()
                    self._save()
                elif self._save_is_due():
                    self._save()
                advance(report)

    def close(self) -> None:
        """Close the record of metrics."""
        if self.metrics is not None:
            self.metrics.close()

    def restore_best(self) -> None:
        """Put the best weights into the module."""
        self.processes.wait()
        self._require_best_weights()
        checkpoints.load_module(self.module, self.best_file)

    def export(self, save_model: Callable[[Path], None]) -> None:
        """Have the model written, once, and whole or not at all."""
        final, done = self.folder / "model", self.checkpoints / "exported"
        if self.processes.is_main and not (final.exists() and done.exists()):
            temporary = self.folder / ".model.tmp"
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            save_model(temporary)
            shutil.rmtree(final, ignore_errors=True)
            os.replace(temporary, final)
            done.touch()
        self.processes.wait()

    def result(self) -> TrainResult:
        """What the run has to tell."""
        p = self.progress
        return TrainResult(
            p.best_step, p.best_value, tuple(p.history), p.step, p.seconds, p.skipped, self.stepper.total
        )

    def _refresh_if_due(self) -> None:
        """Give the stepper the rows of its next step's round."""
        if self.refresh is None or self.settings.refresh_every is None:
            return
        step = self.progress.step
        round, within = divmod(step, self.settings.refresh_every * self.stepper.per_epoch)
        if round == self.round:
            return
        if within == 0 and self.saved_step != step:
            self._save()
        found = self.refresh(round, within == 0)
        self.stepper.replace(found.rows)
        rows = rows_fingerprint(found.rows)
        if within and rows != self.rows:
            raise checkpoints.ResumeMismatch(
                f"the rows of round {round} are not those that step {step} of {self.folder} had learned from; remove "
                f"{self.checkpoints} to train anew"
            )
        self.round, self.rows = round, rows
        if within == 0:
            self._record({"event": "refresh", "step": step, "round": round, **found.numbers})

    def _note(self, report: StepReport) -> None:
        """Count a step that was taken."""
        self.progress.step += 1
        if report.loss is None:
            self.progress.skipped += 1
        else:
            self.progress.loss_sum += report.loss * report.rows
            self.progress.loss_rows += report.rows
        self._record({"event": "step", "step": self.progress.step, **report.record()})

    def _patience_is_over(self) -> bool:
        """Whether the last evaluations were too many without a better one; follows from the history alone."""
        rewards = [record[self.settings.choose_by] for record in self.progress.history]
        return (
            self.settings.patience is not None and evaluations_since_best(rewards) >= self.settings.patience
        )

    def _note_stop(self) -> None:
        """Write down that training ends before its last step, and why."""
        p, patience = self.progress, self.settings.patience
        self._record({"event": "stopped", "step": p.step, "best_step": p.best_step, "patience": patience})
        log.info(
            "stopped at step %d of %d: %d evaluations since step %d without a better %s",
            p.step,
            self.stepper.total,
            patience,
            p.best_step,
            self.settings.choose_by.replace("_", " "),
        )

    def _evaluate(self) -> None:
        """Measure the policy on the dev rows, write it down, and keep the weights if they are the best."""
        p = self.progress
        try:
            means = self.evaluate()
        except FloatingPointError as error:
            raise FloatingPointError(
                f"evaluation after step {p.step}: {error}{self.stepper.remedy(p.step)}"
            ) from error
        record: dict[str, Any] = {
            "event": "evaluation",
            "step": p.step,
            "epoch": p.step / self.stepper.per_epoch,
        }
        if p.loss_rows:
            record["train_loss"] = p.loss_sum / p.loss_rows
        p.loss_sum, p.loss_rows = 0.0, 0
        record |= means
        p.history.append(record)
        self._record(record)
        value = means[self.settings.choose_by]
        if value > p.best_value:
            p.best_step, p.best_value = p.step, value
            if self.processes.is_main:
                checkpoints.save_module(self.module, self.best_file, {"step": str(p.step)})

    def _save(self) -> None:
        """Write a checkpoint."""
        self.last_saved = time.monotonic()
        self.saved_step = self.progress.step
        self.progress.seconds += self.last_saved - self.last_tick
        self.last_tick = self.last_saved
        if self.metrics is not None:
            state = {
                "fingerprint": self.fingerprint,
                "progress": asdict(self.progress),
                "metrics_bytes": self.metrics.position(),
            }
            if self.refresh is not None:
                state["rows"] = self.rows
            checkpoints.save_checkpoint(
                self.checkpoints,
                self.progress.step,
                self.module,
                self.stepper.optimizer,
                state,
                self.settings.keep,
            )

    def _save_is_due(self) -> bool:
        every = self.settings.checkpoint_every
        if every is not None:
            return self.progress.step % every == 0
        return time.monotonic() - self.last_saved >= self.settings.checkpoint_seconds

    def _require_best_weights(self, newer_is_fine: bool = False) -> None:
        """Raise unless the best weights are there; a killed run may have found newer ones meanwhile."""
        wanted = self.progress.best_step
        metadata = checkpoints.read_metadata(self.best_file)
        there = -1 if metadata is None else int(metadata["step"])
        if not (there == wanted or (newer_is_fine and there > wanted)):
            raise FileNotFoundError(
                f"{self.best_file} does not hold the weights of step {wanted}, the best so far; "
                f"remove {self.checkpoints} to train anew"
            )

    def _record(self, record: dict[str, Any]) -> None:
        if self.metrics is not None:
            self.metrics.write(record)
        if self.tracker is not None:
            self.tracker(dict(record))

    @contextmanager
    def _bar(self, show: bool) -> Iterator[Callable[[StepReport], None]]:
        """A progress bar, and the function that moves it by a step."""
        bar = tqdm(
            total=self.stepper.total,
            initial=self.progress.step,
            desc="training",
            unit="step",
            disable=not (show and self.processes.is_main),
            # a bar that nobody watches would fill the log
            mininterval=0.5 if sys.stderr.isatty() else 30.0,
        )
        started, rows = time.monotonic(), 0

        def advance(report: StepReport) -> None:
            nonlocal rows
            rows += report.rows
            loss = "none" if report.loss is None else f"{report.loss:.4f}"
            dev = f"{self.progress.history[-1]['expected_reward']:.4f}"
            speed = rows / max(1e-9, time.monotonic() - started)
            bar.set_postfix_str(f"loss {loss}, dev reward {dev}, {speed:.1f} rows/s", refresh=False)
            bar.update()

        with bar:
            yield advance


@contextmanager
def _own_random_state(device: torch.device) -> Iterator[None]:
    """Leave torch's global random state as it was found: every micro-batch seeds it."""
    devices = []
    if device.type == "cuda":
        devices = [torch.cuda.current_device() if device.index is None else device.index]
    with torch.random.fork_rng(devices=devices):
        yield


def _describe(objective: Objective) -> str:
    """Name an objective with its options, for the fingerprint."""
    if is_dataclass(objective):
        return repr(objective)
    kind = objective if hasattr(objective, "__qualname__") else type(objective)
    return f"{kind.__module__}.{kind.__qualname__}"
