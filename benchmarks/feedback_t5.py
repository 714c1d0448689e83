"""Feedback with a T5 of some 8 M random weights, beam 4, hotel reviews, l = 16: one prompt at a time, or batched."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.llms import compare
from benchmarks.measure import Outcome, seconds
from benchmarks.texts import HOTELS, Reviews, vocabulary
from ropg.llms import load_llm

USERS, L, NEW, WORDS = 8, 16, 12, 5000
VOCABULARY = 32_128  # T5's


def save_t5(folder: Path) -> None:
    """A random T5 with a tokenizer over the reviews' words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    words = {"<pad>": 0, "</s>": 1, "<unk>": 2}
    words |= {word: 3 + i for i, word in enumerate(vocabulary(WORDS))}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"d_model": 160, "d_kv": 32, "d_ff": 640, "num_layers": 4, "num_heads": 5}
    config = T5Config(
        vocab_size=VOCABULARY,
        **sizes,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)


def prompts_of() -> list[str]:
    """Table 2's wording for l documents of each user."""
    source = Reviews(0, HOTELS)
    prompts = []
    for _ in range(USERS):
        x = source.text(longest=200)
        for _ in range(L):
            prompts.append(
                f"{source.title()} is the title for {source.text(longest=200)} . Generate a title for: {x}"
            )
    return prompts


def run(pairs: int = 3) -> Outcome:
    """Compare on 128 prompts."""
    prompts = prompts_of()
    with tempfile.TemporaryDirectory() as folder:
        save_t5(Path(folder))
        llm: Any = load_llm(
            "seq2seq",
            model=folder,
            num_beams=4,
            max_new_tokens=NEW,
            batch_tokens=65536,
            dtype="float32",
            device="cpu",
        )
        llm.generate_batch(prompts[:1])
        slow, fast, _ = compare(llm, prompts, pairs)
        parameters = sum(p.numel() for p in llm.model.parameters())
        ideal = raw_seconds(llm, prompts)
    return Outcome(
        "feedback_t5",
        f"feedback, T5 of {parameters / 1e6:.1f} M weights, beam 4, {len(prompts)} prompts with hotel reviews, against "
        "one prompt at a time",
        slow,
        fast,
        at_least=4,
        checked="answers equal",
        limit=f"the model's raw speed on ideal batches: {ideal / min(fast):.0%} of it reached",
        notes={"ideal_seconds": round(ideal, 2)},
    )


def raw_seconds(llm: Any, prompts: list[str]) -> float:
    """Encoder over all tokens in batches without padding, and the decoder's steps over all beams at once."""
    model, beams = llm.model, len(prompts) * 4
    tokens = sum(map(len, llm.encode(prompts)))
    ids = torch.randint(3, 5000, (16, 128))
    with torch.inference_mode():
        encode = min(seconds(lambda: model.encoder(input_ids=ids)) for _ in range(3)) / ids.numel()
        states = model.encoder(input_ids=torch.randint(3, 5000, (beams, tokens // len(prompts))))

        def decode() -> None:
            cache, start = None, torch.zeros(beams, 1, dtype=torch.long)
            for _ in range(NEW):
                out = model(
                    encoder_outputs=states,
                    decoder_input_ids=start,
                    use_cache=True,
                    **{llm._cache_name: cache},
                )
                cache = out.past_key_values
                start = out.logits[:, -1:].argmax(dim=-1)

        return encode * tokens + min(seconds(decode) for _ in range(2))
