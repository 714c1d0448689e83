"""Plots of a sweep say the swept values as a person wrote them."""

from __future__ import annotations

import pytest

from ropg.evaluation.sweep_plots import sweep_plot


def run(rate: float, dev: float) -> dict:
    return {"keys": {"optim.lr": rate}, "values": {"dev_expected": dev, "heldout_first": None}}


@pytest.mark.parametrize("count", [3, 9])
def test_learning_rates_are_read_as_numbers(count):
    """A logarithmic axis would be labelled with the source text of its mathematical notation."""
    drawn = sweep_plot([run(1e-5 * 2**i, 0.1 * i) for i in range(count)], ["optim.lr"])
    assert "mathdefault" not in drawn
    assert "1e-05" in drawn


def test_nothing_to_draw_is_an_error():
    """An empty picture would look like a sweep without results."""
    with pytest.raises(ValueError, match="no run"):
        sweep_plot([], ["optim.lr"])
