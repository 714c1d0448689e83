"""Selectors end to end: what a run leaves, what it costs in LLM calls, and that a trained one chooses as reported."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline_files import COSTS, POOL, SELECTORS, texts

from ropg import build
from ropg.feedback.store import GenerationStore
from ropg.retrievers.base import ScoringRetriever
from rspg.comparison import evaluate
from rspg.pipeline import selection_rows, train
from rspg.pool import read_pool
from rspg.scorer import Scorer
from rspg.selector import choose, load_selector

ROOT = Path(__file__).parents[2]
UNTRAINED = "selector.pool=[none,recency,bm25,initial]"


def read_strictly(path: Path) -> Any:
    """JSON without NaN and infinities."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{path} holds {constant}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def summary(run: Path) -> dict[str, Any]:
    return read_strictly(run / "summary.json")


@pytest.mark.parametrize("method", SELECTORS)
def test_summary_of_a_selector(house, method):
    """summary.json as the design has it; a reader of it, or the table over seeds, must not meet a surprise."""
    found = summary(house.runs[method])
    assert set(found) == {
        "method", "task", "seed", "n_train", "n_heldout", "pool", "heldout", "qpp", "fixed", "dev_rewards",
        "p_values", "llm_calls", "seconds", *COSTS,
    }  # fmt: skip
    assert (found["method"], found["task"], found["seed"]) == (method, "LaMP-4", 0)
    assert (found["n_train"], found["n_heldout"]) == (10, 6)
    assert tuple(found["pool"]) == tuple(found["dev_rewards"]) == POOL
    heldout = found["heldout"]
    assert set(heldout) == {"selector", "best_fixed", "random", "upper", "lower"}
    everything = [*heldout.values(), *found["qpp"].values()]
    for values in everything:
        assert set(values) == {"success_rate", "reward"}
        assert all(isinstance(v, float) and math.isfinite(v) for v in values.values())
        assert heldout["lower"]["reward"] - 1e-12 <= values["reward"] <= heldout["upper"]["reward"] + 1e-12
        assert heldout["lower"]["success_rate"] <= values["success_rate"] + 1e-12
        assert values["success_rate"] <= heldout["upper"]["success_rate"] == 1.0
    assert heldout["lower"]["reward"] < heldout["upper"]["reward"]  # the test data can tell members apart
    names = {f"{name}{z}" for name in ("wig", "nqc", "sigma_max", "sigma_half") for z in ("", "_z")}
    assert set(found["qpp"]) == names
    assert found["dev_rewards"][found["fixed"]] == max(found["dev_rewards"].values())
    for tests in found["p_values"].values():
        assert set(tests) == names | {"best_fixed", "random_choice"}
        assert all(p is None or 0 <= p <= 1 for p in tests.values())
    assert set(found["p_values"]) == {"success_rate", "reward"}


@pytest.mark.parametrize("method", SELECTORS)
def test_what_a_run_of_a_selector_leaves(house, method):
    """The folder of a selector is that of a retriever's run, with the pool it was trained on."""
    run = house.runs[method]
    files_there = {path.name for path in run.iterdir()}
    assert files_there >= {"config.yaml", "metrics.jsonl", "model", "checkpoints", "pool.json", "data.json"}
    assert not [path for path in run.rglob("*") if "=" in path.name or path.name.endswith(".tmp")]
    scorer = Scorer.load(run / "model")
    assert (scorer.reads, scorer.max_length, scorer.with_names) == (method.removeprefix("rspg_"), 128, False)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {record["event"] for record in records} == {"step", "evaluation"}
    assert len([r for r in records if r["event"] == "step"]) == 3 * math.ceil(10 / 4)
    assert all(math.isfinite(v) for r in records for v in r.values() if isinstance(v, float))
    pinned = read_strictly(run / "pool.json")
    assert tuple(pinned["pool"]) == POOL
    assert {n: Path(e["run"]) for n, e in pinned["trained"].items()} == {
        n: house.runs[n].resolve() for n in ("ropg_rl", "ropg_kd")
    }


def test_no_prompt_is_generated_twice(house):
    """LLM calls are the cost of the whole method: two retrievers, two selectors, one table, each prompt once."""
    calls = house.calls
    assert calls["ropg_kd"] > 0
    assert calls["rspg_pre"] > 0
    assert calls["ropg_rl"] == calls["rspg_post"] == calls["evaluation"] == 0
    assert sum(calls.values()) == len(texts(house.folder / "stores"))
    for name in ("ropg_kd", "ropg_rl", *SELECTORS):
        assert summary(house.runs[name])["llm_calls"] == calls[name]


