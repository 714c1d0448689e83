"""What a comparison leaves behind: predictions, tables.md, the printed table, report.html."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg import build
from ropg.configuration import Config
from ropg.evaluation.files import write_text
from ropg.evaluation.plots import difference_histogram, learning_curves, read_metrics, system_bars
from ropg.evaluation.predictions import write_predictions
from ropg.evaluation.report import Case, CaseAnswer, Facts, Grid, Picture, Section, Text, write_report
from ropg.evaluation.seeds import HEADER, seed_rows
from ropg.evaluation.statistics import dataset_statistics, statistics_table
from ropg.evaluation.systems import Evaluation
from ropg.evaluation.table_text import markdown_grid, markdown_table, print_table
from ropg.evaluation.tables import results_table
from ropg.examples import Example
from ropg.pipeline import say
from ropg.runs import finished_runs

CASES = 6  # examples shown in the report


def write_outputs(
    config: Config,
    task: Any,
    examples: Sequence[Example],
    evaluation: Evaluation,
    runs: Mapping[str, Path],
    calls: Mapping[str, int],
    folder: Path,
) -> None:
    """Write everything but results.json, and print the table and where things lie."""
    for name, outcome in evaluation.outcomes.items():
        write_predictions(folder / "predictions", name, task.name, outcome.predictions)
    if not evaluation.results:
        say("evaluate", f"no example has a gold output: predictions only, in {folder / 'predictions'}")
        return
    settings = config.evaluation
    labels = {name: outcome.label for name, outcome in evaluation.outcomes.items()}
    table = results_table(evaluation.results, labels=labels, alpha=settings.alpha, correct=settings.holm)
    summaries = [summary for _, summary in finished_runs(config)]
    seeds = seed_rows(summaries) if summaries else []
    title = f"{task.name}: personalized by {len(labels)} systems, k = {evaluation.k}"
    parts = [f"# {title}", note(config), markdown_table(table)]
    if seeds:
        parts += [
            "## First-document reward of the trained retrievers",
            SEED_NOTE,
            markdown_grid(HEADER, seeds, left=1),
        ]
    parts += ["## The data (Table 1)", statistics_table([statistics(config, task)])]
    write_text(folder / "tables.md", "\n\n".join(part.strip() for part in parts) + "\n")
    seed_blocks: list[Any] = [Grid(HEADER, seeds), Text(SEED_NOTE)] if seeds else []
    sections = [
        Section("Results", [Text(note(config), important=True), table, *bars(evaluation, labels)]),
        Section(
            "Training", [*training(runs), *([Grid(HEADER, seeds, left=1), Text(SEED_NOTE)] if seeds else [])]
        ),
        Section("Where systems differ", differences(evaluation, labels)),
        Section("Examples", cases(task, examples, evaluation)),
        Section("Counts", [counts_grid(evaluation, calls)]),
        Section("Configuration", [Facts(flat(dataclasses.asdict(config)))]),
    ]
    write_report(folder, title, [section for section in sections if section.blocks])
    print_table(table, title)
    if seeds:
        print_seeds(seeds)
    say("done", f"{folder}/report.html, tables.md, results.json and predictions/")


def statistics(config: Config, task: Any) -> dict[str, Any]:
    """Table 1's row of this data."""
    data = config.data
    named = {
        "train": (data.train, data.limit_train),
        "dev": (data.dev, data.limit_dev),
        "test": (data.test, data.limit_test),
    }
    splits = {name: build.build_examples(config, *split) for name, split in named.items() if split[0]}
    return dataset_statistics(task.name, splits, task.labels)


SEED_NOTE = (
    "Mean Eval of the first of the candidates that each system ranks, one document in the prompt, on held-out "
    "users; gap closed is (trained − initial) / (oracle − initial); p-values are two-tailed paired permutation "
    "tests against the initial encoder and BM25."
)


