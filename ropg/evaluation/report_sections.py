"""The report of an evaluation, section by section, from an Evaluation and what was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ropg.evaluation import plots
from ropg.evaluation.report import Block, Case, CaseAnswer, Facts, Grid, Picture, Section, Text
from ropg.evaluation.systems import Evaluation
from ropg.evaluation.tables import BASELINES, ResultsTable, interval_rows
from ropg.examples import Document, Example


def evaluation_sections(
    evaluation: Evaluation,
    examples: Sequence[Example],
    table: ResultsTable,
    *,
    run: Mapping[str, Any],
    configuration: Mapping[str, Any],
    data_note: str,
    curves: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    counts: Mapping[str, Mapping[str, int]] | None = None,
    cases: int = 5,
) -> list[Section]:
    """All sections of an evaluation's report; those without data are left out.

    Parameters
    ----------
    run: what was run, in a few lines (task, data, LLM, encoder, …). configuration: all of it, may be nested.
    data_note: what the data are, and that they are synthetic where they are. curves: label of a trained
    system -> its evaluation records (:func:`ropg.evaluation.plots.read_metrics`). counts: system -> more
    counts than the outcomes hold (``llm_calls``). cases: inputs shown, evenly spaced over the examples.
    """
    labels = {name: outcome.label for name, outcome in evaluation.outcomes.items()}
    sections = [
        Section(
            "What was run",
            [
                Text(data_note, important=True),
                Facts(run),
                Facts(flat(configuration), folded="The whole configuration"),
            ],
        )
    ]
    if evaluation.results:
        sections.append(Section("Results", _results(evaluation, table, labels)))
    else:
        text = "These examples have no gold outputs: predictions were written, and there is nothing to score."
        sections.append(Section("Results", [Text(text)]))
    shown = {label: records for label, records in (curves or {}).items() if records}
    if shown:
        sections.append(Section("Learning", [_curves(shown)]))
    changed = _changed(evaluation)
    if changed:
        sections.append(Section("What training changed", changed))
    if evaluation.outcomes and len(examples):
        note = "Inputs at even distances in the held-out set, chosen without looking at the answers."
        chosen = [_case(evaluation, examples[i]) for i in _spread(len(examples), cases)]
        chosen[:1] = [replace(case, open=True) for case in chosen[:1]]
        sections.append(Section("Examples", [Text(note), *chosen]))
    if evaluation.outcomes:
        sections.append(Section("Counts", [_counts(evaluation, counts or {})]))
    return sections


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots.

    >>> flat({"task": {"name": "LaMP-4"}, "seed": 0})
    {'task.name': 'LaMP-4', 'seed': 0}
    """
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            plain |= flat(value, f"{prefix}{name}.")
        else:
            plain[f"{prefix}{name}"] = "" if isinstance(value, Mapping) else value
    return plain


def first_document_ranks(evaluation: Evaluation, system: str, reference: str = "initial") -> list[int | None]:
    """Where the document that a system puts first stands in the reference's prompt documents.

    Ranks from 1, None where it is not among them; examples without documents on either side are left out.
    """
    chosen = evaluation.outcomes[system].document_ids
    initial = evaluation.outcomes[reference].document_ids
    ranks: list[int | None] = []
    for example_id, documents in chosen.items():
        before = initial[example_id]
        if documents and before:
            ranks.append(before.index(documents[0]) + 1 if documents[0] in before else None)
    return ranks


def _results(evaluation: Evaluation, table: ResultsTable, labels: Mapping[str, str]) -> list[Block]:
    blocks: list[Block] = [table]
    for metric in dict.fromkeys(row["metric"] for row in evaluation.results):
        rows = [row for row in evaluation.results if row["metric"] == metric]
        svg = plots.system_bars(rows, labels)
        values = ", ".join(f"{labels[row['system']]} {row['value']:.3f}" for row in rows)
        blocks.append(Picture(svg, alt=f"{metric} per system: {values}"))
    header = ["Dataset", "Metric", "System", "Value", "95 % interval"]
    lines = interval_rows(evaluation.results, labels)
    return [*blocks, Grid(header, lines, left=3, folded="All values with bootstrap intervals")]


