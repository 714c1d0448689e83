"""A tiny random encoder, written as real models are."""

from __future__ import annotations

from pathlib import Path

import pytest

TEXT = "tea mug red pot blue chair a the short very long neighbour text repeated many times old new"


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a two-layer BERT of random weights (dropout 0.5, 64 positions) and its tokenizer."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny_bert")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TEXT.split()]
    BertTokenizerFast(vocab={token: i for i, token in enumerate(vocabulary)}).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        hidden_dropout_prob=0.5,
        attention_probs_dropout_prob=0.5,
        initializer_range=0.5,  # large, so that texts differ clearly
    )
    BertModel(config).save_pretrained(folder)
    return folder
