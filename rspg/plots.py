"""Plots of retriever selection as SVG text: who wins, who chooses well, what choices are worth.

Style and colours are those of :mod:`ropg.evaluation.plots`: the same bytes for the same data, labels as paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ropg.evaluation.plots import COLOURS, GREY, as_svg, legend_above, new_figure
from ropg.evaluation.report import shorten
from ropg.evaluation.tables import BASELINES
from rspg.selections import PoolOutcome, wilson_interval
from rspg.tables import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BASELINE = "#B5B5B5"


@as_svg
def winning_rates(outcome: PoolOutcome) -> Figure:
    """Figure 3: a bar for each retriever of the pool, trained ones in colour, and the rate of equal shares."""
    rates = 100 * outcome.winning  # (R,)
    figure = new_figure(7, 1.3 + 0.36 * len(rates))
    axes = figure.subplots()
    places = np.arange(len(rates))
    colours = [_BASELINE if name in BASELINES else COLOURS[0] for name in outcome.names]
    axes.barh(places, rates, height=0.62, color=colours)
    equal = axes.axvline(100 / len(rates), color=GREY, linestyle="--", linewidth=1.2, zorder=0)
    for place, rate in zip(places, rates, strict=True):
        _beside(axes, rate, place, percent(rate / 100))
    _rows(axes, outcome.labels)
    _from_zero(axes, max(rates.max(), 100 / len(rates)), 100)
    axes.set_xlabel("Winning rate (%), every tied best counts")
    axes.legend(
        [equal], ["Equal shares"], loc="lower left", bbox_to_anchor=(0, 1), frameon=False, borderaxespad=0.2
    )
    return figure


@as_svg
def success_rates(outcome: PoolOutcome) -> Figure:
    """Table 4: success rate of every way of choosing with its 95 % interval, trained selectors in colour."""
    selections = outcome.selections
    figure = new_figure(7, 1.1 + 0.36 * len(selections))
    axes = figure.subplots()
    places = np.arange(len(selections))
    rates = np.array([s.success_rate for s in selections])
    limits = np.array([wilson_interval(rate, len(outcome.rewards)) for rate in rates])  # (S, 2)
    colours = [COLOURS[0] if s.kind == "selector" else _BASELINE for s in selections]
    axes.barh(places, rates, height=0.62, color=colours)
    errors = [rates - limits[:, 0], limits[:, 1] - rates]
    axes.errorbar(rates, places, xerr=errors, fmt="none", ecolor="black", elinewidth=1.1, capsize=3)
    for place, rate, high in zip(places, rates, limits[:, 1], strict=True):
        _beside(axes, high, place, f"{rate:.3f}")
    _rows(axes, [s.label for s in selections])
    _from_zero(axes, limits.max(), 1)
    axes.set_xlabel("Success rate, 95 % Wilson interval")
    return figure


@as_svg
def rewards_in_bounds(with_ropg: PoolOutcome, without: PoolOutcome | None = None) -> Figure:
    """Table 5: mean Eval of every way of choosing, on a line from the oracle's lower to its upper bound.

    With ``without``, each way has a line for each of the two pools.
    """
    pools = [("Pool with ROPG", with_ropg)] if without else [("Mean Eval", with_ropg)]
    pools += [("Pool without ROPG", without)] if without else []
    labels: dict[str, str] = {}
    for _, pool in pools:
        for s in pool.selections:
            # each pool has a best retriever of its own
            labels.setdefault(s.name, "Best fixed" if without and s.kind == "fixed" else s.label)
    figure = new_figure(7, 1.4 + (0.5 if without else 0.36) * len(labels))
    axes = figure.subplots()
    low, high = min(pool.lower for _, pool in pools), max(pool.upper for _, pool in pools)
    for i, (title, pool) in enumerate(pools):
        colour, marker = COLOURS[i], "os"[i]
        offset = (i - (len(pools) - 1) / 2) * 0.4
        found = [(row, pool.selection(name)) for row, name in enumerate(labels)]
        places = np.array([row + offset for row, s in found if s is not None])
        values = np.array([s.mean_reward for _, s in found if s is not None])
        axes.hlines(places, pool.lower, pool.upper, color=colour, alpha=0.35, linewidth=2)
        for bound in (pool.lower, pool.upper):
            axes.plot(np.full(len(places), bound), places, "|", color=colour, alpha=0.6, markersize=8)
        axes.plot(values, places, marker, color=colour, markersize=6, label=title)
        for place, value in zip(places, values, strict=True):
            _beside(axes, high, place, f"{value:.3f}", colour)
    _rows(axes, list(labels.values()))
    room = high - low if high - low > 1e-9 else 1.0  # where all retrievers are equal the bounds meet
    axes.set_xlim(low - 0.04 * room, high + 0.16 * room)
    axes.locator_params(axis="x", nbins=7)
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.set_xlabel("Mean Eval, between the oracle's bounds")
    if without:
        legend_above(axes, len(pools))
    return figure


def _from_zero(axes: Axes, highest: float, whole: float) -> None:
    """Room for figures beside the bars, and no tick beyond what a rate can be."""
    axes.set_xlim(0, highest * 1.2)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= min(whole, highest * 1.2)])


def _rows(axes: Axes, labels: tuple[str, ...] | list[str]) -> None:
    """One horizontal row for each label, the first on top."""
    axes.set_yticks(range(len(labels)), [shorten(" ".join(label.split()), 36) for label in labels])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.25)


def _beside(axes: Axes, x: float, y: Any, text: str, colour: str = "black") -> None:
    axes.annotate(
        text,
        (x, y),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},  # a line behind it stays readable
    )
