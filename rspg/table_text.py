"""Selection tables written down: as Markdown, as blocks of the report, on the console. All say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropg.evaluation.report import Block, Grid, Text
from ropg.evaluation.table_text import escape_markdown, markdown_grid
from ropg.evaluation.tables import Cell
from rspg.tables import BOLD_NOTE, SelectionTable

if TYPE_CHECKING:
    from rich.console import Console


def markdown(table: SelectionTable) -> str:
    """The table as Markdown, legend below, newline at the end; the title is left to the caller's heading."""
    rows = [
        [
            (f"**{escape_markdown(cell.text)}**" if cell.best else escape_markdown(cell.text))
            + escape_markdown(cell.marks)
            for cell in row
        ]
        for row in table.rows
    ]
    grid = markdown_grid([escape_markdown(name) for name in table.header], rows, left=1)
    notes = "\n\n".join(escape_markdown(note) for note in _notes(table, bold=True))
    return f"{grid}\n{notes}\n"


def blocks(table: SelectionTable) -> list[Block]:
    """The table for the report: a grid, which knows no bold, and the legend."""
    rows = [[_padded(cell, table, i, "\u2007") for i, cell in enumerate(row)] for row in table.rows]
    return [Grid(table.header, rows), *map(Text, _notes(table, bold=False))]


def print_selection_table(table: SelectionTable, console: Console | None = None) -> None:
    """Print the table; where the terminal is narrow, labels are folded and no figure is cut."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as Line

    console = console or Console()
    shown = Table(title=Line(table.title), title_justify="left", box=None, padding=(0, 1, 0, 0))
    for i, name in enumerate(table.header):
        side = "left" if i == 0 else "right"
        shown.add_column(Line(name), justify=side, no_wrap=i > 0, overflow="fold")  # type: ignore[arg-type]
    for row in table.rows:
        texts = [_padded(cell, table, i, " ") for i, cell in enumerate(row)]
        shown.add_row(*(Line(t, style="bold" if c.best else "") for t, c in zip(texts, row, strict=True)))
    console.print(shown)
    for note in _notes(table, bold=console.is_terminal):  # a pipe shows no bold
        console.print(note, markup=False, highlight=False)


def _notes(table: SelectionTable, bold: bool) -> list[str]:
    """The legend, without the note on bold where nothing is or can be."""
    seen = bold and any(cell.best for row in table.rows for cell in row)
    return [note for note in table.notes if seen or not note.startswith(BOLD_NOTE)]


def _padded(cell: Cell, table: SelectionTable, column: int, space: str) -> str:
    """Text and marks, padded to the most marks of the column, so that digits stay below digits."""
    most = max(len(row[column].marks) for row in table.rows)
    return cell.text + cell.marks + space * (most - len(cell.marks))
