"""report.html: one file that asks nothing of any other machine.

A report is a list of sections of plain data; this file turns them into HTML. Every text that comes from
outside is escaped, plots are images inside the file, and the page forbids itself to load or run anything.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ropg.evaluation.report_style import STYLE
from ropg.evaluation.tables import SUPERSCRIPT_DIGITS, ResultsTable
from ropg.files import write_text

# control characters, which HTML does not allow, and those that turn the direction of all that follows
_UNPRINTABLE = dict.fromkeys(
    [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)],
    "\ufffd",
)

#: Longer texts of examples are cut here, with "…".
LONGEST_TEXT = 600


def escape(text: str) -> str:
    """Text as HTML that shows it and does nothing else.

    >>> escape("<b>\\x00")
    '&lt;b&gt;\ufffd'
    """
    return html.escape(text.translate(_UNPRINTABLE))


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; ``important`` sets it off."""

    text: str
    important: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values; ``folded`` under a title to click on, where one is given."""

    values: Mapping[str, object]
    folded: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of strings; the first ``left`` columns are text, the others numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    folded: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot as SVG text. ``alt`` says in words what it shows."""

    svg: str
    alt: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    """What one system did with an input: the documents in the prompt, best first, its answer, its Eval."""

    system: str
    documents: Sequence[str]
    answer: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One input with the gold (None where there is none) and the systems' answers; ``open`` or folded."""

    name: str
    input: str
    gold: str | None
    answers: Sequence[CaseAnswer]
    open: bool = False


Block: TypeAlias = Text | Facts | Grid | ResultsTable | Picture | Case


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Block] = field(default_factory=list)


def write_report(folder: Path, title: str, sections: Sequence[Section]) -> Path:
    """Write ``<folder>/report.html``, whole or not at all, and return its path."""
    return write_text(Path(folder) / "report.html", render_report(title, sections))


def render_report(title: str, sections: Sequence[Section]) -> str:
    """The report as HTML.

    >>> "<script>" in render_report("<script>", [Section("<script>", [Text("<script>")])])
    False
    """
    contents = "".join(
        f'<li><a href="#s{i}">{escape(section.title)}</a></li>' for i, section in enumerate(sections, start=1)
    )
    body = "\n".join(
        f'<section id="s{i}">\n<h2>{escape(section.title)}</h2>\n'
        + "\n".join(map(_block, section.blocks))
        + "\n</section>"
        for i, section in enumerate(sections, start=1)
    )
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n<nav><ul>{contents}</ul></nav>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _block(block: Block) -> str:
    if isinstance(block, Text):
        kind = ' class="note"' if block.important else ""
        return f"<p{kind}>{escape(block.text)}</p>"
    if isinstance(block, Facts):
        rows = "".join(
            f"<tr><th>{escape(str(name))}</th><td>{escape(_plain(value))}</td></tr>"
            for name, value in block.values.items()
        )
        return _folded(block.folded, f'<div class="scroll"><table class="facts">{rows}</table></div>')
    if isinstance(block, Grid):
        return _folded(
            block.folded, _table(block.header, [list(map(escape, row)) for row in block.rows], block.left)
        )
    if isinstance(block, ResultsTable):
        return _results(block)
    if isinstance(block, Picture):
        data = base64.b64encode(block.svg.encode()).decode()
        caption = f"<figcaption>{escape(block.caption)}</figcaption>" if block.caption else ""
        image = f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(block.alt)}">'
        return f"<figure>{image}{caption}</figure>"
    return _case(block)


def _plain(value: object) -> str:
    """A value in words.

    >>> _plain(None), _plain(True), _plain(1e-05), _plain(["a", "b"])
    ('–', 'yes', '1e-05', 'a, b')
    """
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "–"
    return str(value)


def _folded(title: str, html: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{html}</details>" if title else html


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int, kind: str = "grid") -> str:
    """A table; ``rows`` are HTML already, ``header`` is text."""

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = ["" if i < left else ' class="number"' for i in range(len(cells))]
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))

    head = line(list(map(escape, header)), "th")
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _results(table: ResultsTable) -> str:
    rows = []
    for row in table.rows:
        cells = []
        for cell in row.cells:
            value = f"<strong>{escape(cell.text)}</strong>" if cell.best else escape(cell.text)
            # digits stay in one column, whatever stands above them
            cells.append(f'<span class="value">{value}</span><span class="marks">{escape(cell.marks)}</span>')
        rows.append([escape(row.dataset), escape(row.metric), *cells])
    notes = "".join(f'<p class="legend">{escape(note)}</p>' for note in table.notes)
    # a line may break within a label, not between a baseline's number and its label
    columns = [c.replace(" ", "\u00a0", 1) if c[0] in SUPERSCRIPT_DIGITS else c for c in table.columns]
    return _table(["Dataset", "Metric", *columns], rows, left=2, kind="results") + notes


def _case(case: Case) -> str:
    rows = []
    for answer in case.answers:
        documents = "".join(f"<li>{escape(shorten(document, 200))}</li>" for document in answer.documents)
        value = "–" if answer.value is None else f"{answer.value:.2f}"
        rows.append(
            [
                escape(answer.system),
                f"<ol>{documents}</ol>" if documents else "<em>none</em>",
                escape(shorten(answer.answer)) or "<em>empty</em>",
                value,
            ]
        )
    gold = "<em>no gold output</em>" if case.gold is None else escape(shorten(case.gold))
    return (
        f"<details{' open' if case.open else ''}><summary>{escape(case.name)}</summary>"
        f'<p class="input"><b>Input</b> {escape(shorten(case.input))}</p>'
        f'<p class="input"><b>Gold</b> {gold}</p>'
        + _table(["System", "Documents in the prompt", "Answer", "Eval"], rows, left=3, kind="case")
        + "</details>"
    )


def shorten(text: str, longest: int = LONGEST_TEXT) -> str:
    """At most ``longest`` characters, "…" where something was cut.

    >>> shorten("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"
