"""Communities of users and items by label propagation (Raghavan et al. 2007; the two sides take turns)."""

from __future__ import annotations

import numpy as np

#: Rounds after which propagation stops at the latest; reviews settle in a few.
ROUNDS = 10


def label_propagation(
    edge_user: np.ndarray, edge_item: np.ndarray, n_users: int, n_items: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Communities of a bipartite graph: labels of the users (n_users,) and of the items (n_items,), int64.

    At first every user is a community. Then, in turns, each item takes the label that most of its edges
    bring, and each user the label that most of theirs bring, until no user changes. Of equally frequent
    labels the present one stays, else a seeded order decides: the result is the same every time. Users
    and items without edges keep a community of their own (users) or none (items, -1).

    >>> users, items = label_propagation(np.array([0, 1, 2, 3]), np.array([0, 0, 1, 1]), 4, 2)
    >>> len({users[0], users[2]}), len({users[0], users[1], items[0]}), len({users[2], users[3], items[1]})
    (2, 1, 1)
    """
    order = np.random.default_rng(seed).permutation(n_users)
    users, items = np.arange(n_users, dtype=np.int64), np.full(n_items, -1, np.int64)
    for _ in range(ROUNDS):
        items = _most_frequent(edge_item, users[edge_user], items, order)
        after = _most_frequent(edge_user, items[edge_item], users, order)
        if np.array_equal(after, users):
            break
        users = after
    return users, items


def _most_frequent(
    nodes: np.ndarray, labels: np.ndarray, present: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """The most frequent of the labels that arrive at each node; nodes and labels (E,), present (nodes,)."""
    if not len(nodes):
        return present
    pairs, counts = np.unique(nodes.astype(np.int64) * len(order) + labels, return_counts=True)
    at, label = np.divmod(pairs, len(order))
    best_last = np.lexsort((order[label], present[at] == label, counts, at))
    at, label = at[best_last], label[best_last]
    last = np.append(at[1:] != at[:-1], True)
    found = present.copy()
    found[at[last]] = label[last]
    return found
