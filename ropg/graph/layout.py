"""How a table of PGraphRAG is written: on the console, as Markdown, as JSON, from the same parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ropg.evaluation.metrics import metric_test, metric_title
from ropg.evaluation.results import Result
from ropg.evaluation.table_text import escape_markdown, markdown_grid, markdown_table, print_table
from ropg.evaluation.tables import BEST_NOTE, Cell, ResultsTable, TableRow
from ropg.graph.catalogue import TASKS, PaperTable
from ropg.graph.comparison import TaskOutcome
from ropg.graph.slices import SLICES

BETTER, WORSE = "⁺", "⁻"
INTERVAL_HEADER = ("Task", "Metric", "System", "Value", "95 % interval", "Minus LaMP", "p (Holm)")
GAIN_HEADER = ("Task", "Metric", "System", "Gain %", "95 % interval", "Minus LaMP", "p (Holm)")
SHOWN_HEADER = ("Task", "System", "Documents", "of", "Shortened", "Dropped", "Unparsed", "Cut off")
SHOWN_NOTE = (
    "Documents: in all prompts together, of those that the profiles hold for that system; what ** leaves out did not "
    "fit; –: it takes nothing from the targets' profiles. Shortened and dropped: by the token budget. Cut off: answers "
    "that the limit of new tokens ended."
)
SLICE_NOTE = (
    "A target is in one slice by its user's own reviews and in one by the neighbours' reviews, both as counted in its "
    "profile. Without own history LaMP is No-Retrieval. –: the slice has no target."
)


@dataclass(frozen=True, slots=True)
class Grid:
    """A plain table: a title, a header of which the first ``left`` columns are text, rows, and a note."""

    title: str
    header: tuple[str, ...]
    rows: list[list[str]]
    left: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A table with all that belongs to it. ``outcomes``: task number -> what its systems did.

    settings: what it was made with, as JSON values. facts: the same in sentences, for the notes.
    """

    table: PaperTable
    outcomes: Mapping[int, TaskOutcome]
    settings: Mapping[str, Any]
    facts: tuple[str, ...]
    alpha: float = 0.05

    @property
    def title(self) -> str:
        """What stands above it."""
        splits = " and ".join(sorted(set(self.settings["splits"].values())))
        return f"Table {self.table.number} of PGraphRAG: {self.table.title} ({splits} files)"


def task_name(number: int) -> str:
    """A task as tables write it.

    >>> task_name(5)
    'Task 5: User-Product Review Title Generation'
    """
    return f"Task {number}: {TASKS[number].title}"


def main_table(report: Report) -> ResultsTable:
    """The paper's shape: systems as columns, tasks and metrics as rows; or gains in per cent."""
    titles: dict[str, str] = {}
    for outcome in report.outcomes.values():
        titles |= outcome.labels
    if report.table.gains:
        gaining = {system for outcome in report.outcomes.values() for system, _ in outcome.gains}
        titles = {name: title for name, title in titles.items() if name in gaining}
    rows = []
    for number, outcome in report.outcomes.items():
        for metric in dict.fromkeys(row["metric"] for row in outcome.results):
            rows.append(_row(report, number, outcome, metric, list(titles)))
    return ResultsTable(tuple(titles.values()), tuple(rows), tuple(_notes(report)))


def _row(report: Report, number: int, outcome: TaskOutcome, metric: str, systems: Sequence[str]) -> TableRow:
    found = {row["system"]: row for row in outcome.results if row["metric"] == metric}
    up = next(iter(found.values()))["higher_is_better"]
    values = [f"{row['value']:.3f}" for row in found.values()]
    best = max(values, key=float) if up else min(values, key=float)
    cells = []
    for name in systems:
        if name not in found:
            cells.append(Cell("–"))
            continue
        versus = outcome.versus.get((name, metric))
        mark = "" if versus is None or versus.better is None else BETTER if versus.better else WORSE
        text = f"{found[name]['value']:.3f}"
        if report.table.gains:
            gain = outcome.gains[name, metric].value
            cells.append(Cell("–" if gain is None else f"{gain:+.1f}", mark))
        else:
            cells.append(Cell(text, mark, best=text == best and len(values) > 1))
    return TableRow(task_name(number), f"{metric_title(metric)} {'↑' if up else '↓'}", tuple(cells))


