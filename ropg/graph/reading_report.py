"""What reading a graph gives beside the graph: the targets, and a report of what was read and skipped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from ropg.graph.interactions import InteractionGraph
from ropg.sources.normalised import RecordError, text_of_number

BadRecords = Literal["error", "skip"]
_NAMED = 5  # skipped records that the report names


@dataclass
class ReadingReport:
    """What was read: counts, with the first few records that were skipped and why.

    number_ids, text_ids: how many ids of a kind ("user", "item") the file holds as numbers and as text.
    repeated_users: users who stand more than once in a split file; their reviews are joined.
    """

    path: str
    records: int = 0
    reviews: int = 0
    skipped: int = 0
    skipped_records: list[str] = field(default_factory=list)
    number_ids: dict[str, int] = field(default_factory=dict)
    text_ids: dict[str, int] = field(default_factory=dict)
    repeated_users: list[str] = field(default_factory=list)

    @property
    def mixed(self) -> list[str]:
        """The kinds of ids that are numbers in some places and text in others."""
        return sorted(set(self.number_ids) & set(self.text_ids))

    def lines(self) -> list[str]:
        """Ready to print."""
        lines = [f"{self.path}: {self.records:,} records, {self.reviews:,} reviews"]
        for kind in self.mixed:
            numbers, texts = self.number_ids[kind], self.text_ids[kind]
            lines.append(f"  ids of {kind}s: {numbers:,} numbers and {texts:,} texts, joined as text")
        if self.skipped:
            lines.append(f"  {self.skipped:,} records skipped, among them:")
            lines += [f"    {reason}" for reason in self.skipped_records]
        if self.repeated_users:
            names = ", ".join(map(repr, self.repeated_users[:_NAMED]))
            lines.append(f"  {len(self.repeated_users):,} users stand more than once: {names}")
        return lines

    def skip(self, error: RecordError) -> None:
        """Count a record that is left out."""
        self.skipped += 1
        if len(self.skipped_records) < _NAMED:
            self.skipped_records.append(str(error))

    def text_id(self, value: Any, kind: str, name: str, where: str) -> str:
        """An id as text, with its type counted; RecordError where it is missing."""
        if value is None or value == "":
            raise RecordError(f"{where}: the {kind} is missing ({name!r} is absent, null or empty)")
        counts = self.text_ids if isinstance(value, str) else self.number_ids
        counts[kind] = counts.get(kind, 0) + 1
        return text_of_number(value, name, where)


class ReadGraph(NamedTuple):
    """A graph as a file gave it.

    targets: (n_users,) int64, the review that each user is asked for, in a split file the first one of the
    profile; None where the file says nothing about targets (see :func:`ropg.graph.targets.choose_targets`).
    """

    graph: InteractionGraph
    targets: np.ndarray | None
    report: ReadingReport
