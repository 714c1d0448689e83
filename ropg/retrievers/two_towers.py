"""One encoder for queries, another for documents: a trained query tower beside the initial encoder.

Documents keep the vectors that they had before training, so an index of them never needs rebuilding. The folder of
the query tower says which encoder the documents' is, see :data:`ropg.retrievers._encoder_files.DOCUMENTS`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropg.retrievers import _encoder_files as files
from ropg.retrievers.encoder import Encoder

if TYPE_CHECKING:
    import numpy as np
    import torch


class TwoTowerEncoder:
    """Embeds queries with one encoder and documents with another, whose vectors can be compared.

    It has no ``encode``: which tower a text belongs to is always said.

    Attributes
    ----------
    queries: the query tower, which training changes.
    documents: the document tower, frozen.
    documents_model: the document tower's name for :func:`ropg.retrievers.encoder.load_encoder`.
    module, fingerprint, max_length, device: the query tower's.
    """

    def __init__(self, queries: Encoder, documents: Encoder, documents_model: str) -> None:
        if queries.dimension != documents.dimension:
            raise ValueError(
                f"vectors of {queries.dimension} dimensions for queries cannot be compared with {documents.dimension} "
                "for documents"
            )
        self.queries = queries
        self.documents = documents
        self.documents_model = documents_model
        documents.module.requires_grad_(False)
        documents.module.eval()

    @property
    def module(self) -> torch.nn.Module:
        """The query tower's transformer, which is all that is trained."""
        return self.queries.module

    @property
    def fingerprint(self) -> str:
        """Identifies the weights of the query tower that were loaded."""
        return self.queries.fingerprint

    @property
    def max_length(self) -> int:
        """Tokens per text."""
        return self.queries.max_length

    @property
    def device(self) -> torch.device:
        """Where the query tower is now."""
        return self.queries.device

    def encode_queries(self, texts: Sequence[str], progress: bool = False) -> np.ndarray:
        """Vectors of queries without gradient: (N, D) float32."""
        return self.queries.encode(texts, progress)

    def encode_documents(self, texts: Sequence[str], progress: bool = False) -> np.ndarray:
        """Vectors of documents, which never change: (N, D) float32."""
        return self.documents.encode(texts, progress)

    def embed_queries(self, texts: Sequence[str]) -> torch.Tensor:
        """Vectors of queries with gradient: (N, D), in single precision or better."""
        return self.queries.embed(texts)

    def train_mode(self, dropout: bool = False) -> None:
        """Put the query tower into training mode, as :meth:`ropg.retrievers.encoder.Encoder.train_mode`."""
        self.queries.train_mode(dropout)

    def save(self, folder: str | Path) -> None:
        """Write the query tower as :meth:`ropg.retrievers.encoder.Encoder.save`, and which the document tower is.

        :func:`ropg.retrievers.encoder.load_encoder` then gives both. Other libraries load the query tower.
        """
        self.queries.save(
            folder, documents=files.DocumentTower(self.documents_model, self.documents.fingerprint)
        )


def freeze_documents(encoder: Encoder, model: str) -> TwoTowerEncoder:
    """Both towers from one encoder: itself for queries, and a frozen copy for documents.

    ``model`` is its name. The copy costs the memory of the weights once more.
    """
    module: Any = copy.deepcopy(encoder.module)
    documents = Encoder(
        module,
        encoder.tokenizer,
        max_length=encoder.max_length,
        pooling=encoder.pooling,
        batch_tokens=encoder.batch_tokens,
        fingerprint=encoder.fingerprint,
    )
    return TwoTowerEncoder(encoder, documents, files.lasting_name(model))


def load_documents(
    folder: Path, queries: Encoder, tower: files.DocumentTower, **options: Any
) -> TwoTowerEncoder:
    """The two towers of a saved query tower; ``options`` are those of ``load_encoder``.

    Raises FileNotFoundError where the document tower is not there any more, ValueError where its weights are others.
    """
    from ropg.retrievers.encoder import load_encoder

    where = f"{folder / files.DOCUMENTS}: the queries were trained for the document vectors of {tower.model}"
    remedy = "put that model back, or train again"
    try:
        documents = load_encoder(tower.model, **options)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{where}, which cannot be loaded; {remedy}. ({error})") from error
    if not isinstance(documents, Encoder) or documents.fingerprint != tower.fingerprint:
        raise ValueError(f"{where}, whose weights have changed since; {remedy}")
    return TwoTowerEncoder(queries, documents, tower.model)
