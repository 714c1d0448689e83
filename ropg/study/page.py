"""A study's page: tables put between marks, so that what a person wrote around them stays.

A block is everything between ``<!-- study: NAME -->`` and ``<!-- end -->``. A page that does not exist is begun with
all blocks under headings; in one that does, only the blocks that it has are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg.evaluation.table_text import escape_markdown, markdown_grid
from ropg.files import write_text
from ropg.study.comparing import Comparison, Difference, Growth
from ropg.study.outcomes import Outcome
from ropg.study.plan import Dataset, Study, Variant

_BLOCK = re.compile(r"(<!-- study: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
COLUMNS = (
    "Variant",
    "First reward",
    "− initial (95 %)",
    "p",
    "− BM25 (95 %)",
    "p",
    "Gap closed",
    "LLM calls",
    "Minutes",
)


def write_page(path: Path, title: str, blocks: Mapping[str, tuple[str, str]]) -> Path:
    """Put blocks (name -> heading, Markdown) into the page at ``path``; begin it where there is none.

    Raises ValueError where a page has none of the blocks: it is then some other file.
    """
    if not path.exists():
        parts = [f"# {title}\n"]
        parts += [f"## {heading}\n\n{_marked(name, text)}" for name, (heading, text) in blocks.items()]
        return write_text(path, "\n".join(parts))
    page = path.read_text(encoding="utf-8")
    present = {match[2] for match in _BLOCK.finditer(page)}
    if not present & set(blocks):
        raise ValueError(
            f"{path} has no block of a study, such as <!-- study: {next(iter(blocks))} --> … <!-- end -->; name "
            "another page, or put the marks where the tables belong"
        )

    def new(match: re.Match[str]) -> str:
        return match[0] if match[2] not in blocks else _marked(match[2], blocks[match[2]][1]).rstrip("\n")

    return write_text(path, _BLOCK.sub(new, page))


def _marked(name: str, text: str) -> str:
    return f"<!-- study: {name} -->\n{text.strip()}\n<!-- end -->\n"


def datasets_table(rows: Sequence[tuple[Dataset, Outcome, int]]) -> str:
    """What the data sets are: queries, and the rewards of those that nothing was trained for.

    rows: data set, any of its runs, and the LLM calls of the feedback that its runs share.
    """
    header = [
        "Data",
        "Training",
        "Held-out",
        "Random",
        "Initial",
        "BM25",
        "Best fixed",
        "Oracle",
        "LLM calls",
    ]
    lines = []
    for dataset, outcome, calls in rows:
        means = {name: float(values.mean()) for name, values in outcome.first_reward.items()}
        best = max(means["random"], means["initial"], means["bm25"])
        numbers = [means["random"], means["initial"], means["bm25"], best, means["oracle"]]
        lines.append(
            [
                escape_markdown(dataset.label),
                str(outcome.n_train),
                str(len(outcome.example_ids)),
                *(f"{n:.3f}" for n in numbers),
                f"{calls:,}",
            ]
        )
    return markdown_grid(header, lines, left=1)


def variants_table(
    compared: Sequence[Comparison], variants: Mapping[str, Variant], finals: bool = False
) -> str:
    """A row per variant, under its group's heading; ``finals``: with the standard deviation over seeds."""
    lines: list[list[str]] = []
    group = None
    for c in compared:
        variant = variants[c.variant]
        if variant.group and variant.group != group:
            group = variant.group
            lines.append([f"*{escape_markdown(group)}*", *[""] * (len(COLUMNS) - 1)])
        reward = f"{c.first_reward:.3f}"
        if finals and c.spread is not None:
            reward += f" ± {c.spread:.3f}"
        calls = sum(o.llm_calls for o in c.outcomes) / len(c.outcomes)
        lines.append(
            [
                escape_markdown(variant.label),
                reward,
                _difference(c.against["initial"]),
                p_text(c.against["initial"].adjusted),
                _difference(c.against["bm25"]),
                p_text(c.against["bm25"].adjusted),
                "–" if c.gap_closed is None else f"{c.gap_closed:.0%}".replace("-", "−"),
                f"{calls:,.0f}",
                f"{_minutes(c.outcomes):.1f}",
            ]
        )
    return markdown_grid(COLUMNS, lines, left=1)


