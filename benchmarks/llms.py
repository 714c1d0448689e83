"""Feedback in the straightforward way, one prompt at a time, and in the project's, into an empty store."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import and_more, seconds
from ropg.feedback.generation import generate_missing
from ropg.feedback.store import GenerationStore


def one_at_a_time(llm: Any, prompts: Sequence[str]) -> list[str]:
    """transformers' ``generate`` for every prompt, with the same decoding settings and stop strings."""
    found = []
    ending = {"stop_strings": list(llm.stop), "tokenizer": llm.tokenizer} if llm.stop else {}
    for prompt in prompts:
        inputs = {
            name: llm.tokenizer(prompt, return_tensors="pt")[name] for name in ("input_ids", "attention_mask")
        }
        with torch.inference_mode():
            output = llm.model.generate(**inputs, generation_config=llm.model.generation_config, **ending)
        start = inputs["input_ids"].shape[1] if llm.family == "causal" else 1  # a decoder's start token
        text = llm.tokenizer.decode(
            output[0, start:], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        found.append(min((text.split(stop)[0] for stop in llm.stop), key=len, default=text))
    return found


def in_batches(llm: Any, prompts: Sequence[str]) -> list[str]:
    """The feedback stage's way."""
    with tempfile.TemporaryDirectory() as folder, GenerationStore(Path(folder)) as store:
        return generate_missing(llm, prompts, store, progress=False).texts


def compare(
    llm: Any, prompts: Sequence[str], pairs: int
) -> tuple[tuple[float, ...], tuple[float, ...], list[str]]:
    """Seconds of both ways in each pair, and the answers, which the first pair must have the same both ways.

    Raises AssertionError, with their number, where some differ.
    """
    found: dict[str, list[str]] = {}
    first = (
        seconds(lambda: found.update(single=one_at_a_time(llm, prompts))),
        seconds(lambda: found.update(together=in_batches(llm, prompts))),
    )
    differing = sum(a != b for a, b in zip(found["single"], found["together"], strict=True))
    if differing:
        raise AssertionError(f"{differing} of {len(prompts)} answers differ")
    slow, fast = and_more(first, lambda: one_at_a_time(llm, prompts), lambda: in_batches(llm, prompts), pairs)
    return slow, fast, found["together"]
