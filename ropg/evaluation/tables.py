"""The paper's Table 3 from rows of results.json: order, bold, superscripts, legend.

All that a table says is decided here; :mod:`ropg.evaluation.table_text` and the report only write it down, so
Markdown, console and HTML say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ropg.evaluation.metrics import metric_test, metric_title
from ropg.evaluation.results import Result, check_results
from ropg.evaluation.significance import holm

#: Baselines in the order of the paper's Table 3, whose superscripts 1 to 5 they have; random, which the paper
#: does not report, comes after them.
BASELINES = ("none", "bm25", "recency", "initial", "rrf", "random")
METHODS = ("ropg_rl", "ropg_kd", "rspg_pre", "rspg_post")

LABELS = {
    "none": "No personalization",
    "random": "Random",
    "recency": "Recency",
    "bm25": "BM25",
    "initial": "Initial encoder",
    "rrf": "RRF",
    "ropg_rl": "ROPG-RL",
    "ropg_kd": "ROPG-KD",
    "rspg_pre": "RSPG-Pre",
    "rspg_post": "RSPG-Post",
}

# the same retrievers over a part of a graph profile (conf/retriever/modes.yaml)
LABELS |= {
    f"{name}_{mode}": f"{LABELS['initial' if name == 'dense' else name]} ({mode})"
    for name in ("bm25", "dense", "ropg_rl", "ropg_kd")
    for mode in ("own", "neighbors", "both")
}

DATASETS = {
    "LaMP-1": "Personalized Citation Identification",
    "LaMP-2": "Personalized Movie Tagging",
    "LaMP-3": "Personalized Product Rating",
    "LaMP-4": "Personalized News Headline Generation",
    "LaMP-5": "Personalized Scholarly Title Generation",
    "LaMP-6": "Personalized Email Subject Generation",
    "LaMP-7": "Personalized Tweet Paraphrasing",
    "sample_titles": "Synthetic Review Titles",
    "pgraphrag_title": "Review Titles",
    "pgraphrag_text": "Review Texts",
    "pgraphrag_rating": "Review Ratings",
}

#: The note on bold figures; where there is no bold, it is left out.
BEST_NOTE = "Bold: the best value for its metric and dataset."

SUPERSCRIPT_DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_SUPERSCRIPTS = str.maketrans("0123456789", SUPERSCRIPT_DIGITS)


@dataclass(frozen=True, slots=True)
class Cell:
    """One value: ``text`` with three decimals, ``marks`` the superscripts, ``best`` of its row or not."""

    text: str
    marks: str = ""
    best: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """One metric of one dataset; ``metric`` ends in ↑ or ↓."""

    dataset: str
    metric: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class ResultsTable:
    """``columns``: the systems' labels, numbered baselines with their number. ``notes``: the legend."""

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]


def results_table(
    results: Sequence[Result],
    *,
    labels: Mapping[str, str] | None = None,
    alpha: float = 0.05,
    correct: bool = False,
) -> ResultsTable:
    """Arrange rows of any number of tasks and systems.

    Parameters
    ----------
    labels: system -> column title, where not the usual one ("Contriever" for ``initial``).
    alpha: superscripts mark values that are better than the numbered baseline with p < alpha.
    correct: adjust the p-values of each row of the table (all its methods against all baselines) by Holm.

    Raises ValueError where one system has two values for one task and metric.
    """
    check_results(results, "results")
    names = {**LABELS, **(labels or {})}
    present = list(dict.fromkeys(row["system"] for row in results))
    baselines = [name for name in BASELINES if name in present]
    methods = [name for name in METHODS if name in present]
    methods += [name for name in present if name not in baselines and name not in methods]
    numbers = {name: superscript(i) for i, name in enumerate(baselines, start=1)}
    columns = [f"{numbers[n]} {names.get(n, n)}" for n in baselines] + [names.get(n, n) for n in methods]
    groups: dict[tuple[str, str], dict[str, Result]] = {}
    for row in results:
        groups.setdefault((row["task"], row["metric"]), {})[row["system"]] = row
    tasks = _tasks(results)
    rows = []
    for task in tasks:
        for metric in dict.fromkeys(row["metric"] for row in results if row["task"] == task):
            group = groups[task, metric]
            marks = _marks(group, baselines, methods, numbers, alpha, correct)
            rows.append(_table_row(task, metric, group, (*baselines, *methods), marks))
    notes = _notes(
        results, tasks, [(numbers[n], names.get(n, n)) for n in baselines], bool(methods), alpha, correct
    )
    return ResultsTable(tuple(columns), tuple(rows), tuple(notes))


