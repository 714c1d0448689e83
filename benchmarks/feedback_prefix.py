"""Feedback with SmolLM2, greedy, on reviews that many users share: one prompt at a time, or the feedback stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.llms import check_equal, in_batches, one_at_a_time
from benchmarks.measure import Outcome, alternate, seconds
from benchmarks.stored import new_llm
from benchmarks.texts import CLOTHES, Reviews
from ropg.llms.prefixes import prefix_groups

ITEMS, REVIEWS, USERS = 1, 2, 16


def prompts_of() -> list[str]:
    """Each user of an item is asked about with each of its reviews, which all users share."""
    source = Reviews(0, CLOTHES)
    prompts = []
    for _ in range(ITEMS):
        documents = [(source.text(shortest=20, longest=120), source.title()) for _ in range(REVIEWS)]
        for _ in range(USERS):
            x = source.text(shortest=10, longest=60)
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
            model(ids[:, -1:], past_key_values=cache, use_cache=True)
            cache.crop(-1)

        decode = min(seconds(step) for _ in range(5)) / rows
    return read * forward + new * decode


def run(pairs: int = 3) -> Outcome:
    """Compare on 32 prompts."""
    prompts, llm = prompts_of(), new_llm(batch_tokens=16384)
    llm.generate_batch(prompts[:1])  # loads the weights
    together = check_equal(llm, prompts)
    slow, fast = alternate(lambda: one_at_a_time(llm, prompts), lambda: in_batches(llm, prompts), pairs)
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
