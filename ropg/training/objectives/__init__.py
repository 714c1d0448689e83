"""Objectives by name: ``load_objective("ropg_kd", target_temperature=0.1)``.

A new objective is one new file in this folder, registered under its name, or a user's own
``package.module:attribute``. It maps a :class:`~ropg.training.batch.ScoreBatch` to a loss, a mean over the
rows of the batch, and to numbers worth logging, means over the rows as well.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ropg.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from ropg.training.batch import ScoreBatch

OBJECTIVES = Registry("ropg.training.objectives", "objective")


class Objective(Protocol):
    """A loss over a batch. The loop weighs batches by their rows, so the loss must be a mean over rows."""

    def __call__(self, batch: ScoreBatch) -> tuple[Tensor, Mapping[str, float]]: ...


def load_objective(name: str, **options: Any) -> Objective:
    """Build the objective ``name`` with its options.

    Raises UnknownName for a name, ValueError for an option or a value that it does not have.
    """
    factory = OBJECTIVES.get(name)
    known = inspect.signature(factory).parameters
    for option in options:
        if option not in known and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(
                f"objective {name!r} has no option {option!r}{hint} Options: {', '.join(known) or 'none'}."
            )
    objective: Objective = factory(**options)
    return objective
