"""Scores of a bi-encoder: one encoder reads queries and documents, a dot product compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ropg.training.rows import TrainingRow


class Embedder(Protocol):
    """What is needed of :class:`ropg.retrievers.encoder.Encoder`: texts to vectors, with gradient."""

    def embed(self, texts: Sequence[str]) -> Tensor: ...  # (N, D)


def bi_encoder_scorer(encoder: Embedder) -> Callable[[Sequence[TrainingRow]], Tensor]:
    """Return the function that scores rows with ``encoder``: rows -> (B, K), padded with 0.

    Every text of the rows is encoded once, however many rows share it: users of one item share
    documents, and a query may be a document elsewhere.
    """

    def score_rows(rows: Sequence[TrainingRow]) -> Tensor:
        place = {text: i for i, text in enumerate(dict.fromkeys(_texts(rows)))}
        vectors = encoder.embed(list(place))  # (N, D)
        if vectors.dtype in (torch.float16, torch.bfloat16):
            vectors = vectors.float()
        width = max((len(row.documents) for row in rows), default=0)
        queries = torch.tensor([place[row.query] for row in rows], device=vectors.device)  # (B,)
        padded = [[place[d] for d in row.documents] + [-1] * (width - len(row.documents)) for row in rows]
        documents = torch.tensor(padded, dtype=torch.long, device=vectors.device)  # (B, K)
        # multiplied and summed rather than a matrix product, which mixed precision would round to bf16
        products = vectors[queries].unsqueeze(1) * vectors[documents.clamp(min=0)]  # (B, K, D)
        return products.sum(dim=-1).masked_fill(documents < 0, 0.0)  # (B, K)

    return score_rows


def _texts(rows: Sequence[TrainingRow]) -> list[str]:
    return [text for row in rows for text in (row.query, *row.documents)]
