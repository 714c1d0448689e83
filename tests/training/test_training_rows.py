"""Rows, batches, schedules and settings: what the loop is fed with."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_training import ToyEncoder, make_rows

from ropg.training import TrainingRow, TrainSettings, bi_encoder_scorer, make_batch
from ropg.training.batch import row_generator
from ropg.training.rows import check_rows, rows_fingerprint
from ropg.training.schedule import (
    derive_seed,
    epoch_order,
    evaluation_steps,
    learning_rate_factor,
    steps_per_epoch,
)


def row(name="q", rewards=(0.5, 1.0), baseline=0.5):
    k = len(rewards)
    return TrainingRow(name, "cat", ("dog",) * k, rewards, (0.1,) * k, tuple(range(1, k + 1)), baseline)


def test_lists_of_unequal_length_are_refused_by_name():
    """A reward that slips to another document teaches the wrong thing."""
    with pytest.raises(ValueError, match="'q7' has 2 documents but 1 rewards"):
        TrainingRow("q7", "x", ("a", "b"), (1.0,), (0.1, 0.2), (1, 2), 1.0)
    with pytest.raises(ValueError, match=r"'q7'.*1 ranks"):
        TrainingRow("q7", "x", ("a", "b"), (1.0, 0.0), (0.1, 0.2), (1,), 1.0)


def test_check_rows_counts_dead_and_refuses_useless():
    """Dead rows are reported, not silently lost; a set without a candidate is an error at once."""
    assert check_rows([row(), row(rewards=())], "train", "…") == 1
    with pytest.raises(ValueError, match="none of the 1 dev rows"):
        check_rows([row(rewards=())], "dev", "…")
    with pytest.raises(ValueError, match="none of the 0 train rows"):
        check_rows([], "train", "…")
    with pytest.raises(ValueError, match=r"'q9'.*not finite"):
        check_rows([row(), row("q9", (math.nan, 1.0))], "train", "…")
    with pytest.raises(ValueError, match="not finite"):
        check_rows([row(baseline=math.inf)], "train", "…")


def test_fingerprint_sees_content_and_order_only():
    """A resumed run must notice changed feedback, and must not stumble over numpy's numbers."""
    import numpy as np

    a, b = row("a"), row("b")
    assert rows_fingerprint([a, b]) != rows_fingerprint([b, a])
    assert rows_fingerprint([a]) == rows_fingerprint([row("a", tuple(np.array([0.5, 1.0])))])
    assert rows_fingerprint([a]) != rows_fingerprint([row("a", (0.5, 0.9))])


def test_make_batch_pads():
    """Every field lines up with its candidate; padding is masked."""
    rows = [row("a", (0.5, 1.0)), row("b", (0.25,), baseline=0.25)]
    batch = make_batch(rows, torch.zeros(2, 2), row_generator(0, 0))
    assert batch.rewards.tolist() == [[0.5, 1.0], [0.25, 0.0]]
    assert batch.mask.tolist() == [[True, True], [True, False]]
    assert batch.ranks.tolist() == [[1, 2], [1, 0]]
    assert batch.baseline.tolist() == [0.5, 0.25]
    assert batch.initial_scores.shape == (2, 2)


def test_make_batch_refuses_scores_of_another_shape_or_not_finite():
    """Broadcast scores would train on nonsense; NaN is named by example."""
    rows = [row("a"), row("b", (0.25,))]
    with pytest.raises(ValueError, match=r"must return \(2, 2\)"):
        make_batch(rows, torch.zeros(2, 3), row_generator(0, 0))
    with pytest.raises(FloatingPointError, match=r"example\(s\) b$"):
        make_batch(rows, torch.tensor([[0.0, 0.0], [math.nan, 0.0]]), row_generator(0, 0))
    make_batch(rows, torch.tensor([[0.0, 0.0], [0.0, math.nan]]), row_generator(0, 0))  # padding


def test_bi_encoder_scores_are_dot_products_of_each_text_once():
    """Scores must be the retriever's own, whatever the padding, and shared texts be encoded once."""
    encoder, rows = ToyEncoder(), make_rows(5, 3)
    scores = bi_encoder_scorer(encoder)(rows)
    texts = encoder.embedded[0]
    assert len(texts) == len(set(texts))
    assert scores.shape == (5, max(len(r.documents) for r in rows))
    for i, r in enumerate(rows):
        q, d = encoder.embed([r.query])[0], encoder.embed(list(r.documents))
        torch.testing.assert_close(scores[i, : len(d)], d @ q)
        assert scores[i, len(d) :].eq(0).all()
    scores.sum().backward()
    assert encoder.words.weight.grad is not None


@given(st.integers(1, 60), st.integers(0, 9), st.integers(0, 5))
def test_epoch_order_is_a_seeded_permutation(n, seed, epoch):
    """Every row is seen once an epoch, and a resumed run sees the rest in the same order."""
    order = epoch_order(n, seed, epoch)
    assert sorted(order) == list(range(n))
    assert order == epoch_order(n, seed, epoch)


def test_epochs_and_seeds_shuffle_differently():
    """The same order every epoch would tie rows to their neighbours."""
    orders = {tuple(epoch_order(20, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
    assert (
        len({derive_seed(1, "a", 2), derive_seed(12, "a"), derive_seed(1, "a2"), derive_seed("1", "a", 2)})
        == 4
    )


def test_learning_rate_by_hand():
    """20 % of 10 steps rise, step 2 is the peak, the rest falls to 1/8; never 0, never above 1."""
    factors = [learning_rate_factor(s, 10, 0.2) for s in range(10)]
    assert factors == pytest.approx([1 / 3, 2 / 3, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert learning_rate_factor(0, 10, 0.0) == 1.0
    assert learning_rate_factor(0, 1, 0.05) == 1.0


@given(st.integers(1, 40), st.integers(1, 12), st.floats(0.05, 5))
def test_evaluations_fall_into_the_run_and_end_it(per_epoch, epochs, every):
    """The last weights must be a candidate for the best ones."""
    steps = evaluation_steps(per_epoch, epochs, every)
    assert max(steps) == per_epoch * epochs
    assert min(steps) >= 1
    assert evaluation_steps(per_epoch, epochs, 1.0) == {per_epoch * e for e in range(1, epochs + 1)}


def test_steps_per_epoch_count_the_last_incomplete_one():
    """No row is left out at the end of an epoch."""
    assert [steps_per_epoch(n, 64) for n in (1, 64, 65)] == [1, 1, 2]


@pytest.mark.parametrize(
    "bad",
    [
        {"lr": 0},
        {"epochs": 0},
        {"warmup": 1.0},
        {"clip": 0},
        {"mixed_precision": "fp16"},
        {"keep": 0},
        {"seed": -1},
    ],
)
def test_settings_out_of_range_are_refused(bad):
    """A misread configuration must not cost an hour of training."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        TrainSettings(**bad)


def test_importing_settings_and_rows_needs_no_torch():
    """Configuration schemas read them, and `--help` must answer at once."""
    import subprocess
    import sys

    code = (
        "import sys; from ropg.training import TrainSettings, TrainingRow, load_objective; "
        "import ropg.training.tracking; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