def _notes(report: Report) -> list[str]:
    sizes, metrics = [], set()
    for number, outcome in report.outcomes.items():
        metrics |= {row["metric"] for row in outcome.results}
        n = max((row["n"] for row in outcome.results), default=0)
        left = outcome.examples - n
        sizes.append(f"task {number} {n}" + (f" (and {left} without a gold, not scored)" if left else ""))
    tests = " and ".join(sorted({metric_test(metric) for metric in metrics}))
    notes = [*report.facts, f"n (targets): {', '.join(sizes)}."]
    notes.append(
        f"{BETTER} significantly better, {WORSE} significantly worse than LaMP with the same retriever and k (p < "
        f"{report.alpha:g}, two-tailed {tests}, corrected by Holm over the systems of a task, for each metric)."
    )
    if report.table.gains:
        return [*notes, "Gains are in per cent of LaMP's value; positive is better. –: LaMP's value is 0."]
    return [*notes, "↑ higher is better, ↓ lower is better.", BEST_NOTE]


def interval_grid(report: Report) -> Grid:
    """Every value with its interval, and its test against LaMP."""
    rows = []
    for number, outcome in report.outcomes.items():
        for row in outcome.results:
            key = (row["system"], row["metric"])
            if report.table.gains and key not in outcome.gains:
                continue
            versus = outcome.versus.get(key)
            shown = f"{row['value']:.3f}", f"{row['ci_low']:.3f} to {row['ci_high']:.3f}"
            if report.table.gains:
                gain = outcome.gains[key]
                shown = (
                    "–" if gain.value is None else f"{gain.value:+.1f}",
                    "–" if gain.low is None else f"{gain.low:+.1f} to {gain.high:+.1f}",
                )
            against = ["", ""] if versus is None else [f"{versus.difference:+.3f}", _p(versus.p)]
            rows.append(
                [str(number), metric_title(row["metric"]), outcome.labels[row["system"]], *shown, *against]
            )
    header = GAIN_HEADER if report.table.gains else INTERVAL_HEADER
    note = "Intervals: bootstrap over targets." + (
        " A gain's interval is left out where LaMP's value is 0 in a resample." if report.table.gains else ""
    )
    return Grid("Intervals and tests against LaMP", header, rows, 3, note)


def _p(p: float | None) -> str:
    return "not testable" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def slice_grid(report: Report) -> Grid:
    """Every value on the slices of the targets, with its interval."""
    titles: dict[str, str] = {}
    for outcome in report.outcomes.values():
        titles |= outcome.labels
    rows = []
    for number, outcome in report.outcomes.items():
        for name, results in outcome.slices.items():
            for metric in dict.fromkeys(row["metric"] for row in results):
                found = {row["system"]: row for row in results if row["metric"] == metric}
                cells = [_slice_cell(found.get(system)) for system in titles]
                rows.append([str(number), name, str(outcome.slice_sizes[name]), metric_title(metric), *cells])
    return Grid(
        "Slices of the targets", ("Task", "Slice", "n", "Metric", *titles.values()), rows, 2, SLICE_NOTE
    )


def _slice_cell(row: Result | None) -> str:
    if row is None:
        return "–"
    return f"{row['value']:.3f} ({row['ci_low']:.3f} to {row['ci_high']:.3f})"


