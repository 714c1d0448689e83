"""The pictures of a study's page; style and colours are those of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ropg.evaluation.plots import COLOURS, GREY, MARKERS, as_svg, new_figure
from ropg.study.comparing import Comparison
from ropg.study.outcomes import Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@as_svg
def difference_plot(panels: Mapping[str, Sequence[Comparison]], labels: Mapping[str, str]) -> Figure:
    """A panel per data set: each variant's first-document reward minus the initial encoder's, 95 % intervals.

    panels: title of the data set -> its comparisons. labels: variant -> how it is called. Solid dots are
    significantly above or below the initial encoder after correction (5 %); the dashed line is BM25.
    Raises ValueError where there is nothing to draw.
    """
    names = list(dict.fromkeys(c.variant for compared in panels.values() for c in compared))
    if not names:
        raise ValueError("no finished run to draw")
    figure = new_figure(3.0 + 3.2 * len(panels), 1.4 + 0.27 * len(names))
    shown = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, compared) in zip(shown, panels.items(), strict=True):
        for c in compared:
            d, y = c.against["initial"], names.index(c.variant)
            sure = d.adjusted is not None and d.adjusted < 0.05
            axes.plot([d.low, d.high], [y, y], color=COLOURS[0], linewidth=1.4)
            fill = COLOURS[0] if sure else "white"
            axes.plot([d.mean], [y], "o", color=COLOURS[0], markerfacecolor=fill, markersize=6)
        axes.axvline(0.0, color=GREY, linewidth=1.2)
        if compared:
            bm25 = compared[0].against["initial"].mean - compared[0].against["bm25"].mean
            axes.axvline(bm25, color=COLOURS[1], linestyle="--", linewidth=1.2)
        axes.set(title=title, xlabel="first-document reward minus initial encoder's")
        axes.xaxis.label.set_size(9)
        axes.locator_params(axis="x", nbins=5)
        axes.grid(axis="x", alpha=0.25)
    shown[0].set_yticks(range(len(names)), [labels.get(name, name) for name in names])
    shown[0].set_ylim(len(names) - 0.5, -0.5)
    from matplotlib.lines import Line2D

    dot: dict[str, Any] = {"marker": "o", "color": COLOURS[0], "linestyle": "none"}
    handles = [
        Line2D([], [], **dot, label="significant (Holm, 5 %)"),
        Line2D([], [], **dot, markerfacecolor="white", label="not significant"),
        Line2D([], [], color=COLOURS[1], linestyle="--", label="BM25"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


@as_svg
def growth_plot(panels: Mapping[str, Sequence[Outcome]]) -> Figure:
    """A panel per data set: held-out first-document reward against the number of training queries.

    panels: title of the data set -> its runs, smallest first. Lines mark the initial encoder and BM25.
    Raises ValueError where there is nothing to draw.
    """
    if not any(panels.values()):
        raise ValueError("no finished run to draw")
    figure = new_figure(1.5 + 3.6 * len(panels), 3.8)
    shown = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, runs) in zip(shown, panels.items(), strict=True):
        sizes = [run.n_train for run in runs]
        means = [float(run.first_reward["trained"].mean()) for run in runs]
        errors = [
            1.96 * float(run.first_reward["trained"].std(ddof=1)) / math.sqrt(len(run.example_ids))
            for run in runs
        ]
        axes.errorbar(
            sizes, means, yerr=errors, color=COLOURS[0], marker="o", capsize=3, label="trained, 95 %"
        )
        for i, (name, label) in enumerate((("initial", "Initial encoder"), ("bm25", "BM25"))):
            if runs:
                height = float(runs[0].first_reward[name].mean())
                axes.axhline(height, color=(GREY, COLOURS[1])[i], linestyle="--", linewidth=1.2, label=label)
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter("")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xticks([], minor=True)
        axes.set(title=title, xlabel="training queries")
        axes.grid(alpha=0.25)
    shown[0].set_ylabel("first-document reward, held-out")
    handles, names = shown[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    return figure


@as_svg
def end_plot(panels: Mapping[str, Mapping[str, tuple[float, float]]], metric: str, k: int) -> Figure:
    """A panel per data set: the end metric with k documents against the first-document reward, a mark per system.

    panels: title of the data set -> label -> (first-document reward, end metric).
    Raises ValueError where there is nothing to draw.
    """
    if not any(panels.values()):
        raise ValueError("no evaluated system to draw")
    figure = new_figure(1.5 + 4.0 * len(panels), 4.4)
    shown = figure.subplots(1, len(panels), squeeze=False)[0]
    names = list(dict.fromkeys(name for points in panels.values() for name in points))
    for axes, (title, points) in zip(shown, panels.items(), strict=True):
        for name, (x, y) in points.items():
            i = names.index(name)
            marker = MARKERS[(i // len(COLOURS) + i) % len(MARKERS)]
            axes.plot(
                [x], [y], marker, color=COLOURS[i % len(COLOURS)], markersize=8, label=name, linestyle="none"
            )
        axes.set(title=title, xlabel="first-document reward, held-out")
        axes.grid(alpha=0.25)
    shown[0].set_ylabel(f"{metric}, {k} document{'s' if k > 1 else ''} in the prompt")
    entries = {label: h for axes in shown for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=3, frameon=False)
    return figure
