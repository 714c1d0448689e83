"""A results table in Markdown and on the console."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ropg.evaluation.tables import BEST_NOTE, ResultsTable, TableRow

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MARKDOWN = re.compile(r"([\\`*_|<>\[\]])")


def markdown_table(table: ResultsTable) -> str:
    """The table as Markdown, legend below, newline at the end."""
    lines = []
    for row in table.rows:
        cells = [f"**{c.text}**{c.marks}" if c.best else f"{c.text}{c.marks}" for c in row.cells]
        lines.append([escape_markdown(row.dataset), row.metric, *cells])
    header = ["Dataset", "Metric", *map(escape_markdown, table.columns)]
    notes = "\n\n".join(map(escape_markdown, table.notes))
    return f"{markdown_grid(header, lines, left=2)}\n{notes}\n"


def markdown_grid(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """A plain Markdown table; the first ``left`` columns are text, the others numbers.

    >>> print(markdown_grid(["System", "Value"], [["BM25", "0.5"]], left=1), end="")
    | System | Value |
    | --- | ---: |
    | BM25 | 0.5 |
    """
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, rule, *rows))


def escape_markdown(text: str) -> str:
    r"""Text in which Markdown and HTML see nothing but text, on one line.

    >>> escape_markdown("a|b <i>")
    'a\\|b \\<i\\>'
    """
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def print_table(table: ResultsTable, title: str = "", console: Console | None = None) -> None:
    """Print the table as in the paper where the terminal is wide enough, else one block per dataset.

    A block has the systems as its rows, so no figure is ever cut.
    """
    from rich.console import Console

    console = console or Console()
    shapes = [[_wide(table)], [_block(table, dataset) for dataset in _datasets(table)]]
    shown = shapes[0]
    if Console(width=10_000).measure(shown[0]).maximum > console.width:
        shown = shapes[1]
    if title:
        console.print(title, style="bold", markup=False, highlight=False)
    for part in shown:
        console.print(part)
    for note in table.notes:
        if note != BEST_NOTE or console.is_terminal:  # a pipe shows no bold
            console.print(note, markup=False, highlight=False)


def _datasets(table: ResultsTable) -> list[str]:
    return list(dict.fromkeys(row.dataset for row in table.rows))


def _wide(table: ResultsTable) -> Table:
    from rich.table import Table
    from rich.text import Text

    shown = Table()
    for i, column in enumerate(("Dataset", "Metric", *table.columns)):
        shown.add_column(Text(column), justify="left" if i < 2 else "right", no_wrap=True)
    previous = None
    for row in table.rows:
        dataset = "" if row.dataset == previous else row.dataset
        shown.add_row(Text(dataset), row.metric, *_cells(row))
        previous = row.dataset
    return shown


def _block(table: ResultsTable, dataset: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    rows = [row for row in table.rows if row.dataset == dataset]
    shown = Table(title=Text(dataset), title_justify="left")
    shown.add_column("System")
    for row in rows:
        shown.add_column(row.metric, justify="left", no_wrap=True)  # figures align before superscripts
    for column, *cells in zip(table.columns, *map(_cells, rows), strict=True):
        shown.add_row(Text(column), *cells)
    return shown


def _cells(row: TableRow) -> list:
    from rich.text import Text

    return [Text(cell.text + cell.marks, style="bold" if cell.best else "") for cell in row.cells]
