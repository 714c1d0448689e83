"""Tables of retriever selection: hand-worked figures, one content in every rendering, JSON without NaN."""

import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from ropg.evaluation.report import Grid, Picture, Text, render_report
from rspg.report_sections import selection_sections
from rspg.results_file import rspg_json
from rspg.selections import compare_selections
from rspg.table_text import blocks, markdown, print_selection_table
from rspg.tables import (
    bounds_table,
    cost_table,
    disagreement_table,
    selection_tables,
    success_table,
    winning_table,
)

EVIL = "<script>alert('x')</script>|*[b]"
NAMES, LABELS = ["none", "bm25", "ropg_kd"], ["No personalization", f"BM25 {EVIL}", "ROPG-KD"]
# the best are {0}, {1, 2}, {2}, {0, 1, 2}
REWARDS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.5]])
WIG = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [5.0, 6.0, 1.0], [0.0, 0.0, 0.0]])
CHOSEN = {"rspg_pre": np.array([0, 0, 2, 1]), "rspg_post": np.array([0, 1, 2, 2])}
WITH = compare_selections(NAMES, LABELS, REWARDS, {"wig": WIG}, 2, CHOSEN)
WITHOUT = compare_selections(
    NAMES[:2],
    LABELS[:2],
    REWARDS[:, :2],
    {"wig": WIG[:, :2]},
    0,
    {"rspg_pre": np.array([0, 0, 1, 1]), "rspg_post": np.array([0, 1, 0, 0])},
)


def texts(table):
    return [[cell.text + cell.marks for cell in row] for row in table.rows]


def row(table, label):
    return next(cells[1:] for cells in texts(table) if cells[0] == label)


def printed(table, width=100):
    console = Console(file=io.StringIO(), width=width)
    print_selection_table(table, console)
    return console.file.getvalue()


def test_success_table_by_hand():
    """Table 4: rate, Wilson interval, mean Eval, and p against each selector."""
    table = success_table(WITH)
    assert table.header == (
        "Chosen by",
        "Success rate",
        "95 % interval",
        "Mean Eval",
        "p RSPG-Pre",
        "p RSPG-Post",
    )
    # 3 of 4 right; with one discordant pair McNemar has p = 1
    assert row(table, "RSPG-Pre") == ["0.750", "0.301–0.954", "0.625", "–", "1.0000"]
    assert row(table, "RSPG-Post") == ["1.000", "0.510–1.000", "0.875", "1.0000", "–"]
    assert row(table, "WIG")[:3] == ["0.750", "0.301–0.954", "0.625"]
    assert row(table, "Random choice")[0] == "0.583"
    bold = [(cells[0].text, [i for i, cell in enumerate(cells) if cell.best]) for cells in table.rows]
    assert [entry for entry in bold if entry[1]] == [("RSPG-Post", [1, 3])]


def starred(qpp):
    """Eight inputs, retriever 0 best on all; a selector right on the first seven."""
    rewards = np.array([[1.0, 0.0]] * 8)
    predictions = {name: np.array([[float(right), 0.5] for right in rights]) for name, rights in qpp.items()}
    chosen = {"rspg_pre": np.array([0] * 7 + [1])}
    return success_table(compare_selections(["a", "b"], ["A", "B"], rewards, predictions, None, chosen))


def test_the_star_needs_significance_over_all_best_baselines():
    """WIG loses six to nil (p = 0.031), NQC seven to one (p = 0.070): both are right once, so no star."""
    wig, nqc = [0] * 6 + [1, 0], [0] * 7 + [1]
    alone = starred({"wig": wig})
    assert row(alone, "RSPG-Pre")[0] == "0.875*"
    assert any(note.startswith("* ") and "WIG and WIG, z-scored" in note for note in alone.notes)
    assert row(starred({"wig": wig, "nqc": nqc}), "RSPG-Pre")[0] == "0.875"
    # without a QPP baseline there is nothing to be above, and the legend does not explain a star
    none = starred({})
    assert row(none, "RSPG-Pre")[0] == "0.875"
    assert not any(note.startswith("*") for note in none.notes)


