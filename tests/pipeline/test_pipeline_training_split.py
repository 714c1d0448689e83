"""What the training split alone learns from; dev and held-out are measured as ever."""

from __future__ import annotations

import json
from pathlib import Path

import pipeline_files as files
import pytest

from ropg import pipeline
from ropg.cli import Refused, compose
from ropg.feedback import CandidateTable
from ropg.pipeline import check, train
from ropg.runs import decisive, run_folder
from rspg.pipeline import train as train_any

SIZES = {"train": 6, "dev": 3, "test": 4}


@pytest.fixture
def settings(tmp_path, overrides):
    """Overrides of a small run; the data is written once per test."""
    root = files.write_lamp(tmp_path / "lamp", 4, SIZES, documents=(6, 8))

    def build(*more: str) -> list[str]:
        return overrides("experiment=lamp_4_llama", "data.setting=null", f"data.root={root}", *more)

    return build


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def records(folder: Path, event: str) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["event"] == event]


def tables(tmp_path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (tmp_path / "stores" / "tables").rglob("*.parquet")}


# -- another Eval -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_training_on_likelihoods_while_dev_and_held_out_are_measured_in_eval(tmp_path, settings):
    """Distilling from the LLM's likelihood must not change the measure by which it is compared with other targets."""
    plain = train(compose(*settings()))
    before = tables(tmp_path)
    mixed = train(compose(*settings("feedback.train_eval=likelihood")))
    added = tables(tmp_path).keys() - before.keys()
    assert len(added) == 1  # dev and held-out are the tables of before
    assert next(iter(added)).startswith("feedback-train-")
    assert summary(mixed)["llm_calls"] == 6 * 3  # the likelihoods of the training candidates
    for system in ("initial", "bm25", "random", "oracle"):
        assert summary(mixed)["heldout"][system] == summary(plain)["heldout"][system]
    assert (
        records(mixed, "evaluation")[0]["oracle_reward"] == records(plain, "evaluation")[0]["oracle_reward"]
    )

    everywhere = train(compose(*settings("feedback.eval=likelihood")))
    steps = [records(folder, "step") for folder in (mixed, everywhere, plain)]
    assert steps[0] == steps[1] != steps[2]  # the same rewards are learned from
    assert records(mixed, "evaluation") != records(everywhere, "evaluation")


def test_a_selector_may_learn_from_likelihoods_too(settings):
    """A key that one method reads and another passes over would be believed to work."""
    options = ["method=rspg_pre", "selector.pool=[none,recency,bm25]", "retrieval.k=1"]
    plain, mixed = (
        train_any(compose(*settings(*options, *more))) for more in ([], ["feedback.train_eval=likelihood"])
    )
    assert summary(mixed)["llm_calls"] > 0
    assert summary(mixed)["heldout"]["upper"] == summary(plain)["heldout"]["upper"]
    assert records(mixed, "step") != records(plain, "step")


# -- several proposers ------------------------------------------------------------------------------


def candidates(tmp_path: Path, split: str) -> list[CandidateTable]:
    found = (tmp_path / "stores" / "tables").rglob(f"candidates-{split}.parquet")
    return [table for table in map(CandidateTable.read, found) if table.identity["l"] != "all"]


def test_candidates_from_several_retrievers(tmp_path, settings):
    """What the initial encoder ranks low is learned about only where somebody proposes it."""
    plain = train(compose(*settings()))
    options = "candidates.proposers=[initial,bm25,recency,random]"
    mixed = train(compose(*settings("candidates.l=4", options, "stage=feedback")))
    assert mixed != plain
    (before,) = [table for table in candidates(tmp_path, "train") if "proposers" not in table.identity]
    (table,) = [table for table in candidates(tmp_path, "train") if "proposers" in table.identity]
    assert table.identity["proposers"] == ["initial", "bm25", "recency", "random"]
    assert table.identity["proposer_options"]["bm25"] == {"variant": "okapi"}
    rows = table.table.to_pylist()
    assert {row["source"] for row in rows} == {"initial", "bm25", "recency", "random"}
    assert max(row["rank"] for row in rows) > 4
    for example_id in table.example_ids:
        mine, initial = table.rows(example_id), before.rows(example_id)
        assert mine.ranks == tuple(sorted(mine.ranks))
        assert mine.scores == tuple(sorted(mine.scores, reverse=True))
        first = (mine.document_ids[0], mine.ranks[0], mine.scores[0])
        assert first == (initial.document_ids[0], 1, initial.scores[0])
    for split in ("dev", "heldout"):  # measured on the initial top l
        assert not any("proposers" in table.identity for table in candidates(tmp_path, split))


