"""The selector's encoder: a Longformer, loaded as it is or built from a BERT or RoBERTa encoder.

A Longformer can be built from a short encoder the way the original was built from RoBERTa (Beltagy et al.
2020, arXiv:2004.05150, section 5): it has the same layers, so their weights are copied; the position table
is copied as often as needed; and the projections of global attention start as copies of the local ones.
On inputs shorter than half the window it then computes what its source computes.

LongformerModel gives no token global attention by itself, so a token sees only its window. The caller
passes ``global_attention_mask`` with 1 at the first token, and cuts inputs to ``max_length`` tokens:
past the position table there is only an IndexError, or on a GPU an assertion of the device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LongformerConfig, LongformerModel, PreTrainedModel, PreTrainedTokenizerBase

from ropg.models import quiet_transformers, resolve_model
from ropg.retrievers._encoder_files import load_transformer, transformer_folder

DEFAULT_WINDOW = 512

# where each family counts positions from: 0, or, as Longformer itself does, the padding index + 1
_FROM_ZERO = ("bert", "electra")
_FROM_PADDING = ("camembert", "roberta", "xlm-roberta")

_COPIED = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
)
# None where the source has none: Longformer's own defaults are RoBERTa's, other words in another vocabulary
_COPIED_IF_THERE = ("bos_token_id", "eos_token_id", "sep_token_id")


def load_longformer(
    encoder: str, *, attention_window: int | None = None, layers: int | None = None, max_length: int = 1024
) -> tuple[LongformerModel, PreTrainedTokenizerBase]:
    """Load a Longformer and its tokenizer, converting any encoder that :func:`convert_to_longformer` takes.

    Parameters
    ----------
    encoder: a hub name (``allenai/longformer-base-4096``), a folder, that of a SentenceTransformer
        included, or ``package:some_package/folder``.
    attention_window: tokens that a token sees, half of them on either side, in every layer; by default
        the Longformer's own, and 512 for other encoders.
    layers: how many layers to keep, counted from the input; by default all.
    max_length: tokens of the longest input, special ones counted.

    Returns
    -------
    The model, in float32 on the CPU, in evaluation mode, without a pooler; and its tokenizer, whose
    ``model_max_length`` is ``max_length``.

    Raises
    ------
    FileNotFoundError: nothing of that name can be loaded; the message says what to do.
    ValueError: a kind of model that cannot be converted, or an option that does not fit the model.
    """
    if attention_window is not None:
        _check_window(attention_window)
    found = Path(resolve_model(encoder))
    weights = str(transformer_folder(found)) if found.is_dir() else encoder
    source, tokenizer = load_transformer(encoder, weights, local=found.is_dir())
    if max_length <= tokenizer.num_special_tokens_to_add():
        raise ValueError(f"max_length {max_length} leaves no room beside the tokenizer's special tokens")
    if isinstance(source, LongformerModel):
        model = _adapted(source, attention_window, layers, max_length)
    else:
        window = DEFAULT_WINDOW if attention_window is None else attention_window
        model = convert_to_longformer(source, attention_window=window, layers=layers, max_length=max_length)
    tokenizer.model_max_length = max_length
    return model.float().eval(), tokenizer  # whatever the file holds


def convert_to_longformer(
    source: PreTrainedModel,
    *,
    attention_window: int = DEFAULT_WINDOW,
    layers: int | None = None,
    max_length: int = 1024,
) -> LongformerModel:
    """Build a Longformer from a BERT or RoBERTa encoder; nothing in it is random or shared with the source.

    Parameters
    ----------
    source: a bert, electra, roberta, xlm-roberta or camembert model; a head and a pooler are left out.
    attention_window: tokens that a token sees, half of them on either side, in every layer.
    layers: how many layers to keep, counted from the input; by default all.
    max_length: tokens that the new position table serves. Beyond the source's own positions it begins
        again with the first one, as often as needed.

    Returns
    -------
    The Longformer in evaluation mode, on the device and in the precision of the source.

    Raises ValueError for another kind of model, a decoder, parameters that a Longformer has no place for,
    a source without ``pad_token_id``, and options out of range.
    """
    base: Any = source.base_model  # Any: nn.Module hides the types of its attributes
    _check_source(base)
    _check_window(attention_window)
    if max_length < 1:
        raise ValueError(f"max_length must be positive, not {max_length}")
    count = _check_layers(layers, base.config.num_hidden_layers)
    config = _longformer_config(base, attention_window, count, max_length)
    with quiet_transformers(), torch.device("meta"):  # no memory, and no draw from the random generator
        model = LongformerModel(config, add_pooling_layer=False)
    weights = _converted_weights(base, list(model.state_dict()), count, max_length)
    model.load_state_dict(weights, strict=True, assign=True)  # strict: a parameter left out is an error
    return model.eval()


def _longformer_config(base: PreTrainedModel, window: int, layers: int, max_length: int) -> LongformerConfig:
    options = {key: getattr(base.config, key) for key in _COPIED}
    options |= {key: getattr(base.config, key, None) for key in _COPIED_IF_THERE}
    return LongformerConfig(
        **options,
        num_hidden_layers=layers,
        attention_window=[window] * layers,
        max_position_embeddings=base.config.pad_token_id + 1 + max_length,
    )


def _converted_weights(
    base: PreTrainedModel, names: list[str], layers: int, max_length: int
) -> dict[str, Tensor]:
    """Every parameter of the Longformer by name, each a copy of one of the source's."""
    given = {name: weight.detach() for name, weight in base.named_parameters()}
    positions = "embeddings.position_embeddings.weight"
    weights, used = {}, {positions}
    for name in names:
        if name != positions:
            origin = name.replace("_global.", ".")
            weights[name] = given[origin].clone()
            used.add(origin)
    left = {name for name in given.keys() - used if not _left_out(name, layers)}
    if left:
        raise ValueError(
            f"this {base.config.model_type} model has parameters that a Longformer has no place for: "
            f"{', '.join(sorted(left)[:3])}; name another encoder"
        )
    weights[positions] = _position_table(
        given[positions], base.config.pad_token_id, max_length, from_zero=base.config.model_type in _FROM_ZERO
    )
    return weights


