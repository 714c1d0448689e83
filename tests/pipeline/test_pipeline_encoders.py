"""encoder.train from the command line to the tables: adapters, and the query side alone."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pipeline_files as files
import pytest

from ropg import build
from ropg.cli import Refused, compose
from ropg.comparison import build_retrievers, evaluate
from ropg.heldout import dense_scores
from ropg.retrievers import load_encoder
from ropg.retrievers.two_towers import TwoTowerEncoder, freeze_documents
from ropg.runs import load_config
from rspg.members import build_members
from rspg.pipeline import train

pytestmark = pytest.mark.usefixtures("no_plots")


@pytest.fixture
def settings(tmp_path, overrides):
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 6, "dev": 3, "test": 4})

    def build_settings(*more: str):
        base = (
            "experiment=lamp_4_llama",
            "data.setting=null",
            f"data.root={root}",
            "optim.lr=1e-2",
            "optim.epochs=2",
        )
        return compose(*overrides(*base, *more))

    return build_settings


def summary(run):
    return json.loads((run / "summary.json").read_text())


def tables(tmp_path):
    return {path.name: path.read_bytes() for path in (tmp_path / "stores" / "tables").rglob("*.parquet")}


def test_adapters(tmp_path, settings, asked, capsys):
    """The feedback is that of full training, the run another, the model an ordinary one."""
    full = train(settings())
    calls, before = len(asked), tables(tmp_path)
    assert capsys.readouterr().out.count("parameters in") == 1
    run = train(settings("encoder.train=lora", "encoder.lora.rank=2"))
    said = capsys.readouterr().out
    assert run != full
    assert (len(asked), tables(tmp_path)) == (calls, before)
    bert = load_encoder(settings().encoder.model)
    layers, width = bert.module.config.num_hidden_layers, bert.dimension
    assert summary(run)["trainable_parameters"] == layers * 2 * 2 * 2 * width
    assert summary(full)["trainable_parameters"] == sum(p.numel() for p in bert.module.parameters())
    assert f"trained {summary(run)['trainable_parameters']:,} parameters in" in said
    assert "peak memory of this process" in said
    for found in (summary(run), summary(full)):
        assert found["train_seconds"] >= 0
        assert 50 < found["peak_memory_mib"] < 100_000
    assert type(load_encoder(str(run / "model")).module) is type(bert.module)
    assert (
        np.abs(load_encoder(str(run / "model")).encode(["old harbour"]) - bert.encode(["old harbour"])).max()
        > 0
    )
    assert train(settings("encoder.train=lora", "encoder.lora.rank=2")) == run
    assert "is finished already" in capsys.readouterr().out


@pytest.mark.slow
def test_the_query_side_alone(tmp_path, settings, asked):
    """Wherever the run's model ranks, a query's trained vector meets the documents' initial ones."""
    from sentence_transformers import SentenceTransformer

    run = train(settings("encoder.train=query"))
    config = load_config(run)
    task, examples = build.build_task(config), build.build_examples(config, "test", None)
    initial = load_encoder(config.encoder.model, max_length=48)
    trained = SentenceTransformer(str(run / "model"), device="cpu")  # the query tower is an ordinary model
    moved = trained.encode(["old harbour"]) - initial.encode(["old harbour"])
    assert np.abs(moved).max() > 1e-3

    (member,) = build_members(settings(), task, ["ropg_kd"], {"ropg_kd": run})
    system = build_retrievers(settings(), task, ["ropg_kd"], {"ropg_kd": run})["ropg_kd"]
    for example in examples:
        query = trained.encode([task.query(example.input)])[0]
        documents = initial.encode([task.document_text(d) for d in example.profile])
        expected = dict(zip((d.id for d in example.profile), documents @ query, strict=True))
        for retriever in (system, member.retriever):
            ranking = retriever.rank(task.query(example.input), example.profile, example=example)
            assert {d.id: s for d, s in ranking} == pytest.approx(expected, abs=1e-4)

    folder = evaluate(settings("evaluation.systems=[initial,ropg_kd]"))
    assert {row["system"] for row in json.loads((folder / "results.json").read_text())} == {
        "initial",
        "ropg_kd",
    }

    calls = len(asked)
    with pytest.raises(ValueError, match=r"no layer of this bert model.*all-linear"):
        train(settings("encoder.train=lora", "encoder.lora.targets=[q_proj]", "encoder.max_length=40"))
    further = train(settings("encoder.train=query", f"encoder.model={run / 'model'}", "stage=rank"))
    assert (further / "data.json").exists()
    with pytest.raises(
        Refused, match=r"encoder\.train=full: .* encoder of queries alone.*encoder\.train=query"
    ):
        train(settings(f"encoder.model={run / 'model'}"))
    assert len(asked) == calls


def test_heldout_scores_are_of_the_two_towers(settings):
    """summary.json's `trained` is the system that is deployed, not the query tower on both sides."""
    config = settings("encoder.train=query")
    towers = freeze_documents(build.build_encoder(config), config.encoder.model)
    for parameter in towers.module.parameters():
        parameter.data += 0.1
    queries = [
        SimpleNamespace(query="old harbour", documents=("winter garden", "old harbour")),
        SimpleNamespace(query="stone river", documents=("winter garden",)),
    ]
    initial = load_encoder(config.encoder.model, max_length=48)
    for q, scores in zip(queries, dense_scores(towers, queries), strict=True):
        expected = initial.encode(list(q.documents)) @ towers.queries.encode([q.query])[0]
        assert scores == pytest.approx(expected.tolist(), abs=1e-4)
    assert isinstance(towers, TwoTowerEncoder)
