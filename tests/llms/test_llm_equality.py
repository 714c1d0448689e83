"""Own reading and decoding against transformers' `generate`, one prompt at a time, on many random prompts."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ropg.batching import slices
from ropg.llms import load_llm
from ropg.llms.beams import attend, share_prompts

WORDS = [
    "a",
    "quiet",
    "room",
    "near",
    "the",
    "station",
    "noisy",
    "bed",
    "rude",
    "staff",
    "cats",
    "sleep",
    "dogs",
    "do",
    "not",
    "review",
    "title",
    "z",
    "q",
    "7",
]


def prompts_of(seed: int, n: int = 12) -> list[str]:
    """Prompts from one to eighty words long; a third of them begin alike."""
    rng = random.Random(seed)
    shared = " ".join(rng.choices(WORDS, k=40))
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 80))) for _ in range(n)]
    return [f"{shared} {text}" if i % 3 == 0 else text for i, text in enumerate(texts)]


def generated(llm, prompt: str) -> list[int]:
    """New token ids by transformers alone."""
    inputs = torch.tensor([llm.encode([prompt])[0]])
    with torch.inference_mode():
        output = llm.model.generate(
            input_ids=inputs,
            attention_mask=torch.ones_like(inputs),
            generation_config=llm.model.generation_config,
        )
    return output[0, inputs.shape[1] if llm.family == "causal" else 1 :].tolist()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "beams"), [("causal", 1), ("causal", 4), ("seq2seq", 1), ("seq2seq", 4)])
def test_answers_are_those_of_transformers(kind, beams, seed, request, monkeypatch):
    """Another text than the model's own would be another LLM, and no one would notice."""
    # tiny models: without this all texts would be read in one pass
    monkeypatch.setattr("ropg.batching.OVERHEAD", {"cpu": 8})
    folder = request.getfixturevalue({"causal": "llama", "seq2seq": "t5"}[kind])
    llm = load_llm(kind, model=str(folder), num_beams=beams, max_new_tokens=10)
    prompts = prompts_of(seed)
    assert len(slices([len(ids) for ids in llm.encode(prompts)], 8)) > 1
    alone = [llm._read(generated(llm, prompt), len(llm.encode([prompt])[0])) for prompt in prompts]
    assert llm.generate_batch(prompts) == alone
    assert len({answer.text for answer in alone}) > 3


SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("mistral", {**SIZES, "intermediate_size": 64, "sliding_window": 24}),
        (
            "gpt_neo",
            {
                **{"num_layers": 2, "num_heads": 4, "hidden_size": 32, "window_size": 16},
                "attention_types": [[["local"], 2]],
            },
        ),
        ("mpt", {"n_layers": 2, "n_heads": 4, "d_model": 32}),
        ("openai-gpt", {"n_layer": 2, "n_head": 4, "n_embd": 32}),
    ],
)
def test_models_that_count_columns_answer_as_alone(llama, tmp_path, kind, options):
    """A window, distances in columns, or no cache at all: a text would depend on what else is in its batch."""
    tokenizer = AutoTokenizer.from_pretrained(llama)
    tokenizer.save_pretrained(tmp_path)
    torch.manual_seed(0)
    same = {"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 1}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **same, **options))
    with torch.no_grad():  # a random model says one token for ever
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.mul_(5)
    model.save_pretrained(tmp_path)
    llm = load_llm("causal", model=str(tmp_path), max_input_tokens=400, max_new_tokens=40)
    shared = " ".join(WORDS * 3)  # of 60 words
    prompts = [f"{shared} {' '.join(WORDS[:n])}" for n in (1, 20, 2, 14, 8)]
    alone = [llm._read(generated(llm, prompt), len(llm.encode([prompt])[0])) for prompt in prompts]
    assert llm.generate_batch(prompts) == alone
    assert len({answer.text for answer in alone}) > 2


def test_rows_that_end_leave_the_batch(llama):
    """Answers end after three tokens or after twenty; the others must not notice that one has left."""
    llm = load_llm("causal", model=str(llama), max_new_tokens=24)
    prompts = prompts_of(5, n=16)
    tokens = [generated(llm, prompt) for prompt in prompts]
    assert llm._settings is not None
    # tokens that some answers reach early, and some never
    llm._settings.eos_token_id = sorted({row[2] for row in tokens[:4]})
    alone = [llm._read(generated(llm, prompt), len(llm.encode([prompt])[0])) for prompt in prompts]
    lengths = {answer.new_tokens for answer in alone}
    assert min(lengths) < 5 < max(lengths)
    assert llm.generate_batch(prompts) == alone


@pytest.mark.parametrize("bias", [False, True])
def test_beams_as_query_positions(bias):
    """Beams that share their prompt's keys see what each would see in keys of its own."""
    torch.manual_seed(0)
    prompts, beams, heads, tokens, size = 3, 4, 2, 7, 5
    query = torch.randn(prompts * beams, heads, 1, size)
    key, value = torch.randn(2, prompts, heads, tokens, size)
    mask = torch.ones(prompts, 1, 1, tokens, dtype=torch.bool)
    mask[1, ..., 4:] = mask[2, ..., 2:] = False
    options = {"scaling": 0.7, "position_bias": torch.randn(1, heads, 1, tokens) if bias else None}
    module = torch.nn.Module()
    expected, _ = sdpa_attention_forward(
        module,
        query,
        *(t.repeat_interleave(beams, dim=0) for t in (key, value, mask)),
        **options,
        is_causal=False,
    )
    found, _ = attend(module, query, key, value, mask.repeat_interleave(beams, dim=0), **options)
    torch.testing.assert_close(found, expected)
    none, _ = attend(module, query, key, value, None, **options)
    assert not torch.allclose(none, found)


def test_prompts_are_shared_where_the_model_can(t5):
    """Without it a T5 copies the keys of every prompt for each beam."""
    llm = load_llm("seq2seq", model=str(t5), num_beams=4, max_new_tokens=4)
    assert share_prompts(llm.model.get_decoder())
    eager = load_llm("seq2seq", model=str(t5), num_beams=4, max_new_tokens=4, attention="eager")
    assert not share_prompts(eager.model.get_decoder())
    prompts = prompts_of(1)
    assert eager.generate_batch(prompts) == llm.generate_batch(prompts)


def cost(passes, lengths, overhead):
    return sum(len(part) * max(lengths[i] for i in part) + overhead for part in passes)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=7), st.integers(0, 80))
def test_slices_are_the_cheapest_division_of_the_sorted_lengths(lengths, overhead):
    """Every text in one pass, and no cheaper way to cut the sorted list."""
    passes = slices(lengths, overhead)
    assert sorted(i for part in passes for i in part) == list(range(len(lengths)))
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    best = min(
        cost([order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)], lengths, overhead)
        for mask in range(1 << (len(order) - 1))
        for cuts in [[i for i in range(1, len(order)) if mask >> (i - 1) & 1]]
    )
    assert cost(passes, lengths, overhead) == best
