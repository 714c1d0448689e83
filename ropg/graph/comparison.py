"""One task's systems on its targets: answers through the generation store, values, tests against LaMP, slices."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ropg.console import counts, say
from ropg.evaluation.metrics import CorpusMetric, corpus_metric
from ropg.evaluation.results import Result
from ropg.evaluation.significance import bootstrap_interval, holm
from ropg.evaluation.systems import Evaluation, evaluate_systems
from ropg.examples import Document, Example
from ropg.feedback.answers import Answers, generate_answers
from ropg.feedback.store import GenerationStore
from ropg.graph.catalogue import labels
from ropg.graph.slices import slice_ids, slice_results
from ropg.graph.systems import PROVENANCES, Recipe, available, build_system


@dataclass(frozen=True, slots=True)
class Versus:
    """A system against LaMP on one metric.

    baseline: LaMP's name. difference: value − LaMP's. p: two-tailed and paired, corrected by Holm over the
    systems of the task; None where it cannot be tested (no difference on any target). better: None where the
    difference is not significant, else whether it is for the better.
    """

    baseline: str
    difference: float
    p: float | None
    better: bool | None


@dataclass(frozen=True, slots=True)
class Gain:
    """100 × (value / LaMP's − 1), its sign turned where lower is better; a 95 % bootstrap interval.

    ``value`` is None where LaMP's is 0, ``low`` and ``high`` also where it is 0 in a resample.
    """

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What one task's systems did.

    labels: system -> title, in the order of the table. results: one row per system and metric. versus, gains:
    (system, metric) -> against LaMP. slices: slice -> rows on its targets. slice_sizes: slice -> targets with a
    gold. shown: system -> counts over all its prompts (``documents`` in them, ``available`` in the profiles where the
    system chooses from those, cuts, answers). examples: targets, with or without a gold. llm_calls: texts
    generated just now.
    """

    labels: dict[str, str]
    results: list[Result]
    versus: dict[tuple[str, str], Versus]
    gains: dict[tuple[str, str], Gain]
    slices: dict[str, list[Result]]
    slice_sizes: dict[str, int]
    shown: dict[str, dict[str, int]]
    examples: int
    llm_calls: int = field(compare=False, default=0)


def compare(
    recipes: Sequence[Recipe],
    retrievers: Mapping[str, Any],
    examples: Sequence[Example],
    everyone: Sequence[Example],
    task: Any,
    llm: Any,
    store: GenerationStore,
    *,
    alpha: float = 0.05,
    resamples: int = 1000,
    seed: int = 0,
    gains: bool = False,
    progress: bool = True,
    stage: str = "table",
) -> TaskOutcome:
    """Rank, answer and score every recipe's system on the same targets.

    Parameters
    ----------
    examples: the targets. everyone: the whole data set's examples, for Random-Retrieval. retrievers: name -> what
    ranks whole profiles. alpha: of the tests. gains: whether to compute gains over LaMP as well.

    Raises ValueError where a recipe's LaMP baseline is not among the recipes, and as ``evaluate_systems``.
    """
    names = {recipe.name: recipe for recipe in recipes}
    for recipe in recipes:
        if recipe.baseline.name not in names:
            raise ValueError(f"{recipe.name} is tested against {recipe.baseline.name}, which is not compared")
    titles = labels(recipes)
    systems = [
        build_system(recipe, retrievers, task, llm, everyone, label=titles[name], seed=seed)
        for name, recipe in names.items()
    ]
    calls: list[int] = []

    def answer(name: str, rankings: Mapping[str, Sequence[Document]]) -> Answers:
        answers = generate_answers(
            examples, task, rankings, llm, store, description=f"answers {name}", progress=progress
        )
        calls.append(answers.report.n_generated)
        say(stage, f"{titles[name]}: {calls[-1]} LLM calls; {counts(answers.counts)}")
        return answers

    evaluation = evaluate_systems(
        # each system cuts its own rankings: k of each side may be 2k
        examples,
        task,
        systems,
        sys.maxsize,
        answer,
        resamples=resamples,
        seed=seed,
        progress=progress,
    )
    predictions = {name: outcome.predictions for name, outcome in evaluation.outcomes.items()}
    golds = [example for example in examples if example.target is not None]
    return TaskOutcome(
        titles,
        evaluation.results,
        against_baselines(evaluation.results, names, alpha),
        gains_over_baselines(names, predictions, golds, task, resamples, seed) if gains else {},
        slice_results(task, golds, predictions, resamples=resamples, seed=seed),
        {name: len(ids) for name, ids in slice_ids(golds).items()},
        _shown(evaluation, names, examples),
        len(examples),
        sum(calls),
    )


def against_baselines(
    results: Sequence[Result], recipes: Mapping[str, Recipe], alpha: float
) -> dict[tuple[str, str], Versus]:
    """(system, metric) -> its test against its LaMP, corrected over the systems of that metric."""
    found: dict[tuple[str, str], Versus] = {}
    for metric in dict.fromkeys(row["metric"] for row in results):
        rows = {row["system"]: row for row in results if row["metric"] == metric}
        tested = [name for name in rows if recipes[name].baseline.name != name]
        p_values = [rows[name]["p_values"][recipes[name].baseline.name] for name in tested]
        for name, p in zip(tested, holm(p_values), strict=True):
            baseline = recipes[name].baseline.name
            difference = rows[name]["value"] - rows[baseline]["value"]
            significant = p is not None and p < alpha and difference != 0
            better = (difference > 0) == rows[name]["higher_is_better"] if significant else None
            found[name, metric] = Versus(baseline, difference, p, better)
    return found


def gains_over_baselines(
    recipes: Mapping[str, Recipe],
    predictions: Mapping[str, Mapping[str, str]],
    examples: Sequence[Example],
    task: Any,
    resamples: int,
    seed: int,
) -> dict[tuple[str, str], Gain]:
    """(system, metric) -> its gain over its LaMP, with the targets resampled for both alike."""
    golds = [task.check_target(example.target, example.id) for example in examples]
    found = {}
    for name in task.metrics if golds else ():
        metric = corpus_metric(name, task)
        cases = {
            system: metric.cases([outputs[example.id] for example in examples], golds)
            for system, outputs in predictions.items()
        }
        for system, recipe in recipes.items():
            if recipe.baseline.name != system:
                found[system, name] = relative_gain(
                    metric, cases[system], cases[recipe.baseline.name], resamples, seed
                )
    return found


def relative_gain(
    metric: CorpusMetric, cases: np.ndarray, baseline: np.ndarray, resamples: int = 1000, seed: int = 0
) -> Gain:
    """The gain of one system's cases (n, …) over the baseline's on the same n targets.

    >>> from ropg.evaluation.metrics import CorpusMetric
    >>> half = CorpusMetric("half", cases=lambda predictions, golds: np.zeros(0))
    >>> relative_gain(half, np.array([0.3, 0.3]), np.array([0.2, 0.2])).value
    50.0
    """

    def gain(index: np.ndarray) -> float:
        before, now = metric.value(baseline[index]), metric.value(cases[index])
        if before == 0:
            return np.nan
        change = round(100 * (now - before) / before, 9)
        return change if metric.higher_is_better else -change

    whole = gain(np.arange(len(cases)))
    if np.isnan(whole):
        return Gain(None, None, None)
    low, high = bootstrap_interval(gain, size=len(cases), n=resamples, seed=seed)
    return Gain(whole, *((None, None) if np.isnan(low) or np.isnan(high) else (low, high)))


def _shown(
    evaluation: Evaluation, recipes: Mapping[str, Recipe], examples: Sequence[Example]
) -> dict[str, dict[str, int]]:
    """System -> what its prompts held, what the profiles offered and what the token budget cut."""
    offered: dict[str, int] = {}  # by mode: a pass over all profiles each
    found = {}
    for name, outcome in evaluation.outcomes.items():
        mode = recipes[name].mode
        if mode in PROVENANCES and mode not in offered:
            offered[mode] = available(recipes[name], examples)
        documents = sum(len(ids) for ids in outcome.document_ids.values())
        known = {"available": offered[mode]} if mode in offered else {}
        found[name] = {"documents": documents, **known, **outcome.counts}
    return found