def superscript(number: int) -> str:
    """A number as it stands at the end of a value.

    >>> superscript(12)
    '¹²'
    """
    return str(number).translate(_SUPERSCRIPTS)


def _tasks(results: Iterable[Result]) -> list[str]:
    """Tasks in the order of ``DATASETS``, then the others as they came."""
    tasks = list(dict.fromkeys(row["task"] for row in results))
    return [task for task in DATASETS if task in tasks] + [task for task in tasks if task not in DATASETS]


def _marks(
    group: Mapping[str, Result],
    baselines: Sequence[str],
    methods: Sequence[str],
    numbers: Mapping[str, str],
    alpha: float,
    correct: bool,
) -> dict[str, str]:
    """System -> the numbers of the baselines that it is significantly better than, for one row."""
    pairs = [(m, b) for m in methods if m in group for b in baselines if b in group]
    p_values = [group[method]["p_values"].get(baseline) for method, baseline in pairs]
    if correct:
        p_values = holm(p_values)
    marks: dict[str, str] = {}
    for (method, baseline), p in zip(pairs, p_values, strict=True):
        gain = group[method]["value"] - group[baseline]["value"]
        better = gain > 0 if group[method]["higher_is_better"] else gain < 0
        if better and p is not None and p < alpha:
            marks[method] = marks.get(method, "") + numbers[baseline]
    return marks


def _table_row(
    task: str, metric: str, group: Mapping[str, Result], systems: Sequence[str], marks: Mapping[str, str]
) -> TableRow:
    up = next(iter(group.values()))["higher_is_better"]
    values = [row["value"] for row in group.values()]
    best = f"{max(values) if up else min(values):.3f}"  # as shown: equal figures are equally bold
    cells = []
    for system in systems:
        if system not in group:
            cells.append(Cell("–"))
            continue
        text = f"{group[system]['value']:.3f}"
        cells.append(Cell(text, marks.get(system, ""), best=text == best and len(values) > 1))
    dataset = f"{task}: {DATASETS[task]}" if task in DATASETS else task
    return TableRow(dataset, f"{metric_title(metric)} {'↑' if up else '↓'}", tuple(cells))


def _notes(
    results: Sequence[Result],
    tasks: Sequence[str],
    numbered: Sequence[tuple[str, str]],
    any_method: bool,
    alpha: float,
    correct: bool,
) -> list[str]:
    sizes = []
    for task in tasks:
        n = sorted({row["n"] for row in results if row["task"] == task})
        size = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}, not the same for all systems"
        sizes.append(size if len(tasks) == 1 else f"{task} {size}")
    notes = [f"n (examples with a gold): {'; '.join(sizes)}."] if sizes else []
    notes += ["↑ higher is better, ↓ lower is better.", BEST_NOTE]
    if numbered and any_method:
        tests: dict[str, list[str]] = {}
        for metric in dict.fromkeys(row["metric"] for row in results):
            tests.setdefault(metric_test(metric), []).append(metric_title(metric))
        named = "; ".join(f"{test} for {', '.join(metrics)}" for test, metrics in tests.items())
        over = ", ".join(f"{number} {label}" for number, label in numbered)
        notes.append(
            f"Superscripts: significantly better (p < {alpha:g}, two-tailed) than {over}. Tests: {named}; "
            + ("p-values corrected by Holm within each row." if correct else "p-values not corrected.")
        )
    return notes


def interval_rows(results: Sequence[Result], labels: Mapping[str, str] | None = None) -> list[list[str]]:
    """Task, metric, system, value and 95 % interval of every row, systems in the order of the table."""
    names = {**LABELS, **(labels or {})}
    order = {name: i for i, name in enumerate((*BASELINES, *METHODS))}
    rows = []
    for task in _tasks(results):
        own = [row for row in results if row["task"] == task]
        for metric in dict.fromkeys(row["metric"] for row in own):
            group = [row for row in own if row["metric"] == metric]
            for row in sorted(group, key=lambda row: order.get(row["system"], len(order))):
                interval = f"{row['ci_low']:.3f} to {row['ci_high']:.3f}"
                name = names.get(row["system"], row["system"])
                rows.append([task, metric_title(metric), name, f"{row['value']:.3f}", interval])
    return rows
