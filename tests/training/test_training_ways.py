"""Training adapters, or the query side alone: what is seen, what moves, and resuming to the bit."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_training import WORDS, make_rows

from ropg.retrievers.adapters import add_adapters
from ropg.retrievers.encoder import Encoder, load_encoder
from ropg.retrievers.two_towers import freeze_documents
from ropg.training import TrainingRow, TrainSettings, bi_encoder_scorer, load_objective, train
from ropg.training.checkpoints import load_module, save_module

TRAIN, DEV = make_rows(12, 1, dead=(4,)), make_rows(9, 3)


@pytest.fixture(scope="module")
def initial(tmp_path_factory):
    """The folder of a tiny random BERT with dropout in its configuration."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("initial")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=15, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        initializer_range=0.5,
    )  # fmt: skip
    tokenizer = BertTokenizerFast(vocab={token: i for i, token in enumerate(vocabulary)})
    Encoder(BertModel(config, add_pooling_layer=False), tokenizer, max_length=16).save(folder)
    return folder


@pytest.fixture
def build(initial):
    """Fresh encoders to train, the same at every call."""

    def build_one(way):
        encoder = load_encoder(str(initial), max_length=16, device="cpu")
        if way == "query":
            return freeze_documents(encoder, str(initial))
        add_adapters(encoder, rank=2)
        return encoder

    return build_one


def run(encoder, folder, tracker=None):
    return train(
        encoder.module,
        bi_encoder_scorer(encoder, [*TRAIN, *DEV]),
        TRAIN,
        DEV,
        load_objective("ropg_kd", target_temperature=0.1),
        TrainSettings(lr=0.01, epochs=3, batch_size=3, accumulation=2, checkpoint_every=2),
        folder,
        save_model=encoder.save,
        tracker=tracker,
        progress=False,
    )


def query_vectors(encoder):
    return (encoder.queries if hasattr(encoder, "queries") else encoder).encode(WORDS)


@pytest.mark.parametrize("way", ["lora", "query"])
def test_interrupted_anywhere_it_resumes_exactly(tmp_path, build, way):
    """Before the first step, between checkpoints, after the last evaluation: weights, metrics and export agree."""
    whole = build(way)
    untrained = query_vectors(whole)
    result = run(whole, tmp_path / "whole")
    assert result.best_step > 0
    assert np.abs(query_vectors(whole) - untrained).max() > 1e-2
    records = (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    for stop in (2, 6, records.count(b"\n")):
        left = [stop]

        def interrupt(_, left=left):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(build(way), tmp_path / str(stop), interrupt)
        resumed = build(way)
        assert run(resumed, tmp_path / str(stop)).best_step == result.best_step
        np.testing.assert_array_equal(query_vectors(resumed), query_vectors(whole))
        assert (tmp_path / str(stop) / "metrics.jsonl").read_bytes() == records
        for name in ("model.safetensors", "config.json"):
            exported = [(tmp_path / run / "model" / name).read_bytes() for run in ("whole", str(stop))]
            assert exported[0] == exported[1]


def test_checkpoints_of_adapters_hold_adapters_alone(tmp_path, build, initial):
    """An encoder of gigabytes is not written every minute; the export is whole all the same."""
    encoder = build("lora")
    run(encoder, tmp_path)
    trained = {name for name, p in encoder.module.named_parameters() if p.requires_grad}
    assert trained
    files = list((tmp_path / "checkpoints").rglob("model.safetensors"))
    assert len(files) == 3
    assert all({name for name in load_file(file) if "lora_" in name} == trained for file in files)
    parameters = {name for name, _ in encoder.module.named_parameters()}
    assert all(set(load_file(file)) & parameters == trained for file in files)
    exported, before = (load_file(folder / "model.safetensors") for folder in (tmp_path / "model", initial))
    assert exported.keys() == before.keys()
    changed = {name for name in before if not torch.equal(exported[name], before[name])}
    assert changed == {f"encoder.layer.0.attention.self.{part}.weight" for part in ("query", "value")}


def test_a_state_that_lacks_what_is_trained_is_refused(tmp_path):
    """Frozen parameters may be absent from a file, others may not: they would silently stay as they came."""
    small, other = (torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)) for _ in range(2))
    small[0].requires_grad_(False)
    save_module(small, tmp_path / "m.safetensors")
    with pytest.raises(RuntimeError, match=r"0\.weight"):
        load_module(other, tmp_path / "m.safetensors")
    other[0].requires_grad_(False)
    kept = other[0].weight.clone()
    load_module(other, tmp_path / "m.safetensors")
    assert torch.equal(other[1].weight, small[1].weight)
    assert torch.equal(other[0].weight, kept)


