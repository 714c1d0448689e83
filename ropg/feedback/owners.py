"""Whose prompts the rows of a store answer: pairs of a key and a digest of a user's id.

They let all that concerns one user be found and deleted. A store needs no user's name for that, so it keeps
the SHA-256 of the id only; whoever knows an id can look it up, nobody can read ids off the store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from ropg.feedback.keys import text_digest

Owners = Mapping[str, Collection[str]]
"""Key -> the users whose prompt it answers, by id."""


@lru_cache(maxsize=1 << 16)
def owner_digest(user: str) -> str:
    """What stands for a user in a store: 64 hexadecimal digits.

    >>> owner_digest("u1") == owner_digest("u1") != owner_digest("u2")
    True
    """
    return text_digest("user", user)


def owners_of(keys: Iterable[str], users: Sequence[str] | None) -> dict[str, set[str]]:
    """Key -> all users that asked for it; empty where nobody is named.

    Raises ValueError where there is not one user for each key.

    >>> owners_of(["k", "l", "k"], ["a", "a", "a"])
    {'k': {'a'}, 'l': {'a'}}
    >>> owners_of(["k"], None)
    {}
    """
    if users is None:
        return {}
    found: dict[str, set[str]] = {}
    for key, user in zip(keys, users, strict=True):
        found.setdefault(key, set()).add(user)
    return found


def pairs_of(owners: Owners) -> list[tuple[str, str]]:
    """(key, digest) of every key and user."""
    return [(key, owner_digest(user)) for key, users in owners.items() for user in users]


def record(connection: sqlite3.Connection, pairs: Iterable[tuple[str, str]]) -> None:
    """Add (key, digest) pairs inside the caller's transaction; those that are there stay."""
    pairs = list(pairs)
    connection.executemany(
        "INSERT INTO owners (digest) VALUES (?) ON CONFLICT (digest) DO NOTHING",
        [(digest,) for digest in dict.fromkeys(digest for _, digest in pairs)],
    )
    connection.executemany(
        "INSERT INTO owned (key, owner) SELECT ?, id FROM owners WHERE digest = ? "
        "ON CONFLICT (key, owner) DO NOTHING",
        pairs,
    )
