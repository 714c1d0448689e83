"""The tables of retriever selection: Table 4, Table 5, Figure 3's numbers, disagreement, cost.

All that a table says is decided here; :mod:`rspg.table_text` writes it down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropg.evaluation.tables import Cell
from rspg.choice import agreement
from rspg.selections import PoolOutcome, Selection, p_values, paired_p_value, wilson_interval

#: The note on bold figures; left out where nothing can be bold.
BOLD_NOTE = "Bold: the best of its column."

ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class SelectionTable:
    """``header`` and ``rows`` of as many cells, the first of them text; ``notes``: the legend."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]


def selection_tables(
    with_ropg: PoolOutcome,
    without: PoolOutcome | None = None,
    *,
    note_without: str = "",
    distinct_prompts: float | None = None,
    alpha: float = ALPHA,
) -> list[SelectionTable]:
    """All tables that these outcomes allow, in the order of the report; parameters as of each table."""
    tables = [
        success_table(with_ropg, alpha=alpha),
        bounds_table(with_ropg, without, note_without=note_without, alpha=alpha),
        winning_table(with_ropg),
        disagreement_table(with_ropg),
        cost_table(with_ropg, distinct_prompts),
    ]
    return [table for table in tables if table is not None]


def success_table(outcome: PoolOutcome, *, alpha: float = ALPHA) -> SelectionTable:
    """Table 4 with a row for each way of choosing: success rate, interval, mean Eval, p against the selectors.

    As in the paper, * marks a selector whose success rate is significantly (p < alpha) above the best QPP
    baseline; of baselines that tie for the best, above all of them.
    """
    tests = p_values(outcome)
    rates = [f"{s.success_rate:.3f}" for s in outcome.selections]
    rewards = [f"{s.mean_reward:.3f}" for s in outcome.selections]
    rows = []
    for s, rate, reward in zip(outcome.selections, rates, rewards, strict=True):
        low, high = wilson_interval(s.success_rate, len(s.success))
        rows.append(
            (
                Cell(s.label),
                Cell(rate, _mark(outcome, s, tests, alpha), best=_is_best(rate, rates)),
                Cell(f"{low:.3f}–{high:.3f}"),
                Cell(reward, best=_is_best(reward, rewards)),
                *(Cell(p_text(tests[other.name].get(s.name))) for other in outcome.selectors),
            )
        )
    header = ("Chosen by", "Success rate", "95 % interval", "Mean Eval")
    return SelectionTable(
        "Success rate of choosing a retriever (the paper's Table 4)",
        (*header, *(f"p {s.label}" for s in outcome.selectors)),
        tuple(rows),
        _success_notes(outcome, alpha),
    )


def bounds_table(
    with_ropg: PoolOutcome,
    without: PoolOutcome | None = None,
    *,
    note_without: str = "",
    alpha: float = ALPHA,
) -> SelectionTable:
    """Table 5 with a row for each way of choosing: mean Eval between the oracle's bounds, per pool.

    Parameters
    ----------
    without: the pool without ROPG retrievers on the same inputs in the same order, None for one column only.
    note_without: how that pool was made ("restriction of the pool at inference").

    * marks an Eval with ROPG that is significantly (p < alpha) above the one without. Raises ValueError where
    the pools have different numbers of inputs.
    """
    pools = pools_of(with_ropg, without)
    binary = all(pool.binary for pool in pools)
    names = _row_names(pools)
    found = {name: [pool.selection(name) for pool in pools] for name in names}
    columns = [
        [f"{s.mean_reward:.3f}" if s else "–" for s in column] for column in zip(*found.values(), strict=True)
    ]
    rows = [(Cell("Oracle, lower bound"), *_bound_cells([pool.lower for pool in pools]))]
    for i, name in enumerate(names):
        cells = [Cell(column[i], best=_is_best(column[i], column)) for column in columns]
        if without is not None:
            gain, p = gain_of(found[name][0], found[name][1], binary)
            cells[1] = Cell(cells[1].text, "*" if _better(gain, p, alpha) else "", cells[1].best)
            cells += [Cell(_signed(gain)), Cell(p_text(p))]
        rows.append((Cell(_row_label(name, found[name], without is not None)), *cells))
    rows.append((Cell("Oracle, upper bound"), *_bound_cells([pool.upper for pool in pools])))
    header = ("Mean Eval",) if without is None else ("w/o ROPG", "w/ ROPG", "Difference", "p")
    return SelectionTable(
        "Mean Eval between the oracle's bounds (the paper's Table 5)",
        ("Chosen by", *header),
        tuple(rows),
        _bounds_notes(pools, note_without, alpha),
    )