def narrow_slice_grid(report: Report) -> Grid:
    """The first metric of each task on the slices, which are the columns here: narrow enough for a console."""
    names = [s for s in SLICES if any(s in outcome.slices for outcome in report.outcomes.values())]
    rows = []
    for number, outcome in report.outcomes.items():
        metric = next((row["metric"] for row in outcome.results), None)
        if metric is None:
            continue
        sizes = [str(outcome.slice_sizes.get(name, 0)) for name in names]
        rows.append([str(number), f"n; {metric_title(metric)} of", *sizes])
        for system, title in outcome.labels.items():
            cells = ["–"] * len(names)
            for place, name in enumerate(names):
                for row in outcome.slices.get(name, ()):
                    if (row["system"], row["metric"]) == (system, metric):
                        cells[place] = f"{row['value']:.3f}"
            rows.append([str(number), title, *cells])
    return Grid("Slices of the targets", ("Task", "System", *names), rows, 2, SLICE_NOTE)


def shown_grid(report: Report) -> Grid:
    """What the prompts of each system held, and what was cut."""
    names = (
        "documents",
        "available",
        "shortened_documents",
        "dropped_documents",
        "unparsed",
        "truncated_answers",
    )
    rows = []
    for number, outcome in report.outcomes.items():
        for system, title in outcome.labels.items():
            rows.append([str(number), title, *(str(outcome.shown[system].get(name, "–")) for name in names)])
    return Grid("What the prompts held", SHOWN_HEADER, rows, 2, SHOWN_NOTE)


def markdown(report: Report) -> str:
    """The whole report as Markdown."""
    parts = [f"# {report.title}", markdown_table(main_table(report))]
    for grid in (interval_grid(report), slice_grid(report), shown_grid(report)):
        rows = [[escape_markdown(cell) for cell in row] for row in grid.rows]
        header = [escape_markdown(cell) for cell in grid.header]
        parts += [f"## {grid.title}", markdown_grid(header, rows, left=grid.left), escape_markdown(grid.note)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def as_json(report: Report) -> dict[str, Any]:
    """The whole report as JSON values; numbers are not rounded."""
    tasks = []
    for number, outcome in report.outcomes.items():
        rows = []
        for row in outcome.results:
            key = (row["system"], row["metric"])
            versus, gain = outcome.versus.get(key), outcome.gains.get(key)
            rows.append(
                {
                    **row,
                    "versus_lamp": None if versus is None else asdict(versus),
                    "gain": None if gain is None else asdict(gain),
                }
            )
        tasks.append(
            {
                "task": number,
                "title": TASKS[number].title,
                "systems": outcome.labels,
                "results": rows,
                "slices": [
                    {"slice": name, "n": outcome.slice_sizes[name], "results": results}
                    for name, results in outcome.slices.items()
                ],
                "shown": outcome.shown,
            }
        )
    return {
        "table": report.table.number,
        "title": report.table.title,
        "settings": dict(report.settings),
        "tasks": tasks,
    }


def print_report(report: Report) -> None:
    """The table, intervals, slices (the first metric of each task) and what the prompts held, on the console."""
    from rich.console import Console

    console = Console()
    print_table(main_table(report), report.title, console)
    for grid in (interval_grid(report), narrow_slice_grid(report), shown_grid(report)):
        console.print()
        print_grid(grid, console)


def print_grid(grid: Grid, console: Any) -> None:
    """A grid on a ``rich`` console, headers and titles in several lines where it is narrow; no cell is cut off."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=grid.title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    needed = 0
    for i, name in enumerate(grid.header):
        words = [word for text in (name, *(row[i] for row in grid.rows)) for word in text.split()]
        longest = max(map(len, words), default=1)
        needed += longest + 1
        shown.add_column(
            Text(name),
            justify="left" if i < grid.left else "right",
            overflow="fold",
            min_width=longest,  # no word is broken
        )
    for row in grid.rows:
        shown.add_row(*map(Text, row))
    # where not even the words fit, rich would cut the last columns off: rather lines that the terminal breaks
    console.print(shown, width=max(console.width, needed), crop=False, no_wrap=True, overflow="ignore")
    if grid.note:
        console.print(grid.note, markup=False, highlight=False)
