"""One ROPG-KD step, 8 queries with 16 documents each: all documents padded to the longest, or like with like."""

from __future__ import annotations

import torch

from benchmarks.dense import MODEL, padded_vectors
from benchmarks.measure import Outcome, and_more, seconds
from benchmarks.texts import HOTELS, Reviews
from ropg.objectives import distillation_loss
from ropg.retrievers.encoder import Encoder, load_encoder
from ropg.training import TrainingRow, bi_encoder_scorer

QUERIES, DOCUMENTS, MAX_LENGTH = 8, 16, 512


def rows_of(n: int) -> list[TrainingRow]:
    """Queries with candidates and made-up rewards."""
    reviews, draw = Reviews(0, HOTELS), torch.Generator().manual_seed(0)
    rows = []
    for i in range(n):
        rewards = torch.rand(DOCUMENTS, generator=draw).tolist()
        documents = tuple(f"{reviews.title()} {reviews.text()}" for _ in range(DOCUMENTS))
        rows.append(
            TrainingRow(
                f"q{i}", reviews.text(), documents, rewards, [0.0] * DOCUMENTS, range(1, DOCUMENTS + 1), 0.0
            )
        )
    return rows


def gradient(encoder: Encoder) -> torch.Tensor:
    """All gradients as one vector."""
    return torch.cat([p.grad.flatten() for p in encoder.module.parameters() if p.grad is not None])


def straightforward(encoder: Encoder, rows: list[TrainingRow]) -> None:
    """Queries in one batch, documents in another, each padded to its longest text."""

    encoder.module.zero_grad()
    queries = padded_vectors(encoder, [row.query for row in rows])  # (B, D)
    documents = padded_vectors(encoder, [text for row in rows for text in row.documents]).view(
        len(rows), DOCUMENTS, -1
    )
    _loss((queries[:, None] * documents).sum(dim=-1), rows).backward()


def ours(encoder: Encoder, rows: list[TrainingRow]) -> None:
    """The project's scorer."""
    encoder.module.zero_grad()
    _loss(bi_encoder_scorer(encoder)(rows), rows).backward()


def _loss(scores: torch.Tensor, rows: list[TrainingRow]) -> torch.Tensor:
    rewards = torch.tensor([row.rewards for row in rows])
    return distillation_loss(scores, rewards, torch.ones_like(rewards, dtype=torch.bool), 2.0, 0.1)


def run(pairs: int = 3) -> Outcome:
    """Compare one step's gradient."""
    encoder = load_encoder(MODEL, max_length=MAX_LENGTH, batch_tokens=4096, device="cpu")
    rows = rows_of(QUERIES)
    encoder.embed(["warm up"]).sum().backward()
    first_slow = seconds(lambda: straightforward(encoder, rows))
    wanted = gradient(encoder)
    first_fast = seconds(lambda: ours(encoder, rows))
    torch.testing.assert_close(gradient(encoder), wanted, atol=1e-5, rtol=1e-3)
    slow, fast = and_more(
        (first_slow, first_fast),
        lambda: straightforward(encoder, rows),
        lambda: ours(encoder, rows),
        pairs,
    )
    texts = [text for row in rows for text in (row.query, *row.documents)]
    lengths = [len(ids) for ids in encoder.tokenize(texts)]
    ideal = ideal_seconds(encoder.module, sum(lengths), encoder.module.config.vocab_size)
    return Outcome(
        "kd_step",
        f"ROPG-KD step, {QUERIES} queries x {DOCUMENTS} hotel reviews, against padding to the longest",
        slow,
        fast,
        at_least=3,
        checked="gradients equal (1e-5)",
        limit="forward and backward pass over as many tokens in batches without padding; the straightforward way has "
        f"{max(lengths) * len(lengths) / sum(lengths):.1f} times as many",
        notes={"ideal_seconds": round(ideal, 2)},
    )


def ideal_seconds(module: torch.nn.Module, tokens: int, vocabulary: int) -> float:
    """How long forward and backward passes over this many tokens take in batches of equal lengths."""
    ids = torch.randint(1000, min(20_000, vocabulary), (16, 128))

    def once() -> None:
        module(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state.mean().backward()

    return min(seconds(once) for _ in range(3)) * tokens / ids.numel()
