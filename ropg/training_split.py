"""What the training split alone may have.

dev and held-out are measured the same way whatever the training learns from, so that figures of different
settings can be compared.
"""

from __future__ import annotations

from typing import get_args

from ropg.cli import Refused
from ropg.configuration import Config
from ropg.feedback.scorer import Eval


def eval_of(config: Config, split: str) -> Eval:
    """The Eval of a split: ``feedback.train_eval`` for train where it is set, else ``feedback.eval``."""
    own = config.feedback.train_eval if split == "train" else None
    return own or config.feedback.eval  # type: ignore[return-value]  # both are checked before anything runs


def check(config: Config) -> None:
    """Raise Refused, with the key, for what a training split cannot have."""
    eval = config.feedback.train_eval
    if eval is not None and eval not in get_args(Eval):
        raise Refused(
            f"feedback.train_eval={eval}: it is {' or '.join(get_args(Eval))}, or null for feedback.eval"
        )
