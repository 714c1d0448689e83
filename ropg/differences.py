"""Where two nested values differ: what a message about other settings, data or weights names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def differences(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted name, old value, new value) for every leaf of two nested mappings that differs.

    >>> list(differences({"a": {"b": 1, "c": 0}}, {"a": {"b": 2, "c": 0}, "d": 3}))
    [('a.b', 1, 2), ('d', None, 3)]
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    elif old != new:
        yield name, old, new