def test_a_selector_that_is_significantly_worse_gets_no_star():
    """Two-tailed tests are significant both ways."""
    rewards = np.array([[1.0, 0.0]] * 8)
    right = {"wig": np.array([[1.0, 0.0]] * 8)}
    outcome = compare_selections(
        ["a", "b"], ["A", "B"], rewards, right, None, {"rspg_pre": np.array([1] * 8)}
    )
    assert row(success_table(outcome), "RSPG-Pre") == ["0.000", "0.000–0.324", "0.000", "–"]
    assert row(success_table(outcome), "WIG")[-1] == "0.0078"


def test_bounds_table_by_hand():
    """Table 5: both pools between their own bounds."""
    table = bounds_table(WITH, WITHOUT, note_without="restriction of the pool at inference")
    assert table.header == ("Chosen by", "w/o ROPG", "w/ ROPG", "Difference", "p")
    assert [cells[0] for cells in texts(table)] == [
        "Oracle, lower bound",
        "Random choice",
        "Best fixed",
        "RSPG-Pre",
        "RSPG-Post",
        "Oracle, upper bound",
    ]
    assert row(table, "Oracle, lower bound") == ["0.125", "0.125", "0.000", "–"]
    assert row(table, "Oracle, upper bound") == ["0.625", "0.875", "+0.250", "–"]
    assert row(table, "Best fixed")[:3] == ["0.375", "0.625", "+0.250"]
    assert row(table, "RSPG-Post")[:3] == ["0.625", "0.875", "+0.250"]
    # differences 0, 0, 1, 0: t = 1 with three degrees of freedom
    assert row(table, "RSPG-Post")[3] == "0.3910"
    assert any("restriction of the pool at inference" in note for note in table.notes)
    assert any("Best fixed (No personalization); Best fixed (ROPG-KD)" in note for note in table.notes)


def test_a_gain_of_rights_and_wrongs_is_starred_by_mcnemar():
    """Six inputs that only the pool with ROPG gets right; all the others are equal."""
    rewards = np.array([[0.0, 1.0]] * 6 + [[1.0, 1.0]] * 2)
    ours = compare_selections(
        ["bm25", "ropg_kd"], ["BM25", "ROPG-KD"], rewards, {}, 1, {"rspg_pre": np.ones(8, int)}
    )
    theirs = compare_selections(["bm25"], ["BM25"], rewards[:, :1], {}, 0, {"rspg_pre": np.zeros(8, int)})
    table = bounds_table(ours, theirs)
    assert row(table, "RSPG-Pre") == ["0.250", "1.000*", "+0.750", "0.0312"]
    assert "McNemar" in table.notes[-1]
    assert row(bounds_table(theirs, ours), "RSPG-Pre")[1:3] == ["0.250", "−0.750"]


def test_bounds_table_with_one_pool_or_a_missing_selector():
    """Without the second pool there is one column; a selector that only one pool has shows a dash."""
    assert bounds_table(WITH).header == ("Chosen by", "Mean Eval")
    assert row(bounds_table(WITH), "Best fixed (ROPG-KD)") == ["0.625"]
    lacking = compare_selections(NAMES[:2], LABELS[:2], REWARDS[:, :2], {}, None, {})
    assert row(bounds_table(WITH, lacking), "RSPG-Pre") == ["–", "0.625", "–", "–"]
    shorter = compare_selections(NAMES[:2], LABELS[:2], REWARDS[:2, :2], {}, None, {})
    with pytest.raises(ValueError, match="on 4 inputs and the one without on 2"):
        bounds_table(WITH, shorter)


def test_winning_table_by_hand():
    """Figure 3's numbers: 2, 2 and 3 of 7 wins on four inputs."""
    assert [cells[1:] for cells in texts(winning_table(WITH))] == [
        ["28.6 %", "50.0 %", "0.375"],
        ["28.6 %", "50.0 %", "0.375"],
        ["42.9 %", "75.0 %", "0.625"],
    ]


