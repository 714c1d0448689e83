"""Caches in one piece with room to grow: reading and decoding write into it instead of copying what is there.

transformers' growing cache joins old and new keys at every pass, which moves the whole cache for one token.
Legend: n rows, h heads, W columns, T tokens so far, d the size of a head.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

#: Columns by which a full cache grows.
CHUNK = 32


@dataclass
class Room:
    """Keys and values (n, h, W, d) of every layer of a model, zero where nothing has been written."""

    rows: int
    width: int
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def layer(self, number: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Those of one layer, for states like these; layers are asked for in their order at first."""
        if number == len(self.layers):
            self.layers.append((self._empty(keys), self._empty(values)))
        return self.layers[number]

    def _empty(self, states: Tensor) -> Tensor:
        return states.new_zeros(self.rows, states.shape[1], self.width, states.shape[3])

    def part(self, rows: slice, begin: int) -> Any:
        """An empty cache that writes into these rows from column ``begin`` on."""
        from transformers.cache_utils import Cache

        numbers = count()
        layer: Any = lambda: roomy_layer()(self, next(numbers), rows, begin)  # noqa: E731
        return Cache(layer_class_to_replicate=layer)

    def all(self, width: int) -> Any:
        """A cache of all rows whose first ``width`` columns have been written or left zero."""
        from transformers import DynamicCache

        if not self.layers:
            return DynamicCache()
        found = self.part(slice(None), 0)
        for number, (keys, values) in enumerate(self.layers):
            found.update(keys[:, :, :0], values[:, :, :0], number)
            found.layers[number].begin_with(width)
        return found


@cache
def roomy_layer() -> Any:
    """The class, which needs transformers."""
    from transformers.cache_utils import DynamicLayer

    class RoomyLayer(DynamicLayer):
        """``keys`` and ``values`` are views, (n, h, T, d), of larger tensors whose rest is written to."""

        def __init__(self, room: Room, number: int, rows: slice, begin: int) -> None:
            super().__init__()
            self.room, self.number, self.rows, self.begin = room, number, rows, begin
            self.end = begin
            self.whole: tuple[Tensor, Tensor] | None = None  # of these rows

        def update(
            self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
        ) -> tuple[Tensor, Tensor]:
            """Append (n, h, t, d); what is there moves only where there is no more room."""
            if self.whole is None:
                keys, values = self.room.layer(self.number, key_states, value_states)
                self.whole = keys[self.rows], values[self.rows]
                self.device, self.is_initialized = keys.device, True
            end = self.end + key_states.shape[-2]
            if end > self.whole[0].shape[-2]:
                self._move(slice(None), max(end - self.begin, self.end - self.begin + CHUNK))
                end = self.end + key_states.shape[-2]
            for whole, states in zip(self.whole, (key_states, value_states), strict=True):
                whole[:, :, self.end : end] = states
            self.end = end
            return self._show()

        def begin_with(self, tokens: int) -> None:
            """Take the first ``tokens`` columns as written."""
            self.end = self.begin + tokens
            self._show()

        def batch_select_indices(self, indices: Tensor) -> None:
            """Only keep these rows, in this order."""
            if self.whole is None:
                return
            rows = indices.tolist()
            if self.device.type != "cpu" or any(a >= b for a, b in pairwise(rows)):
                self._move(indices, self.whole[0].shape[-2] - self.begin)
                return
            for whole in self.whole:  # on a CPU fresh memory costs more than moving rows up within the old
                for new, old in enumerate(rows):
                    if new != old:
                        whole[new, :, self.begin : self.end] = whole[old, :, self.begin : self.end]
            self.whole = self.whole[0][: len(rows)], self.whole[1][: len(rows)]
            self._show()

        def batch_repeat_interleave(self, repeats: int) -> None:
            """Every row ``repeats`` times."""
            super().batch_repeat_interleave(repeats)
            self._adopt()

        def reorder_cache(self, beam_idx: Any) -> None:
            """Rows as a beam search has chosen them."""
            super().reorder_cache(beam_idx)
            self._adopt()

        def crop(self, tokens_to_remove: int) -> None:
            """Take out the last tokens."""
            super().crop(tokens_to_remove)
            self._adopt()

        def _show(self) -> tuple[Tensor, Tensor]:
            assert self.whole is not None
            keys, values = (whole[:, :, self.begin : self.end] for whole in self.whole)
            self.keys, self.values = keys, values
            return keys, values

        def _move(self, rows: slice | Tensor, width: int) -> None:
            """Rows of what is there into new tensors of so many columns."""
            assert self.whole is not None
            moved = []
            for whole in self.whole:
                states = whole[:, :, self.begin : self.end][rows]
                larger = states.new_zeros(*states.shape[:2], width, states.shape[3])
                larger[:, :, : states.shape[2]] = states
                moved.append(larger)
            self.begin, self.end = 0, self.end - self.begin
            self.whole = moved[0], moved[1]
            self._show()

        def _adopt(self) -> None:
            """Go on from ``keys`` and ``values`` as the base class has left them."""
            if self.keys is not None and self.values is not None:
                self.whole, self.begin, self.end = (self.keys, self.values), 0, self.keys.shape[-2]

    return RoomyLayer
