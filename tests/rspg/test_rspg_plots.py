"""Plots of retriever selection: what they draw, the same bytes again, any pool."""

import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest

from rspg import plots
from rspg.selections import compare_selections

REWARDS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.5]])
CHOSEN = {"rspg_pre": np.array([0, 0, 2, 1]), "rspg_post": np.array([0, 1, 2, 2])}
WITH = compare_selections(
    ["none", "bm25", "ropg_kd"], ["None", "BM25", "ROPG-KD"], REWARDS, {"wig": REWARDS}, 2, CHOSEN
)
WITHOUT = compare_selections(["none", "bm25"], ["None", "BM25"], REWARDS[:, :2], {}, 0, {})
EVIL = "<script>alert('x')</script> --> $x_1$ &\n" + "long " * 30
ONE = compare_selections(["a"], [EVIL], np.array([[0.5]]), {}, 0, {"rspg_pre": np.array([0])})
WORST = compare_selections(["a", "b"], ["A", "B"], np.zeros((3, 2)), {}, None, {})
MANY = compare_selections(
    [f"r{i}" for i in range(40)], [f"R{i}" for i in range(40)], np.eye(40), {}, None, {}
)
DRAWINGS = {
    "winning": plots.winning_rates,
    "success": plots.success_rates,
    "bounds": plots.rewards_in_bounds,
    "both": lambda outcome: plots.rewards_in_bounds(outcome, outcome),
}


def drawn_texts(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.parametrize("outcome", [WITH, WITHOUT, ONE, WORST, MANY])
def test_every_outcome_is_drawn(name, outcome):
    """One retriever, all ties, no success to speak of, forty members: an SVG that stands for itself."""
    before = dict(matplotlib.rcParams)
    svg = DRAWINGS[name](outcome)
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert "<script" not in svg
    assert "nan" not in svg
    assert svg == DRAWINGS[name](outcome)
    assert dict(matplotlib.rcParams) == before


def test_winning_rates_draws_the_rates():
    """Figure 3: 2, 2 and 3 of 7, the first retriever on top."""
    axes = plots.winning_rates.__wrapped__(WITH).axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([200 / 7, 200 / 7, 300 / 7])
    assert drawn_texts(axes) == ["28.6 %", "28.6 %", "42.9 %"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["None", "BM25", "ROPG-KD"]
    assert axes.yaxis_inverted()
    # trained ones differ in colour
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert colours[0] == colours[1] != colours[2]


def test_success_rates_draws_every_way_of_choosing():
    """Selectors stand out, and every figure is that of the table."""
    axes = plots.success_rates.__wrapped__(WITH).axes[0]
    assert drawn_texts(axes) == [f"{s.success_rate:.3f}" for s in WITH.selections]
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert [colour == colours[-1] for colour in colours] == [s.kind == "selector" for s in WITH.selections]


def test_rewards_in_bounds_draws_both_pools():
    """Each way of either pool has its figure; a way that one pool lacks has one."""
    axes = plots.rewards_in_bounds.__wrapped__(WITH, WITHOUT).axes[0]
    expected = [f"{s.mean_reward:.3f}" for pool in (WITH, WITHOUT) for s in pool.selections]
    assert drawn_texts(axes) == expected
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert "Best fixed" in labels
    assert len(labels) == len(WITH.selections)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "Pool with ROPG",
        "Pool without ROPG",
    ]
    alone = plots.rewards_in_bounds.__wrapped__(WITH).axes[0]
    assert alone.get_legend() is None
    assert "Best fixed (ROPG-KD)" in [tick.get_text() for tick in alone.get_yticklabels()]
