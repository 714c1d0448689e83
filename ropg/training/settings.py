"""Every number of a training run. Imports nothing heavy: configuration schemas read it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

# what changes when a run is saved, but not what it computes
_BOOKKEEPING = ("checkpoint_every", "checkpoint_seconds", "keep")
# settings that came later: left out where they are at their default, so that runs of before can be resumed
_IF_SET = {"patience": None, "choose_by": "expected_reward", "refresh_every": None}
#: What the best weights may be chosen by: Σ π Eval, or Eval of the first-ranked candidate.
CHOICES = ("expected_reward", "first_reward")


@dataclass(frozen=True)
class TrainSettings:
    """Settings of :func:`ropg.training.loop.train`; the defaults are the paper's for retrievers.

    lr: peak learning rate of Adam.
    epochs: passes over the training rows.
    batch_size: rows scored at once (a micro-batch), which bounds memory.
    accumulation: micro-batches per step; a step sees ``batch_size × accumulation`` rows, however many
        processes share them.
    warmup: share of all steps in which the learning rate rises linearly; after it falls linearly to 0.
    clip: largest norm of the gradient; None leaves it as it is.
    weight_decay: Adam's L2 term.
    seed: decides order and draws.
    mixed_precision: "no", "bf16", or "auto": bf16 on a CUDA device that has it, and nowhere else.
    eval_every: epochs between evaluations, fractions allowed; the last step is always evaluated.
    patience: evaluations in a row without a better held-out reward after which training stops; None
        trains to the last epoch. The learning rate falls as it does without it.
    choose_by: the held-out reward that the best weights have, and that ``patience`` watches. "expected_reward"
        varies less, but a policy that gets flatter loses it though its order gets better: so distillation towards
        a flatter target than the initial policy may keep the initial weights. "first_reward" sees the order alone.
    checkpoint_every: steps between checkpoints; None saves by the clock, every ``checkpoint_seconds``.
        Evaluations save one besides.
    keep: how many of the newest checkpoints stay on disk.
    temperature: of the policy whose expected reward and entropy are reported.
    refresh_every: epochs after which the training rows are made anew, see :func:`ropg.training.loop.train`; None
        keeps them.

    >>> TrainSettings().rows_per_step
    64
    """

    lr: float = 1e-5
    epochs: int = 10
    batch_size: int = 8
    accumulation: int = 8
    warmup: float = 0.05
    clip: float | None = 1.0
    weight_decay: float = 0.0
    seed: int = 0
    mixed_precision: str = "auto"
    eval_every: float = 1.0
    patience: int | None = None
    choose_by: str = "expected_reward"
    checkpoint_every: int | None = None
    checkpoint_seconds: float = 60.0
    keep: int = 2
    temperature: float = 1.0
    refresh_every: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a number outside its range."""
        rules = {
            "lr": self.lr > 0,
            "epochs": self.epochs >= 1,
            "batch_size": self.batch_size >= 1,
            "accumulation": self.accumulation >= 1,
            "warmup": 0 <= self.warmup < 1,
            "clip": self.clip is None or self.clip > 0,
            "weight_decay": self.weight_decay >= 0,
            "seed": self.seed >= 0,
            "mixed_precision": self.mixed_precision in ("no", "bf16", "auto"),
            "eval_every": self.eval_every > 0,
            "patience": self.patience is None or self.patience >= 1,
            "choose_by": self.choose_by in CHOICES,
            "checkpoint_every": self.checkpoint_every is None or self.checkpoint_every >= 1,
            "checkpoint_seconds": self.checkpoint_seconds >= 0,
            "keep": self.keep >= 1,
            "temperature": self.temperature > 0,
            "refresh_every": self.refresh_every is None or self.refresh_every >= 1,
        }
        for name, fine in rules.items():
            if not fine:
                raise ValueError(f"training setting {name}={getattr(self, name)!r} is out of range")

    @property
    def rows_per_step(self) -> int:
        """Rows that one optimizer step sees."""
        return self.batch_size * self.accumulation

    def identity(self) -> dict[str, Any]:
        """The settings that decide the result: what a resumed run must share with the interrupted one."""
        values = {name: value for name, value in asdict(self).items() if name not in _BOOKKEEPING}
        return {
            name: value for name, value in values.items() if name not in _IF_SET or value != _IF_SET[name]
        }