def test_one_document_per_prompt_was_feedbacks(house, tmp_path, asked):
    """With k = 1 the pool's prompts with a candidate in them are those that ROPG's feedback has asked already."""
    runs = house.copy(tmp_path)
    before = len(texts(tmp_path / "stores"))
    pool = "selector.pool=[initial,ropg_kd]"
    config = house.settings(
        "method=rspg_pre", pool, "retrieval.k=1", "candidates.l=all", "stage=feedback", folder=tmp_path
    )
    train(
        replace(config, method=replace(config.method, name="ropg_kd", objective=None, reads=None, options={}))
    )
    fed = len(asked)
    assert len(texts(tmp_path / "stores")) == before + fed
    train(config)
    assert len(asked) == fed
    assert runs["ropg_kd"].exists()


def batched(house, method: str) -> tuple[Any, list[int], Any]:
    """The table of the test split and one selector's choices from it."""
    config = house.settings(f"method={method}")
    selector = load_selector(house.runs[method])
    with GenerationStore(Path(config.store.dir) / "generations") as store:
        table = read_pool(
            selector.members,
            build.build_examples(config, "test", None),
            selector.task,
            selector.llm,
            store,
            config.retrieval.k,
            progress=False,
        )
    assert table.llm_calls == 0
    return table, choose(selector.scorer, selector.task, table), selector


def test_a_row_is_trained_on_its_own_rewards(house):
    """Rewards beside the wrong prompts would still train, to something that means nothing."""
    for method in SELECTORS:
        table, _, selector = batched(house, method)
        rewards = table.rewards.copy()
        rewards[1] = np.nan  # an example without a target
        rows = selection_rows(replace(table, rewards=rewards), selector.scorer, selector.task)
        kept = [0, 2, 3, 4, 5]
        assert [row.example_id for row in rows] == [f"te{q}" for q in kept]
        for row, q in zip(rows, kept, strict=True):
            assert row.rewards == tuple(table.rewards[q])
            assert row.baseline == pytest.approx(table.rewards[q].mean())
            for read, reading in zip(row.inputs, table.readings[q], strict=True):
                assert read.text == (None if method == "rspg_pre" else reading.text)
                assert read.prompt.split()[-4:] == reading.prompt.split()[-4:]  # the question stands last


ALONE = """
import json, sys
from ropg import build
from ropg.runs import load_config
from rspg.selector import load_selector
for run in sys.argv[1:]:
    selector = load_selector(run)
    for example in build.build_examples(load_config(run), "test", 3):
        choice = selector.select(example)
        print("choice", json.dumps([choice.retriever, choice.text, list(choice.probabilities.values())]))
"""


def test_a_selector_alone_in_a_batch_and_in_another_process(house):
    """What is deployed must choose what was evaluated: one by one, in tables, and on another machine."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *(str(house.runs[method]) for method in SELECTORS)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    elsewhere = [
        json.loads(line.removeprefix("choice "))
        for line in done.stdout.splitlines()
        if line.startswith("choice ")
    ]
    examples = build.build_examples(house.settings(), "test", None)
    for method in SELECTORS:
        table, chosen, selector = batched(house, method)
        where = house.runs["evaluation"] / "predictions" / f"{method}.json"
        predictions = {gold["id"]: gold["output"] for gold in read_strictly(where)["golds"]}
        for q, example in enumerate(examples):
            choice = selector.select(example)
            reading = table.readings[q][chosen[q]]
            assert choice.retriever == reading.member
            assert (choice.documents, choice.prompt) == (reading.documents, reading.prompt)
            assert predictions[example.id] == selector.task.parse(reading.text)
            if method == "rspg_pre":
                assert choice.text is None  # nothing was generated for the choice
            else:
                assert choice.text == predictions[example.id]
            assert math.isclose(sum(choice.probabilities.values()), 1, abs_tol=1e-6)
            assert choice.probabilities[choice.retriever] == max(choice.probabilities.values())
            if q < 3:
                name, text, probabilities = elsewhere.pop(0)
                assert (name, text) == (choice.retriever, choice.text)
                assert probabilities == list(choice.probabilities.values())
    assert not elsewhere


@pytest.mark.parametrize("method", SELECTORS)
def test_the_order_of_the_pool_does_not_matter(house, method):
    """One forward pass for each member: another order is the same probabilities in another order."""
    selector = load_selector(house.runs[method])
    turned = replace(selector, members=list(selector.members)[::-1])
    different = 0
    for example in build.build_examples(house.settings(), "test", 3):
        one, other = selector.select(example), turned.select(example)
        assert list(one.probabilities) == list(POOL)
        assert list(other.probabilities) == list(POOL)[::-1]
        assert other.probabilities == pytest.approx(one.probabilities, abs=1e-6)
        different += len({round(p, 6) for p in one.probabilities.values()}) > 1
    assert different  # equal probabilities everywhere would be in any order


def test_a_selector_with_fewer_and_more_members_than_it_was_trained_with(house):
    """The pool is no part of the weights: a member can be added or taken away after training."""
    selector = load_selector(house.runs["rspg_pre"])
    example = build.build_examples(house.settings(), "test", 1)[0]
    whole = selector.select(example).probabilities
    fewer = replace(selector, members=selector.members[1:3]).select(example).probabilities
    assert list(fewer) == ["recency", "bm25"]
    assert fewer["bm25"] / fewer["recency"] == pytest.approx(whole["bm25"] / whole["recency"], rel=1e-4)
    one = replace(selector, members=selector.members[2:3]).select(example)
    assert one.probabilities == {"bm25": 1.0}


class Backwards(ScoringRetriever):
    """A retriever of one's own: the last document of the profile first."""

    def scorer(self):
        return lambda requests: [list(range(len(request.documents))) for request in requests]