def test_disagreement_table_by_hand():
    """Pre and Post differ on inputs 1 and 3; Post is right on 1, both are on 3."""
    assert texts(disagreement_table(WITH)) == [
        ["Both chose the same retriever", "50.0 %"],
        ["Different retrievers of equal Eval", "25.0 %"],
        ["RSPG-Pre chose the better one", "0.0 %"],
        ["RSPG-Post chose the better one", "25.0 %"],
        ["Success rate of RSPG-Pre where the choices differ", "0.500"],
        ["Success rate of RSPG-Post where the choices differ", "1.000"],
    ]
    same = compare_selections(
        NAMES, LABELS, REWARDS, {}, None, dict.fromkeys(("rspg_pre", "rspg_post"), np.zeros(4, int))
    )
    assert len(disagreement_table(same).rows) == 4
    alone = compare_selections(NAMES, LABELS, REWARDS, {}, None, {"rspg_pre": np.zeros(4, int)})
    assert disagreement_table(alone) is None


def test_cost_table_by_hand():
    """What RSPG-Post buys for a call per retriever."""
    table = cost_table(WITH, 2.25)
    assert row(table, "Always No personalization") == ["1", "1.00", "0.375", "0.500"]
    assert row(table, "Best fixed (ROPG-KD)") == ["1", "1.00", "0.625", "0.750"]
    assert row(table, "RSPG-Pre") == ["1", "1.00", "0.625", "0.750"]
    assert row(table, "RSPG-Post") == ["3", "2.25", "0.875", "1.000"]
    assert row(cost_table(WITH), "RSPG-Post")[:2] == ["3", "–"]
    for wrong in (0.5, 3.5):
        with pytest.raises(ValueError, match="from 1 to 3"):
            cost_table(WITH, wrong)


def in_markdown(table):
    lines = [line for line in markdown(table).splitlines() if line.startswith("| ")][2:]
    cells = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
    return [[c.replace("**", "").replace("\\", "") for c in line] for line in cells]


@pytest.mark.parametrize("without", [None, WITHOUT])
def test_every_rendering_says_the_same(without):
    """A figure in tables.md is the figure in the report and on the console, stars and legend included."""
    for table in selection_tables(WITH, without, distinct_prompts=2.25):
        expected = [[" ".join(cell.split()) for cell in line] for line in texts(table)]
        assert in_markdown(table) == expected
        grid, *notes = blocks(table)
        assert isinstance(grid, Grid)
        assert [[cell.rstrip("\u2007") for cell in line] for line in grid.rows] == texts(table)
        assert all(len(line) == len(table.header) for line in grid.rows)
        shown = printed(table, width=200)
        lines = [" ".join(line.split()) for line in shown.splitlines()]
        for line in expected:
            assert " ".join(line) in lines
        for note in notes:
            assert isinstance(note, Text)
            assert " ".join(note.text.split()) in " ".join(shown.split())
            assert note.text in markdown(table).replace("\\", "")


def test_bold_is_explained_only_where_it_is_shown():
    """Markdown is bold; a pipe and the report's grid are not, and do not speak of it."""
    table = success_table(WITH)
    assert "**1.000**" in markdown(table)
    assert "Bold" in markdown(table)
    assert "Bold" not in printed(table)
    assert not any("Bold" in block.text for block in blocks(table) if isinstance(block, Text))
    equal = compare_selections(["a"], ["A"], np.ones((3, 1)), {}, 0, {})
    assert "Bold" not in markdown(success_table(equal))
    assert "**" not in markdown(success_table(equal))


def test_figures_fit_a_console_of_a_hundred_and_are_never_cut():
    """Labels fold, figures do not."""
    labels = ["No personalization", "BM25", "Initial encoder"]
    outcome = compare_selections(NAMES, labels, REWARDS, {"wig": WIG, "sigma_half": WIG}, 2, CHOSEN)
    for table in selection_tables(outcome):
        wide, narrow = printed(table, width=100), printed(table, width=80)
        assert "…" not in wide + narrow
        for line in texts(table):
            assert " ".join(line) in [" ".join(shown.split()) for shown in wide.splitlines()]
            assert all(cell in narrow for cell in line[1:])


