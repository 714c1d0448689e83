"""ROPG trained on neighbours' documents, and RSPG that chooses whose documents to show and how to rank them."""

from __future__ import annotations

import json
import random

import pipeline_files as files
import pyarrow.parquet as pq
import pytest

from ropg.cli import compose
from ropg.graph.options import parse
from ropg.graph.tables import make_table
from rspg.comparison import evaluate
from rspg.pipeline import train

pytestmark = pytest.mark.usefixtures("no_plots")

POOL = "none,bm25_own,bm25_neighbors,ropg_kd_neighbors,ropg_kd_both"


def test_a_selector_chooses_among_modes_and_retrievers(tmp_path, overrides):
    """From training to the tables by the two commands alone: the pool is named, nothing else is written."""
    rng = random.Random(0)
    users = [
        {
            "id": f"u{u}",
            "profile": [
                {"pid": str(rng.randint(0, 4)), "rating": 4, "title": files.title(rng), "text": files.sentence(rng)}
                for _ in range(4)
            ],
        }
        for u in range(20)
    ]  # fmt: skip
    path = tmp_path / "hotel_dev.json"
    path.write_text(json.dumps(users), encoding="utf-8")
    settings = [
        "experiment=reviews",
        f"data.path={path}",
        "selector.layers=2",
        "data.limit_train=12",
        "data.limit_dev=2",
        "data.limit_test=4",
        f"selector.pool=[{POOL}]",
        f"evaluation.systems=[bm25,{POOL},rspg_pre]",
    ]
    retriever = train(compose(*overrides(*settings, "candidates.provenance=[neighbor]")))
    tables = list((tmp_path / "stores").rglob("candidates-*.parquet"))
    assert len(tables) == 3
    for table in tables:
        rows = pq.read_table(table).to_pylist()
        assert rows
        assert not any(row["document_id"].startswith(f"{row['example_id']}#") for row in rows)
    selector = train(compose(*overrides(*settings, "method=rspg_pre", "optim.epochs=1")))
    pinned = json.loads((selector / "pool.json").read_text())
    assert pinned["pool"] == POOL.split(",")
    assert {name: values["run"] for name, values in pinned["trained"].items()} == {
        name: str(retriever.resolve()) for name in ("ropg_kd_neighbors", "ropg_kd_both")
    }
    folder = evaluate(compose(*overrides(*settings)))
    rows = json.loads((folder / "results.json").read_text())
    assert {row["system"] for row in rows} == {"bm25", *POOL.split(","), "rspg_pre"}
    assert "ROPG-KD (neighbors)" in (folder / "tables.md").read_text()

    table = ["14", "tasks=6", "users=heldout", "retriever=bm25,ropg_kd", f"models.ropg_kd={retriever}"]
    path = make_table(*parse([*table, "llm=smollm2", *overrides(f"data.root={tmp_path}", "retrieval.k=1")]))
    (task,) = json.loads(path.with_suffix(".json").read_text())["tasks"]
    titles = task["systems"].values()
    assert set(titles) >= {"PGraphRAG, bm25", "LaMP, bm25", "PGraphRAG, ropg_kd", "LaMP, ropg_kd"}
    assert {row["n"] for row in task["results"]} == {6}  # the test split's users, three tenths of 20
    assert str(retriever) in path.read_text().replace("\\", "")
