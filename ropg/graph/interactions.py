"""The user-item graph of PGraphRAG (section 3): users and items are nodes, each edge is a review.

A review is a document, written by one user about one item; a user may review an item several times. The
graph is arrays: numpy for the edges, Arrow for names and texts. A few million edges take what their texts
take, and an opened graph is memory-mapped, so that processes share it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ropg.examples import Document
from ropg.graph.building import Csr, Review, columns_of, index_edges, number_names
from ropg.graph.columns import Names, Texts, digest_column

#: Documents that are kept once built: profiles of one item share them.
_DOCUMENTS = 32_768
_MOST_EDGES = 2**31 - 1


class UnknownUser(LookupError):
    """A user who is not in the graph; the message names the nearest ones."""


class UnknownItem(LookupError):
    """An item that is not in the graph; the message names the nearest ones."""


class InteractionGraph:
    """Reviews as edges between users and items. Made by :meth:`from_reviews`, :meth:`open`, or a reader
    (:mod:`ropg.graph.reading`); it never changes, :meth:`add` returns another one.

    Attributes
    ----------
    edge_user, edge_item: (E,) int32, the two ends of each edge, in the order of reading.
    rating: (E,) float64, NaN where a review has none.
    users, items: the names; their numbers follow the order of first appearance.
    notes: what the reader of the file had to say, JSON values.

    >>> graph = InteractionGraph.from_reviews([Review("ann", "pan", "Fries well"), Review("bob", "pan", "Heavy")])
    >>> graph, graph.item_edges(graph.item_number("pan")).tolist()
    (InteractionGraph(2 users, 1 items, 2 edges), [0, 1])
    >>> graph.document(1).id, graph.document(1).provenance
    ('bob#0', 'neighbor')
    """

    def __init__(
        self,
        edge_user: np.ndarray,
        edge_item: np.ndarray,
        rating: np.ndarray,
        users: Names,
        items: Names,
        texts: Texts,
        by_user: Csr | None = None,
        by_item: Csr | None = None,
        fingerprint: str | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        if len(edge_user) > _MOST_EDGES:
            raise ValueError(f"a graph holds at most {_MOST_EDGES:,} edges, these are {len(edge_user):,}")
        self.edge_user, self.edge_item, self.rating = edge_user, edge_item, rating
        self.users, self.items, self.texts = users, items, texts
        self.by_user = index_edges(edge_user, len(users)) if by_user is None else by_user
        self.by_item = index_edges(edge_item, len(items)) if by_item is None else by_item
        self.notes = dict(notes or {})
        for array in (edge_user, edge_item, rating, *self.by_user, *self.by_item):
            array.flags.writeable = False
        if fingerprint is not None:
            self.__dict__["fingerprint"] = fingerprint
        self._documents = lru_cache(_DOCUMENTS)(self._build)

    @classmethod
    def from_reviews(
        cls, reviews: Iterable[Review], notes: Mapping[str, Any] | None = None
    ) -> InteractionGraph:
        """Build a graph in one pass over ``reviews``, which may be a generator.

        Raises ValueError for a review whose parts have other types than :class:`Review` says.
        """
        columns = columns_of(reviews)
        users, edge_user = number_names(None, columns.users)
        items, edge_item = number_names(None, columns.items)
        return cls(
            edge_user,
            edge_item,
            columns.ratings,
            users,
            items,
            Texts([]).extended(columns.texts),
            notes=notes,
        )

    def add(self, reviews: Iterable[Review]) -> InteractionGraph:
        """A graph with further edges, new users and new items; this one stays as it is.

        It equals the graph built from all reviews at once: numbers of nodes and edges stay, and so do the
        ids of documents. Texts are shared. The edges are sorted anew, so add many at a time.
        """
        columns = columns_of(reviews)
        users, more_users = number_names(self.users, columns.users)
        items, more_items = number_names(self.items, columns.items)
        return InteractionGraph(
            np.concatenate([self.edge_user, more_users]),
            np.concatenate([self.edge_item, more_items]),
            np.concatenate([self.rating, columns.ratings]),
            users,
            items,
            self.texts.extended(columns.texts),
            notes={name: note for name, note in self.notes.items() if name != "reading"},
        )

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.items)

    @property
    def n_edges(self) -> int:
        """Number of reviews."""
        return len(self.edge_user)

    def __len__(self) -> int:
        return self.n_edges

    def __repr__(self) -> str:
        return f"InteractionGraph({self.n_users:,} users, {self.n_items:,} items, {self.n_edges:,} edges)"

    def user_name(self, user: int) -> str:
        """The name of a user by number."""
        return self.users[user]

    def item_name(self, item: int) -> str:
        """The name of an item by number."""
        return self.items[item]

    def user_number(self, name: str) -> int:
        """The number of a user; UnknownUser with the nearest names where there is none of this name."""
        number = self.users.find(str(name))
        if number is None:
            raise UnknownUser(_unknown("user", name, self.users))
        return number

    def item_number(self, name: str) -> int:
        """The number of an item; UnknownItem with the nearest names where there is none of this name."""
        number = self.items.find(str(name))
        if number is None:
            raise UnknownItem(_unknown("item", name, self.items))
        return number

    def user_edges(self, user: int) -> np.ndarray:
        """The reviews of a user, ascending: (degree,) int32."""
        return self.by_user.of(user)

    def item_edges(self, item: int) -> np.ndarray:
        """The reviews of an item, ascending: (degree,) int32."""
        return self.by_item.of(item)

    @property
    def user_degrees(self) -> np.ndarray:
        """Number of reviews of each user: (n_users,) int64."""
        return np.diff(self.by_user.offsets)

    def document_id(self, edge: int) -> str:
        """``<user>#<running number of the review among the user's>``, from 0."""
        user = int(self.edge_user[edge])
        return f"{self.users[user]}#{self.by_user.of(user).searchsorted(edge)}"

    def document(self, edge: int, provenance: str = "neighbor") -> Document:
        """A review as a document: author, item, the rating as score. ``provenance``: own or neighbor.

        The latest ones are kept, so profiles that share a review share the object.
        """
        edge = int(edge)
        if not 0 <= edge < self.n_edges:
            raise IndexError(f"edge {edge}: the graph has edges 0 to {self.n_edges - 1}")
        return self._documents(edge, provenance)

    def save(self, folder: str | Path) -> Path:
        """Write the graph into a folder; a process that is killed meanwhile leaves the earlier graph, or none."""
        from ropg.graph.files import save_graph

        return save_graph(self, Path(folder))

    @classmethod
    def open(cls, folder: str | Path, verify: bool = False) -> InteractionGraph:
        """Open a saved graph as memory-mapped arrays.

        Sizes and shapes are checked, with ``verify`` also the whole content (it is read once).
        Raises DamagedGraph with the name of the file and the remedy.
        """
        from ropg.graph.files import open_graph

        return open_graph(Path(folder), verify)

    @cached_property
    def fingerprint(self) -> str:
        """Identify the graph by its content (64 hex digits), in memory or on disk."""
        return content_digest(self)

    def _build(self, edge: int, provenance: str) -> Document:
        text, title, date, extra = self.texts.row(edge)
        user = self.edge_user[edge]
        author = self.users[user]
        return Document(
            f"{author}#{self.by_user.of(user).searchsorted(edge)}",
            text,
            title,
            rating_text(float(self.rating[edge])),
            date,
            provenance=provenance,
            author=author,
            item=self.items[self.edge_item[edge]],
            **({"fields": json.loads(extra)} if extra else {}),
        )


def rating_text(rating: float) -> str | None:
    """A rating as a document's score.

    >>> rating_text(5.0), rating_text(4.5), rating_text(float("nan"))
    ('5', '4.5', None)
    """
    if math.isnan(rating):
        return None
    return str(int(rating)) if rating.is_integer() else repr(rating)


def content_digest(graph: InteractionGraph) -> str:
    """SHA-256 of names, edges, ratings and texts, whatever the batches they are stored in."""
    digest = hashlib.sha256(b"ropg interaction graph")
    for names in (graph.users, graph.items):
        digest_column(digest, [names.values])
    for array in (graph.edge_user, graph.edge_item, graph.rating):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    for column in range(4):
        digest_column(digest, [batch.column(column) for batch in graph.texts.batches])
    return digest.hexdigest()


def _unknown(kind: str, name: str, names: Names) -> str:
    near = names.nearest(name)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"no {kind} {name!r} among the {len(names):,} {kind}s of the graph{hint}"
