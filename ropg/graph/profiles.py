"""Profiles from the graph: what a user wrote, and what others wrote about the same items (PGraphRAG, Eq. 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple, overload

import numpy as np

from ropg.examples import Document, LazyDocuments
from ropg.graph.building import Csr, index_edges
from ropg.graph.communities import label_propagation
from ropg.graph.interactions import InteractionGraph
from ropg.graph.leaks import PARTS, SameContent
from ropg.sources.report import did_you_mean

Mode = Literal["both", "own", "neighbors"]
Scope = Literal["target_item", "all_items"]
Community = Literal["restrict", "extend"]

_CHOICES = {
    "mode": ("both", "own", "neighbors"),
    "neighbor_scope": ("target_item", "all_items"),
    "community": ("restrict", "extend"),
}


class ProfileEdges(NamedTuple):
    """A profile as reviews by number: ``own`` and ``neighbors`` (n,) int32, ascending, and counts of what was
    left out by reason."""

    own: np.ndarray
    neighbors: np.ndarray
    left_out: dict[str, int]


class GraphProfile(LazyDocuments):
    """A profile whose documents are built when they are looked at: the user's own, then the neighbours'.

    own, neighbors: the reviews by number. left_out: how many were left out, by reason: ``user_degree``,
    ``community``, ``same_text``, ``same_title``, ``bound`` (beyond the bound on what hops and community add).
    """

    __slots__ = ("_graph", "left_out", "neighbors", "own")

    def __init__(self, graph: InteractionGraph, edges: ProfileEdges) -> None:
        self._graph = graph
        self.own, self.neighbors, self.left_out = edges

    def __len__(self) -> int:
        return len(self.own) + len(self.neighbors)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | Sequence[Document]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        if place < len(self.own):
            return self._graph.document(self.own[place], "own")
        return self._graph.document(self.neighbors[place - len(self.own)], "neighbor")

    def __iter__(self) -> Iterator[Document]:
        document = self._graph.document
        for edge in self.own.tolist():
            yield document(edge, "own")
        for edge in self.neighbors.tolist():
            yield document(edge, "neighbor")

    def __repr__(self) -> str:
        return f"GraphProfile({len(self.own)} own, {len(self.neighbors)} neighbor documents)"


class GraphProfileSource:
    """Profiles of users for items, over one graph.

    The user's reviews of the item in question, the target among them, are in no profile. Own documents are
    the user's reviews of other items; neighbour documents are reviews by others, and never marked own.

    Parameters
    ----------
    mode: ``both``, only ``own``, or only ``neighbors``.
    neighbor_scope: ``target_item``, others' reviews of that item (as the released code does it), or
        ``all_items``, of all the user's items as well (Eq. 3).
    hops: 2 adds neighbours of neighbours: what the authors of the neighbour documents wrote about other items.
    community: None; ``restrict`` keeps only neighbours from the user's community; ``extend`` adds the
        reviews by others of the community. Communities come from :func:`ropg.graph.communities.label_propagation`
        over the whole graph, once, when first needed; a user who is not in the graph belongs to the item's.
    bound: how many documents hops and community may add each; more are drawn by the seed.
    max_user_degree: reviews by users with more reviews than that (shared accounts, "Anonymous") serve no one
        as neighbours, and tie no communities. None: no limit.
    leak_filter: "text", "title" or both: neighbours whose text (title) is that of the target, but for case,
        punctuation and white space, are left out.
    among: (n_users,) bool, the users who serve as neighbours, such as those of one split; None: all.
    seed: of the draws.

    >>> from ropg.graph import Review
    >>> graph = InteractionGraph.from_reviews([
    ...     Review("ann", "pan", "Fries well"), Review("ann", "lid", "Fits"), Review("bob", "pan", "Heavy")])
    >>> profile = GraphProfileSource(graph).profile("ann", "pan")
    >>> [(document.id, document.provenance) for document in profile]
    [('ann#1', 'own'), ('bob#0', 'neighbor')]
    """

    def __init__(
        self,
        graph: InteractionGraph,
        mode: Mode = "both",
        neighbor_scope: Scope = "target_item",
        hops: int = 1,
        community: Community | None = None,
        bound: int = 64,
        max_user_degree: int | None = None,
        leak_filter: str | Sequence[str] = (),
        among: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        _check("mode", mode)
        _check("neighbor_scope", neighbor_scope)
        if community is not None:
            _check("community", community)
        if isinstance(hops, bool) or hops not in (1, 2):
            raise ValueError(f"hops={hops!r}: 1, or 2 for neighbours of neighbours")
        if not _is_count(bound):
            raise ValueError(f"bound={bound!r}: a whole number of documents, at least 1")
        check_cap(max_user_degree)
        if leak_filter is not None and not isinstance(leak_filter, Sequence):
            raise ValueError(f"leak_filter={leak_filter!r}: text, title, or a list of both")
        parts = (leak_filter,) if isinstance(leak_filter, str) else tuple(leak_filter or ())
        for part in parts:
            if part not in PARTS:
                raise ValueError(f"leak_filter: unknown part {part!r}{did_you_mean(str(part), PARTS)}")
        self.graph = graph
        self.mode, self.neighbor_scope, self.hops, self.community = mode, neighbor_scope, hops, community
        self._bound, self._seed = bound, seed
        self._same = {part: SameContent(graph, part) for part in dict.fromkeys(parts)}
        self._among = among
        self._capped = None if max_user_degree is None else graph.user_degrees > max_user_degree

    @property
    def capped_users(self) -> int:
        """Users above ``max_user_degree``, whose reviews serve no one."""
        return 0 if self._capped is None else int(self._capped.sum())

    def profile(self, user: str, item: str) -> GraphProfile:
        """The profile of ``user``, who is asked about ``item``; both by name.

        A user who is not in the graph gets the neighbours, and for an item that is not there the user gets
        what does not depend on it: the own documents, and the neighbours through other items.

        Raises UnknownUser or UnknownItem, with the nearest names, where nothing can be found that way: the
        mode wants the part that is missing, or neither is in the graph.
        """
        known_user, known_item = self.graph.users.find(str(user)), self.graph.items.find(str(item))
        if known_user is None and (known_item is None or self.mode == "own"):
            self.graph.user_number(str(user))
        if known_item is None and self.mode == "neighbors" and self.neighbor_scope == "target_item":
            self.graph.item_number(str(item))
        return GraphProfile(self.graph, self.edges(known_user, known_item))

    def edges(self, user: int | None, item: int | None) -> ProfileEdges:
        """The profile as numbers of reviews; None is a user, or an item, that is not in the graph."""
        graph = self.graph
        nothing = np.empty(0, np.int32)
        mine = nothing if user is None else graph.user_edges(user)
        about = nothing if item is None else mine[graph.edge_item[mine] == item]
        own = (
            nothing
            if self.mode == "neighbors"
            else (mine if item is None else mine[graph.edge_item[mine] != item])
        )
        left_out: dict[str, int] = {}
        if self.mode == "own":
            return ProfileEdges(own, nothing, left_out)
        neighbors = self._serving(self._of_items(mine, item), user, left_out)
        if self.community == "restrict":
            inside = self._labels[0][graph.edge_user[neighbors]] == self._label(user, item)
            neighbors = _keep(neighbors, inside, "community", left_out)
        further = []
        if self.hops == 2:
            authors = np.unique(graph.edge_user[neighbors])
            further.append(self._further(gather(graph.by_user, authors), neighbors, user, item, left_out))
        if self.community == "extend":
            label = self._label(user, item)
            members = self._members.of(label) if label >= 0 else nothing
            further.append(self._further(gather(graph.by_user, members), neighbors, user, item, left_out))
        if further:
            neighbors = np.unique(np.concatenate([neighbors, *further]))
        for part, same in self._same.items():
            neighbors = _keep(neighbors, ~same.matches(neighbors, about), f"same_{part}", left_out)
        return ProfileEdges(own, neighbors, left_out)

    def _of_items(self, mine: np.ndarray, item: int | None) -> np.ndarray:
        """All reviews of the items in scope, ascending."""
        if self.neighbor_scope == "target_item":
            return np.empty(0, np.int32) if item is None else self.graph.item_edges(item)
        items = np.unique(self.graph.edge_item[mine])
        if item is not None:
            items = np.union1d(items, [item])
        return np.sort(gather(self.graph.by_item, items))

    def _serving(self, edges: np.ndarray, user: int | None, left_out: dict[str, int]) -> np.ndarray:
        """Those of ``edges`` that other users wrote who may serve as neighbours."""
        authors = self.graph.edge_user[edges]
        others = np.ones(len(edges), bool) if user is None else authors != user
        if self._among is not None:
            others &= self._among[authors]
        edges = edges[others]
        if self._capped is None:
            return edges
        return _keep(edges, ~self._capped[self.graph.edge_user[edges]], "user_degree", left_out)

    def _further(
        self,
        pool: np.ndarray,
        neighbors: np.ndarray,
        user: int | None,
        item: int | None,
        left_out: dict[str, int],
    ) -> np.ndarray:
        """At most ``bound`` reviews of ``pool`` that are no neighbours yet, drawn by the seed."""
        pool = self._serving(pool, user, {})
        if item is not None:  # those reviews of the item that were not left out are neighbours already
            pool = pool[self.graph.edge_item[pool] != item]
        pool = np.setdiff1d(pool, neighbors)
        if len(pool) <= self._bound:
            return pool
        left_out["bound"] = left_out.get("bound", 0) + len(pool) - self._bound
        numbers = [number + 1 if number is not None else 0 for number in (user, item)]
        draw = np.random.default_rng([self._seed, *numbers])
        return draw.choice(pool, self._bound, replace=False, shuffle=False)

    @cached_property
    def _labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Communities of the users and of the items; users above the cap tie none."""
        graph = self.graph
        users, items = graph.edge_user, graph.edge_item
        if self._capped is not None:
            users, items = users[~self._capped[users]], items[~self._capped[users]]
        return label_propagation(users, items, graph.n_users, graph.n_items, self._seed)

    @cached_property
    def _members(self) -> Csr:
        """The users of each community."""
        return index_edges(self._labels[0], self.graph.n_users)

    def _label(self, user: int | None, item: int | None) -> int:
        users, items = self._labels
        if user is not None:
            return int(users[user])
        return -1 if item is None else int(items[item])