def test_scores_of_a_query_tower_are_products_with_the_initial_documents(build, initial):
    """By hand from the two towers, padded places 0, gradient through the query's vector alone."""
    towers = build("query")
    with torch.no_grad():
        for parameter in towers.module.parameters():
            parameter += 0.05
    rows = [*TRAIN[:3], TRAIN[4]]  # the last has no candidate
    scores = bi_encoder_scorer(towers, TRAIN)(rows)
    documents = load_encoder(str(initial), max_length=16, device="cpu")
    expected = torch.zeros(4, max(len(row.documents) for row in rows))
    for place, row in enumerate(rows[:3]):
        query = towers.queries.embed([row.query])[0]
        expected[place, : len(row.documents)] = (
            torch.from_numpy(documents.encode(list(row.documents))) @ query
        )
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)
    gradients = []
    for value in (scores, expected):
        towers.module.zero_grad()
        (value * torch.arange(value.numel()).view_as(value)).sum().backward()
        gradients.append([p.grad.clone() for p in towers.module.parameters() if p.grad is not None])
    assert gradients[0]
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    assert bi_encoder_scorer(towers)([TRAIN[4]]).shape == (1, 0)


def test_a_step_reads_queries_and_documents_are_read_once(tmp_path, build, initial):
    """The whole saving: gradients for 1 text of a row instead of 1 + K, and vectors that stay as they were."""
    towers = build("query")
    read = {"queries": [], "documents": []}
    for name in read:
        tower = getattr(towers, name)

        def note(_, args, inputs, name=name, tower=tower):
            read[name] += tower.tokenizer.batch_decode(inputs["input_ids"], skip_special_tokens=True)

        tower.module.register_forward_pre_hook(note, with_kwargs=True)
    before = towers.encode_documents(WORDS)
    read["documents"].clear()
    run(towers, tmp_path)
    np.testing.assert_array_equal(towers.encode_documents(WORDS), before)
    assert set(read["queries"]) == {row.query for row in [*TRAIN, *DEV] if row.documents}
    texts = [text for row in [*TRAIN, *DEV] for text in row.documents]
    assert sorted(read["documents"][: -len(WORDS)]) == sorted(set(texts))
    assert all(p.grad is None for p in towers.documents.module.parameters())


def test_a_document_that_was_not_announced_is_read_when_it_comes(build):
    """Candidates may be refreshed while training goes on."""
    towers = build("query")
    late = TrainingRow("late", "rain", ("jazz sea", "tea"), (1, 0), (0, 0), (1, 2), 0)
    announced = bi_encoder_scorer(towers, [*TRAIN, late])([late])
    torch.testing.assert_close(bi_encoder_scorer(towers, TRAIN)([TRAIN[0], late])[1:, :2], announced)


def test_metrics_say_what_the_initial_encoder_is_worth(tmp_path, build):
    """Both ways begin at the initial encoder: the first evaluation is the same for both."""
    first = []
    for way in ("lora", "query"):
        run(build(way), tmp_path / way)
        first.append(json.loads((tmp_path / way / "metrics.jsonl").read_text().splitlines()[0]))
    assert first[0]["step"] == first[1]["step"] == 0
    assert first[0]["expected_reward"] == pytest.approx(first[1]["expected_reward"], abs=1e-6)
