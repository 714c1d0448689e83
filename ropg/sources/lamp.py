"""The LaMP benchmark: ``<split>_questions.json`` and ``<split>_outputs.json`` of its seven tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ropg.sources import SOURCES
from ropg.sources.conversion import converted, progress
from ropg.sources.example_set import ExampleSet
from ropg.sources.json_files import read_records, read_task_name
from ropg.sources.lamp_format import LampTask, find_files, lamp_task
from ropg.sources.normalised import Record, RecordError, normalise_record, text_of_number
from ropg.sources.report import Report, resolve_policies


@SOURCES.register("lamp")
def load(
    *,
    task: str,
    root: str | Path,
    split: str | None = None,
    setting: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_problem: Mapping[str, str] | None = None,
    cache_dir: str | None = None,
    name: str | None = None,
) -> ExampleSet:
    """Load one split of a LaMP task.

    Parameters
    ----------
    task: LaMP-1 to LaMP-7, in any spelling.
    root: the folder of the download, or the one that holds the files (see ``find_files``).
    split: train, dev or test. A test split without outputs has targets None.
    setting: "time" or "user" where both copies lie below ``root``.
    limit: keep the first users only.
    seed: taken for the sake of one signature; LaMP's splits are files.
    on_problem: a policy per kind of finding (see ``ropg.sources.report.KINDS``).
    cache_dir: where converted files lie (default ``$ROPG_CACHE`` or ``~/.cache/ropg/examples``).
    name: what messages call the data.

    Raises FileNotFoundError, MalformedFile, RecordError or ValidationError, each with the file's name.
    """
    if not split:
        raise ValueError("lamp: say split=train, split=dev or split=test")
    policies = resolve_policies(on_problem)
    facts = lamp_task(task)
    files = find_files(root, facts, split, setting)
    paths = [files.questions] + ([files.outputs] if files.outputs else [])
    rows = converted(
        paths,
        settings={"source": "lamp", "task": facts.name},
        records=lambda problems: _records(facts, files.questions, files.outputs, problems),
        rules=facts.rules,
        cache_dir=cache_dir,
    )
    report = Report(name or f"lamp {facts.name} {split}", str(files.questions), policies)
    problems = [(kind, record) for kind, records in rows.facts.items() for record in records]
    return ExampleSet(rows, report, limit=limit, problems=problems)


def _records(
    task: LampTask, questions: Path, outputs: Path | None, problems: dict[str, list[str]]
) -> Iterator[Record]:
    """Questions joined with their golds by id, whatever the order and the types of ids."""
    golds, gold_ids_are_text = ({}, set()) if outputs is None else _read_golds(task, outputs, problems)
    unused = set(golds)
    id_types = set(gold_ids_are_text)
    with progress(questions) as count:
        for number, raw in enumerate(read_records(questions, on_bytes=count), start=1):
            if task.number == 2:
                _refuse_news(raw, questions, number)
            record = normalise_record(raw, task.layout, str(questions), number)
            id_types.add(record.id_is_text)
            if outputs is not None:
                record.target = golds.get(record.id)
                unused.discard(record.id)
                if record.target is None:
                    record.problems.append("missing_gold")
            yield record
    problems["extra_gold"] = [record_id for record_id in golds if record_id in unused]
    if len(id_types) > 1:
        problems["mixed_id_types"] = [
            questions.name if outputs is None else f"{questions.name}, {outputs.name}"
        ]


def _read_golds(
    task: LampTask, outputs: Path, problems: dict[str, list[str]]
) -> tuple[dict[str, str], set[bool]]:
    named = read_task_name(outputs)
    if named is not None and lamp_task(named) is not task:
        raise RecordError(
            f"{outputs}: these are outputs of {named}, not of {task.name}. Remedy: check task and root"
        )
    golds: dict[str, str] = {}
    types: set[bool] = set()
    for number, raw in enumerate(read_records(outputs), start=1):
        where = f"{outputs}, record {number}"
        if not isinstance(raw, dict) or raw.get("id") is None or raw.get("output") is None:
            raise RecordError(f'{where}: an object {{"id": ..., "output": ...}} without null is expected')
        gold_id = text_of_number(raw["id"], "id", where)
        types.add(isinstance(raw["id"], str))
        if gold_id in golds:
            problems.setdefault("duplicate_gold", []).append(gold_id)
        else:
            golds[gold_id] = text_of_number(raw["output"], "output", f"{outputs}, record {gold_id!r}")
    return golds, types


def _refuse_news(raw: Any, questions: Path, number: int) -> None:
    """LaMP-2 once was about categories of news; its files have the same names."""
    if not isinstance(raw, dict):
        return
    profile = raw.get("profile")
    document = profile[0] if isinstance(profile, list) and profile and isinstance(profile[0], dict) else {}
    asks_category = str(raw.get("input", "")).lstrip().lower().startswith("which category does this article")
    if asks_category or ("category" in document and "description" not in document):
        raise RecordError(
            f"{questions}, record {number}: this is LaMP-2's old version (news categorization), which the "
            "paper does not use. Remedy: download the new one (movie tagging), LaMP_2/new"
        )