SEVEN = ["none", "recency", "bm25", "initial", "random", "rrf", "mine"]


@pytest.mark.usefixtures("no_plots")
def test_seven_members_and_one_of_ones_own_by_configuration_alone(house, tmp_path, monkeypatch):
    """Adding a retriever to the pool is a line of configuration, also in the table of all systems."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    more = [
        f"selector.pool=[{','.join(SEVEN)}]",
        "+retrievers.mine.target=test_pipeline_selectors:Backwards",
        "optim.epochs=1",
    ]
    run = train(house.settings("method=rspg_pre", *more, folder=tmp_path))
    assert summary(run)["pool"] == SEVEN
    assert read_strictly(run / "pool.json")["trained"] == {}
    selector = load_selector(run)
    example = build.build_examples(house.settings(), "test", 1)[0]
    assert list(selector.select(example).probabilities) == SEVEN
    mine = replace(selector, members=selector.members[-1:]).select(example)
    assert [d.id for d in mine.documents] == [d.id for d in list(example.profile)[:-3:-1]]
    systems = f"evaluation.systems=[{','.join([*SEVEN, 'rspg_pre'])}]"
    where = evaluate(house.settings(*more, systems, folder=tmp_path))
    assert {row["system"] for row in read_strictly(where / "results.json")} == {*SEVEN, "rspg_pre"}
    assert [row["name"] for row in read_strictly(where / "rspg.json")["pool"]] == SEVEN


@pytest.mark.usefixtures("no_plots")
def test_equal_retrievers_share_the_win(house, tmp_path):
    """Figure 3 counts every tied best: a copy of a retriever must not look like a second way to win."""
    twins = ["none", "bm25", "twin"]
    more = [
        f"selector.pool=[{','.join(twins)}]",
        "+retrievers.twin.target=bm25",
        f"evaluation.systems=[{','.join(twins)}]",
    ]
    where = evaluate(house.settings(*more, folder=tmp_path))
    told = read_strictly(where / "rspg.json")
    rates = {row["name"]: row["winning_rate"] for row in told["pool"]}
    assert rates["bm25"] == rates["twin"] > 0
    assert sum(rates.values()) == pytest.approx(1)
    none, bm25, twin = (predictions(house, where, name) for name in twins)
    assert bm25 == twin
    wins = np.array([[n >= b - 1e-9, b >= n - 1e-9] for n, b in zip(none, bm25, strict=True)]).sum(axis=0)
    assert rates["none"] == pytest.approx(wins[0] / (wins[0] + 2 * wins[1]))
    assert told["distinct_prompts"] == 2.0


def predictions(house, where: Path, system: str) -> list[float]:
    """Eval of every prediction of a system, from its file."""
    config = house.settings()
    task = build.build_task(config)
    golds = read_strictly(where / "predictions" / f"{system}.json")["golds"]
    examples = build.build_examples(config, "test", None)
    return [task.score(g["output"], e.target) for g, e in zip(golds, examples, strict=True)]


@pytest.mark.usefixtures("no_plots")
def test_likelihood_as_eval_of_a_selector(house, tmp_path, asked):
    """The LLM's probability of y as reward: for tasks where a generated text tells too little."""
    house.copy(tmp_path)
    eval_ = "feedback.eval=likelihood"
    run = train(house.settings("method=rspg_post", UNTRAINED, eval_, "optim.epochs=1", folder=tmp_path))
    found = summary(run)
    assert not asked  # the texts that Post reads were there
    assert found["llm_calls"] > 0  # and their likelihoods were not
    heldout = found["heldout"]
    assert 0 < heldout["lower"]["reward"] < heldout["upper"]["reward"] < 1
    assert heldout != summary(house.runs["rspg_post"])["heldout"]
    systems = "evaluation.systems=[none,bm25,rspg_post]"
    where = evaluate(house.settings(UNTRAINED, eval_, systems, f"models.rspg_post={run}", folder=tmp_path))
    told = read_strictly(where / "rspg.json")
    assert told["bounds"]["upper"] == pytest.approx(heldout["upper"]["reward"])
    (post,) = [row for row in told["selections"] if row["name"] == "rspg_post"]
    assert post["reward"] == pytest.approx(heldout["selector"]["reward"])