@pytest.mark.slow
def test_training_on_a_mixture_and_another_seed_of_random(tmp_path, settings, capsys):
    """Candidates follow the options of who proposes them; the same options are read, not made again."""
    options = ["candidates.proposers=[initial,random]", "method=ropg_rl"]
    folder = train(compose(*settings(*options)))
    assert "from random" in capsys.readouterr().out
    assert summary(folder)["n_train"] == 6
    before = tables(tmp_path)
    assert summary(train(compose(*settings(*options, "seed=3"))))["llm_calls"] == 0
    assert tables(tmp_path) == before
    other = train(compose(*settings(*options, "retrievers.random.seed=5", "stage=rank")))
    assert other != folder
    mixtures = [table for table in candidates(tmp_path, "train") if "proposers" in table.identity]
    assert len(mixtures) == 2
    assert mixtures[0].table != mixtures[1].table


def test_a_proposer_that_can_rank_nothing_is_refused_by_name(tmp_path, overrides):
    """Recency without any date would silently leave its turns to the others."""
    root = files.write_lamp(tmp_path / "undated", 4, SIZES, dated=False)
    data = ["experiment=lamp_4_llama", "data.setting=null", f"data.root={root}"]
    with pytest.raises(
        Refused, match=r"candidates\.proposers: recency can rank no .*none has a readable date"
    ):
        train(compose(*overrides(*data, "candidates.proposers=[initial,bm25,recency]")))


# -- hard negatives ---------------------------------------------------------------------------------


def test_negatives_train_without_llm_calls_and_are_counted(tmp_path, settings, capsys, monkeypatch):
    """They cost no feedback, and only the training rows have them."""
    train(compose(*settings()))
    seen = {}

    def keep(config, folder, module, score_rows, rows, *rest):
        seen.update(rows)
        return learn(config, folder, module, score_rows, rows, *rest)

    learn = pipeline.learn
    monkeypatch.setattr(pipeline, "learn", keep)
    capsys.readouterr()
    folder = train(compose(*settings("candidates.negatives=4")))
    documents = {
        q["id"]: len(q["profile"])
        for q in json.loads(files.lamp_files(tmp_path / "lamp", 4, "train")[0].read_text())
    }
    expected = {key: min(3 + 4, size) for key, size in documents.items()}
    assert {q.example_id: len(q.rewards) for q in seen["train"]} == expected
    assert {len(q.rewards) for q in seen["dev"]} == {3}
    for query in seen["train"]:
        assert query.ranks == tuple(range(1, len(query.ranks) + 1))
        assert query.initial_scores == tuple(sorted(query.initial_scores, reverse=True))
        assert set(query.rewards[3:]) == {min(query.rewards[:3])}
        assert query.baseline == query.rewards[0]
    assert summary(folder)["llm_calls"] == 0  # all that has feedback had it
    short = sum(size < 7 for size in documents.values())
    assert 0 < short < 6
    printed = capsys.readouterr().out
    assert f"{sum(expected.values()) - 18} negatives" in printed
    assert f"{short} of 6 profiles have fewer than 4" in printed


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["feedback.train_eval=likelyhood"], r"feedback\.train_eval=likelyhood: it is metric or likelihood"),
        (["candidates.negatives=-1"], "candidates.negatives=-1: it is a number of documents"),
        (["candidates.negatives=2", "candidates.l=all"], "leave candidates.negatives out"),
        (["candidates.negatives=2", "method=rspg_pre"], "candidates.negatives is for retrievers"),
        (["candidates.proposers=[bm25,initial]"], "initial comes first"),
        (["candidates.proposers=[]"], "initial comes first"),
        (["candidates.proposers=[initial,bm52]"], "candidates.proposers: unknown .*did you mean bm25"),
        (["candidates.proposers=[initial,bm25,bm25]"], "names bm25 twice"),
        (["candidates.proposers=[initial,dense]"], "names dense twice"),
        (["candidates.proposers=[initial,none]"], "none ranks nothing"),
        (
            ["candidates.proposers=[initial,bm25]", "candidates.l=all"],
            "candidates.l=all makes every document",
        ),
        (
            ["candidates.proposers=[initial,bm25]", "method=rspg_pre"],
            "candidates.proposers is for retrievers",
        ),
    ],
)
def test_what_a_training_split_cannot_have_is_refused(arguments, message):
    """Hours of feedback before a misspelt name is noticed are hours lost."""
    with pytest.raises(Refused, match=message):
        check(compose(*arguments))


NEW = {
    "feedback.train_eval": ("likelihood", None),
    "candidates.proposers": ("[initial,bm25]", ["initial"]),
    "candidates.negatives": (3, 0),
}


@pytest.mark.parametrize("key", NEW)
def test_a_key_decides_the_run_folder_where_it_is_set_and_only_there(key):
    """Runs of before these keys must be found again, and two settings must not meet in one folder."""
    part, name = key.split(".")
    value, default = NEW[key]
    plain = compose()
    assert name not in decisive(plain)[part]
    assert run_folder(compose(f"{key}={json.dumps(default)}")) == run_folder(plain)
    assert run_folder(compose(f"{key}={value}")) != run_folder(plain)