def _left_out(name: str, layers: int) -> bool:
    """Whether a parameter is left out on purpose: the pooler's, or of a layer that is not kept."""
    if name.startswith("encoder.layer."):
        return int(name.split(".")[2]) >= layers
    return name.startswith("pooler.")


def _position_table(table: Tensor, padding: int, max_length: int, *, from_zero: bool) -> Tensor:
    """The source's positions where a Longformer looks for them, repeated. -> (padding + 1 + max_length, D)

    ``table`` is (P, D). Row ``padding`` belongs to padding and the rows before it to nothing; the first
    token reads row ``padding + 1``, as with RoBERTa, whose first rows are kept. BERT's first token reads
    row 0, so its table moves, and the rows before it are zero.

    >>> table = torch.tensor([[1.0], [2.0], [3.0]])
    >>> _position_table(table, 1, 5, from_zero=True).flatten().tolist()
    [0.0, 0.0, 1.0, 2.0, 3.0, 1.0, 2.0]
    >>> _position_table(table, 0, 3, from_zero=False).flatten().tolist()
    [1.0, 2.0, 3.0, 2.0]
    """
    first = padding + 1
    unread = table.new_zeros(first, table.shape[1]) if from_zero else table[:first]
    own = table if from_zero else table[first:]  # (P', D), one row for each position of the source
    times = -(-max_length // own.shape[0])  # rounded up
    return torch.cat([unread, own.repeat(times, 1)[:max_length]])


def _adapted(
    model: Any, attention_window: int | None, layers: int | None, max_length: int
) -> LongformerModel:
    """The same Longformer with another window or fewer layers, if it has the positions."""
    config = model.config
    positions = config.max_position_embeddings - (config.pad_token_id + 1)
    if max_length > positions:
        raise ValueError(f"max_length {max_length} is over this Longformer's {positions} positions; lower it")
    count = _check_layers(layers, config.num_hidden_layers)
    model.encoder.layer = model.encoder.layer[:count]
    config.num_hidden_layers = count
    config.attention_window = list(config.attention_window[:count])
    if attention_window is not None:
        config.attention_window = [attention_window] * count
        for layer in model.encoder.layer:
            layer.attention.self.one_sided_attn_window_size = attention_window // 2
    return model


def _check_source(base: PreTrainedModel) -> None:
    config = base.config
    kind = config.model_type
    if kind not in _FROM_ZERO + _FROM_PADDING:
        known = ", ".join(sorted(_FROM_ZERO + _FROM_PADDING))
        raise ValueError(
            f"a model of type {kind!r} cannot become a Longformer; name a Longformer, or an encoder of one "
            f"of these types: {known}"
        )
    if getattr(config, "is_decoder", False):
        raise ValueError(
            f"this {kind} model is a decoder, whose tokens see only earlier ones; name an encoder"
        )
    relative = getattr(config, "position_embedding_type", None) or "absolute"
    if relative != "absolute":
        raise ValueError(f"this {kind} model has {relative!r} positions; a Longformer's are absolute")
    if config.pad_token_id is None:
        raise ValueError(f"this {kind} model's configuration has no pad_token_id, which a Longformer needs")


def _check_window(window: int) -> None:
    if window < 2 or window % 2:
        raise ValueError(
            f"attention_window must be even and positive, not {window}: half lies on either side"
        )


def _check_layers(layers: int | None, available: int) -> int:
    if layers is None:
        return available
    if not 1 <= layers <= available:
        raise ValueError(f"layers must be from 1 to the encoder's {available}, not {layers}")
    return layers
