"""The sections of a report on retriever selection, from what the ways of choosing did."""

from __future__ import annotations

from collections.abc import Sequence

from ropg.evaluation.report import Block, Picture, Section, Text
from rspg import plots
from rspg.selections import PoolOutcome
from rspg.table_text import blocks
from rspg.tables import (
    ALPHA,
    SelectionTable,
    bounds_table,
    cost_table,
    disagreement_table,
    percent,
    success_table,
    winning_table,
)


def selection_sections(
    with_ropg: PoolOutcome,
    without: PoolOutcome | None = None,
    *,
    note_without: str = "",
    distinct_prompts: float | None = None,
    notes: Sequence[str] = (),
    alpha: float = ALPHA,
) -> list[Section]:
    """All sections; those without data are left out.

    Parameters
    ----------
    without: the pool without ROPG retrievers on the same inputs, ``note_without``: how it was made.
    distinct_prompts: mean number of different prompts per input over the pool, where counted.
    notes: remarks on what was compared, put first and set off. alpha: stars mark p below it.

    Raises ValueError as :func:`rspg.tables.bounds_table` and :func:`rspg.tables.cost_table` do.
    """
    wins = ", ".join(
        f"{label} {percent(rate)}" for label, rate in zip(with_ropg.labels, with_ropg.winning, strict=True)
    )
    rates = ", ".join(f"{s.label} {s.success_rate:.3f}" for s in with_ropg.selections)
    values = ", ".join(f"{s.label} {s.mean_reward:.3f}" for s in with_ropg.selections)
    span = f"between {with_ropg.lower:.3f} and {with_ropg.upper:.3f}"
    sections = [
        _section(
            winning_table(with_ropg),
            Picture(plots.winning_rates(with_ropg), f"Winning rate per retriever: {wins}"),
        ),
        _section(
            success_table(with_ropg, alpha=alpha),
            Picture(plots.success_rates(with_ropg), f"Success rate per way of choosing: {rates}"),
        ),
        _section(
            bounds_table(with_ropg, without, note_without=note_without, alpha=alpha),
            Picture(
                plots.rewards_in_bounds(with_ropg, without),
                f"Mean Eval per way of choosing, {span}: {values}",
                "Each line runs from the oracle's lower to its upper bound; the figure at its end is the mean "
                "Eval where the mark stands.",
            ),
        ),
    ]
    disagreement = disagreement_table(with_ropg)
    if disagreement is not None:
        sections.append(_section(disagreement))
    sections.append(_section(cost_table(with_ropg, distinct_prompts)))
    first = [Text(note, important=True) for note in notes]
    return [Section(sections[0].title, [*first, *sections[0].blocks]), *sections[1:]]


def _section(table: SelectionTable, *pictures: Block) -> Section:
    return Section(table.title, [*blocks(table), *pictures])
