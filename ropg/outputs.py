"""What a comparison leaves behind: predictions, tables.md, the printed table, report.html."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropg import build
from ropg.configuration import Config
from ropg.console import say
from ropg.evaluation.plots import read_metrics
from ropg.evaluation.predictions import write_predictions
from ropg.evaluation.report import Grid, Section, Text, write_report
from ropg.evaluation.report_sections import evaluation_sections
from ropg.evaluation.seeds import HEADER, SEED_NOTE, print_seeds, seed_rows
from ropg.evaluation.statistics import dataset_statistics, statistics_table
from ropg.evaluation.systems import Evaluation
from ropg.evaluation.table_text import markdown_grid, markdown_table, print_table
from ropg.evaluation.tables import results_table
from ropg.examples import Example
from ropg.files import write_text
from ropg.runs import finished_runs, load_config, slug


@dataclass(frozen=True, slots=True)
class Extra:
    """What a package beside this one adds: Markdown parts, sections of the report, and a function that prints."""

    markdown: Sequence[str] = ()
    sections: Sequence[Section] = ()
    print: Callable[[], None] = lambda: None


def write_outputs(
    config: Config,
    task: Any,
    examples: Sequence[Example],
    evaluation: Evaluation,
    runs: Mapping[str, Path],
    calls: Mapping[str, int],
    folder: Path,
    extra: Extra,
) -> None:
    """Write everything but results.json, print the table, and say where things lie."""
    shutil.rmtree(folder / "predictions", ignore_errors=True)  # of systems that are compared no more
    for name, outcome in evaluation.outcomes.items():
        write_predictions(folder / "predictions", slug(name), task.name, outcome.predictions)
    settings = config.evaluation
    labels = {name: outcome.label for name, outcome in evaluation.outcomes.items()}
    title = f"{task.name}: personalized by {len(labels)} system{'s' if len(labels) != 1 else ''}, k = {evaluation.k}"
    table = results_table(evaluation.results, labels=labels, alpha=settings.alpha, correct=settings.holm)
    seeds = seed_rows([s for _, s in finished_runs(config) if "trained" in s["heldout"]])
    parts = [f"# {title}", data_note(config)]
    parts += [markdown_table(table)] if evaluation.results else ["No gold outputs: predictions only."]
    parts += extra.markdown
    if seeds:
        grid = markdown_grid(HEADER, seeds, left=1)
        parts += ["## First-document reward of the trained retrievers", SEED_NOTE, grid]
    parts += ["## The data (the paper's Table 1)", statistics_table([statistics(config, task)])]
    write_text(folder / "tables.md", "\n\n".join(part.strip() for part in parts) + "\n")

    sections = evaluation_sections(
        evaluation,
        examples,
        table,
        run=what_was_run(config, task, runs),
        configuration=dataclasses.asdict(config),
        data_note=data_note(config),
        curves=learning_records(runs, labels),
        counts={name: {"llm_calls": n} for name, n in calls.items()},
    )
    if seeds:
        sections.insert(2, Section("Trained retrievers, every seed", [Grid(HEADER, seeds), Text(SEED_NOTE)]))
    sections[2:2] = extra.sections
    write_report(folder, title, sections)
    if evaluation.results:
        print_table(table, title)
    extra.print()
    if seeds:
        print_seeds(seeds)
    say("done", f"{folder}: report.html, tables.md, results.json, predictions")


def statistics(config: Config, task: Any) -> dict[str, Any]:
    """Table 1's row of this data."""
    data = config.data
    named = {
        "train": (data.train, data.limit_train),
        "dev": (data.dev, data.limit_dev),
        "test": (data.test, data.limit_test),
    }
    splits: dict[str, Sequence[Example]] = {}
    for name, split in named.items():
        try:
            splits |= {name: build.build_examples(config, *split)} if split[0] else {}
        except (OSError, ValueError) as error:  # a split that was not evaluated must not cost the tables
            say("data", f"{name} is left out of Table 1: {error}")
    return dataset_statistics(task.name, splits, task.labels)


def data_note(config: Config) -> str:
    """What the figures were made from, in one or two sentences."""
    data = config.data.path or config.data.root or config.data.source
    if config.data.file and not config.data.path:
        data = f"{data}, {config.data.file}"
    synthetic = "The data is synthetic: no real person wrote or is described by it. "
    return (
        f"{synthetic if config.data.source == 'sample' else ''}Data: {data}; LLM: {config.llm.model}; "
        f"initial encoder: {config.encoder.model}."
    )


def what_was_run(config: Config, task: Any, runs: Mapping[str, Path]) -> dict[str, str]:
    """The few lines that head the report."""
    facts = {
        "task": f"{task.name}, {task.template} template, Eval = {task.metric}",
        "LLM": config.llm.model,
        "initial encoder": config.encoder.model,
    }
    for name, folder in runs.items():
        summary = folder / "summary.json"
        facts[name] = str(folder)
        if summary.exists():
            values = json.loads(summary.read_text(encoding="utf-8"))
            facts[name] += (
                f": seed {values['seed']}, {values['n_train']} training queries, {values['llm_calls']} LLM calls, "
                f"{values['seconds']:.0f} s"
            )
    return facts


def learning_records(runs: Mapping[str, Path], labels: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The evaluation records of the retrievers' runs that were compared, by label."""
    kept = {
        name: run for name, run in runs.items() if name in labels and load_config(run).method.reads is None
    }
    return {labels[name]: curve_of(run) for name, run in kept.items() if (run / "metrics.jsonl").exists()}


def curve_of(run: Path) -> list[dict[str, Any]]:
    """The evaluation records of a run; none, which is said, where its file is gone or cannot be read."""
    try:
        return read_metrics(run / "metrics.jsonl")
    except (OSError, ValueError) as error:
        say("report", f"learning curve left out: {run / 'metrics.jsonl'} cannot be read ({error})")
        return []