def _curves(curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> Picture:
    ends = ", ".join(f"{label} {records[-1]['expected_reward']:.3f}" for label, records in curves.items())
    caption = (
        "Measured on the split that chooses checkpoints. Expected reward: Σ π(d|x) Eval(d) over the "
        "candidates. First-document reward: Eval of the candidate ranked first. Oracle: the best candidate "
        "of each input."
    )
    return Picture(plots.learning_curves(curves), f"Rewards against training steps; last: {ends}", caption)


def _changed(evaluation: Evaluation) -> list[Block]:
    """Plots of the trained systems against the initial encoder."""
    outcomes = evaluation.outcomes
    trained = [name for name in outcomes if name not in BASELINES]
    if "initial" not in outcomes or not trained:
        return []
    blocks: list[Block] = []
    ranks = {outcomes[name].label: first_document_ranks(evaluation, name) for name in trained}
    ranks = {label: values for label, values in ranks.items() if values}
    if ranks:
        caption = (
            f"The initial ranking is known to depth {evaluation.k}, the documents that entered its prompts."
        )
        alt = "Rank in the initial ranking of the documents that trained systems put first"
        blocks.append(Picture(plots.rank_histogram(ranks, evaluation.k), alt, caption))
    initial = outcomes["initial"].evals
    differences = {
        outcomes[name].label: [value - initial[i] for i, value in outcomes[name].evals.items()]
        for name in trained
    }
    differences = {label: values for label, values in differences.items() if values}
    if differences:
        alt = "Eval of the trained systems minus that of the initial encoder, per input"
        svg = plots.difference_histogram(differences, outcomes["initial"].label)
        blocks.append(
            Picture(svg, alt, "Per held-out input: Eval of the answer with the system's documents.")
        )
    return blocks


def _spread(n: int, wanted: int) -> list[int]:
    """Indices at even distances.

    >>> _spread(10, 3), _spread(2, 5)
    ([1, 5, 8], [0, 1])
    """
    wanted = min(n, wanted)
    return [(2 * i + 1) * n // (2 * wanted) for i in range(wanted)]


def _case(evaluation: Evaluation, example: Example) -> Case:
    outcomes = evaluation.outcomes.values()
    wanted = {document_id for outcome in outcomes for document_id in outcome.document_ids[example.id]}
    texts = {document.id: _summary(document) for document in example.profile if document.id in wanted}
    answers = [
        CaseAnswer(
            outcome.label,
            [texts.get(document_id, document_id) for document_id in outcome.document_ids[example.id]],
            outcome.predictions[example.id],
            outcome.evals.get(example.id),
        )
        for outcome in outcomes
    ]
    return Case(f"Input {example.id}", example.input, example.target, answers)


def _summary(document: Document) -> str:
    details = [
        f"tag {document.tag}" if document.tag else "",
        f"score {document.score}" if document.score else "",
    ]
    note = ", ".join(filter(None, [*details, document.date or ""]))
    title = f"“{document.title}” " if document.title else ""
    return f"{title}{document.text}" + (f" ({note})" if note else "")


def _counts(evaluation: Evaluation, more: Mapping[str, Mapping[str, int]]) -> Grid:
    rows = {name: {**outcome.counts, **more.get(name, {})} for name, outcome in evaluation.outcomes.items()}
    columns = list(dict.fromkeys(column for counts in rows.values() for column in counts))
    header = ["System", *(column.replace("_", " ").replace("llm", "LLM") for column in columns)]
    lines = [
        [evaluation.outcomes[name].label, *(str(counts.get(column, "–")) for column in columns)]
        for name, counts in rows.items()
    ]
    return Grid(header, lines)
