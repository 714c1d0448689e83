"""Predictions on disk, in LaMP's output format, and their scores without an LLM.

``{"task": "LaMP_4", "golds": [{"id": "1", "output": "…"}]}``: the format of LaMP's own ``*_outputs.json``, so
that either kind of file can be read here, and predictions can be sent to LaMP's evaluation. Ids are strings,
each once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg.evaluation.results import Result, compute_results, listed
from ropg.examples import Example
from ropg.files import write_json

_LAMP = re.compile(r"lamp[-_ ]?([0-9]+)", re.IGNORECASE)
_FILE_NAME = re.compile(r"\w[\w.-]*")


def lamp_task_name(task: str) -> str:
    """A task's name as LaMP's files write it.

    >>> lamp_task_name("LaMP-4"), lamp_task_name("lamp_4"), lamp_task_name("pgraphrag_title")
    ('LaMP_4', 'LaMP_4', 'pgraphrag_title')
    """
    match = _LAMP.fullmatch(task.strip())
    return f"LaMP_{match[1]}" if match else task


def write_predictions(
    folder: Path, system: str, task: str, predictions: Mapping[str, str] | Iterable[tuple[Any, str]]
) -> Path:
    """Write ``<folder>/<system>.json`` and return its path.

    ``predictions``: example id -> parsed output, or pairs of them. A pair that comes again (as when
    processes gather an uneven last batch) is written once. Raises ValueError where one id has two different
    outputs, and for a system name that is no file name.
    """
    if not _FILE_NAME.fullmatch(system):
        raise ValueError(f"system name {system!r} cannot name a file; use letters, digits, '.', '_' and '-'")
    pairs = predictions.items() if isinstance(predictions, Mapping) else predictions
    outputs: dict[str, str] = {}
    for key, text in pairs:
        if outputs.setdefault(str(key), text) != text:
            raise ValueError(f"system {system!r}: example {str(key)!r} has two different predictions")
    golds = [{"id": key, "output": text} for key, text in outputs.items()]
    return write_json(Path(folder) / f"{system}.json", {"task": lamp_task_name(task), "golds": golds})


def read_predictions(path: Path) -> tuple[str | None, dict[str, str]]:
    """The task's name in LaMP's spelling, None where the file names none, and example id -> output.

    Reads LaMP's output format, a bare list of its entries, and JSON lines of them. Raises ValueError that
    lists the duplicate ids and the entries that are not of this form.
    """
    path = Path(path)
    task, entries = _entries(path)
    outputs: dict[str, str] = {}
    twice, malformed = [], []
    for position, entry in enumerate(entries, start=1):
        if (
            not isinstance(entry, Mapping)
            or not _is_scalar(entry.get("id"))
            or not _is_scalar(entry.get("output"))
        ):
            malformed.append(position)
        elif str(entry["id"]) in outputs:
            twice.append(str(entry["id"]))
        else:
            outputs[str(entry["id"])] = str(entry["output"])
    problems = []
    if malformed:
        problems.append(f"entries without an id or an output: number {listed([str(p) for p in malformed])}")
    if twice:
        problems.append(f"ids that stand twice: {listed(twice)}")
    if problems:
        raise ValueError(f"{path}: {'; '.join(problems)}")
    return (lamp_task_name(task) if task else None), outputs


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _entries(path: Path) -> tuple[str | None, list[Any]]:
    text = path.read_text(encoding="utf-8-sig")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        content = _json_lines(text)
        if content is None:
            raise ValueError(f"{path} is neither JSON nor JSON lines: {error}") from error
    if isinstance(content, list):
        return None, content
    if isinstance(content, dict) and isinstance(content.get("golds"), list):
        return str(content["task"]) if content.get("task") else None, content["golds"]
    if isinstance(content, dict) and "id" in content:
        return None, [content]  # JSON lines with one line
    raise ValueError(
        f'{path} is not in LaMP\'s output format, {{"task": …, "golds": [{{"id": …, "output": …}}]}}'
    )


def _json_lines(text: str) -> list[Any] | None:
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except json.JSONDecodeError:
        return None


def score_predictions(
    path: Path,
    examples: Sequence[Example],
    task: Any,
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> list[Result]:
    """Score a predictions file, or all ``*.json`` of a folder (with tests between them), without an LLM.

    A system's name is its file's. Examples without a target are not scored. One ValueError lists, for all
    files, what does not fit the examples: another task, missing ids, extra ids.
    """
    path = Path(path)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path} holds no predictions (*.json)")
    targets: dict[str, str] = {}
    known: set[str] = set()
    for example in examples:
        known.add(example.id)
        if example.target is not None:
            targets[example.id] = example.target
    predictions: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    for file in files:
        named, outputs = read_predictions(file)
        if named is not None and named != lamp_task_name(task.name):
            problems.append(f"{file} is of task {named}, not {lamp_task_name(task.name)}")
        missing = [i for i in targets if i not in outputs]
        extra = [i for i in outputs if i not in known]
        if missing:
            problems.append(f"{file} has no prediction for {listed(missing)}")
        if extra:
            problems.append(f"{file} has predictions for unknown examples {listed(extra)}")
        predictions[file.stem] = outputs
    if problems:
        raise ValueError("predictions and examples do not belong together: " + "; ".join(problems))
    return compute_results(task, targets, predictions, resamples=resamples, seed=seed, progress=progress)
