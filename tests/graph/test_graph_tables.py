"""A table of PGraphRAG: its numbers by hand, what it reuses, that a kill costs nothing, and what is refused."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from rich.console import Console

from ropg.cli import CONF, Refused, compose
from ropg.evaluation.metrics import CorpusMetric
from ropg.evaluation.significance import holm, paired_t_test
from ropg.graph.catalogue import LONG, RATINGS, SHORT, TABLES, TASKS
from ropg.graph.comparison import relative_gain
from ropg.graph.layout import Grid, print_grid
from ropg.graph.options import parse
from ropg.graph.slices import SLICES
from ropg.graph.tables import main, make_table

ROOT = Path(__file__).parents[2]


def review(item: str, title: str, text: str, rating: int = 5) -> dict[str, Any]:
    return {"pid": item, "rating": rating, "title": title, "text": text}


USERS = [
    {"id": "u1", "profile": [review("i1", "good pan", "fries eggs"), review("i2", "good pot", "boils rice", 4)]},
    {"id": "u2", "profile": [review("i1", "good pan here", "fries fish", 4)]},
    {"id": "u3", "profile": [review("i3", "bad lid", "does not close", 1)]},
    {"id": "u4", "profile": [review("i3", "bad lid", "will not close", 2)]},
]  # fmt: skip


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """`llm.kind=echo_llm:EchoLLM` can be imported, and says nothing to a log unless a test wants one."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    for name in ("ECHO_LOG", "ECHO_FAILS_AT", "ECHO_SECONDS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The four dev files, all with the same users."""
    folder = tmp_path / "data"
    folder.mkdir()
    for dataset in {task.dataset for task in TASKS.values()}:
        (folder / f"{dataset}_dev.json").write_text(json.dumps(USERS), encoding="utf-8")
    return folder


def arguments(data: Path, where: Path, *more: str, llm: str = "EchoLLM") -> list[str]:
    return [
        f"data.root={data}",
        "llm=smollm2",
        f"llm.kind=echo_llm:{llm}",
        f"run.root={where / 'runs'}",
        f"store.dir={where / 'stores'}",
        "evaluation.resamples=20",
        "retrieval.k=1",
        *more,
    ]


def made(table: int, *given: str) -> dict[str, Any]:
    """Make a table; what its JSON says."""
    path = make_table(*parse([str(table), *given]))
    return json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def values(task: dict[str, Any], metric: str = "rouge1") -> dict[str, float]:
    return {row["system"]: row["value"] for row in task["results"] if row["metric"] == metric}


def test_a_table_by_hand(data, tmp_path, capsys):
    """The LLM repeats the first title it sees. With k = 1 the lowest-ranked stands first, so u1 reads a neighbour's
    title with both, its own with LaMP: ROUGE-1 of "good pan here" for "good pan" is 0.8, of "good pot" 0.5."""
    found = made(4, *arguments(data, tmp_path, "tasks=5"))
    (task,) = found["tasks"]
    assert values(task) == pytest.approx(
        {
            "pgraphrag-bm25-k1": (0.8 + 0.8 + 1 + 1) / 4,
            "pgraphrag_equal-bm25-k1": (0.5 + 0.8 + 1 + 1) / 4,
            "lamp-bm25-k1": 0.5 / 4,
            "none": 0.0,
            "random_retrieval-k1": values(task)["random_retrieval-k1"],
        }
    )
    shown = {name: counts["documents"] for name, counts in task["shown"].items()}
    assert shown == {
        "pgraphrag-bm25-k1": 5,
        "pgraphrag_equal-bm25-k1": 4,
        "lamp-bm25-k1": 1,
        "none": 0,
        "random_retrieval-k1": 4,
    }
    rows = {row["system"]: row for row in task["results"] if row["metric"] == "rouge1"}
    lamp = [0.5, 0, 0, 0]
    both = paired_t_test([0.8, 0.8, 1, 1], lamp)
    others = [rows[name]["p_values"]["lamp-bm25-k1"] for name in rows if "lamp" not in name]
    assert others[0] == pytest.approx(both)
    corrected = [rows[name]["versus_lamp"]["p"] for name in rows if "lamp" not in name]
    assert corrected == pytest.approx(holm(others))
    assert rows["lamp-bm25-k1"]["versus_lamp"] is None
    assert rows["none"]["versus_lamp"]["difference"] == pytest.approx(-0.125)
    slices = {part["slice"]: (part["n"], values(part)["pgraphrag-bm25-k1"]) for part in task["slices"]}
    assert slices == {
        "no own history": (3, pytest.approx(2.8 / 3)),
        "some own history": (1, pytest.approx(0.8)),
        "one neighbor": (4, pytest.approx(0.9)),
    }
    text = (tmp_path / "runs" / "pgraphrag" / "table_4.md").read_text(encoding="utf-8")
    printed = " ".join(capsys.readouterr().out.split())
    for part in (
        "SmolLM2",
        "Budget: each side",
        "task 5 4",
        "(dev files)",
        "data.root has none",
        "PGraphRAG, equal budget",
        "one neighbor",
    ):
        assert part in text
        assert part in printed
    assert "0.900" in text
    assert "95 % interval" in text


def test_a_table_says_what_its_profiles_hold(data, tmp_path):
    """Two tables over other profiles must not look alike."""
    more = [
        "tasks=5",
        "limit=1",
        "data.max_documents=3",
        "+data.options={leak_filter: [text, title], hops: 2}",
    ]
    found = made(4, *arguments(data, tmp_path, *more))
    assert found["settings"]["profiles"] == {"leak_filter": ["text", "title"], "hops": 2, "max_documents": 3}
    text = (tmp_path / "runs" / "pgraphrag" / "table_4.md").read_text(encoding="utf-8")
    assert r"Profiles: leak\_filter=text and title, hops=2, max\_documents=3." in text


def test_the_equal_budget_alone(data, tmp_path):
    """budget=equal leaves no system that shows more than LaMP may."""
    (task,) = made(4, *arguments(data, tmp_path, "tasks=5", "budget=equal"))["tasks"]
    assert list(task["systems"].values()) == [
        "PGraphRAG, equal budget",
        "LaMP",
        "No-Retrieval",
        "Random-Retrieval",
    ]
    assert max(counts["documents"] for counts in task["shown"].values()) == 4


def test_what_did_not_fit_is_counted(data, tmp_path):
    """Of u1's two reviews one fits beside the question in twelve words: ** shows it whole, and the table says 4 of 5."""
    found = made(15, *arguments(data, tmp_path, "tasks=5", "llm.max_input_tokens=12", "retrieval.k=2"))
    shown = found["tasks"][0]["shown"]
    kept = {name: (counts["documents"], counts["available"]) for name, counts in shown.items()}
    assert kept["pgraphrag_all-bm25"] == (4, 5)
    assert kept["lamp_all-bm25"] == (1, 1)
    assert shown["pgraphrag_all-bm25"]["shortened_documents"] == 0
    both = shown[
        "pgraphrag-bm25-k2"
    ]  # two were asked for: the prompt builder shortens or drops, and counts it
    assert both["shortened_documents"] + both["dropped_documents"] > 0
    text = (tmp_path / "runs" / "pgraphrag" / "table_15.md").read_text(encoding="utf-8")
    assert "| 5 | PGraphRAG\\*\\* | 4 | 5 | 0 | 0 | 0 | 0 |" in text


