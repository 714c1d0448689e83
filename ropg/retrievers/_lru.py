"""A mapping that forgets what was used longest ago once it has grown over its capacity."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class LRU(Generic[V]):
    """Keep values up to a total cost of ``capacity``, the most recently used ones.

    The newest value is kept whatever it costs, so that a caller may always read back what it just put.

    >>> cache = LRU(capacity=2)
    >>> cache.put("a", 1), cache.put("b", 2), cache.get("a"), cache.put("c", 3)
    (None, None, 1, None)
    >>> cache.get("b"), cache.get("a"), len(cache)
    (None, 1, 2)
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._cost = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> V | None:
        """Return the value of ``key`` and count it as used, or None where it is not kept."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: Hashable, value: V, cost: int = 1) -> None:
        """Keep ``value``, and forget the least recently used values that no longer fit."""
        if key in self._entries:
            self._cost -= self._entries.pop(key)[1]
        self._entries[key] = (value, cost)
        self._cost += cost
        while self._cost > self.capacity and len(self._entries) > 1:
            self._cost -= self._entries.popitem(last=False)[1][1]
