"""Reading prompts into a cache in passes of like length, each on from a beginning that was read before.

Legend: n texts, h heads, d their size, P the width of the beginnings, S that of the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ropg.batching import slices

if TYPE_CHECKING:
    from torch import Tensor

#: What a pass costs besides its tokens, in tokens: on a CPU mostly reading the weights, on a GPU starting kernels.
OVERHEAD = {"cpu": 48}
OTHERS = 4096


def overhead(device: str) -> int:
    """What a pass over a model on ``device`` costs besides its tokens, in tokens."""
    return OVERHEAD.get(device.split(":")[0], OTHERS)


@dataclass
class Read:
    """Texts that a model has read: a cache of n rows, padded on the left, and its mask (n, width)."""

    cache: Any
    mask: Tensor


def read_texts(
    forward: Callable[..., Any],
    pad: Callable[[Sequence[list[int]]], dict[str, Tensor]],
    texts: Sequence[list[int]],
    device: str,
    before: Read | None = None,
    row_of: Sequence[int] = (),
) -> Read:
    """Read texts (some may be empty) on from ``before``, whose row ``row_of[i]`` text i continues.

    ``forward(input_ids, attention_mask, position_ids, cache)`` fills the cache; ``pad`` gives ids and mask, padded on
    the left. Padding costs time only within a pass; the texts are put side by side afterwards.
    """
    import torch
    from transformers import DynamicCache

    width = max(map(len, texts))
    count, old = len(texts), before.mask.shape[1] if before else 0
    mask = torch.zeros(count, old + width, dtype=torch.long, device=device)
    keys: list[Tensor] = []  # of each layer, keys and values by turns: (n, h, P + S, d)
    passes = slices(list(map(len, texts)), overhead(device))
    for part in passes if width or old else []:
        long = max(len(texts[i]) for i in part)
        rows = torch.tensor(part, device=device)
        cache: Any = DynamicCache()
        seen = torch.zeros(len(part), 0, dtype=torch.long, device=device)
        if before is not None and old:
            which = torch.tensor([row_of[i] for i in part], device=device)
            for number, layer in enumerate(before.cache.layers):
                cache.update(layer.keys[which], layer.values[which], number)
            seen = before.mask[which]
        if long:
            read = pad([texts[i] for i in part])
            whole = torch.cat([seen, read["attention_mask"]], dim=1)  # (part, P + long)
            positions = (whole.cumsum(dim=1) - 1).clamp(min=0)[:, seen.shape[1] :]
            forward(read["input_ids"], whole, positions, cache)
            mask[rows, old + width - long :] = read["attention_mask"]
        mask[rows, :old] = seen
        if len(passes) == 1:
            cache.batch_select_indices(rows.argsort())  # back into the order of the texts
            return Read(cache, mask)
        states = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
        keys = keys or [s.new_zeros(count, s.shape[1], old + width, s.shape[3]) for s in states]
        for target, state in zip(keys, states, strict=True):
            target[rows, :, :old] = state[:, :, :old]
            target[rows, :, old + width - long :] = state[:, :, old:]
    cache = DynamicCache()
    for number in range(0, len(keys), 2):
        cache.update(keys[number], keys[number + 1], number // 2)
    return Read(cache, mask)