def winning_table(outcome: PoolOutcome) -> SelectionTable:
    """The numbers of Figure 3, a row for each retriever of the pool."""
    rows = [
        (Cell(label), Cell(percent(win)), Cell(percent(share)), Cell(f"{mean:.3f}"))
        for label, win, share, mean in zip(
            outcome.labels, outcome.winning, outcome.among_best, outcome.rewards.mean(axis=0), strict=True
        )
    ]
    return SelectionTable(
        "Winning rates (the paper's Figure 3)",
        ("Retriever", "Winning rate", "Among the best", "Mean Eval"),
        tuple(rows),
        (
            _size_note(outcome),
            "Winning rate: how often it gives the best answer of the pool, every tied best counted once; the "
            "counts are divided by their sum. Among the best: share of inputs where it is, ties included.",
        ),
    )


def disagreement_table(outcome: PoolOutcome) -> SelectionTable | None:
    """Where RSPG-Pre and RSPG-Post part ways and which is right there; None where one of them is missing."""
    told = agreement_of(outcome)
    if told is None:
        return None
    pre, post = (s.label for s in _pre_and_post(outcome))
    rows = [
        ("Both chose the same retriever", percent(told["same_choice"])),
        ("Different retrievers of equal Eval", percent(told["same_reward"])),
        (f"{pre} chose the better one", percent(told["a_better"])),
        (f"{post} chose the better one", percent(told["b_better"])),
    ]
    if told["n_different"]:
        rows += [
            (f"Success rate of {pre} where the choices differ", f"{told['a_success']:.3f}"),
            (f"Success rate of {post} where the choices differ", f"{told['b_success']:.3f}"),
        ]
    different = f"The choices differ on {told['n_different']} of {told['n']} inputs."
    return SelectionTable(
        f"Where {pre} and {post} part ways",
        ("Inputs", "Share"),
        tuple((Cell(text), Cell(value)) for text, value in rows),
        (f"{different} The first four shares are of all inputs and sum to 100 %.",),
    )


def cost_table(outcome: PoolOutcome, distinct_prompts: float | None = None) -> SelectionTable:
    """LLM calls per answered input beside what they buy.

    ``distinct_prompts``: mean number of different prompts per input over the pool, which is what RSPG-Post
    really has to generate for; None where no one counted. Raises ValueError where it is not in 1 to R.
    """
    size = len(outcome.names)
    if distinct_prompts is not None and not 1 <= distinct_prompts <= size + 1e-9:
        raise ValueError(
            f"distinct_prompts must be a mean from 1 to {size} per input, not {distinct_prompts}"
        )
    rows = []
    if "none" in outcome.names:
        i = outcome.names.index("none")
        cells = [Cell("1"), Cell("1.00"), Cell(f"{outcome.rewards[:, i].mean():.3f}"), _rate(outcome, i)]
        rows.append((Cell(f"Always {outcome.labels[i]}"), *cells))
    shown = [*outcome.of_kind("fixed"), *outcome.of_kind("random")]
    for s in (*shown, *outcome.best_predictors[:1], *outcome.selectors):
        most, mean = _calls(s, size, distinct_prompts)
        cells = [Cell(most), Cell(mean), Cell(f"{s.mean_reward:.3f}"), Cell(f"{s.success_rate:.3f}")]
        rows.append((Cell(s.label), *cells))
    notes = [
        "LLM calls for one answered input: at most, and on average where members of the pool that retrieve the "
        "same documents share one call. Mean Eval: higher is better."
    ]
    if outcome.best_predictors:
        notes.append("Of the QPP baselines, the one with the highest success rate is shown.")
    if outcome.selectors:
        notes.append(f"Both kinds of RSPG also read {_count(size, 'prompt')} per input with the selector.")
    return SelectionTable(
        "What a choice costs",
        ("Chosen by", "Calls at most", "Calls on average", "Mean Eval", "Success rate"),
        tuple(rows),
        tuple(notes),
    )


