"""Plots of the report as SVG text: learning curves, systems with intervals, what a trained retriever changed.

Every function returns one self-contained SVG with letters drawn as paths, the same bytes for the same data.
Colours are Okabe and Ito's, told apart by colour-blind readers too; lines differ in marker as well.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from ropg.evaluation.metrics import metric_title
from ropg.evaluation.results import Result
from ropg.evaluation.tables import BASELINES, LABELS, METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#8A8A8A"
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "svg.hashsalt": "ropg",
    "text.parse_math": False,  # a "$" in a label is a "$"
}


def as_svg(draw: Callable[P, Figure]) -> Callable[P, str]:
    """Draw and write as SVG in our style, and leave matplotlib's settings as they were."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> str:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        with matplotlib.rc_context(_STYLE):
            figure = draw(*args, **kwargs)
            FigureCanvasSVG(figure)
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        return buffer.getvalue()

    return drawn


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The evaluation records of a run's metrics.jsonl, by step; a torn last line is left out."""
    records = []
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line) if line.strip() else {}
        except json.JSONDecodeError as error:
            if number == len(lines):  # a run that is being written
                break
            raise ValueError(f"{path}, line {number} is no JSON: {error}") from error
        if not isinstance(record, dict):
            raise ValueError(f"{path}, line {number} is no record; delete the line")
        if record.get("event") == "evaluation":
            if lacking := [
                name for name in ("step", "expected_reward", "first_reward") if name not in record
            ]:
                raise ValueError(f"{path}, line {number} lacks {', '.join(lacking)}; delete the line")
            records.append(record)
    return sorted(records, key=lambda record: record["step"])


@as_svg
def learning_curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    reference: str = "Initial encoder",
    first: str = "First-document reward",
) -> Figure:
    """Expected reward and first-document reward on the dev split against the step.

    Parameters
    ----------
    runs: label -> evaluation records (``step``, ``expected_reward``, ``first_reward``, ``oracle_reward``,
        ``initial_reward``). The oracle's line and that of ``initial_reward``, which ``reference`` names, are
        drawn where all runs agree on them.
    first: what the first reward is called.

    Raises ValueError where there is no record.
    """
    if not any(runs.values()):
        raise ValueError("no evaluation record to draw; look into metrics.jsonl")
    records = [record for run in runs.values() for record in run]
    figure = new_figure(9, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, key, title in zip(
        panels, ("expected_reward", "first_reward"), ("Expected reward", first), strict=True
    ):
        for i, (label, run) in enumerate(runs.items()):
            colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
            steps, values = [r["step"] for r in run], [r[key] for r in run]
            axes.plot(steps, values, color=colour, marker=marker, markersize=4, label=label)
        references = {"Oracle": ("oracle_reward", "-."), reference: ("initial_reward", "--")}
        for label, (field, dashes) in references.items():
            values = [record[field] for record in records]
            if np.ptp(values) < 1e-9:
                axes.axhline(values[0], color=GREY, linestyle=dashes, linewidth=1.2, label=label)
        axes.set(title=title, xlabel="Training step")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("Mean Eval, dev split")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)), frameon=False)
    return figure


