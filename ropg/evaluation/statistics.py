"""Table 1 of the paper: how many examples a data set has and how long its texts and profiles are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ropg.examples import Example

_COLUMNS = ("train", "dev", "test")


class Moments:
    """Mean and population standard deviation of a stream of numbers (Welford's update).

    >>> moments = Moments()
    >>> for value in (2, 4, 4, 4, 5, 5, 7, 9):
    ...     moments.add(value)
    >>> moments.mean, moments.std
    (5.0, 2.0)
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, value: float) -> None:
        """Take one more number."""
        self.count += 1
        step = value - self.mean
        self.mean += step / self.count
        self._squares += step * (value - self.mean)

    @property
    def std(self) -> float:
        """Population standard deviation; 0 for an empty stream."""
        return math.sqrt(self._squares / self.count) if self.count else 0.0


def dataset_statistics(
    name: str, splits: Mapping[str, Sequence[Example]], labels: Sequence[str] | None = None
) -> dict[str, Any]:
    """One row of Table 1, for examples of any source.

    Parameters
    ----------
    name: the data set's name in the table.
    splits: split -> its examples. Lengths and profile sizes are over all of them together.
    labels: the task's labels, None for text generation.

    Returns
    -------
    ``task``; ``n_<split>``; ``input_length``, ``output_length`` and ``profile_size`` as (mean, population
    standard deviation), lengths in words separated by white space; ``n_classes``. ``output_length`` is None
    for tasks with labels, as in the paper, and where no example has a gold output; ``n_classes`` is None
    for text generation. Profiles are counted, not built.

    >>> from ropg.examples import Document
    >>> example = Example("1", "u", "a short question", "an answer", (Document("d", "text"),))
    >>> row = dataset_statistics("mine", {"dev": [example]})
    >>> row["n_dev"], row["input_length"], row["output_length"], row["profile_size"], row["n_classes"]
    (1, (3.0, 0.0), (2.0, 0.0), (1.0, 0.0), None)
    """
    inputs, outputs, profiles = Moments(), Moments(), Moments()
    for examples in splits.values():
        for example in examples:
            inputs.add(len(example.input.split()))
            profiles.add(len(example.profile))
            if example.target is not None:
                outputs.add(len(example.target.split()))
    has_outputs = labels is None and outputs.count > 0
    return {
        "task": name,
        **{f"n_{split}": len(examples) for split, examples in splits.items()},
        "input_length": (inputs.mean, inputs.std),
        "output_length": (outputs.mean, outputs.std) if has_outputs else None,
        "profile_size": (profiles.mean, profiles.std),
        "n_classes": None if labels is None else len(labels),
    }


def statistics_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of :func:`dataset_statistics` as a Markdown table with the paper's columns.

    >>> row = {"task": "LaMP-7", "n_train": 13437, "input_length": (29.72, 7.01), "output_length": None,
    ...        "profile_size": (15.71, 14.86), "n_classes": None}
    >>> print(statistics_table([row]))
    | Task | #train | Input Length | Output Length | #Profile Size | #classes |
    |---|---:|---:|---:|---:|---:|
    | LaMP-7 | 13437 | 29.72 ± 7.01 | - | 15.71 ± 14.86 | - |
    """
    rows = list(rows)
    present = {key.removeprefix("n_") for row in rows for key in row if key.startswith("n_")} - {"classes"}
    splits = [split for split in _COLUMNS if split in present] + sorted(present.difference(_COLUMNS))
    header = [
        "Task",
        *(f"#{split}" for split in splits),
        "Input Length",
        "Output Length",
        "#Profile Size",
        "#classes",
    ]
    lines = [_line(header), "|---|" + "---:|" * (len(header) - 1)]
    for row in rows:
        cells = [row["task"].replace("|", "\\|"), *(_number(row.get(f"n_{split}")) for split in splits)]
        cells += [_spread(row[key]) for key in ("input_length", "output_length", "profile_size")]
        lines.append(_line([*cells, _number(row["n_classes"])]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _spread(value: tuple[float, float] | None) -> str:
    return "-" if value is None else f"{value[0]:.2f} ± {value[1]:.2f}"