def gather(index: Csr, nodes: np.ndarray) -> np.ndarray:
    """The edges of several nodes, one node after another.

    >>> gather(index_edges(np.array([1, 0, 1, 2]), 3), np.array([2, 1])).tolist()
    [3, 0, 2]
    """
    starts = index.offsets[nodes]
    degrees = index.offsets[np.asarray(nodes) + 1] - starts
    before = np.cumsum(degrees) - degrees
    places = np.arange(int(degrees.sum())) + np.repeat(starts - before, degrees)
    return index.edges[places]


def _keep(edges: np.ndarray, kept: np.ndarray, reason: str, left_out: dict[str, int]) -> np.ndarray:
    dropped = len(edges) - int(kept.sum())
    if dropped:
        left_out[reason] = left_out.get(reason, 0) + dropped
    return edges[kept]


def check_cap(max_user_degree: int | None) -> None:
    """Raise ValueError for what is no limit of a user's reviews."""
    if max_user_degree is not None and not _is_count(max_user_degree):
        raise ValueError(
            f"max_user_degree={max_user_degree!r}: a whole number, at least 1, or None for no limit"
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check(name: str, value: str) -> None:
    if value not in _CHOICES[name]:
        raise ValueError(f"{name}: unknown value {value!r}{did_you_mean(str(value), _CHOICES[name])}")
