"""The frozen LLM M: it reads a prompt and answers with new text only, always the same for the same prompt.

A kind is one file that registers one name: ``seq2seq`` (FlanT5), ``causal`` (LLaMA, also from a GGUF file)
and ``endpoint`` (behind a server that speaks OpenAI's protocol). Importing this imports no torch, and
building an LLM loads nothing: the tokenizer comes with the first prompt that is measured, the weights with
the first that is answered.
"""

from __future__ import annotations

from typing import Any

from ropg.llms.protocol import LLM, Generation, NonFiniteLogits, PromptTooLong
from ropg.registry import Registry

__all__ = ["LLM", "LLMS", "Generation", "NonFiniteLogits", "PromptTooLong", "load_llm"]

LLMS = Registry("ropg.llms", "LLM")


def load_llm(kind: str, *, model: str, **options: Any) -> LLM:
    """Build the frozen LLM of this kind; nothing is loaded yet.

    Parameters
    ----------
    kind: ``seq2seq``, ``causal``, ``endpoint``, or ``package.module:attribute`` for a class of one's own.
    model: a hub name, a folder, a GGUF file, or ``package:name/inside`` for a model in a package.
    options: of the constructor, :class:`ropg.llms.local.LocalLLM`: decoding (``num_beams``,
        ``max_new_tokens``, ``stop``), ``max_input_tokens``, ``chat_template``, ``batch_tokens``,
        ``max_batch_size``, ``dtype``, ``device``, ``revision``, ``gguf_file``. Of an
        endpoint: :class:`ropg.llms.endpoint.EndpointLLM`.

    Raises UnknownName, with the nearest names, for an unknown kind, ValueError for options that ask for
    sampling and FileNotFoundError for a model that is named by a path and is not there.

    >>> load_llm("casual", model="x")
    Traceback (most recent call last):
    ropg.registry.UnknownName: unknown LLM 'casual'; did you mean causal? Known: causal, ...
    """
    return LLMS.get(kind)(model, **options)
