"""The bi-encoder: one transformer for queries and documents, pooled as Contriever pools.

Legend: N texts, D dimensions, T tokens, B texts of one batch.

E(text) is the mean of the last hidden states over the text's own tokens (special ones counted, padding
not), and it is not normalised. torch is imported where it is used, so that importing this is quick.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ropg.batching import plan_passes
from ropg.hardware import check_attention
from ropg.models import default_device, fingerprint, quiet_transformers, resolve_model
from ropg.recompute import Recompute, check_recompute, recomputed
from ropg.retrievers import _encoder_files as files
from ropg.retrievers._progress import progress_bar
from ropg.retrievers.adapters import merged
from ropg.text import well_formed

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from ropg.retrievers.two_towers import TwoTowerEncoder

logger = logging.getLogger(__name__)

Pooling = Literal["mean", "cls"]


class Encoder:
    """A transformer with its tokenizer and pooling; built by :func:`load_encoder`.

    Attributes
    ----------
    module: the transformer, without a pooler; training may wrap it (DistributedDataParallel).
    tokenizer: its tokenizer.
    max_length: tokens per text, special ones counted; longer texts are cut by the tokenizer.
    dimension: D.
    pooling: ``mean`` over the mask, or ``cls``, the first token.
    batch_tokens: padded tokens of one batch; a longer text has a batch of its own.
    recompute: whether gradients keep to the memory of one batch; see :mod:`ropg.recompute`.
    compile: whether passes with gradients go through torch.compile; it changes rounding only.
    fingerprint: identifies the weights that were loaded, wherever they lie; training does not change it.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_length: int = 512,
        pooling: Pooling = "mean",
        batch_tokens: int = 16384,
        recompute: Recompute = "auto",
        gradient_checkpointing: bool = False,
        compile: bool = False,
        fingerprint: str = "",
    ) -> None:
        check_recompute(recompute)
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling {pooling!r} is unknown; choose one of {', '.join(get_args(Pooling))}")
        limit = _position_limit(module)
        if limit is not None and max_length > limit:
            logger.info(
                "max_length %d is over the encoder's %d positions; using %d", max_length, limit, limit
            )
            max_length = limit
        if max_length <= tokenizer.num_special_tokens_to_add():
            raise ValueError(f"max_length {max_length} leaves no room beside the tokenizer's special tokens")
        if batch_tokens < 1:
            raise ValueError(f"batch_tokens must be positive, not {batch_tokens}")
        self.module = module
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.pooling: Pooling = pooling
        self.batch_tokens = batch_tokens
        self.recompute: Recompute = recompute
        self.fingerprint = fingerprint
        self.dimension = int(getattr(module, "config").hidden_size)  # noqa: B009 - nn.Module hides its type
        self._dropouts = dropouts_of(module)
        self._set_dropout(False)
        if gradient_checkpointing:
            checkpoint_layers(module)
        self.compile = compile
        self._compiled: Any = None

    @property
    def device(self) -> torch.device:
        """Where the weights are now."""
        return next(self.module.parameters()).device

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, special tokens included, cut to ``max_length``."""
        if not texts:
            return []
        encoded = self.tokenizer(
            [well_formed(text) for text in texts],
            truncation=True,
            max_length=self.max_length,
            padding=False,
            return_attention_mask=False,
        )
        return [list(ids) for ids in encoded["input_ids"]]

    def embed(self, texts: Sequence[str]) -> torch.Tensor:
        """Embed texts with gradients: (N, D), in single precision or better.

        Every distinct text is computed once, in batches of similar length whose padding is trimmed, so
        the vectors of equal texts are equal and their gradients add up.
        """
        return self._embed(texts, progress=False)

    def encode(self, texts: Sequence[str], progress: bool = False) -> np.ndarray:
        """Embed texts without gradients: (N, D) float32, the numbers of :meth:`embed`, never with dropout.

        ``progress`` shows a bar with throughput where the output is a terminal and it takes long.
        """
        import torch

        with torch.no_grad(), self._evaluating():
            return self._embed(texts, progress).float().cpu().numpy()

    def train_mode(self, dropout: bool = False) -> None:
        """Put the module into training mode, by default without dropout: then nothing changes.

        ``dropout=True`` brings back the probabilities that the model came with.
        """
        self._set_dropout(dropout)
        self.module.train()

    def save(self, folder: str | Path, *, documents: files.DocumentTower | None = None) -> None:
        """Write weights (safetensors), configuration and tokenizer, replacing ``folder`` in one go.

        AutoModel.from_pretrained and SentenceTransformer load the folder; the latter pools and cuts as
        training did. Adapters are written as part of the weights, and stay apart here. ``documents``: the encoder
        of the documents where this one is for queries only. In a distributed run only the main process may call
        this. Raises FileExistsError where the folder holds something other than a model.
        """
        with files.replaced_folder(Path(folder)) as new, quiet_transformers():
            merged(self._bare_module()).save_pretrained(new)
            self.tokenizer.save_pretrained(new)
            files.write_sentence_transformer_files(
                new, dimension=self.dimension, max_length=self.max_length, pooling=self.pooling
            )
            if documents is not None:
                files.write_document_tower(new, documents)

    def _embed(self, texts: Sequence[str], progress: bool) -> torch.Tensor:
        import torch

        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        if not rows:
            return torch.zeros(0, self.dimension, device=self.device)
        tokens = self.tokenize(list(rows))
        batches = plan_passes([len(ids) for ids in tokens], self.batch_tokens, str(self.device))
        bar = progress_bar(total=len(tokens), title="encoding", unit="text", show=progress)
        forward = recomputed(self._forward, self.recompute, len(batches), self.device)
        parts = []
        with bar:
            for batch in batches:
                parts.append(forward([tokens[row] for row in batch]))  # (B, D)
                bar.update(len(batch))
        vectors = torch.cat(parts)  # (distinct, D), in the order of the batches
        place = np.empty(len(rows), dtype=np.int64)
        place[np.concatenate(batches)] = np.arange(len(rows))
        order = torch.from_numpy(place[[rows[text] for text in texts]])
        return vectors[order.to(vectors.device)]  # (N, D)

    def _forward(self, tokens: list[list[int]]) -> torch.Tensor:
        """Pooled vectors of one batch: (B, D)."""
        import torch

        width = max(1, max(len(ids) for ids in tokens))  # "" may have no token at all
        pad = self.tokenizer.pad_token_id or 0
        ids = torch.tensor([own + [pad] * (width - len(own)) for own in tokens])  # (B, T)
        lengths = torch.tensor([len(own) for own in tokens])
        mask = torch.arange(width)[None, :] < lengths[:, None]  # (B, T)
        ids, mask = ids.to(self.device), mask.to(self.device)
        # token types are left to the model: not every tokenizer has them, and here all would be 0
        hidden = self._call(input_ids=ids, attention_mask=mask.long()).last_hidden_state  # (B, T, D)
        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))  # sums need the precision
        if self.pooling == "cls":
            return hidden[:, 0]
        hidden = hidden.masked_fill(~mask[:, :, None], 0.0)
        return hidden.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)

    def _call(self, **inputs: torch.Tensor) -> Any:
        """The module's output; compiled where gradients are wanted and ``compile`` is on.

        The module itself stays what it is, so that its parameters keep their names.
        """
        import torch

        if not (self.compile and torch.is_grad_enabled()):
            return self.module(**inputs)
        if self._compiled is None:
            self._compiled = torch.compile(self.module, dynamic=True)  # lengths differ from batch to batch
        return self._compiled(**inputs)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        training = self.module.training
        self.module.eval()
        try:
            yield
        finally:
            self.module.train(training)

    def _set_dropout(self, on: bool) -> None:
        for module, attribute, probability in self._dropouts:
            setattr(module, attribute, probability if on else 0.0)

    def _bare_module(self) -> Any:
        from torch.nn.parallel import DistributedDataParallel

        return self.module.module if isinstance(self.module, DistributedDataParallel) else self.module


def load_encoder(
    model: str,
    *,
    max_length: int = 512,
    pooling: Pooling = "mean",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    batch_tokens: int = 16384,
    recompute: Recompute = "auto",
    attention: str = "auto",
    gradient_checkpointing: bool = False,
    compile: bool = False,
) -> Encoder | TwoTowerEncoder:
    """Load any encoder that AutoModel knows; both towers where a run trained that of the queries alone.

    Parameters
    ----------
    model: a hub name (``facebook/contriever``), a folder, or ``package:some_package/folder``.
    max_length: tokens per text, at most what the model has positions for.
    pooling: ``mean`` over the mask, or ``cls``.
    device: by default this process's GPU where there is one.
    dtype: of the weights, by default float32 whatever the file holds.
    batch_tokens: padded tokens of one batch.
    recompute: ``auto``, ``always`` or ``never``; see :mod:`ropg.recompute`.
    attention: ``auto`` (transformers' own choice), ``sdpa`` or ``eager``.
    gradient_checkpointing: keep a training pass to the activations of one layer, for a second forward pass.
    compile: train through torch.compile.

    Raises
    ------
    FileNotFoundError: nothing of that name can be loaded; the message says what to do.
    ValueError: an encoder-decoder, weights that lack parameters, a wrong option, or a document tower that has changed.
    """
    import torch

    if attention == "flash_attention_2":
        raise ValueError(
            "an encoder's weights are float32, which flash_attention_2 does not take; leave attention=auto: under "
            "bf16, PyTorch's own attention (sdpa) uses kernels of that kind"
        )
    check_attention(attention, device=default_device, dtype="float32")
    found = Path(resolve_model(model))
    tower, weights = None, model
    if found.is_dir():
        tower = files.read_document_tower(found)
        files.warn_of_other_pooling(model, found, pooling)
        weights = str(files.transformer_folder(found))
    module, tokenizer = files.load_transformer(model, weights, local=found.is_dir(), attention=attention)
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise ValueError("dtype must name a torch type, such as float32 or bfloat16")
    module.to(device=device or default_device(), dtype=dtype or torch.float32)
    revision = getattr(module.config, "_commit_hash", None)
    encoder = Encoder(
        module,
        tokenizer,
        max_length=max_length,
        pooling=pooling,
        batch_tokens=batch_tokens,
        recompute=recompute,
        gradient_checkpointing=gradient_checkpointing,
        compile=compile,
        fingerprint=fingerprint(weights) or (f"{model}@{revision}" if revision else model),
    )
    if tower is None:
        return encoder
    from ropg.retrievers.two_towers import load_documents

    return load_documents(
        found,
        encoder,
        tower,
        max_length=max_length,
        pooling=pooling,
        device=device,
        dtype=dtype,
        batch_tokens=batch_tokens,
        attention=attention,
    )


def _position_limit(module: torch.nn.Module) -> int | None:
    """How many tokens the model has positions for, None where any number works."""
    from torch import nn

    for name, child in module.named_modules():
        if name.endswith("position_embeddings") and isinstance(child, nn.Embedding):
            # RoBERTa and its relatives count positions from the padding index + 1
            return child.num_embeddings - (0 if child.padding_idx is None else child.padding_idx + 1)
    limit = getattr(getattr(module, "config", None), "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


def checkpoint_layers(module: Any) -> None:
    """Have every layer of a transformer computed again in the backward pass. Raises ValueError where it cannot."""
    if not getattr(module, "supports_gradient_checkpointing", False):
        raise ValueError(
            f"{type(module).__name__} has no gradient checkpointing; leave gradient_checkpointing=false, and keep to "
            "memory by recompute=always and a smaller batch_tokens"
        )
    module.gradient_checkpointing_enable({"use_reentrant": False})


def dropouts_of(module: torch.nn.Module) -> list[tuple[torch.nn.Module, str, float]]:
    """Every dropout probability: (its module, the attribute that holds it, its value)."""
    from torch.nn.modules.dropout import _DropoutNd

    found: list[tuple[torch.nn.Module, str, float]] = []
    for child in module.modules():
        if isinstance(child, _DropoutNd):
            found.append((child, "p", child.p))
        else:  # attention kernels take the probability as a number
            found += [(child, k, v) for k, v in vars(child).items() if "drop" in k and isinstance(v, float)]
    return found
