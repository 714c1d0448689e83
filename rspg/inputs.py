"""What a selector reads of one pool member: the prompt (Pre), or the prompt and the LLM's answer (Post).

Shapes: N inputs, T tokens of the longest of them.

Texts are only ever cut on the original string, never decoded from tokens. What looks like a control token
in the data ("[SEP]") is read as the characters it is made of: it must not end a text, and "[PAD]" must not
move the positions of the tokens after it, which Longformer counts by what is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ropg.examples import Document
from ropg.tasks.base import Task
from ropg.tasks.budget import Ruler
from ropg.text import well_formed

Reads = Literal["pre", "post"]

# verbose: no warning that a text is long; split_special_tokens: control tokens come from us, not from data
_OPTIONS: dict[str, Any] = {
    "verbose": False,
    "split_special_tokens": True,
    "padding": False,
    "truncation": False,
}


@dataclass(frozen=True, slots=True)
class SelectorInput:
    """One pool member as the selector reads it; equal inputs have equal scores.

    prompt: φ_p(x, R_i(φ_q(x); P_u)) within the selector's budget.
    text: the LLM's output for it (Post), "" where the LLM said nothing; None where it is not read (Pre).
    """

    prompt: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class InputTokens:
    """Token ids of one input, special tokens included, and its token types where the tokenizer makes them."""

    ids: list[int]
    types: list[int] | None = None


def check_room(max_length: int, reads: Reads, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ValueError where ``max_length`` leaves no token for the prompt beside special tokens and answer."""
    special = tokenizer.num_special_tokens_to_add(pair=reads == "post")
    answer = max_length // 2 if reads == "post" else 0
    if max_length - special - answer < 1:
        beside = f"{special} special tokens" + (f" and an answer of {answer}" if answer else "")
        raise ValueError(
            f"max_length {max_length} leaves a selector no room for the prompt beside {beside}; raise it"
        )


