"""Splits of users: whole users, by a seed, the same whatever the order of the file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

SPLITS = ("train", "dev", "test")
DEFAULT_FRACTIONS = (0.6, 0.1, 0.3)


def check_split(split: str | None, where: str) -> None:
    """Raise ValueError for a name that is no split."""
    if split is not None and split not in SPLITS:
        raise ValueError(f"{where}: split={split!r}; known: {', '.join(SPLITS)}, or None for all")


def check_fractions(fractions: Sequence[float]) -> None:
    """Raise ValueError unless these are three numbers of at least 0 that add up to 1."""
    numbers = list(fractions) if isinstance(fractions, Sequence) else []
    good = len(numbers) == len(SPLITS) and all(isinstance(n, (int, float)) and n >= 0 for n in numbers)
    if not good or not abs(sum(numbers) - 1) <= 1e-6:
        raise ValueError(f"fractions={fractions!r}: three numbers (train, dev, test) that add up to 1")


def users_of_split(
    users: Iterable[str], split: str, fractions: Sequence[float] = DEFAULT_FRACTIONS, seed: int = 0
) -> set[str]:
    """The users of one split.

    Users are put in an order that depends on the seed and their names alone, and cut by ``fractions``
    (train, dev, test; they add up to 1).

    >>> users = [f"u{n}" for n in range(10)]
    >>> [len(users_of_split(users, split)) for split in SPLITS]
    [6, 1, 3]
    >>> users_of_split(users, "dev") == users_of_split(reversed(users), "dev")
    True
    """
    check_fractions(fractions)
    order = sorted(set(users), key=lambda user: (seeded_key(seed, user), user))
    place = SPLITS.index(split)
    start, end = (round(sum(fractions[:cut]) * len(order)) for cut in (place, place + 1))
    return set(order[start:end])


def seeded_key(seed: int, *names: str) -> str:
    """A key for sorting that looks random and depends on the seed and the names alone."""
    digest = hashlib.sha256(repr((seed, names)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