def test_gains_by_hand(data, tmp_path):
    """Table 6: LaMP 0.125, PGraphRAG 0.9 and 0.825; where LaMP has 0 there is no gain, and no division by it."""
    (task,) = made(6, *arguments(data, tmp_path, "tasks=5"))["tasks"]
    gains = {r["system"]: r["gain"] for r in task["results"] if r["metric"] == "rouge1"}
    assert gains["lamp-bm25-k1"] is None
    assert gains["pgraphrag-bm25-k1"]["value"] == pytest.approx(620.0)
    assert gains["pgraphrag_equal-bm25-k1"]["value"] == pytest.approx(560.0)
    assert (
        gains["pgraphrag-bm25-k1"]["low"] is None
    )  # three of four targets have no history: resampled, LaMP is 0
    lower = CorpusMetric("mae", cases=lambda p, g: np.zeros(0), higher_is_better=False)
    assert relative_gain(lower, np.array([1.0, 1.0]), np.array([2.0, 2.0]), 10).value == 50.0
    nothing = relative_gain(lower, np.array([1.0]), np.array([0.0]), 10)
    assert (nothing.value, nothing.low, nothing.high) == (None, None, None)


def test_tables_share_what_was_generated(data, tmp_path, monkeypatch):
    """The LLM's hours are spent once: Table 10 asks it only what Table 4 has not."""
    log = tmp_path / "log"
    monkeypatch.setenv("ECHO_LOG", str(log))
    settings = arguments(data, tmp_path, "tasks=5", "retrieval.k=2")
    first = made(4, *settings)
    asked = log.read_text().splitlines()
    again = made(4, *settings)
    assert log.read_text().splitlines() == asked
    assert again == first
    (modes,) = made(10, *settings)["tasks"]
    assert len(log.read_text().splitlines()) < 2 * len(asked)
    assert values(modes)["pgraphrag-bm25-k2"] == values(first["tasks"][0])["pgraphrag-bm25-k2"]
    assert values(modes)["lamp-bm25-k2"] == values(first["tasks"][0])["lamp-bm25-k2"]