@as_svg
def system_bars(results: Sequence[Result], labels: Mapping[str, str] | None = None) -> Figure:
    """One task and metric: a bar per system with its 95 % bootstrap interval.

    Raises ValueError for rows of several tasks or metrics, and for none.
    """
    if len({(row["task"], row["metric"]) for row in results}) != 1:
        raise ValueError("one plot shows one metric of one task; give it those rows of the results only")
    names = {**LABELS, **(labels or {})}
    order = {name: i for i, name in enumerate((*BASELINES, *METHODS))}
    rows = sorted(results, key=lambda row: order.get(row["system"], len(order)))
    figure = new_figure(7, 1.1 + 0.36 * len(rows))
    axes = figure.subplots()
    places = np.arange(len(rows))
    values = np.array([row["value"] for row in rows])
    # a metric that is no mean can lie a little outside its own percentile interval
    lows = np.maximum(values - [row["ci_low"] for row in rows], 0)
    highs = np.maximum([row["ci_high"] for row in rows] - values, 0)
    colours = ["#B5B5B5" if row["system"] in BASELINES else COLOURS[0] for row in rows]
    axes.barh(places, values, height=0.62, color=colours)
    axes.errorbar(values, places, xerr=[lows, highs], fmt="none", ecolor="black", elinewidth=1.1, capsize=3)
    for place, value, high in zip(places, values, highs, strict=True):
        axes.annotate(
            f"{value:.3f}", (value + high, place), xytext=(6, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(places, [names.get(row["system"], row["system"]) for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, float((values + highs).max()) * 1.14 or 1.0)
    direction = "higher" if rows[0]["higher_is_better"] else "lower"
    axes.set_xlabel(f"{metric_title(rows[0]['metric'])} ({direction} is better), 95 % bootstrap interval")
    axes.grid(axis="x", alpha=0.25)
    return figure


@as_svg
def rank_histogram(ranks: Mapping[str, Sequence[int | None]], depth: int) -> Figure:
    """Where the documents that systems put first stood in the initial ranking.

    ``ranks``: label -> rank (from 1) per example, None where it was not among the first ``depth``. Raises
    ValueError where there is no rank at all, and for ranks beyond ``depth``.
    """
    if not any(len(values) for values in ranks.values()):
        raise ValueError("no rank to draw")
    places = [*range(1, depth + 1), None]
    figure = new_figure(7, 3.2)
    axes = figure.subplots()
    width = 0.8 / len(ranks)
    shown_below = any(rank is None for values in ranks.values() for rank in values)
    for i, (label, values) in enumerate(ranks.items()):
        if any(rank is not None and not 1 <= rank <= depth for rank in values):
            raise ValueError(f"{label}: a rank is outside 1 to {depth}")
        shares = [100 * sum(rank == place for rank in values) / max(1, len(values)) for place in places]
        shares = shares if shown_below else shares[:-1]
        offset = (i - (len(ranks) - 1) / 2) * width
        axes.bar(np.arange(len(shares)) + offset, shares, width, label=label, color=COLOURS[i % len(COLOURS)])
    ticks = [str(place) for place in range(1, depth + 1)] + ([f"below {depth}"] if shown_below else [])
    every = -(-depth // 20)  # at most some twenty ranks are written out
    axes.set_xticks(range(0, len(ticks), every), ticks[::every])
    axes.set(xlabel="Rank in the initial ranking of the document now put first", ylabel="Inputs (%)")
    axes.grid(axis="y", alpha=0.25)
    legend_above(axes, len(ranks))
    return figure


@as_svg
def difference_histogram(differences: Mapping[str, Sequence[float]], over: str) -> Figure:
    """Eval of systems minus Eval of ``over``, per example; one panel per system, equal ones in grey.

    Raises ValueError where a system has no difference.
    """
    if not differences or not all(len(values) for values in differences.values()):
        raise ValueError("no difference to draw")
    figure = new_figure(7, 0.9 + 1.5 * len(differences))
    panels = figure.subplots(len(differences), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    edges = np.linspace(-1.05, 1.05, 22)
    for i, (axes, (label, given)) in enumerate(zip(panels, differences.items(), strict=True)):
        values = np.clip(np.asarray(given, dtype=np.float64), -1, 1)
        same = np.abs(values) < 1e-9
        weight = 100 / len(values)
        axes.hist(
            values[~same], edges, weights=np.full((~same).sum(), weight), color=COLOURS[i % len(COLOURS)]
        )
        axes.bar(0, weight * same.sum(), width=0.03, color=GREY)
        better, equal, worse = (
            round(weight * n) for n in ((values > 1e-9).sum(), same.sum(), (values < -1e-9).sum())
        )
        axes.set_title(
            f"{label}: better {better} %, equal {equal} %, worse {worse} %", loc="left", fontsize=10
        )
        axes.set(ylabel="Inputs (%)", xlim=(-1.1, 1.1))
        axes.grid(axis="y", alpha=0.25)
    panels[-1].set_xlabel(f"Eval minus that of {over}")
    return figure


def new_figure(width: float, height: float) -> Figure:
    """A figure of its own, outside pyplot's global list, so none is left open. Inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def legend_above(axes: Axes, entries: int) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(4, entries), frameon=False)