def p_text(p: float | None) -> str:
    """A p-value in four decimals.

    >>> p_text(0.03125), p_text(1e-9), p_text(None)
    ('0.0312', '<0.0001', '–')
    """
    return "–" if p is None else "<0.0001" if p < 0.0001 else f"{p:.4f}"


def percent(share: float) -> str:
    """A share in per cent with one decimal.

    >>> percent(0.1849)
    '18.5 %'
    """
    return f"{100 * share:.1f} %"


def _mark(outcome: PoolOutcome, s: Selection, tests: dict[str, dict[str, float | None]], alpha: float) -> str:
    """The paper's * or nothing."""
    best = outcome.best_predictors
    if s.kind != "selector" or not best:
        return ""
    above = [_better(s.success_rate - b.success_rate, tests[s.name][b.name], alpha) for b in best]
    return "*" if all(above) else ""


def _better(gain: float | None, p: float | None, alpha: float) -> bool:
    return gain is not None and gain > 0 and p is not None and p < alpha


def _is_best(text: str, column: Sequence[str]) -> bool:
    """Whether a figure is the highest as shown, so that equal figures are equally bold; not where all are."""
    figures = [figure for figure in column if figure != "–"]
    return text in figures and len(set(figures)) > 1 and text == max(figures, key=float)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _size_note(outcome: PoolOutcome) -> str:
    pool = ", ".join(outcome.labels)
    return f"n (inputs with a gold): {len(outcome.rewards)}. Pool of {_count(len(outcome.names), 'retriever')}: {pool}."


def _success_notes(outcome: PoolOutcome, alpha: float) -> tuple[str, ...]:
    notes = [
        _size_note(outcome),
        "Success rate: share of inputs whose chosen retriever is among the best of the pool for that input, "
        "with its Wilson interval. Mean Eval: of the chosen retrievers' answers. Both: higher is better.",
        BOLD_NOTE,
    ]
    if outcome.selectors and outcome.best_predictors:
        best = " and ".join(s.label for s in outcome.best_predictors)
        notes.append(
            f"* a success rate significantly above the best QPP baseline, {best} "
            f"(p < {alpha:g}, two-tailed McNemar's test)."
        )
    if outcome.selectors:
        notes.append(
            "p: success against that selector's, two-tailed, not corrected; McNemar's test, and a paired t-test "
            "for the random choice, whose values are expectations. – where there is nothing to test."
        )
    if outcome.of_kind("qpp"):
        notes.append(
            "QPP baselines choose the retriever whose scores predict the best retrieval. z-scored: predictions "
            "standardized per retriever over these inputs, since retrievers score on different scales."
        )
    if outcome.of_kind("fixed"):
        notes.append("Best fixed: always the retriever with the highest mean Eval on dev.")
    return tuple(notes)


def pools_of(with_ropg: PoolOutcome, without: PoolOutcome | None) -> list[PoolOutcome]:
    """The pools in the order of Table 5's columns."""
    if without is None:
        return [with_ropg]
    if len(without.rewards) != len(with_ropg.rewards):
        raise ValueError(
            f"the pool with ROPG was tried on {len(with_ropg.rewards)} inputs and the one without on "
            f"{len(without.rewards)}; compare them on the same inputs in the same order"
        )
    return [without, with_ropg]