def test_the_outputs_of_an_evaluation(house):
    """Tables 4 and 5, Figure 3, where Pre and Post part ways, and what each costs, in both files."""
    where = house.runs["evaluation"]
    tables = (where / "tables.md").read_text(encoding="utf-8")
    headings = [line for line in tables.splitlines() if line.startswith("## ")]
    for wanted in (
        "## Success rate of choosing a retriever (the paper's Table 4)",
        "## Mean Eval between the oracle's bounds (the paper's Table 5)",
        "## Winning rates (the paper's Figure 3)",
        "## Where RSPG-Pre and RSPG-Post part ways",
        "## What a choice costs",
        "## Selectors, every seed",
    ):
        assert headings.count(wanted) == 1
    assert "nan" not in tables.lower().split()
    for label in ("RSPG-Pre", "RSPG-Post", "WIG", "Best fixed", "Random choice", "Oracle, upper bound"):
        assert f"| {label}" in tables
        assert label in house.printed
    report = (where / "report.html").read_text(encoding="utf-8")
    for heading in headings[:5]:
        assert heading.removeprefix("## ").replace("'", "&#x27;") in report
    for reference in ('src="http', 'href="http', "url(http", "<script", "@import", "<link"):
        assert reference not in report
    told = read_strictly(where / "rspg.json")
    assert set(told) == {
        "n", "pool", "bounds", "selections", "agreement", "distinct_prompts", "without", "gains",
    }  # fmt: skip
    assert told["n"] == 6
    assert 1 <= told["distinct_prompts"] <= 6


def test_an_evaluation_repeats_the_summaries(house):
    """The same runs on the same users: another figure in the table than in the run would be a wrong one."""
    told = read_strictly(house.runs["evaluation"] / "rspg.json")
    rows = {row["name"]: row for row in told["selections"]}
    rewards = {
        row["system"]: row["value"]
        for row in read_strictly(house.runs["evaluation"] / "results.json")
        if row["metric"] == "rouge1"
    }
    for method in SELECTORS:
        heldout = summary(house.runs[method])["heldout"]
        for ours, theirs in ((method, "selector"), ("best_fixed", "best_fixed"), ("random_choice", "random")):
            assert rows[ours]["reward"] == pytest.approx(heldout[theirs]["reward"])
            assert rows[ours]["success_rate"] == pytest.approx(heldout[theirs]["success_rate"])
        assert told["bounds"] == pytest.approx(
            {"lower": heldout["lower"]["reward"], "upper": heldout["upper"]["reward"]}
        )
        assert rewards[method] == pytest.approx(rows[method]["reward"])
    for row in told["pool"]:
        assert rewards[row["name"]] == pytest.approx(row["reward"])


def test_names_are_escaped_in_the_report(house, tmp_path):
    """A retriever's name is text, also in a report that a browser reads."""
    odd = "x<img src=x onerror=alert(1)>&|y"
    names = ["none", "bm25", odd]
    config = house.settings(folder=tmp_path)
    config.selector.pool = config.evaluation.systems = names
    config.retrievers[odd] = {"target": "bm25"}
    where = evaluate(config)
    report = (where / "report.html").read_text(encoding="utf-8")
    assert "<img src=x" not in report
    assert "&lt;img src=x" in report
    tables = (where / "tables.md").read_text(encoding="utf-8")
    rows = [line for line in tables.splitlines() if "onerror" in line and line.startswith("| ")]
    assert rows
    assert all(r"\|" in line and r"\<" in line for line in rows)


@pytest.mark.parametrize(("length", "cut"), [(128, False), (28, True)])
def test_what_the_selector_cannot_read_is_counted(house, tmp_path, capsys, length, cut):
    """Prompts longer than max_length lose text of the profile: said, not silent."""
    more = [UNTRAINED, "optim.epochs=1", f"selector.max_length={length}", "method=rspg_pre"]
    train(house.settings(*more, folder=tmp_path))
    said = capsys.readouterr().out
    for stage in ("train, train", "train, dev", "choose"):  # choose: for the held-out users
        assert (
            bool(re.search(rf"\[{stage}\] \d+ of \d+ prompts or answers are cut to .*={length}\n", said))
            == cut
        )