def selector_input(
    task: Task,
    x: str,
    documents: Sequence[Document],
    prompt: str,
    text: str,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    reads: Reads,
    name: str | None = None,
) -> SelectorInput:
    """What the selector reads of one pool member, in at most ``max_length`` tokens.

    The answer comes first: it is kept whole up to ``max_length // 2`` tokens; of a longer one the head is
    kept. The prompt has the rest. Where the LLM's own prompt fits, it is read as it is; else it is built
    anew for the selector's budget, which cuts documents and keeps the question.

    Parameters
    ----------
    task: whose φ_p it is. x: the input. documents: those that stand in the LLM's prompt, best first.
    prompt: the LLM's own prompt. text: what the LLM generated for it; not read where ``reads`` is "pre".
    tokenizer: the selector's. max_length: tokens of the selector's input, special ones counted.
    name: the member's name, to be read before the prompt as ``"<name>: "``; None: it is not read.

    Raises
    ------
    ValueError: ``max_length`` leaves no room for the instruction and a word of the question; or, where the
        prompt is built anew, whatever :meth:`ropg.tasks.base.Task.build_prompt` refuses.
    """
    check_room(max_length, reads, tokenizer)
    special = tokenizer.num_special_tokens_to_add(pair=reads == "post")
    answer = _head(text, max_length // 2, tokenizer) if reads == "post" else None
    room = max_length - special - (0 if answer is None else _count(answer, tokenizer))
    before = "" if name is None else f"{name}: "

    def tokens(part: str) -> int:  # of a prompt, with the name that it is read with
        return _count(before + part, tokenizer)

    if Ruler(tokens).exceeds(prompt, room):
        try:
            prompt = task.build_prompt(x, documents, tokenizer=tokens, max_tokens=room).text
        except ValueError as error:
            raise ValueError(f"a selector's max_length of {max_length}: {error}") from error
    return SelectorInput(before + prompt, answer)


def encode(
    inputs: Sequence[SelectorInput],
    tokenizer: PreTrainedTokenizerBase,
    multiple: int = 1,
    *,
    type_vocab_size: int = 2,
) -> dict[str, Tensor]:
    """The arguments of a :class:`~rspg.model.SelectorModel` for inputs, padded on the right.

    ``[CLS] prompt [SEP]``, and with a text the tokenizer's own format of a pair: ``[CLS] prompt [SEP] text
    [SEP]``. A text "" is still a pair: that the LLM said nothing is something to read.

    Parameters
    ----------
    inputs: N inputs, at least one; Pre and Post may be mixed. They are not cut.
    multiple: the width is rounded up to a multiple of it (the attention window).
    type_vocab_size: of the model; below 2 it has no use for token types.

    Returns
    -------
    input_ids, attention_mask, global_attention_mask (1 at the first token), and token_type_ids where the
    tokenizer makes them and the model has more than one: each (N, T), long, on the CPU.

    Raises ValueError where there is no input.
    """
    return pad(tokenize(inputs, tokenizer), tokenizer, multiple, type_vocab_size=type_vocab_size)


def tokenize(inputs: Sequence[SelectorInput], tokenizer: PreTrainedTokenizerBase) -> list[InputTokens]:
    """The tokens of each input, in order, neither cut nor padded."""
    found: dict[int, InputTokens] = {}
    for pair in (False, True):
        places = [i for i, one in enumerate(inputs) if (one.text is not None) == pair]
        if places:
            # lists: a lone "" in a text's place would be taken for no text at all
            texts = [[well_formed(inputs[i].prompt) for i in places]]
            if pair:
                texts.append([well_formed(inputs[i].text or "") for i in places])
            encoded = tokenizer(*texts, return_attention_mask=False, **_OPTIONS)
            types = encoded.get("token_type_ids") or [None] * len(places)
            found |= {
                i: InputTokens(*own) for i, *own in zip(places, encoded["input_ids"], types, strict=True)
            }
    return [found[i] for i in range(len(inputs))]


def pad(
    tokens: Sequence[InputTokens],
    tokenizer: PreTrainedTokenizerBase,
    multiple: int = 1,
    *,
    type_vocab_size: int = 2,
) -> dict[str, Tensor]:
    """Put tokenized inputs into one rectangle; see :func:`encode`, of which this is the second half."""
    if not tokens:
        raise ValueError("there is no input to encode")
    width = rounded_up(max(len(one.ids) for one in tokens), multiple)

    def rectangle(rows: Sequence[list[int]], padding: int) -> Tensor:  # -> (N, T)
        return torch.tensor([row + [padding] * (width - len(row)) for row in rows])

    first = torch.zeros(len(tokens), width, dtype=torch.long)
    first[:, 0] = 1
    batch = {
        "input_ids": rectangle([one.ids for one in tokens], tokenizer.pad_token_id or 0),
        "attention_mask": rectangle([[1] * len(one.ids) for one in tokens], 0),
        "global_attention_mask": first,
    }
    types = [one.types for one in tokens if one.types is not None]
    if type_vocab_size > 1 and len(types) == len(tokens):
        batch["token_type_ids"] = rectangle(types, 0)
    return batch


def rounded_up(length: int, multiple: int) -> int:
    """The smallest positive multiple that is no smaller than ``length``.

    >>> [rounded_up(length, 64) for length in (0, 64, 65)]
    [64, 64, 128]
    """
    return max(-(-length // multiple), 1) * multiple


def _count(text: str, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens of a text, no special ones counted."""
    return len(tokenizer(well_formed(text), add_special_tokens=False, **_OPTIONS)["input_ids"])


def _head(text: str, limit: int, tokenizer: PreTrainedTokenizerBase) -> str:
    """``text``, or its longest head of at most ``limit`` tokens that ends at a word."""
    ruler = Ruler(lambda part: _count(part, tokenizer))
    return ruler.prefix(text, limit) if ruler.exceeds(text, limit) else text
