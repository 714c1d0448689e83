"""Feedback with SmolLM2, greedy, on reviews that many users share: one prompt at a time, or the feedback stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.llms import compare
from benchmarks.measure import Outcome, seconds
from benchmarks.stored import new_llm
from benchmarks.texts import CLOTHES, HOTELS, Reviews
from ropg.llms.prefixes import prefix_groups

ITEMS, REVIEWS, USERS = 1, 2, 16


def prompts_of() -> list[str]:
    """Each user of an item is asked about with each of its reviews, which all users share.

    A made-up word has about three tokens, so that reviews have as many as those of hotels: 240 in the mean.
    """
    source, asked = Reviews(0, HOTELS), Reviews(1, CLOTHES)
    prompts = []
    for _ in range(ITEMS):
        documents = [(source.text(shortest=30, longest=100), source.title()) for _ in range(REVIEWS)]
        for _ in range(USERS):
            x = asked.text(shortest=5, longest=50)
            prompts += [f"review: {text}\ntitle: {title}\n\nreview: {x}\ntitle:" for text, title in documents]
    return prompts


def raw_seconds(llm: Any, prompts: Sequence[str], texts: Sequence[str]) -> float:
    """What the model alone needs for the distinct tokens, in full batches without padding, and for the new ones."""
    model, rows = llm.model, 32
    encoded = llm.encode(list(prompts))
    groups = prefix_groups(encoded, llm.max_batch_size)
    read = sum(map(len, encoded)) - sum(group.saved for group in groups)
    new = sum(llm.count_tokens(text) + 1 for text in texts)
    ids = torch.randint(100, 40_000, (rows, 64))
    with torch.inference_mode():
        cache = model(ids[:, :-1], use_cache=True, logits_to_keep=1).past_key_values
        forward = (
            min(seconds(lambda: model(ids, use_cache=True, logits_to_keep=1)) for _ in range(3)) / ids.numel()
        )

        def step() -> None:
            model(ids[:, -1:], **{llm._cache_name: cache}, use_cache=True)
            cache.crop(-1)

        decode = min(seconds(step) for _ in range(5)) / rows
    return read * forward + new * decode


def run(pairs: int = 3) -> Outcome:
    """Compare on 32 prompts."""
    prompts, llm = prompts_of(), new_llm(batch_tokens=16384)
    llm.generate_batch(prompts[:1])  # loads the weights
    slow, fast, together = compare(llm, prompts, pairs)
    ideal = raw_seconds(llm, prompts, together)
    return Outcome(
        "feedback_prefix",
        f"feedback, SmolLM2, greedy, {len(prompts)} prompts in which {USERS} users share each review, "
        "against one prompt at a time",
        slow,
        fast,
        at_least=4,
        checked="answers equal",
        limit=f"the model's raw speed on ideal batches, shared beginnings once: {ideal / min(fast):.0%} of it reached",
        notes={"ideal_seconds": round(ideal, 2)},
    )
