"""report.html and its plots: self-contained, escaped, complete."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from ropg.evaluation import plots
from ropg.evaluation.report import (
    Case,
    CaseAnswer,
    Facts,
    Grid,
    Picture,
    Section,
    Text,
    render_report,
    write_report,
)
from ropg.evaluation.report_sections import evaluation_sections, first_document_ranks
from ropg.evaluation.systems import System, evaluate_systems
from ropg.evaluation.tables import results_table
from ropg.examples import Document, Example
from ropg.tasks import get_task

EVIL = "<script>alert('x')</script>\"><img src=http://example.org/x>"


def records(*values: float) -> list[dict]:
    return [
        {"event": "evaluation", "step": 10 * i, "expected_reward": v, "first_reward": v, "oracle_reward": 0.9}
        | {"initial_reward": 0.4}
        for i, v in enumerate(values)
    ]


class Tags(HTMLParser):
    """Collects tags and attributes, and checks that tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def evaluated():
    documents = tuple(Document(f"d{i}", f"text {i} {EVIL}", title=EVIL, date="2020-01-01") for i in range(6))
    examples = [Example(f"q{i} {EVIL}", "u", f"input {i} {EVIL}", f"gold {i}", documents) for i in range(7)]

    def system(name: str, first: int) -> System:
        return System(name, f"{name} {EVIL}", lambda part: [documents[first:] for _ in part])

    def answer(name, rankings):
        return {i: f"{name} {i[1]} gold {i[1] if name == 'ropg_kd' else ''} {EVIL}" for i in rankings}

    none = System("none", "No personalization", lambda part: [[] for _ in part])
    systems = [none, system("initial", 0), system("ropg_kd", 1)]
    evaluation = evaluate_systems(
        examples, get_task("LaMP-4"), systems, 2, answer, resamples=20, progress=False
    )
    return evaluation, examples


def sections(evaluation, examples, **options):
    return evaluation_sections(
        evaluation,
        examples,
        results_table(evaluation.results),
        run={"LLM": EVIL},
        configuration={"task": {"name": EVIL}, "optim": {"lr": 1e-5, "betas": [0.9, 0.999]}},
        data_note=f"Synthetic data. {EVIL}",
        **options,
    )


def test_nothing_of_the_data_becomes_markup(evaluated, tmp_path):
    """A review that holds <script> must be read, not run, by whoever opens the report."""
    evaluation, examples = evaluated
    path = write_report(
        tmp_path,
        EVIL,
        sections(evaluation, examples, curves={EVIL: records(0.4, 0.6)}, counts={"none": {"llm_calls": 7}}),
    )
    html = path.read_text(encoding="utf-8")
    page = Tags(html)
    names = {tag for tag, _ in page.tags}
    assert "script" not in names
    assert html.count("&lt;script&gt;") > 20
    assert {"main", "table", "figure", "details", "nav"} <= names
    for tag, attributes in page.tags:
        if tag == "img":
            assert attributes["src"].startswith("data:image/svg+xml;base64,")
            assert attributes["alt"]
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_report_loads_nothing(evaluated):
    """It must open on a machine without a network, and tell no other machine that it was opened."""
    html = render_report("t", sections(*evaluated))
    page = Tags(html)
    assert not [tag for tag, _ in page.tags if tag in ("link", "iframe", "script", "object")]
    assert [a["href"] for t, a in page.tags if "href" in a] == [
        f"#s{i + 1}" for i in range(sum(t == "section" for t, _ in page.tags))
    ]
    assert "url(" not in html
    assert "default-src 'none'" in html


def test_the_report_says_what_a_reader_asks(evaluated):
    """What was run, on which data, with what result, how it was tested, what it looks like, what was counted."""
    evaluation, examples = evaluated
    html = render_report("t", sections(evaluation, examples, curves={"ROPG-KD": records(0.4, 0.6)}))
    titles = re.findall(r"<h2>(.*?)</h2>", html)
    assert titles == ["What was run", "Results", "Learning", "What training changed", "Examples", "Counts"]
    for said in (
        "Synthetic data.",
        "optim.lr",
        "1e-05",
        "0.9, 0.999",
        "Superscripts",
        "paired t-test",
        "empty rankings",
    ):
        assert said in html
    assert len(re.findall(r"<summary>Input ", html)) == 5
    assert html.count("<details open>") == 1