def _minutes(outcomes: Sequence[Outcome]) -> float:
    """Training time where a run says it, else the time of the whole run."""
    seconds = [o.cost.get("train_seconds", o.cost.get("seconds", 0.0)) for o in outcomes]
    return sum(seconds) / len(seconds) / 60


def _difference(d: Difference) -> str:
    return f"{signed(d.mean)} ({signed(d.low)} to {signed(d.high)})"


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign; one that rounds to zero has a plus.

    >>> signed(-0.0124), signed(-0.0001)
    ('−0.012', '+0.000')
    """
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def p_text(p: float | None) -> str:
    """A p-value for a table.

    >>> p_text(0.0004), p_text(0.0312), p_text(None)
    ('< 0.001', '0.031', 'not testable')
    """
    if p is None:
        return "not testable"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def encoders_table(compared: Sequence[Comparison], variants: Mapping[str, Variant]) -> str:
    """What ways to train an encoder cost: trainable parameters, minutes, peak memory; empty where none says so."""
    lines = []
    for c in compared:
        cost = c.outcomes[0].cost
        if "peak_memory_mib" not in cost:
            continue
        lines.append(
            [
                escape_markdown(variants[c.variant].label),
                f"{cost.get('trainable_parameters', 0) / 1e6:.2f} M",
                f"{_minutes(c.outcomes):.1f}",
                f"{cost['peak_memory_mib']:,.0f} MiB",
            ]
        )
    return markdown_grid(["Variant", "Trainable", "Minutes", "Peak memory"], lines, left=1) if lines else ""


def curve_table(panels: Mapping[str, tuple[Sequence[Outcome], Growth | None]]) -> str:
    """The curve over training queries, a row per data set and size, and what its line predicts."""
    lines, notes = [], []
    for title, (runs, growth) in panels.items():
        for run in runs:
            trained, initial = run.first_reward["trained"], run.first_reward["initial"]
            closed = f"{(trained - initial).mean() / run.room:.0%}" if run.room > 0 else "–"
            lines.append(
                [escape_markdown(title), str(run.n_train), f"{trained.mean():.3f}", closed.replace("-", "−")]
            )
        if growth is not None:
            notes.append(f"{escape_markdown(title)}: {growth_text(growth)}")
    table = markdown_grid(["Data", "Training queries", "First reward", "Gap closed"], lines, left=1)
    return "\n\n".join([table.rstrip("\n"), *notes]) + "\n"


def growth_text(growth: Growth) -> str:
    """The fitted line in words."""
    text = (
        f"twice the training queries add {signed(growth.per_doubling)} to the first reward "
        f"({signed(growth.low)} to {signed(growth.high)})"
    )
    if growth.needed is None:
        return f"{text}; the line does not rise, so it predicts no number of queries at which a quarter is closed."
    if growth.needed > 1e7:
        return (
            f"{text}; a quarter of the gap would be closed beyond ten million queries, that is, not this way."
        )
    return f"{text}; the line reaches a quarter of the gap at {_two_digits(growth.needed):,} queries."


def _two_digits(value: float) -> int:
    return int(float(f"{value:.1e}")) if value >= 10 else max(1, round(value))


def end_table(rows: Mapping[str, Sequence[Mapping[str, Any]]], metric: str, k: int) -> str:
    """The end metric with k documents beside the first-document reward, a row per data set and system."""
    lines = [
        [
            escape_markdown(title),
            escape_markdown(row["label"]),
            "–" if row["first_reward"] is None else f"{row['first_reward']:.3f}",
            f"{row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})",
        ]
        for title, part in rows.items()
        for row in part
    ]
    documents = f"{k} document{'s' if k > 1 else ''}"
    return markdown_grid(["Data", "System", "First reward", f"{metric}, {documents} (95 %)"], lines, left=2)


def new_blocks(study: Study) -> dict[str, str]:
    """Headings of the blocks in their order; those of data sets carry the data set's name."""
    headings = {"datasets": "Data"}
    headings |= {f"screening-{d.name}": f"Screening: {d.label}" for d in study.datasets}
    headings |= {"differences": "All variants"}
    headings |= {f"finals-{d.name}": f"The best on all seeds: {d.label}" for d in study.datasets}
    headings |= {
        "training": "While training",
        "curve": "How many training queries",
        "encoders": "Time and memory",
        "end": "Several documents in the prompt",
        "failed": "Runs that failed",
    }
    return headings
