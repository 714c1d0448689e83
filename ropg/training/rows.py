"""Training rows: one query with its candidates and what the LLM made of each."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Protocol, TypeAlias


class Row(Protocol):
    """What the loop reads of a row; whatever else a row holds is for the function that scores it.

    example_id: names the row in messages.
    rewards: Eval of each candidate. A row without candidates is dead: skipped and counted.
    initial_scores: what the ranker that proposed the candidates gave each.
    ranks: its ranks, from 1.
    baseline: d_b of Eq. 2, the reward of the initial retriever's first document.
    """

    @property
    def example_id(self) -> str: ...
    @property
    def rewards(self) -> Sequence[float]: ...
    @property
    def initial_scores(self) -> Sequence[float]: ...
    @property
    def ranks(self) -> Sequence[int]: ...
    @property
    def baseline(self) -> float: ...


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One query, its K candidate documents as texts, and the feedback on each (a :class:`Row`).

    Raises ValueError, naming the example, where the lists differ in length.

    >>> TrainingRow("q1", "rainy day", ("umbrella", "sun"), (1, 0), (0.2, 0.4), (2, 1), 0).rewards
    (1.0, 0.0)
    """

    example_id: str
    query: str
    documents: tuple[str, ...]
    rewards: tuple[float, ...]
    initial_scores: tuple[float, ...]
    ranks: tuple[int, ...]
    baseline: float

    def __post_init__(self) -> None:
        # plain tuples of plain numbers, so that equal rows have equal fingerprints wherever they come from
        for name, kind in (
            ("documents", str),
            ("rewards", float),
            ("initial_scores", float),
            ("ranks", int),
        ):
            object.__setattr__(self, name, tuple(kind(value) for value in getattr(self, name)))
        object.__setattr__(self, "baseline", float(self.baseline))
        if len(self.documents) != len(self.rewards):
            raise ValueError(
                f"row {self.example_id!r} has {len(self.documents)} documents but {len(self.rewards)} rewards"
            )
        check_lengths(self)


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The training rows of a round, and what there is to say about them (JSON numbers; no times)."""

    rows: Sequence[Any]
    numbers: Mapping[str, float]


#: (round, whether it begins now) -> its rows. One that does not begin was begun before an interruption: its rows must
#: be those of then, whatever the module's weights are now.
Refresh: TypeAlias = Callable[[int, bool], Refreshed]


def check_rows(rows: Sequence[Row], what: str, remedy: str) -> int:
    """Return how many rows are dead, that is, without candidates.

    Raises ValueError, naming the example, for rows that training could only stumble over later, and where
    no row is alive.
    """
    dead = 0
    for row in rows:
        check_lengths(row)
        dead += len(row.rewards) == 0
        if len(row.rewards) and not all(map(math.isfinite, (*row.rewards, row.baseline))):
            raise ValueError(
                f"{what} row {row.example_id!r} has a reward or baseline that is not finite: "
                f"{tuple(row.rewards)}, baseline {row.baseline}; score its candidates again"
            )
    if dead == len(rows):
        raise ValueError(f"none of the {len(rows)} {what} rows has a candidate; {remedy}")
    return dead


def rows_fingerprint(rows: Sequence[Row]) -> str:
    """Identify rows by their content and order (SHA-256, 32 hex digits)."""
    digest = hashlib.sha256()
    for row in rows:
        seen = (
            row
            if is_dataclass(row)
            else (
                row.example_id,
                tuple(row.rewards),
                tuple(row.initial_scores),
                tuple(row.ranks),
                row.baseline,
            )
        )
        digest.update(repr(seen).encode() + b"\n")
    return digest.hexdigest()[:32]


def check_lengths(row: Row) -> None:
    sizes = {len(row.rewards), len(row.initial_scores), len(row.ranks)}
    if len(sizes) != 1:
        raise ValueError(
            f"row {row.example_id!r} has {len(row.rewards)} rewards, {len(row.initial_scores)} initial "
            f"scores and {len(row.ranks)} ranks; they must be as many"
        )
