"""results.json and the tables made of it."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from ropg.evaluation.results import compute_results, read_results, write_results
from ropg.evaluation.table_text import markdown_table, print_table
from ropg.evaluation.tables import interval_rows, results_table
from ropg.tasks import get_task


def row(task="LaMP-4", system="bm25", metric="rouge1", value=0.5, n=40, up=True, **p_values):
    return {
        "task": task,
        "system": system,
        "metric": metric,
        "value": value,
        "n": n,
        "ci_low": value - 0.1,
        "ci_high": value + 0.1,
        "higher_is_better": up,
        "p_values": p_values,
    }


def plain(table, width=200):
    console = Console(file=io.StringIO(), width=width)
    print_table(table, "Title [not markup]", console)
    return console.file.getvalue()


def test_rows_by_hand():
    """Errors 0, 1 against 2, 1: MAE 0.5 and 1.5, with the t-test on errors and on squared errors."""
    predictions = {"a": {"1": "5", "2": "3"}, "b": {"1": "3", "2": "5 stars"}}
    rows = compute_results(get_task("LaMP-3"), {"1": "5", "2": "4"}, predictions, progress=False)
    values = {(r["system"], r["metric"]): r["value"] for r in rows}
    assert values == {
        ("a", "mae"): 0.5,
        ("a", "rmse"): pytest.approx(math.sqrt(0.5)),
        ("b", "mae"): 1.5,
        ("b", "rmse"): pytest.approx(math.sqrt(2.5)),
    }
    # differences −2, 0: t = −1 with one degree of freedom, where p = 1 − 2/π · arctan(1) = 0.5
    assert rows[0]["p_values"]["b"] == pytest.approx(0.5)
    assert rows[0]["p_values"]["b"] == rows[2]["p_values"]["a"]
    assert rows[0]["ci_low"] == 0.0
    assert rows[0]["ci_high"] == 1.0
    assert rows[0]["higher_is_better"] is False


def test_systems_with_equal_answers_are_not_testable(tmp_path):
    """Two systems that answer alike have p None, written as null and never as NaN."""
    same = {"a": {"1": "x", "2": "y"}, "b": {"1": "x", "2": "y"}}
    rows = compute_results(get_task("LaMP-4"), {"1": "x", "2": "z"}, same, progress=False)
    path = write_results(tmp_path / "run" / "results.json", rows)
    assert "NaN" not in path.read_text()
    assert json.loads(path.read_text())[0]["p_values"] == {"b": None}
    assert read_results(path) == rows
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]


def test_a_missing_prediction_is_named():
    """A system scored on fewer examples than another is no comparison."""
    with pytest.raises(ValueError, match="'b' has no prediction for '2'"):
        compute_results(get_task("LaMP-4"), {"1": "x", "2": "y"}, {"b": {"1": "x"}})


def test_nan_and_torn_rows_are_never_written_or_read(tmp_path):
    """NaN is no JSON; half a row would show up as a hole in the table."""
    for bad in (row(value=float("nan")), row(none=float("nan"))):
        with pytest.raises(ValueError, match="not finite"):
            write_results(tmp_path / "results.json", [bad])
    assert not (tmp_path / "results.json").exists()
    incomplete = row()
    del incomplete["ci_low"]
    (tmp_path / "results.json").write_text(json.dumps([incomplete]))
    with pytest.raises(ValueError, match=r"results\.json: row LaMP-4 / bm25 / rouge1 lacks ci_low"):
        read_results(tmp_path / "results.json")


def test_two_runs_of_one_system_do_not_share_a_table(tmp_path):
    """Otherwise the last file read would win in silence."""
    for name in ("a.json", "b.json"):
        write_results(tmp_path / name, [row()])
    with pytest.raises(ValueError, match="twice"):
        read_results(tmp_path / "a.json", tmp_path / "b.json")


MANY = [
    row(system="ropg_kd", value=0.6, none=0.01, bm25=0.04, recency=0.2),
    row(system="mine", value=0.4, none=0.03, bm25=0.001, recency=None),
    row(system="recency", value=0.45),
    row(system="none", value=0.3),
    row(system="bm25", value=0.5),
]


def test_columns_and_superscripts_are_the_papers():
    """Baselines in the paper's order and with its numbers; a mark means better and p < 0.05, nothing else."""
    table = results_table(MANY)
    assert table.columns == ("¹ No personalization", "² BM25", "³ Recency", "ROPG-KD", "mine")
    (line,) = table.rows
    assert (line.dataset, line.metric) == ("LaMP-4: Personalized News Headline Generation", "ROUGE-1 ↑")
    assert [cell.text for cell in line.cells] == ["0.300", "0.500", "0.450", "0.600", "0.400"]
    assert [cell.marks for cell in line.cells] == ["", "", "", "¹²", "¹"]  # significantly worse is no mark
    assert [cell.best for cell in line.cells] == [False, False, False, True, False]


