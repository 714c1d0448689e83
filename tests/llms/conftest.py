"""Tiny random models with real tokenizers, saved to folders as a hub model would be. No network."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

TEXTS = [
    "review: a quiet room near the station\ntitle: quiet stay\n\nreview: noisy bed, rude staff\ntitle:",
    "Generate a headline for the following article: cats sleep a lot, dogs do not.",
    "a much longer prompt with many more words in it than the short one has",
]
CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>\n{% endif %}"
)


def byte_level(specials: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def llama_config(vocabulary: int, **changes: int) -> LlamaConfig:
    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 640,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    return LlamaConfig(**{**sizes, **changes})


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LLaMA as they are shipped: no pad token, right padding, sampling defaults, max_length 20."""
    folder = tmp_path_factory.mktemp("llama")
    core = byte_level(["<s>", "</s>"])
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = CHAT
    tokenizer.padding_side = "right"
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    model = LlamaForCausalLM(llama_config(len(tokenizer)))
    with torch.no_grad():  # spread the logits: a random model says one token for ever
        model.lm_head.weight.mul_(25)
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=0.6, top_p=0.9, max_length=20, eos_token_id=1, bos_token_id=0
    )
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 whose tokenizer appends the end-of-sequence token, with a short max_length of its own."""
    folder = tmp_path_factory.mktemp("t5")
    core = byte_level(["<pad>", "</s>"])
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="</s>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    model = T5ForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.4)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def automaton(tmp_path: Path):
    """Build a LLaMA whose next token depends on the last alone, so that its answers are known by hand.

    ``automaton({"x": "y", "y": None})`` answers "y" and the end-of-sequence token to a prompt ending in x.
    Tokens are bytes; a character without a rule repeats itself. ``nan`` names a character after which the
    logits are NaN.
    """

    def build(rules: dict[str, str | None], nan: str = "") -> Path:
        core = byte_level(["<s>", "</s>"])
        alphabet = {token: index for token, index in core.get_vocab().items() if len(token) == 1}
        vocabulary = {"<s>": 0, "</s>": 1}
        vocabulary |= {token: 2 + place for place, token in enumerate(sorted(alphabet))}
        core.model = models.BPE(vocab=vocabulary, merges=[])
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
        tokenizer.save_pretrained(tmp_path)

        def ids(text: str) -> list[int]:
            return tokenizer(text, add_special_tokens=False)["input_ids"]

        size = 272
        model = LlamaForCausalLM(
            llama_config(
                len(tokenizer),
                hidden_size=size,
                intermediate_size=8,
                num_hidden_layers=1,
                num_key_value_heads=4,
            )
        )
        following = {token: token for token in range(len(tokenizer))}
        for last, answer in rules.items():
            chain = [*ids(last)[-1:], *(ids(answer) if answer is not None else [1])]
            following |= dict(pairwise(chain))
        with torch.no_grad():
            layer = model.model.layers[0]
            layer.self_attn.o_proj.weight.zero_()  # with no attention and no feed-forward
            layer.mlp.down_proj.weight.zero_()  # a token's state is its embedding
            model.model.embed_tokens.weight.copy_(torch.eye(len(tokenizer), size))
            model.lm_head.weight.zero_()
            for last_id, next_id in following.items():
                model.lm_head.weight[next_id, last_id] = 1.0
            if nan:
                model.model.embed_tokens.weight[ids(nan)[-1]] = float("nan")
        model.save_pretrained(tmp_path)
        return tmp_path

    return build
