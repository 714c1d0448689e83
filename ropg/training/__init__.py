"""One training loop for every objective: rows of scored candidates in, a trained module out.

The package knows nothing of retrievers or selectors: a row carries rewards, a function scores rows, an
objective turns scores and rewards into a loss, and :func:`ropg.training.loop.train` does the rest. Names
are imported when first used, so that reading settings does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropg.training.batch import ScoreBatch, make_batch
    from ropg.training.bi_encoder import bi_encoder_scorer
    from ropg.training.evaluation import PolicyEvaluation, evaluate_policy
    from ropg.training.loop import TrainResult, train
    from ropg.training.objectives import Objective, load_objective
    from ropg.training.rows import Row, TrainingRow
    from ropg.training.settings import TrainSettings
    from ropg.training.tracking import wandb_tracker

_HOMES = {
    "ScoreBatch": "batch",
    "make_batch": "batch",
    "bi_encoder_scorer": "bi_encoder",
    "PolicyEvaluation": "evaluation",
    "evaluate_policy": "evaluation",
    "TrainResult": "loop",
    "train": "loop",
    "Objective": "objectives",
    "load_objective": "objectives",
    "Row": "rows",
    "TrainingRow": "rows",
    "TrainSettings": "settings",
    "wandb_tracker": "tracking",
}

__all__ = [
    "Objective",
    "PolicyEvaluation",
    "Row",
    "ScoreBatch",
    "TrainResult",
    "TrainSettings",
    "TrainingRow",
    "bi_encoder_scorer",
    "evaluate_policy",
    "load_objective",
    "make_batch",
    "train",
    "wandb_tracker",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
