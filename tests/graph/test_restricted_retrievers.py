"""Retrievers of the configuration that see a part of a profile: modes for evaluate.py, training and pools."""

from __future__ import annotations

import dataclasses

import pytest

from ropg import build
from ropg.cli import Refused, compose
from ropg.comparison import run_of, trained_runs
from ropg.examples import Document
from ropg.pipeline import check
from ropg.runs import DECIDES_SELECTOR, EVALUATION, decisive, open_run, run_folder
from ropg.tables import candidate_identity
from ropg.tasks import get_task
from rspg.members import check_pool, pool_runs

TASK = get_task("pgraphrag_title")
PROFILE = [
    Document("o1", "sea view", provenance="own"),
    Document("o2", "salt", provenance="own"),
    Document("n1", "sea", provenance="neighbor"),
    Document("n2", "sand", provenance="neighbor"),
]


def graph(*more: str):
    return compose("data=pgraphrag", "data.path=x.json", "task=pgraphrag_title", *more)


def ids(name: str, config) -> list[str]:
    return [d.id for d, _ in build.build_retriever(name, config, TASK).rank("sea view", PROFILE)]


def test_modes_come_with_graph_data_alone():
    """Other data has no provenances: there a mode would rank nothing, so it is no name."""
    config = graph()
    assert (
        ids("bm25_own", config) == [i for i in ids("bm25_both", config) if i.startswith("o")] == ["o1", "o2"]
    )
    assert ids("bm25_neighbors", config) == ["n1", "n2"]
    assert sorted(ids("bm25_both", config)) == sorted(ids("bm25", config)) == ["n1", "n2", "o1", "o2"]
    assert not any(name.startswith("bm25_") for name in compose().retrievers)


def test_a_restriction_of_ones_own():
    """A quota over a wrapper over a retriever, in one line of the command."""
    config = graph(
        "+retrievers.few={of: bm25_both, quota: {own: 1, neighbor: 1}}", "retrievers.bm25.variant=lucene"
    )
    assert ids("few", config) == ["o1", "n1"]
    assert build.base_retriever("few", config) == "bm25"
    assert build.build_retriever("few", config, TASK).retriever.retriever.variant == "lucene"


def test_restrictions_of_a_trained_retriever_have_its_run(tmp_path):
    """One training serves every mode: `ropg_kd_neighbors` is ropg_kd over the neighbours' documents."""
    run = tmp_path / "kd"
    config = graph("method=ropg_kd", f"run.root={tmp_path}")
    with open_run(config, run):
        (run / "model").mkdir()
    names = "none,bm25_own,ropg_kd_neighbors,ropg_kd_own"
    config = graph(f"run.root={tmp_path}", f"models.ropg_kd={run}", f"selector.pool=[{names}]",
                   f"evaluation.systems=[{names}]")  # fmt: skip
    check_pool(config)
    wanted = {"ropg_kd_neighbors": run, "ropg_kd_own": run}
    assert pool_runs(config, config.selector.pool) == (wanted, [])
    assert trained_runs(config, TASK) == wanted
    without = dataclasses.replace(config, models={"ropg_kd": None})
    assert pool_runs(without, config.selector.pool) == ({}, ["ropg_kd_neighbors", "ropg_kd_own"])
    assert run_of(without, "ropg_kd", []) is None


@pytest.mark.parametrize(
    ("options", "name", "message"),
    [
        ("+retrievers.a={of: bm25, provenance: neighbour}", "a", "unknown provenance 'neighbour'.* own, neighbor"),
        ("+retrievers.a={of: bm25, quota: 3}", "a", r"retrievers\.a: .*quota a number for each"),
        ("+retrievers.a={of: bm25, quota: {own: -1}}", "a", "must be 0 or more"),
        ("+retrievers.a={of: bm25, variant: lucene}", "a", "variant belongs to the retriever that it restricts"),
        ("+retrievers.a={of: a}", "a", "goes round in a circle: a -> a"),
        ("+retrievers.bm25_own.of=bm25_neighbors", "bm25_own", ""),
        ("+retrievers.a={of: bm26}", "a", "did you mean bm25"),
        ("+retrievers.bm25.provenance=own", "bm25", r"retrievers\.bm25: .*provenance"),
    ],
)  # fmt: skip
def test_a_restriction_that_cannot_be_is_refused(options, name, message):
    if not message:  # replaced, not added: the override grammar needs no + then
        config = graph(options.removeprefix("+"), "+retrievers.b={of: bm25_own}")
        assert ids("b", config) == []  # own documents of the neighbours': none
        return
    with pytest.raises(ValueError, match=message):
        build.build_retriever(name, graph(options), TASK)


def test_pools_with_unknown_or_selecting_members(tmp_path):
    """Told before the LLM's work."""
    for pool, extra, message in (
        ("[a]", "+retrievers.a={of: bm26}", "did you mean bm25"),
        ("[a]", "+retrievers.a={of: rspg_pre}", "which is a selector itself"),
    ):
        config = graph(f"selector.pool={pool}", extra, f"run.root={tmp_path}")
        with pytest.raises(Exception, match=message):
            check_pool(config)


def test_what_a_mode_decides():
    """A pool's member is part of what a selector learned from; modes that no pool names leave its folder alone."""
    plain = graph("selector.pool=[none,bm25]", "method=rspg_pre")
    assert not any("of" in options for options in decisive(plain, EVALUATION)["retrievers"].values())
    pool = graph(
        "selector.pool=[none,few]", "+retrievers.few={of: bm25_own, quota: {own: 1}}", "method=rspg_pre"
    )
    assert set(decisive(pool, DECIDES_SELECTOR)["retrievers"]) == {"few", "bm25_own", "bm25", "random", "rrf"}


def test_training_on_a_mode():
    """Candidates of another provenance are another training; without the key all is as it was."""
    plain, own = graph(), graph("candidates.provenance=[neighbor]")
    assert "provenance" not in decisive(plain, ("candidates",))["candidates"]
    assert run_folder(plain) != run_folder(own)
    identities = [candidate_identity(config, TASK, "e", "d") for config in (plain, own)]
    assert "provenance" not in identities[0]
    assert identities[1]["provenance"] == ["neighbor"]
    for value, message in (("[]", "leaves no document"), ("[neighbours]", "unknown provenance 'neighbours'")):
        with pytest.raises((Refused, ValueError), match=message):
            check(graph(f"candidates.provenance={value}"))
