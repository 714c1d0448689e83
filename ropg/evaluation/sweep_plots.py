"""Plots of a sweep: reward on dev and on held-out users against every swept key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ropg.evaluation.plots import COLOURS, GREY, as_svg, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TICKS = 6
_ROWS = {"dev_expected": "Dev expected reward", "heldout_first": "Held-out first reward"}


@as_svg
def sweep_plot(runs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Figure:
    """A column per key, a row per reward, a dot per run, the best on dev ringed; lines join means of equal values.

    ``runs`` have ``keys`` and ``values`` as :func:`ropg.sweep.read_run` gives them. Raises ValueError for none.
    """
    if not runs or not keys:
        raise ValueError("no run or no key to draw")
    figure = new_figure(1 + 3.2 * len(keys), 5.4)
    panels = figure.subplots(2, len(keys), sharey="row", sharex="col", squeeze=False)
    done = [run for run in runs if run["values"]["dev_expected"] is not None]
    best = max(done, key=lambda run: run["values"]["dev_expected"], default=None)
    for line, (measure, label) in zip(panels, _ROWS.items(), strict=True):
        for axes, key in zip(line, keys, strict=True):
            _panel(axes, runs, key, measure, best)
        line[0].set_ylabel(label)
    for axes, key in zip(panels[-1], keys, strict=True):
        axes.set_xlabel(key)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _panel(axes: Axes, runs: Sequence[Mapping[str, Any]], key: str, measure: str, best: Any) -> None:
    shown = [run for run in runs if run["values"][measure] is not None]
    values = [run["keys"].get(key) for run in shown]
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if numeric:
        places = [float(v) for v in values]
        if min(places, default=0) > 0 and max(places) >= 8 * min(places):
            axes.set_xscale("log")
        distinct = sorted(set(places))
        # the swept values themselves; and no mathematical notation, which plots here show as it is written
        axes.xaxis.set_minor_formatter("")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if len(distinct) <= _MOST_TICKS:
            axes.set_xticks(distinct)
            axes.set_xticks([], minor=True)
    else:
        names = list(dict.fromkeys(map(str, values)))
        places = [float(names.index(str(v))) for v in values]
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
    heights = [run["values"][measure] for run in shown]
    means = {p: fmean(h for q, h in zip(places, heights, strict=True) if q == p) for p in sorted(set(places))}
    if len(means) < len(places):
        axes.plot(
            list(means),
            list(means.values()),
            color=GREY,
            linewidth=1.5,
            label="mean of equal values",
            zorder=1,
        )
    axes.scatter(places, heights, color=COLOURS[0], alpha=0.75, s=30, linewidths=0, label="a run", zorder=2)
    for place, height, run in zip(places, heights, shown, strict=True):
        if run is best:
            ring: dict[str, Any] = {"facecolors": "none", "edgecolors": COLOURS[1], "linewidths": 2}
            axes.scatter([place], [height], s=110, label="best on dev", zorder=3, **ring)
    axes.grid(alpha=0.25)
