"""Which review of each user is asked for: appendix A.1 of PGraphRAG, for tables that name no target."""

from __future__ import annotations

import numpy as np

from ropg.graph.interactions import InteractionGraph


def has_neighbor(graph: InteractionGraph, serves: np.ndarray | None = None) -> np.ndarray:
    """Whether another user reviewed the item of each edge: (E,) bool.

    serves: (n_users,) bool, the users whose reviews may serve others as neighbours; None: all.
    """
    pairs = np.unique(graph.edge_item.astype(np.int64) * max(graph.n_users, 1) + graph.edge_user)
    items, users = np.divmod(pairs, max(graph.n_users, 1))
    serving = np.ones(graph.n_users, bool) if serves is None else serves
    reviewers = np.bincount(items[serving[users]], minlength=graph.n_items)
    others: np.ndarray = reviewers[graph.edge_item] - serving[graph.edge_user]
    return others > 0


def choose_targets(graph: InteractionGraph, seed: int = 0, serves: np.ndarray | None = None) -> np.ndarray:
    """Draw one review per user among those whose item another user reviewed too: (n_users,) int64.

    A user without such a review has -1: no target, but still a part of the graph. A user keeps the target
    when further users are added, as long as it is drawn from the same reviews. ``serves``: see
    :func:`has_neighbor`.
    """
    eligible = has_neighbor(graph, serves)
    edges = np.flatnonzero(eligible)
    order = np.random.default_rng(seed).random(graph.n_edges)[edges]
    edges = edges[np.lexsort((order, graph.edge_user[edges]))]
    users, firsts = np.unique(graph.edge_user[edges], return_index=True)
    targets = np.full(graph.n_users, -1, np.int64)
    targets[users] = edges[firsts]
    return targets