def test_holm_takes_back_what_five_comparisons_do_not_carry():
    """0.001 · 5, 0.01 · 4 = 0.04, 0.03 · 3 = 0.09, 0.04 · 2 = 0.08 → 0.09."""
    marks = [cell.marks for cell in results_table(MANY, correct=True).rows[0].cells]
    assert marks == ["", "", "", "¹", ""]
    assert "Holm" in results_table(MANY, correct=True).notes[-1]
    assert "not corrected" in results_table(MANY).notes[-1]


def test_lower_is_better_for_errors():
    """For MAE the smallest is bold and a smaller error earns the mark."""
    rows = [
        row("LaMP-3", "none", "mae", 0.4, up=False),
        row("LaMP-3", "ropg_kd", "mae", 0.3, up=False, none=0.01),
        row("LaMP-3", "ropg_rl", "mae", 0.5, up=False, none=0.01),
    ]
    (line,) = results_table(rows).rows
    assert line.metric == "MAE ↓"
    assert [(c.text, c.marks, c.best) for c in line.cells] == [
        ("0.400", "", False),
        ("0.500", "", False),
        ("0.300", "¹", True),
    ]


def test_several_tasks_share_a_table_with_gaps():
    """Runs of several tasks merge; LaMP-2 comes before LaMP-4, and a system that lacks a task shows a dash."""
    rows = [*MANY, row("own", "bm25", n=7), row("LaMP-2", "bm25", "f1"), row("LaMP-2", "bm25", "accuracy")]
    table = results_table(rows)
    assert [line.metric for line in table.rows] == ["F1 ↑", "Accuracy ↑", "ROUGE-1 ↑", "ROUGE-1 ↑"]
    assert [line.dataset[:6] for line in table.rows] == ["LaMP-2", "LaMP-2", "LaMP-4", "own"]
    assert [cell.text for cell in table.rows[0].cells] == ["–", "0.500", "–", "–", "–"]
    assert not any(cell.best for cell in table.rows[0].cells)  # alone is not best
    assert table.notes[0] == "n (examples with a gold): LaMP-2 40; LaMP-4 40; own 7."
    assert "paired t-test for ROUGE-1; McNemar for F1, Accuracy" in table.notes[-1]


def test_equal_figures_are_equally_bold():
    """Two cells that both read 0.500, one bold and one not, would be read as an error."""
    line = results_table([row(system="bm25", value=0.5004), row(system="none", value=0.4996)]).rows[0]
    assert [cell.best for cell in line.cells] == [True, True]


def test_markdown():
    """tables.md renders as one table, whatever the labels hold."""
    text = markdown_table(results_table(MANY, labels={"mine": "mine | <b>*my*</b>"}))
    lines = text.splitlines()
    assert lines[0].startswith("| Dataset | Metric | ¹ No personalization | ² BM25 |")
    assert lines[0].endswith(r"| ROPG-KD | mine \| \<b\>\*my\*\</b\> |")
    assert lines[2].endswith("| 0.300 | 0.500 | 0.450 | **0.600**¹² | 0.400¹ |")
    assert len({line.replace(r"\|", "").count("|") for line in lines[:3]}) == 1


@pytest.mark.parametrize("width", [200, 80, 40])
def test_no_figure_is_cut_on_the_console(width):
    """On a narrow terminal the table turns instead of losing digits or marks."""
    shown = plain(results_table([*MANY, row("LaMP-3", "none", "mae", 0.25, up=False)]), width)
    assert "0.600¹²" in shown
    assert "0.250" in shown
    assert "Title [not markup]" in shown
    assert "…" not in shown
    assert "Bold" not in shown  # a file shows no bold


def test_interval_rows():
    """Every value with its interval, systems in the order of the table."""
    rows = interval_rows(MANY)
    assert rows[0] == ["LaMP-4", "ROUGE-1", "No personalization", "0.300", "0.200 to 0.400"]
    assert [line[2] for line in rows] == ["No personalization", "BM25", "Recency", "ROPG-KD", "mine"]


def test_empty_results():
    """A test split without golds has no rows, and no table crashes on that."""
    table = results_table([])
    assert table.rows == ()
    assert markdown_table(table)
    assert plain(table)
