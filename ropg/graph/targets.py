"""Which review of each user is asked for: appendix A.1 of PGraphRAG, for tables that name no target."""

from __future__ import annotations

import numpy as np

from ropg.graph.interactions import InteractionGraph


def has_neighbor(graph: InteractionGraph, serves: np.ndarray | None = None) -> np.ndarray:
    """Whether another user reviewed the item of each edge: (E,) bool.

    serves: (n_users,) bool, the users whose reviews may serve others as neighbours; None: all.
    """
    return neighbored(graph.edge_user, graph.edge_item, graph.n_users, serves)


def choose_targets(graph: InteractionGraph, seed: int = 0, serves: np.ndarray | None = None) -> np.ndarray:
    """Draw one review per user among those whose item another user reviewed too: (n_users,) int64.

    A user without such a review has -1: no target, but still a part of the graph. A user keeps the target
    when further users are added, as long as it is drawn from the same reviews. ``serves``: see
    :func:`has_neighbor`.
    """
    return draw_targets(graph.edge_user, graph.edge_item, graph.n_users, seed, serves)


def neighbored(
    edge_user: np.ndarray, edge_item: np.ndarray, n_users: int, serves: np.ndarray | None = None
) -> np.ndarray:
    """:func:`has_neighbor` on the ends of edges, (E,) each.

    >>> neighbored(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2]), n_users=3)
    array([False,  True,  True, False])
    """
    pairs = np.unique(edge_item.astype(np.int64) * max(n_users, 1) + edge_user)
    items, users = np.divmod(pairs, max(n_users, 1))
    serving = np.ones(n_users, bool) if serves is None else serves
    reviewers = np.bincount(items[serving[users]], minlength=int(edge_item.max(initial=-1)) + 1)
    others: np.ndarray = reviewers[edge_item] - serving[edge_user]
    return others > 0


def draw_targets(
    edge_user: np.ndarray,
    edge_item: np.ndarray,
    n_users: int,
    seed: int = 0,
    serves: np.ndarray | None = None,
) -> np.ndarray:
    """:func:`choose_targets` on the ends of edges, (E,) each.

    >>> draw_targets(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2]), n_users=3)
    array([ 1,  2, -1])
    """
    edges = np.flatnonzero(neighbored(edge_user, edge_item, n_users, serves))
    order = np.random.default_rng(seed).random(len(edge_user))[edges]
    edges = edges[np.lexsort((order, edge_user[edges]))]
    users, firsts = np.unique(edge_user[edges], return_index=True)
    targets = np.full(n_users, -1, np.int64)
    targets[users] = edges[firsts]
    return targets