@pytest.mark.parametrize("table", [3, 8, 10, 11, 14, 18])  # every kind of columns, task and split
def test_tables_of_every_kind_are_made(table, data, tmp_path):
    """One target each; the retrievers that need no encoder."""
    found = made(
        table, *arguments(data, tmp_path, "limit=1", "retriever=bm25", f"tasks={TABLES[table].tasks[-1]}")
    )
    (task,) = found["tasks"]
    metrics = {row["metric"] for row in task["results"]}
    assert metrics >= ({"mae", "rmse"} if task["task"] in RATINGS else {"rouge1", "rougeL"})
    assert {row["n"] for row in task["results"]} == {1}
    assert found["settings"]["splits"] == {str(task["task"]): "dev"}


def test_the_tasks_of_the_paper():
    """Which data and language a number means."""
    assert {(t.kind, n) for n, t in TASKS.items()} == {
        *(("text", n) for n in LONG),
        *(("title", n) for n in SHORT),
        *(("rating", n) for n in RATINGS),
    }
    assert [TASKS[n].dataset for n in range(1, 13)] == 3 * ["amazon", "hotel", "gap", "b2w"]
    for number, task in TASKS.items():  # the experiment of a number is the task of that number
        preset = OmegaConf.load(CONF / "experiment" / f"pgraphrag_{number}.yaml")
        assert preset.data.file == f"{task.dataset}_dev.json"
        assert {"override /task": f"pgraphrag_{task.kind}"} in preset.defaults
        assert ("task" in preset and preset.task.language == "pt") == (task.dataset == "b2w")