def test_json_holds_what_the_tables_say():
    """rspg.json is read by scripts: plain, complete, without NaN."""
    told = json.loads(
        json.dumps(rspg_json(WITH, WITHOUT, note_without="made", distinct_prompts=2.25), allow_nan=False)
    )
    assert told["n"] == 4
    assert told["bounds"] == {"lower": 0.125, "upper": 0.875}
    assert told["pool"][2]["winning_rate"] == pytest.approx(3 / 7)
    post = next(s for s in told["selections"] if s["name"] == "rspg_post")
    assert (post["success_rate"], post["reward"], post["kind"]) == (1.0, 0.875, "selector")
    assert post["p_success"]["rspg_pre"] == 1.0
    assert post["p_reward"]["rspg_pre"] == pytest.approx(0.391, abs=1e-3)
    wig = next(s for s in told["selections"] if s["name"] == "wig")
    assert wig["p_success"] is None
    assert told["agreement"]["b_better"] == 0.25
    assert told["without"]["note"] == "made"
    assert told["without"]["bounds"]["upper"] == 0.625
    assert told["gains"]["rspg_post"] == {"reward": 0.25, "p": pytest.approx(0.391, abs=1e-3)}
    assert told["distinct_prompts"] == 2.25
    alone = rspg_json(WITH)
    assert alone["without"] is alone["gains"] is alone["distinct_prompts"] is None


@st.composite
def outcomes(draw):
    """Any pool, with ties, with or without selectors."""
    q, r = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    values = st.sampled_from([0.0, 0.25, 1.0])
    rewards = np.array(draw(st.lists(st.lists(values, min_size=r, max_size=r), min_size=q, max_size=q)))
    choices = st.lists(st.integers(0, r - 1), min_size=q, max_size=q)
    used = draw(st.sets(st.sampled_from(["rspg_pre", "rspg_post", "mine"])))
    names = ["none", "bm25", "initial", "ropg_kd"][:r]
    predictions = {"wig": rewards} if draw(st.booleans()) else {}
    return compare_selections(
        names,
        names,
        rewards,
        predictions,
        draw(st.none() | st.just(0)),
        {n: np.array(draw(choices)) for n in used},
    )


@settings(max_examples=40, deadline=None)
@given(outcomes())
def test_every_outcome_has_tables(outcome):
    """One input, one retriever, all ties, no selector: a table, and never "nan"."""
    first = compare_selections(["none"], ["none"], outcome.rewards[:, :1], {}, None, {})
    for without in (None, first):
        for table in selection_tables(outcome, without):
            assert all(len(line) == len(table.header) for line in table.rows)
            for text in (markdown(table), printed(table)):
                assert "nan" not in text.replace("none", "").lower()
        json.dumps(rspg_json(outcome, without), allow_nan=False)


def test_sections_are_complete_and_escaped():
    """The report shows labels from outside as text, tables before their plots, notes first."""
    sections = selection_sections(
        WITH, WITHOUT, note_without=EVIL, distinct_prompts=2.25, notes=[f"Chosen on dev {EVIL}"]
    )
    assert [len([b for b in s.blocks if isinstance(b, Picture)]) for s in sections] == [1, 1, 1, 0, 0]
    assert sections[0].blocks[0] == Text(f"Chosen on dev {EVIL}", important=True)
    html = render_report("Selection", sections)
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "RSPG-Post" in html


def test_sections_without_selectors():
    """Only baselines and one pool: three plots still, and no section on Pre and Post."""
    alone = compare_selections(["bm25"], ["BM25"], np.array([[0.5]]), {}, None, {})
    sections = selection_sections(alone)
    assert len(sections) == 4
    assert not any("part ways" in section.title for section in sections)
    render_report("Selection", sections)


def test_alpha_reaches_every_star():
    """p = 0.031 is a star at 0.05 and none at 0.01, in tables and report alike."""
    rewards = np.array([[0.0, 1.0]] * 6)
    wrong = {"wig": np.array([[1.0, 0.0]] * 6)}
    ours = compare_selections(["a", "b"], ["A", "B"], rewards, wrong, None, {"rspg_pre": np.ones(6, int)})
    theirs = compare_selections(["a"], ["A"], rewards[:, :1], {}, None, {"rspg_pre": np.zeros(6, int)})
    for alpha, stars in ((0.05, ["1.000*", "1.000*"]), (0.01, ["1.000", "1.000"])):
        tables = selection_tables(ours, theirs, alpha=alpha)[:2]
        assert [row(tables[0], "RSPG-Pre")[0], row(tables[1], "RSPG-Pre")[1]] == stars
        html = render_report("Selection", selection_sections(ours, theirs, alpha=alpha))
        assert ("1.000*" in html) == (alpha == 0.05)
        assert f"p &lt; {alpha:g}" in html