def test_a_report_without_golds_still_shows_the_answers(evaluated):
    """Predictions on a blind test split deserve a page too."""
    _, examples = evaluated
    blind = [Example(e.id, e.user, e.input, None, e.profile) for e in examples]
    answers = {e.id: "x" for e in blind}
    none = System("none", "None", lambda part: [[] for _ in part])
    unscored = evaluate_systems(blind, get_task("LaMP-4"), [none], 2, lambda *_: answers, progress=False)
    html = render_report("t", sections(unscored, blind))
    Tags(html)
    assert "nothing to score" in html
    assert "no gold output" in html


def test_ranks_of_the_documents_put_first(evaluated):
    """The trained system puts d1 first, which stood second of two; of unknown places none is made up."""
    evaluation, examples = evaluated
    assert first_document_ranks(evaluation, "ropg_kd") == [2] * len(examples)
    assert first_document_ranks(evaluation, "initial", reference="ropg_kd") == [None] * len(examples)
    assert first_document_ranks(evaluation, "none") == []


def test_every_block_closes_its_tags():
    """One unclosed tag hides the rest of the page."""
    blocks = [
        Text("a"),
        Text("b", important=True),
        Facts({"x": None, "y": True, "z": []}, folded="more"),
        Grid(["a", "b"], [["1", "2"]], folded="more"),
        Picture("<svg></svg>", "alt \" '", "caption"),
        Case("c", "in", None, [CaseAnswer("s", [], ""), CaseAnswer("t", ["d" * 1000], "a" * 1000, 0.5)]),
    ]
    html = render_report("t", [Section("s", blocks), Section("empty")])
    Tags(html)
    assert "d" * 200 not in html


def test_plots_are_svg_and_repeatable():
    """The same results give the same file, so that a report can be compared with another."""
    rows = [
        {
            "task": "t",
            "system": s,
            "metric": "rmse",
            "value": v,
            "n": 3,
            "ci_low": v - 0.1,
            "ci_high": v + 0.1,
        }
        | {"higher_is_better": False, "p_values": {}}
        for s, v in (("none", 1.0), ("mine $5", 0.0))
    ]
    draw = {
        "bars": lambda: plots.system_bars(rows, labels={"none": "no $x^2$ & <b>"}),
        "curves": lambda: plots.learning_curves({"a": records(0.1, 0.2), "b": records(0.3)}),
        "ranks": lambda: plots.rank_histogram({"a": [1, 2, None], "b": [3]}, 30),
        "differences": lambda: plots.difference_histogram({"a": [0.0, 1.0, -0.5]}, "b"),
    }
    for name, function in draw.items():
        svg = function()
        assert svg == function(), name
        assert svg.rstrip().endswith("</svg>")
        assert "nan" not in re.sub(r"<!--.*?-->", "", svg).lower(), name


def test_plots_leave_matplotlib_as_it_was():
    """Drawing a report in a notebook must not restyle the notebook's own plots."""
    import matplotlib

    before = dict(matplotlib.rcParams)
    plots.learning_curves({"a": records(0.1, 0.2)})
    assert dict(matplotlib.rcParams) == before


def test_plots_refuse_what_they_cannot_show():
    """An empty picture would be read as a result."""
    for call in (
        lambda: plots.learning_curves({"a": []}),
        lambda: plots.system_bars([]),
        lambda: plots.rank_histogram({"a": []}, 4),
        lambda: plots.rank_histogram({"a": [5]}, 4),
        lambda: plots.difference_histogram({"a": []}, "b"),
    ):
        with pytest.raises(ValueError, match=r"draw|one metric|outside"):
            call()


def test_metrics_files(tmp_path):
    """Only evaluations are drawn; a line that is being written is left out, a broken one is named."""
    path = tmp_path / "metrics.jsonl"
    lines = [
        json.dumps({"event": "step", "step": 1, "loss": 0.5}),
        *map(json.dumps, reversed(records(0.1, 0.2))),
    ]
    path.write_text("\n".join(lines) + '\n{"event": "eval')
    assert [r["step"] for r in plots.read_metrics(path)] == [0, 10]
    path.write_text("{broken\n" + "\n".join(lines))
    with pytest.raises(ValueError, match="line 1"):
        plots.read_metrics(path)


def test_importing_evaluation_is_cheap():
    """`--help` and notebooks import this package; it must not pull in torch, scipy or matplotlib."""
    import subprocess
    import sys

    code = (
        "import sys, ropg.evaluation, ropg.evaluation.results, ropg.evaluation.systems, ropg.evaluation.plots, "
        "ropg.evaluation.report_sections; "
        "print([m for m in ('torch', 'transformers', 'scipy', 'sklearn', 'matplotlib', 'statsmodels') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