@pytest.mark.parametrize("batch", [1, 4])
def test_an_interrupted_table_ends_as_an_undisturbed_one(batch, data, tmp_path, monkeypatch):
    """Answers depend on the whole batch here: what is resumed must be planned as it was."""
    undisturbed = made(4, *arguments(data, tmp_path / "a", "tasks=5,6", llm="BatchEcho"))
    monkeypatch.setenv("ECHO_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("ECHO_FAILS_AT", str(batch))
    settings = arguments(data, tmp_path / "b", "tasks=5,6", llm="BatchEcho")
    with pytest.raises(KeyboardInterrupt):
        made(4, *settings)
    assert not (tmp_path / "b" / "runs").exists()
    assert made(4, *settings)["tasks"] == undisturbed["tasks"]


def test_a_killed_table_ends_as_an_undisturbed_one(data, tmp_path):
    """SIGKILL in the middle of a batch loses that batch, and nothing else is asked again."""
    settings = arguments(data, tmp_path / "killed", "tasks=5", "retrieval.k=2", llm="BatchEcho")
    command = [sys.executable, "-m", "ropg.graph.tables", "4", *settings]
    log = tmp_path / "log"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}",
        "ECHO_LOG": str(log),
        "ECHO_SECONDS": "0.3",
    }
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    while not log.exists() or log.read_text().count("batch") < 3:
        assert process.poll() is None, process.communicate()[0].decode()[-3000:]
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    begun = [line for line in log.read_text().splitlines() if line != "batch"]
    found = made(4, *settings)
    undisturbed = made(4, *arguments(data, tmp_path / "whole", "tasks=5", "retrieval.k=2", llm="BatchEcho"))
    assert found["tasks"] == undisturbed["tasks"]
    assert len(begun) >= 5  # two batches were stored, the third was not


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["5"], "no table '5'; the first argument is one of 3, 4, 6"),
        (["three"], "no table 'three'"),
        (["3", "tasks=5"], "table 3 has tasks 1, 2, 3, 4, not 5"),
        (["3", "tasks=1,1"], "name each once"),
        (["3", "tasks="], "name each once"),
        (["3", "limit=0"], "a number of targets from 1"),
        (["3", "limit=many"], "a number of targets from 1"),
        (["3", "split=train"], "it is test or dev"),
        (["3", "budget=double"], "it is each_side or equal"),
        (["3", "users=some"], "it is all or heldout"),
        (["3", "limit=1", "limit=2"], "given twice"),
        (["3", "limit"], "no KEY=VALUE"),
        (["3", "experiment=lamp_4"], "a table chooses its own"),
        (["3"], r"give data\.root=DIR, the folder of amazon_dev\.json"),
        (["3", "data.root={data}", "split=test"], r"holds no amazon_test\.json; split=dev takes the other file"),
        (["3", "data.root={data}/nowhere"], r"holds no amazon_test\.json nor amazon_dev\.json"),
        (["3", "data.path=x.json"], r"give data\.root=DIR"),
        (["3", "data=lamp"], "leave data=… out"),
        (["3", "data.root={data}", "retriever=bm26", "tasks=1"], "did you mean bm25"),
        (["3", "data.root={data}", "retriever=rspg_pre", "tasks=1"], "that is a selector"),
        (["3", "data.root={data}", "retriever=ropg_kd", "tasks=1"], r"no finished run .*or name one: models\.ropg_kd=RUN"),
        (["3", "limt=2"], "there is no key limt; did you mean limit"),
        (["3", "retreiver=bm25"], "did you mean retriever"),
        (["3", "data.root={data}", "+data.options.mode=own"], "a table compares the modes itself"),
        (["3", "data.root={data}", "retriever=bm25_own", "tasks=1"], "choose whose documents .* retriever=bm25$"),
        (["3", "data.root={data}", "retriever=none", "llm.kind=echo_llm:EchoLLM", "tasks=1"], "No-Retrieval is that system"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_to_do(given, message, data, tmp_path):
    given = [*(part.format(data=data) for part in given), f"run.root={tmp_path / 'runs'}"]
    with pytest.raises((Refused, ValueError), match=message):
        make_table(*parse([*given, "llm=smollm2", f"store.dir={tmp_path / 'stores'}"]))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_value_is_cut_off_on_a_narrow_console(width):
    """All six slices need 84 columns: a console of 80 must not lose the last of them."""
    names = ("Task", "System", *SLICES)
    rows = [["9", "PGraphRAG, equal budget", *(f"{place}.125" for place in range(len(SLICES)))]]
    console = Console(file=io.StringIO(), width=width)
    print_grid(Grid("Slices", names, rows, 2, "A note."), console)
    words = console.file.getvalue().split()
    assert {word for text in (*names, *rows[0], "A note.") for word in text.split()} <= set(words)


def test_the_command_line(capsys):
    """Help answers without a composition; a bad argument is one line and a status."""
    assert main(["--help"]) == 0
    assert "limit=N" in capsys.readouterr().out
    assert main([]) == 2
    with pytest.raises(SystemExit) as left:
        main(["7"])
    assert left.value.code == 1
    assert "error: there is no table '7'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(["3", "llm.modle=x"])
    assert left.value.code == 2
    assert "llm.model" in capsys.readouterr().err


def test_help_imports_nothing_heavy():
    """`--help` under two seconds."""
    code = "import sys; from ropg.graph.tables import main; main(['-h']); print(sorted({'torch', 'scipy'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_trained_retrievers_need_held_out_targets(data, tmp_path, monkeypatch):
    """An encoder that was trained on the targets would win by memory."""
    from ropg.graph import tables
    from ropg.runs import open_run

    run = tmp_path / "runs" / "kd"
    settings = arguments(data, tmp_path)
    with open_run(compose("experiment=pgraphrag_5", "method=ropg_kd", *settings), run):
        (run / "model").mkdir()
    table = parse(["14", "tasks=5", "retriever=bm25,ropg_kd", *settings, f"models.ropg_kd={run}"])
    with pytest.raises(Refused, match=r"was trained on users of .*amazon_dev\.json; add users=heldout"):
        make_table(*table)
    config, _ = tables.compose_task(TASKS[5], table[2], "dev")
    assert tables.runs_of(config, ["bm25", "ropg_kd"], "heldout") == {"ropg_kd": run}
