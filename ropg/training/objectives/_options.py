"""Checks of an objective's options, with messages that name the option and what it may be."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Any


def check_choice(objective: str, option: str, value: Any, choices: Sequence[str]) -> None:
    """Raise ValueError, with the nearest choice, unless ``value`` is one of them.

    >>> check_choice("ropg_rl", "estimator", "exakt", ("sample", "exact"))
    Traceback (most recent call last):
    ValueError: ropg_rl: estimator must be sample or exact, not 'exakt'; did you mean exact?
    """
    if value not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        known = ", ".join(choices[:-1]) + f" or {choices[-1]}"
        raise ValueError(f"{objective}: {option} must be {known}, not {value!r}{hint}")


def check_positive(objective: str, option: str, value: Any, optional: bool = False) -> None:
    """Raise ValueError unless ``value`` is a positive finite number, or None where that is allowed."""
    if not (optional and value is None) and not (_is_number(value) and value > 0):
        raise ValueError(f"{objective}: {option} must be a positive number, not {value!r}")


def check_coefficient(objective: str, option: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a finite number from 0."""
    if not (_is_number(value) and value >= 0):
        raise ValueError(f"{objective}: {option} must be a number from 0, not {value!r}")


def check_count(objective: str, option: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a whole number from 1."""
    if not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        raise ValueError(f"{objective}: {option} must be a whole number from 1, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
