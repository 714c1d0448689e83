"""A real encoder class in the loop: what is exported is what was trained, interrupted or not."""

import numpy as np
import pytest
import torch
from tiny_training import WORDS, make_rows

from ropg.retrievers.encoder import Encoder, load_encoder
from ropg.training import TrainSettings, bi_encoder_scorer, load_objective, train


@pytest.fixture
def fresh_encoder(tmp_path):
    """A tiny random BERT, the same at every call, with dropout in its configuration."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))

    def build():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=15, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        tokenizer = BertTokenizerFast(vocab=str(vocabulary))
        return Encoder(BertModel(config, add_pooling_layer=False), tokenizer, max_length=16)

    return build


def run(encoder, folder, tracker=None):
    settings = TrainSettings(lr=0.01, epochs=2, batch_size=3, accumulation=2, checkpoint_every=1)
    return train(
        encoder.module,
        bi_encoder_scorer(encoder),
        make_rows(12, 1),
        make_rows(6, 2),
        load_objective("ropg_kd", target_temperature=0.1),
        settings,
        folder,
        save_model=encoder.save,
        tracker=tracker,
        progress=False,
    )


def test_export_is_the_trained_encoder_interrupted_or_not(tmp_path, fresh_encoder):
    """Evaluation loads the exported folder: it must rank as the best weights did in training."""
    whole = fresh_encoder()
    untrained = whole.encode(WORDS)
    result = run(whole, tmp_path / "whole")
    assert result.best_step > 0
    vectors = whole.encode(WORDS)
    assert np.abs(vectors - untrained).max() > 1e-3
    loaded = load_encoder(str(tmp_path / "whole" / "model"), max_length=16, device="cpu")
    np.testing.assert_array_equal(loaded.encode(WORDS), vectors)

    def stop(record):
        if record["step"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(fresh_encoder(), tmp_path / "stopped", stop)
    resumed = fresh_encoder()
    assert run(resumed, tmp_path / "stopped").best_step == result.best_step
    np.testing.assert_array_equal(resumed.encode(WORDS), vectors)