def _row_names(pools: Sequence[PoolOutcome]) -> list[str]:
    """Ways of choosing that Table 5 shows: those of either pool without QPP, in the order of the larger one."""
    shown = [s for pool in reversed(pools) for s in pool.selections if s.kind != "qpp"]
    order = {"random": 0, "fixed": 1, "selector": 2, "qpp": 3}
    return list(dict.fromkeys(s.name for s in sorted(shown, key=lambda s: order[s.kind])))


def _row_label(name: str, found: Sequence[Selection | None], several: bool) -> str:
    present = [s for s in found if s is not None]
    # each pool has its own best retriever; the legend names them
    return "Best fixed" if several and name == "best_fixed" else present[-1].label


def gain_of(
    without: Selection | None, with_ropg: Selection | None, binary: bool
) -> tuple[float | None, float | None]:
    """Mean Eval with ROPG minus without, and p; None where one is missing."""
    if without is None or with_ropg is None:
        return None, None
    p = paired_p_value(with_ropg.reward, without.reward, binary)
    return with_ropg.mean_reward - without.mean_reward, p


def _signed(gain: float | None) -> str:
    """A difference with its sign, which a rounded zero has not.

    >>> _signed(0.0712), _signed(-0.02), _signed(-0.0001), _signed(None)
    ('+0.071', '−0.020', '0.000', '–')
    """
    if gain is None:
        return "–"
    text = f"{abs(gain):.3f}"
    return text if text == "0.000" else ("+" if gain > 0 else "−") + text


def _bound_cells(values: Sequence[float]) -> list[Cell]:
    """An oracle's bounds; a larger pool's are wider by construction, so no test compares them."""
    cells = [Cell(f"{value:.3f}") for value in values]
    return [*cells, Cell(_signed(values[1] - values[0])), Cell("–")] if len(values) > 1 else cells


def _bounds_notes(pools: Sequence[PoolOutcome], note_without: str, alpha: float) -> tuple[str, ...]:
    notes = [_size_note(pools[-1])]
    if len(pools) > 1:
        made = f" ({note_without})" if note_without else ""
        labels = ", ".join(pools[0].labels)
        notes.append(f"Without ROPG{made}: pool of {_count(len(pools[0].names), 'retriever')}: {labels}.")
        fixed = [pool.of_kind("fixed") for pool in pools]
        if all(fixed):
            notes.append(f"Without and with ROPG: {fixed[0][0].label}; {fixed[1][0].label}.")
    notes += [
        "Mean Eval, higher is better. The oracle chooses the worst or the best retriever of the pool for each "
        "input, so its bounds enclose every way of choosing.",
        f"{BOLD_NOTE} Bounds aside.",
    ]
    if len(pools) > 1:
        test = "paired t-test"
        if all(pool.binary for pool in pools):
            test = "McNemar's test, a paired t-test for the random choice"
        notes.append(
            f"* significantly above the pool without ROPG (p < {alpha:g}, two-tailed {test}, not corrected)."
        )
    return tuple(notes)


def _pre_and_post(outcome: PoolOutcome) -> tuple[Selection, ...]:
    found = (outcome.selection("rspg_pre"), outcome.selection("rspg_post"))
    return tuple(s for s in found if s is not None)


def agreement_of(outcome: PoolOutcome) -> dict[str, Any] | None:
    chosen = [np.array(s.chosen) for s in _pre_and_post(outcome)]
    return agreement(chosen[0], chosen[1], outcome.rewards) if len(chosen) == 2 else None


def _rate(outcome: PoolOutcome, retriever: int) -> Cell:
    return Cell(f"{outcome.among_best[retriever]:.3f}")


def _calls(s: Selection, size: int, distinct_prompts: float | None) -> tuple[str, str]:
    """LLM calls per input, at most and on average, "–" where unknown."""
    if s.kind != "selector" or s.name == "rspg_pre":
        return "1", "1.00"
    if s.name == "rspg_post":
        return str(size), "–" if distinct_prompts is None else f"{distinct_prompts:.2f}"
    return "–", "–"
