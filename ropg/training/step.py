"""One optimizer step: the exact gradient of the mean loss over its rows, clipped, then Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from ropg.hardware import computes_in_bf16
from ropg.training.batch import AskSets, ScoreBatch, make_batch, row_generator
from ropg.training.objectives import Objective
from ropg.training.parallel import Processes
from ropg.training.rows import Row, check_rows
from ropg.training.schedule import derive_seed, epoch_order, learning_rate_factor, steps_per_epoch
from ropg.training.settings import TrainSettings

ScoreRows = Callable[[Sequence[Any]], Tensor]


@dataclass(frozen=True)
class StepReport:
    """What a step did. Without live rows nothing was done, and there is no loss.

    lr: learning rate of the step.
    rows: live rows, over which ``loss`` is the mean.
    gradient_norm: before clipping.
    logs: the objective's own numbers, means over the rows of the main process.
    """

    lr: float
    rows: int
    loss: float | None
    gradient_norm: float | None
    logs: Mapping[str, float]

    def record(self) -> dict[str, Any]:
        """The report as one flat record; what does not exist is left out."""
        record = {"lr": self.lr, "rows": self.rows, "loss": self.loss, "gradient_norm": self.gradient_norm}
        return {name: value for name, value in record.items() if value is not None} | dict(self.logs)


class Stepper:
    """Takes steps by their number; everything about a step follows from that and the settings.

    Attributes
    ----------
    per_epoch, total: numbers of steps.
    optimizer: Adam over the module's trainable parameters.

    Raises ValueError where the module has no trainable parameter, or one of 16 bits.
    """

    def __init__(
        self,
        module: nn.Module,
        score_rows: ScoreRows,
        rows: Sequence[Row],
        objective: Objective,
        settings: TrainSettings,
        processes: Processes,
        ask_sets: AskSets | None = None,
    ) -> None:
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError("the module has no trainable parameter: every requires_grad is False")
        short = {p.dtype for p in self.parameters} & {torch.float16, torch.bfloat16}
        if short:
            raise ValueError(
                f"the module's weights are {short.pop()}, in which small steps of Adam round to nothing; load them in "
                "float32 (mixed_precision=bf16 computes in 16 bits all the same)"
            )
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.lr, weight_decay=settings.weight_decay)
        self.per_epoch = steps_per_epoch(len(rows), settings.rows_per_step)
        self.total = self.per_epoch * settings.epochs
        self._score_rows, self._objective, self._ask_sets = score_rows, objective, ask_sets
        self._rows, self._settings, self._processes = rows, settings, processes
        self._order = lru_cache(maxsize=1)(lambda epoch: epoch_order(len(rows), settings.seed, epoch))

    def replace(self, rows: Sequence[Row]) -> None:
        """Learn from ``rows`` from now on: other candidates of the same queries, in the same order.

        Order and draws of the steps stay as they are. Raises ValueError for other queries, or rows as
        :func:`ropg.training.rows.check_rows` refuses them.
        """
        if [row.example_id for row in rows] != [row.example_id for row in self._rows]:
            raise ValueError(
                f"the refreshed rows are not of the same {len(self._rows)} queries in the same order; refresh may "
                "change candidates, never queries"
            )
        check_rows(rows, "refreshed train", "a refresh must leave candidates to learn from")
        self._rows = rows

    def take(self, step: int) -> StepReport:
        """Do step ``step`` (from 0).

        Raises FloatingPointError or ValueError, naming step and examples, for a score, loss or gradient
        that is not finite; the weights are then as before the step.
        """
        lr = self._settings.lr * learning_rate_factor(step, self.total, self._settings.warmup)
        rows = self.live_rows(step)
        if not rows:
            return StepReport(lr, 0, None, None, {})
        try:
            loss, logs = self.accumulate(step, rows)
            norm = self._clip(rows)
        except FloatingPointError as error:
            raise FloatingPointError(f"step {step + 1}: {error}{self.remedy(step)}") from error
        except ValueError as error:
            raise ValueError(f"step {step + 1}: {error}") from error
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        return StepReport(lr, len(rows), loss, norm, logs)

    def remedy(self, steps: int) -> str:
        """What to change where numbers are not finite after ``steps`` steps; before the first it was not these."""
        return f"; the training diverged: lower optim.lr (now {self._settings.lr:g})" if steps else ""

    def live_rows(self, step: int) -> list[Row]:
        """The rows of a step that have candidates; the last step of an epoch sees what is left."""
        epoch, place = divmod(step, self.per_epoch)
        size = self._settings.rows_per_step
        chosen = self._order(epoch)[place * size : (place + 1) * size]
        return [row for row in (self._rows[i] for i in chosen) if len(row.rewards)]

    def accumulate(self, step: int, rows: Sequence[Row]) -> tuple[float, dict[str, float]]:
        """Leave the gradient of the mean loss over ``rows``; return that loss and the objective's numbers.

        Each micro-batch's mean counts by its share of the step's rows, so the gradient is that of one
        large batch even where the last micro-batch, or the last step of an epoch, is smaller.
        """
        self.optimizer.zero_grad(set_to_none=True)
        size, seed = self._settings.batch_size, self._settings.seed
        share = self._processes.share(len(rows))
        total = torch.zeros((), dtype=torch.float64, device=self._processes.device)
        logs: dict[str, float] = {}
        for start in range(share.start, share.stop, size):
            part = rows[start : min(start + size, share.stop)]
            torch.manual_seed(derive_seed(seed, "module", step, start))  # for dropout, where it is on
            with scoring_precision(self._settings.mixed_precision, self._processes.device):
                scores = self._score_rows(part)
            generator = row_generator(derive_seed(seed, "draws", step), start)
            batch = make_batch(part, scores, generator, self._ask_sets)
            loss, numbers = self._loss(batch, part)
            (loss * (len(part) / len(rows))).backward()
            total += loss.detach().double() * (len(part) / len(rows))
            for name, value in numbers.items():
                logs[name] = logs.get(name, 0.0) + float(value) * (len(part) / len(rows))
        self._processes.sum_gradients(self.parameters)
        return float(self._processes.sum(total)), self._processes.sum_numbers(logs)

    def _loss(self, batch: ScoreBatch, rows: Sequence[Row]) -> tuple[Tensor, Mapping[str, float]]:
        try:
            loss, numbers = self._objective(batch)
        except ValueError as error:
            raise ValueError(f"{error}; among example(s) {_ids(rows)}") from error
        if not math.isfinite(value := loss.item()):
            raise FloatingPointError(f"the loss is {value} for example(s) {_ids(rows)}")
        return loss, numbers

    def _clip(self, rows: Sequence[Row]) -> float:
        """Clip the gradient; return its norm before."""
        limit = math.inf if self._settings.clip is None else self._settings.clip
        norm = float(nn.utils.clip_grad_norm_(self.parameters, limit))
        if not math.isfinite(norm):
            raise FloatingPointError(f"the gradient's norm is {norm} for example(s) {_ids(rows)}")
        return norm


def scoring_precision(wanted: str, device: torch.device) -> AbstractContextManager[Any]:
    """The context to compute scores in: bf16 where wanted, for "auto" only where CUDA hardware has it.

    >>> scoring_precision("auto", torch.device("cpu"))._enabled
    False
    """
    enabled = wanted == "bf16" or (wanted == "auto" and computes_in_bf16(device.type))
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def _ids(rows: Sequence[Row]) -> str:
    return ", ".join(row.example_id for row in rows)
