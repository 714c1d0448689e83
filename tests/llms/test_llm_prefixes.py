"""Prompts that begin alike are read once; no answer may show it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropg.batching import plan_batches
from ropg.llms import load_llm
from ropg.llms.prefixes import PrefixGroup, prefix_groups, prefix_lengths

REVIEWS = ["a quiet room near the station, clean and bright", "noisy bed and rude staff, never again", "ok"]
OWN = [
    "cats sleep a lot",
    "dogs do not sleep at all, they say",
    "the tea was cold",
    "x",
    "it rained on every day but one",
]
PROMPTS = [f"review: {review}\ntitle: stay\n\nreview: {own}\ntitle:" for own in OWN for review in REVIEWS]

TOKENS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), max_size=12)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(
    "prompts", [PROMPTS, [*PROMPTS[:6], "an other one, alone and rather long, longer than most"]]
)
def test_shared_beginnings_are_read_once_and_change_no_answer(llama, beams, prompts, monkeypatch):
    """A cache row of another prompt's review would give an answer that no single prompt gives."""
    llm = load_llm(
        "causal", model=str(llama), num_beams=beams, max_new_tokens=9, dtype="float32", max_batch_size=64
    )
    alone = [llm.generate_batch([prompt])[0] for prompt in prompts]
    read = []
    monkeypatch.setattr(llm.model.model, "forward", _counting(llm.model.model.forward, read))
    assert llm.generate_batch(prompts) == alone
    assert sum(read) + len(prompts) < 0.9 * sum(llm.count_tokens(prompt) for prompt in prompts)


def _counting(forward, read):
    """The model's pass, which notes in ``read`` how many tokens of prompts, padding included, it was given."""

    def counted(input_ids=None, **others):
        if input_ids.shape[1] > 1:  # prompts, not new tokens
            read.append(input_ids.numel())
        return forward(input_ids=input_ids, **others)

    return counted


def test_plan_keeps_prompts_that_begin_alike_together(llama):
    """Spread over batches by length alone, users of one item would share nothing."""
    llm = load_llm("causal", model=str(llama), max_new_tokens=4, dtype="float32", max_batch_size=5)
    mixed = [PROMPTS[i] for i in torch.randperm(len(PROMPTS), generator=torch.Generator().manual_seed(0))]
    batches = llm.plan(mixed)
    assert sorted(i for batch in batches for i in batch) == list(range(len(mixed)))
    assert all(len({mixed[i][:24] for i in batch}) == 1 for batch in batches)


def test_a_beginning_that_all_share_does_not_mix_lengths(llama):
    """A chat template begins every prompt: sorted by what follows, short prompts would be padded to long ones."""
    llm = load_llm("causal", model=str(llama), max_new_tokens=4, dtype="float32", max_batch_size=4)
    prompts = [
        f"You are a helpful assistant, named after nobody. {chr(97 + i) * (1 + 9 * i)}" for i in range(12)
    ]
    lengths = [llm.count_tokens(prompt) for prompt in prompts]
    units = [group.members for group in prefix_groups(llm.encode(prompts), 4)]  # as if padding cost nothing
    plans = (llm.plan(prompts), plan_batches(lengths, 10_000, 4), plan_batches(lengths, 10_000, 4, units))
    ours, by_length, by_prefix = (sum(len(b) * max(lengths[i] for i in b) for b in plan) for plan in plans)
    assert ours <= 1.05 * by_length < by_prefix


@given(TOKENS, st.integers(1, 5), st.integers(1, 3))
def test_groups_are_prefixes_and_the_best_division(prompts, most, least):
    """A group whose members differ in their prefix would be answered for another prompt."""
    groups = prefix_groups(prompts, most, least)
    assert sorted(i for group in groups for i in group.members) == list(range(len(prompts)))
    for group in groups:
        assert len(group.members) <= most
        assert len({tuple(prompts[i][: group.length]) for i in group.members}) == 1
        assert all(len(prompts[i]) > group.length for i in group.members)
        assert group.length >= least or len(group.members) == 1
    order = [i for group in groups for i in group.members]
    assert sum(group.saved for group in groups) == _best([prompts[i] for i in order], most, least)


def _best(prompts, most, least):
    """The most tokens that any division of the prompts, in this order, saves; by trying them all."""
    best = [0]
    for end in range(1, len(prompts) + 1):
        options = [best[end - 1]]
        for begin in range(max(0, end - most), end - 1):
            part = prompts[begin:end]
            length = next(
                (n for n in range(9) if any(len(p) <= n + 1 or p[: n + 1] != part[0][: n + 1] for p in part)),
                9,
            )
            if length >= least:
                options.append(best[begin] + length * (len(part) - 1))
        best.append(max(options))
    return best[-1]


@given(st.lists(st.integers(2, 60), min_size=2, max_size=12), st.data())
def test_prefixes_leave_a_token_and_keep_to_the_memory(lengths, data):
    """Padded in two parts, a batch could be twice as wide as it was planned."""
    cut = data.draw(st.integers(1, len(lengths) - 1))
    shared = data.draw(st.integers(0, min(lengths[:cut]) - 1)) if cut > 1 else 0
    first = [PrefixGroup(tuple(range(cut)), shared)] if shared else [PrefixGroup((i,), 0) for i in range(cut)]
    groups = [*first, *(PrefixGroup((i,), 0) for i in range(cut, len(lengths)))]
    found = prefix_lengths(lengths, groups)
    if found is None:
        return
    rest = max(lengths[i] - read for group, read in zip(groups, found, strict=True) for i in group.members)
    assert all(
        1 <= read < lengths[i] for group, read in zip(groups, found, strict=True) for i in group.members
    )
    assert max(found) + rest <= 1.25 * max(lengths)
    assert len(groups) * max(found) + len(lengths) * rest <= 0.9 * len(lengths) * max(lengths)