def note(config: Config) -> str:
    """What the figures were made from, in one sentence."""
    data = config.data.path or config.data.root or config.data.source
    kind = (
        "The data is synthetic: no real person wrote or is described by it. "
        if config.data.source == "sample"
        else ""
    )
    return f"{kind}Data: {data}; LLM: {config.llm.model}; encoder: {config.encoder.model}."


def print_seeds(seeds: Sequence[Sequence[str]]) -> None:
    """Print the table of seeds."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title="First-document reward on held-out users", title_justify="left")
    for i, name in enumerate(HEADER):
        shown.add_column(name, justify="left" if i == 0 else "right")
    for row in seeds:
        shown.add_row(*row)
    Console().print(shown)


def bars(evaluation: Evaluation, labels: Mapping[str, str]) -> list[Picture]:
    """One bar chart per metric."""
    metrics = list(dict.fromkeys(row["metric"] for row in evaluation.results))
    return [
        Picture(
            system_bars([row for row in evaluation.results if row["metric"] == metric], labels),
            f"{metric} of each system with its 95 % interval",
        )
        for metric in metrics
    ]


def training(runs: Mapping[str, Path]) -> list[Any]:
    """Learning curves of the runs that were compared."""
    curves = {
        name: read_metrics(folder / "metrics.jsonl")
        for name, folder in runs.items()
        if (folder / "metrics.jsonl").exists()
    }
    if not curves:
        return []
    blocks: list[Any] = [
        Picture(
            learning_curves(curves), "expected and first-document reward on dev against the training step"
        )
    ]
    facts = {}
    for name, folder in runs.items():
        summary = folder / "summary.json"
        if summary.exists():
            values = json.loads(summary.read_text(encoding="utf-8"))
            facts[name] = (
                f"{folder}: seed {values['seed']}, {values['n_train']} training queries, "
                f"{values['llm_calls']} LLM calls, {values['seconds']:.0f} s"
            )
    return [*blocks, Facts(facts)] if facts else blocks


def differences(evaluation: Evaluation, labels: Mapping[str, str]) -> list[Any]:
    """Per-example differences of Eval to the initial encoder, of the systems that differ anywhere."""
    base = evaluation.outcomes.get("initial")
    if base is None or not base.evals:
        return []
    values = {
        labels[name]: [outcome.evals[i] - base.evals[i] for i in base.evals]
        for name, outcome in evaluation.outcomes.items()
        if name in ("bm25", "recency", "ropg_rl", "ropg_kd")
    }
    return (
        [Picture(difference_histogram(values, labels["initial"]), "differences of Eval per example")]
        if values
        else []
    )


def cases(task: Any, examples: Sequence[Example], evaluation: Evaluation) -> list[Case]:
    """The first examples with what each system retrieved and answered."""
    shown = []
    for example in examples[:CASES]:
        documents = {d.id: d for d in example.profile}
        answers = [
            CaseAnswer(
                outcome.label,
                [task.document_text(documents[i]) for i in outcome.document_ids[example.id]],
                outcome.predictions[example.id],
                outcome.evals.get(example.id),
            )
            for outcome in evaluation.outcomes.values()
        ]
        shown.append(Case(example.id, example.input, example.target, answers))
    return shown


def counts_grid(evaluation: Evaluation, calls: Mapping[str, int]) -> Grid:
    """What was generated, cut, dropped or not understood, per system."""
    names = list(dict.fromkeys(name for outcome in evaluation.outcomes.values() for name in outcome.counts))
    header = ["System", "LLM calls", *(name.replace("_", " ") for name in names)]
    rows = [
        [outcome.label, str(calls.get(name, 0)), *(str(outcome.counts.get(n, 0)) for n in names)]
        for name, outcome in evaluation.outcomes.items()
    ]
    return Grid(header, rows)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted names.

    >>> flat({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= (
            flat(value, f"{prefix}{name}.")
            if isinstance(value, dict) and value
            else {f"{prefix}{name}": value}
        )
    return found
