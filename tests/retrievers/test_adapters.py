"""LoRA: what is trained, what stays as it is, and the ordinary model that comes out."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ropg.retrievers import Encoder, load_encoder
from ropg.retrievers.adapters import add_adapters, check_targets, merged

TEXTS = ["tea mug", "a very long neighbour text repeated many times", "red pot"]


@pytest.fixture
def encoder(tiny_bert: Path) -> Encoder:
    return load_encoder(str(tiny_bert), device="cpu")


def train_a_little(encoder: Encoder) -> None:
    """A few steps of Adam away from the initial vectors, over everything that is trainable."""
    parameters = [p for p in encoder.module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        encoder.embed(TEXTS).pow(2).sum().backward()
        optimizer.step()


def own_weights(encoder: Encoder) -> dict[str, torch.Tensor]:
    """The encoder's own weights, by the names that they have without adapters."""
    state = merged_names(encoder.module.state_dict())
    return {name: tensor.clone() for name, tensor in state.items() if "lora_" not in name}


def merged_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n.removeprefix("base_model.model.").replace(".base_layer", ""): t for n, t in state.items()}


def test_at_first_nothing_changes(encoder: Encoder) -> None:
    """B is zero: a run's first evaluation is that of the initial encoder, to the bit."""
    before = encoder.encode(TEXTS)
    add_adapters(encoder)
    np.testing.assert_array_equal(encoder.encode(TEXTS), before)


def test_only_adapters_are_trained(encoder: Encoder) -> None:
    """Two layers, queries and values, A of 2 x 16 and B of 16 x 2: 256 numbers, and no other moves."""
    before = own_weights(encoder)
    add_adapters(encoder, rank=2)
    assert sum(p.numel() for p in encoder.module.parameters() if p.requires_grad) == 2 * 2 * (2 * 16 + 16 * 2)
    vectors = encoder.encode(TEXTS)
    train_a_little(encoder)
    assert np.abs(encoder.encode(TEXTS) - vectors).max() > 0.1
    after = own_weights(encoder)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_vectors_are_those_of_the_formula(encoder: Encoder) -> None:
    """W + (alpha / rank) B A in place of W, written into an untouched model by hand."""
    plain = load_encoder(encoder.module.config._name_or_path, device="cpu")
    add_adapters(encoder, rank=4, alpha=6, targets=["query"])
    train_a_little(encoder)
    adapters = encoder.module.state_dict()
    own = dict(plain.module.named_parameters())
    with torch.no_grad():
        for name, a in adapters.items():
            if "lora_A" in name:
                b = adapters[name.replace("lora_A", "lora_B")]
                layer = name.removeprefix("base_model.model.").split(".lora_A")[0]
                own[f"{layer}.weight"] += 6 / 4 * b @ a
    np.testing.assert_allclose(plain.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("targets", [None, "all-linear"])
def test_what_is_saved_is_an_ordinary_model(tmp_path: Path, encoder: Encoder, targets) -> None:
    """Whoever loads it needs no peft and gets the vectors of training; saving leaves training as it was."""
    from sentence_transformers import SentenceTransformer

    names = set(encoder.module.state_dict())
    add_adapters(encoder, targets=targets)
    train_a_little(encoder)
    vectors, state = encoder.encode(TEXTS), {n: t.clone() for n, t in encoder.module.state_dict().items()}
    encoder.save(tmp_path / "model")

    after = encoder.module.state_dict()
    assert after.keys() == state.keys()
    assert all(torch.equal(after[name], state[name]) for name in state)
    np.testing.assert_array_equal(encoder.encode(TEXTS), vectors)
    train_a_little(encoder)  # it goes on

    assert set(load_file(tmp_path / "model" / "model.safetensors")) == names
    assert not list((tmp_path / "model").glob("*adapter*"))
    loaded = load_encoder(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(loaded.encode(TEXTS), vectors, atol=1e-5)
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, vectors, atol=1e-5)


def test_a_module_without_adapters_is_not_copied(encoder: Encoder) -> None:
    assert merged(encoder.module) is encoder.module


def test_the_seed_decides_the_adapters_and_leaves_the_rest_alone(tiny_bert: Path) -> None:
    """Two runs of one seed must be one run, and adding adapters must not shift what is drawn after it."""
    found = []
    for seed in (1, 1, 2):
        encoder = load_encoder(str(tiny_bert), device="cpu")
        torch.manual_seed(5)
        add_adapters(encoder, seed=seed)
        found.append((encoder.module.state_dict(), torch.rand(1).item()))
    (first, draw), (same, same_draw), (other, _) = found
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    torch.manual_seed(5)
    assert draw == same_draw == torch.rand(1).item()


@pytest.mark.parametrize(
    "options", [{"gradient_checkpointing": True}, {"recompute": "always", "batch_tokens": 8}]
)
def test_with_less_activation_memory_the_gradients_are_the_same(tiny_bert: Path, options) -> None:
    gradients = []
    for chosen in ({}, options):
        encoder = load_encoder(str(tiny_bert), device="cpu", **chosen)
        add_adapters(encoder)
        with torch.no_grad():  # away from B = 0, at which A has no gradient
            for name, parameter in encoder.module.named_parameters():
                if "lora_B" in name:
                    parameter.fill_(0.1)
        encoder.train_mode()
        encoder.embed(TEXTS).pow(2).sum().backward()
        gradients.append({n: p.grad for n, p in encoder.module.named_parameters() if p.requires_grad})
    for name, gradient in gradients[0].items():
        assert gradient.abs().max() > 0
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-4, rtol=1e-4)


def test_dropout_is_the_models_own_and_adapters_have_none(encoder: Encoder) -> None:
    """Off by default: a pass in training mode gives the vectors of inference."""
    add_adapters(encoder)
    vectors = encoder.encode(TEXTS)
    encoder.train_mode()
    np.testing.assert_array_equal(encoder.embed(TEXTS).detach().numpy(), vectors)
    encoder.train_mode(dropout=True)
    assert np.abs(encoder.embed(TEXTS).detach().numpy() - vectors).max() > 0.1
    np.testing.assert_array_equal(encoder.encode(TEXTS), vectors)


def test_layers_that_are_not_there_are_refused_with_the_remedy(encoder: Encoder) -> None:
    """Checked before the feedback, which takes hours; the check leaves the encoder as it was."""
    module, vectors = encoder.module, encoder.encode(TEXTS)
    for targets in (None, ["key", "dense"], "all-linear"):
        check_targets(encoder, targets=targets)
    with pytest.raises(ValueError, match=r"targets=\['q_proj'\]: no layer of this bert model .*all-linear"):
        check_targets(encoder, targets=["q_proj"])
    assert encoder.module is module
    assert all(p.requires_grad for p in module.parameters())
    np.testing.assert_array_equal(encoder.encode(TEXTS), vectors)


def test_a_kind_of_model_that_peft_does_not_know() -> None:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(
        vocab_size=9, dim=8, n_layers=1, n_heads=2, hidden_dim=8, max_position_embeddings=8
    )

    class Loaded:
        module = DistilBertModel(config)

    with pytest.raises(ValueError, match=r"targets=None: no layer of this distilbert model"):
        check_targets(Loaded())  # type: ignore[arg-type]
    check_targets(Loaded(), targets=["q_lin", "v_lin"])  # type: ignore[arg-type]


def test_without_peft_the_command_is_named(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "peft" else find(name, *rest)
    )
    with pytest.raises(ValueError, match=r'pip install "ropg\[lora\]"'):
        add_adapters(encoder)
