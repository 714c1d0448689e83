"""Document and Example: the two types that everything passes around.

A user u asks x and wants y; the user's profile P_u holds documents. In the paper's notation an
:class:`Example` is (u, x, y, P_u) and a :class:`Document` is one d in P_u.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Provenance = Literal["own", "neighbor"]


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a profile.

    Ids and scores are strings whatever the file held; ``date`` is the string of the file. ``fields``
    keeps what a file holds beyond the named attributes. ``provenance`` tells the user's own documents
    from those of neighbours in a user-item graph; ``author`` and ``item`` are set there.

    >>> Document("d1", "a quiet hotel", title="Stay").text
    'a quiet hotel'
    """

    id: str
    text: str
    title: str = ""
    score: str | None = None
    date: str | None = None
    tag: str | None = None
    provenance: str = "own"
    author: str | None = None
    item: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


class LazyDocuments(Sequence[Document]):
    """A profile whose documents are built when they are looked at; subclasses say how.

    It equals any sequence of the same documents, and travels to another process as its documents, without what it
    builds them from.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[tuple[Document, ...]], tuple[tuple[Document, ...]]]:
        return tuple, (tuple(self),)


@dataclass(frozen=True, slots=True)
class Example:
    """One request of one user: input x, gold output y (``None`` where there is none) and profile P_u.

    ``user`` equals ``id`` where the file names no user. ``meta["date"]`` is the date of the query.
    Document ids are unique within a profile. ``profile`` may be lazy: only length, index and
    iteration are used.

    >>> Example("q1", "u1", "Generate a headline ...", "Sleepy cats", ()).target
    'Sleepy cats'
    """

    id: str
    user: str
    input: str
    target: str | None
    profile: Sequence[Document]
    meta: Mapping[str, Any] = field(default_factory=dict)
