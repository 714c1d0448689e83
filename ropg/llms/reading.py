"""Reading prompts into a cache in passes of like length, each on from a beginning that was read before.

Legend: n texts, h heads, d their size, P the width of the beginnings, S that of the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ropg.batching import overhead, slices
from ropg.llms.room import Room

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Read:
    """Texts that a model has read: a cache of n rows, padded on the left, and its mask (n, width).

    Row r holds text ``order[r]``: texts of like length are side by side.
    """

    cache: Any
    mask: Tensor
    order: list[int]


def read_texts(
    forward: Callable[..., Any],
    pad: Callable[[Sequence[list[int]]], dict[str, Tensor]],
    texts: Sequence[list[int]],
    device: str,
    before: Read | None = None,
    follows: Sequence[int] = (),
    room: int = 0,
) -> Read:
    """Read texts (some may be empty) on from ``before``, whose text ``follows[i]`` text i continues.

    ``forward(input_ids, attention_mask, position_ids, cache)`` fills the cache; ``pad`` gives ids and mask, padded on
    the left. Padding costs time only within a pass: each writes into its rows of one cache, which has room for that
    many tokens more.
    """
    import torch

    width = max(map(len, texts))
    old = before.mask.shape[1] if before else 0
    passes = slices(list(map(len, texts)), overhead(device))
    order = [i for part in passes for i in part]
    whole = Room(len(texts), old + width + room)
    mask = torch.zeros(len(texts), old + width, dtype=torch.long, device=device)
    row_of = {text: row for row, text in enumerate(before.order)} if before else {}
    done = 0
    for part in passes:
        long = max(len(texts[i]) for i in part)
        rows, begin = slice(done, done + len(part)), width - long
        done += len(part)
        cache = whole.part(rows, begin)
        if before is not None and old:
            which = torch.tensor([row_of[follows[i]] for i in part], device=device)
            for number, layer in enumerate(before.cache.layers):
                cache.update(layer.keys[which], layer.values[which], number)
            mask[rows, begin : begin + old] = before.mask[which]
        if long:
            read = pad([texts[i] for i in part])
            mask[rows, begin + old :] = read["attention_mask"]
            seen = mask[rows, begin:]  # (part, P + long)
            positions = (seen.cumsum(dim=1) - 1).clamp(min=0)[:, old:]
            forward(read["input_ids"], seen, positions, cache)
    return Read(whole.all(old + width), mask, order)
