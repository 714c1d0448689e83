"""Splitting a user-item graph into train, dev and test (appendix A.1 of the PGraphRAG paper).

Users go whole into one split. Users who share an item go together where possible, so that a target's item
has another user inside the target's split. Profile sizes, and the number of users of the targets' items,
are spread over the splits as in the whole.

Popular items join nearly all users into one component, so components cannot be the units that are dealt
out. A unit is instead made in three steps:

1. Users whose targets are reviews of one item form a group: a group of two or more keeps its neighbours.
2. A user alone in its group joins the group of another user of that item.
3. A component of a few users is one unit; in a larger one each group is.

Units are dealt out from the largest to the smallest, each to the split where it disturbs the wanted
distributions least (χ²) among those with room for it. A unit larger than any room left is cut. The few
targets that a cut leaves alone are repaired: see :func:`repair`. Small graphs are dealt out several times.

Legend: E edges (reviews), U users, I items, S splits. Users and items are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ropg.graph.statistics import PROFILE_CLASSES, count_of, distinct_pairs, profile_classes, users_per_item
from ropg.graph.targets import draw_targets

SPLITS = ("train", "dev", "test")
DEFAULT_FRACTIONS = (0.8, 0.1, 0.1)
NO_TARGET = -1

#: Lower bounds of the classes of neighbourhoods, in users of the target's item.
ITEM_CLASSES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

_UNITS_PER_SPLIT = 40  # components up to this part of the smallest split stay whole
_PROFILE_WEIGHT = 3.0  # of profile sizes in χ², against 1 for neighbourhoods, which are coarser
_USERS_DEALT = 200_000  # small graphs are dealt out several times, and the best is kept
_MOST_DEALS = 32


@dataclass(frozen=True, slots=True)
class GraphSplit:
    """A split and its targets.

    splits: (U,) int8, the place in ``SPLITS`` of each user. targets: (U,) int64, the edge that is the
    user's target, ``NO_TARGET`` for none. without_neighbor: users none of whose items has another user.
    retargeted, moved, untargeted: users whose target was left alone and who got another one, went to
    another split, or have none now.
    """

    splits: np.ndarray
    targets: np.ndarray
    without_neighbor: int
    retargeted: int
    moved: int
    untargeted: int


def split_graph(
    edge_user: np.ndarray,
    edge_item: np.ndarray,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    seed: int = 0,
    targets: np.ndarray | None = None,
) -> GraphSplit:
    """Choose targets, assign users to splits, and repair the targets that are alone in theirs.

    ``edge_user``, ``edge_item``: (E,) integers from 0. ``targets``: (U,) edges; None draws them.
    """
    edge_user, edge_item = _checked(edge_user, edge_item)
    drawn = draw_targets(edge_user, edge_item, count_of(edge_user), seed) if targets is None else targets
    splits = assign_splits(edge_user, edge_item, drawn, fractions, seed)
    done = repair(edge_user, edge_item, drawn, splits)
    without = int((drawn == NO_TARGET).sum())
    return GraphSplit(done.splits, done.targets, without, done.retargeted, done.moved, done.untargeted)


def assign_splits(
    edge_user: np.ndarray,
    edge_item: np.ndarray,
    targets: np.ndarray,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    seed: int = 0,
) -> np.ndarray:
    """(U,) int8: the split of each user (0 train, 1 dev, 2 test), as the module's docstring says.

    Parameters
    ----------
    edge_user, edge_item: (E,) integers from 0. targets: (U,) edges, ``NO_TARGET`` for none.
    fractions: of train, dev and test; they add up to 1, and a 0 leaves a split empty.
    seed: decides among equals; the same input and seed give the same result.

    Raises ValueError for other fractions, and for targets that are no edge of their user.
    """
    edge_user, edge_item = _checked(edge_user, edge_item)
    n_users = count_of(edge_user)
    targets = _checked_targets(targets, edge_user)
    shares = check_fractions(fractions)
    rng = np.random.default_rng(seed)
    profile_size = np.bincount(edge_user, minlength=n_users)
    item_users = users_per_item(edge_user, edge_item)
    has = targets != NO_TARGET
    crowd = np.where(has, item_users[edge_item[targets]], 0)
    limit = max(int(shares[shares > 0].min() * n_users / _UNITS_PER_SPLIT), 2)
    unit = _units(edge_user, edge_item, targets, limit)
    crowds = np.searchsorted(ITEM_CLASSES, crowd, side="right")
    classes = np.stack([profile_classes(profile_size), len(PROFILE_CLASSES) + 1 + crowds])
    home = np.where(has, edge_item[targets], -1)
    deals = [
        _deal(unit, classes, home, shares, rng)
        for _ in range(min(max(_USERS_DEALT // n_users, 1), _MOST_DEALS))
    ]
    return min(deals, key=lambda deal: deal[0])[1]


def check_fractions(fractions: Sequence[float]) -> np.ndarray:
    """(S,) the fractions; ValueError unless they are three numbers of at least 0 that add up to 1."""
    try:
        shares = np.asarray(fractions, dtype=np.float64)
    except (TypeError, ValueError):  # text among them
        shares = np.empty(0)
    if shares.shape != (len(SPLITS),) or not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(f"fractions={fractions!r}: three numbers ({', '.join(SPLITS)}) that add up to 1")
    return shares


def _units(edge_user: np.ndarray, edge_item: np.ndarray, targets: np.ndarray, limit: int) -> np.ndarray:
    """(U,) the unit of each user: groups by target's item, the lonely joined, small components whole."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n_users, n_items = len(targets), count_of(edge_item)
    has = targets != NO_TARGET
    home = np.where(has, edge_item[targets], n_items + np.arange(n_users))  # without target: alone
    _, group = np.unique(home, return_inverse=True)
    size = np.bincount(group)
    pair_user, pair_item = distinct_pairs(edge_user, edge_item)
    order = np.lexsort((size[group[pair_user]], pair_item))  # within an item, users of small groups first
    start = np.searchsorted(pair_item[order], np.arange(n_items))
    lonely = np.flatnonzero(has & (size[group] == 1))
    first = start[edge_item[targets[lonely]]]
    is_first = pair_user[order[first]] == lonely
    second = np.minimum(first + 1, len(order) - 1)
    partner = np.where(is_first, pair_user[order[second]], pair_user[order[first]])
    joined = coo_array((np.ones(len(lonely), bool), (group[lonely], group[partner])), (len(size),) * 2)
    _, label = connected_components(joined, directed=False)
    group = label[group]

    # a small component is one unit: groups that share an item, the first of the item's with each other one
    n_groups = int(group.max()) + 1
    heads = group[pair_user[order[np.minimum(start, len(order) - 1)]]][pair_item]
    linked = coo_array((np.ones(len(heads), bool), (group[pair_user], heads)), (n_groups,) * 2)
    _, component = connected_components(linked, directed=False)
    users = np.bincount(component[group])
    small = users[component] <= limit
    _, unit = np.unique(np.where(small, component, users.size + np.arange(n_groups)), return_inverse=True)
    return unit[group]


def _deal(
    unit: np.ndarray, classes: np.ndarray, home: np.ndarray, shares: np.ndarray, rng: np.random.Generator
) -> tuple[float, np.ndarray]:
    """χ² and (U,) splits: each unit to the split with room where χ² grows least; what fits nowhere is cut.

    classes: (2, U) the class of profile size and of neighbourhood, numbered after each other. home: (U,)
    the item of the target.
    """
    n_users = len(unit)
    count = np.bincount(classes.ravel(), minlength=int(classes.max()) + 1)
    weight = np.where(np.arange(len(count)) <= len(PROFILE_CLASSES), _PROFILE_WEIGHT, 1.0)
    factor = (weight / np.maximum(shares[:, None] * count, 1.0)).tolist()
    lacking = (shares[:, None] * count).tolist()
    room = (shares * n_users).tolist()
    open_splits = [s for s, share in enumerate(shares) if share > 0]
    shuffled = rng.permutation(n_users)
    # users by unit, within a unit by their target's item, so that a cut keeps users of an item together
    order = shuffled[np.lexsort((home[shuffled], unit[shuffled]))]
    starts = np.flatnonzero(np.diff(unit[order], prepend=-1))
    sizes = np.diff(starts, append=n_users)
    by_size = np.lexsort((rng.random(len(sizes)), -sizes))
    splits = np.empty(n_users, dtype=np.int8)
    profile, crowd = classes[0][order].tolist(), classes[1][order].tolist()

    def place(start: int, end: int, split: int) -> None:
        splits[order[start:end]] = split
        room[split] -= end - start
        for k in range(start, end):
            lacking[split][profile[k]] -= 1
            lacking[split][crowd[k]] -= 1

    def growth(split: int, members: dict[int, int]) -> float:
        lack, by = lacking[split], factor[split]
        return sum(by[c] * n * (n - 2 * lack[c]) for c, n in members.items())

    for start, size in zip(starts[by_size].tolist(), sizes[by_size].tolist(), strict=True):
        end = start + size
        while start < end:
            best = max(open_splits, key=room.__getitem__)
            fitting = [s for s in open_splits if room[s] > end - start - 0.5]
            if not fitting and end - start > 3:  # cut: as much as there is room for, no part of one user
                part = min(max(round(room[best]), 2), end - start - 2)
                place(start, start + part, best)
                start += part
                continue
            members: dict[int, int] = {}
            for k in range(start, end):
                members[profile[k]] = members.get(profile[k], 0) + 1
                members[crowd[k]] = members.get(crowd[k], 0) + 1
            place(start, end, min(fitting or [best], key=lambda s: growth(s, members)))
            start = end
    return float((np.array(factor) * np.square(lacking)).sum()), splits


def repair(
    edge_user: np.ndarray, edge_item: np.ndarray, targets: np.ndarray, splits: np.ndarray
) -> GraphSplit:
    """Mend targets whose item has no other user in the target's split.

    Another edge of the user whose item has one there becomes the target; else the user moves to the split in
    which one of its items has most users; where no item has another user at all, it has no target. Other
    targets keep their neighbours: a user moves only where it shares nothing. Arrays that are given stay as
    they are.
    """
    edge_user, edge_item = _checked(edge_user, edge_item)
    targets = _checked_targets(targets, edge_user).copy()
    splits = np.array(splits, dtype=np.int8)
    n_items = count_of(edge_item)
    pair_user, pair_item = distinct_pairs(edge_user, edge_item)
    here = np.zeros((n_items, len(SPLITS)), dtype=np.int64)  # users of each item in each split
    np.add.at(here, (pair_item, splits[pair_user]), 1)
    has = np.flatnonzero(targets != NO_TARGET)
    lonely = has[here[edge_item[targets[has]], splits[has]] < 2]
    counts = {"retargeted": 0, "moved": 0, "untargeted": 0}
    edges = np.argsort(edge_user, kind="stable")
    first = np.searchsorted(edge_user[edges], np.arange(len(targets) + 1))
    for user in lonely.tolist():
        mine = edges[first[user] : first[user + 1]]
        items, split = edge_item[mine], splits[user]
        if here[edge_item[targets[user]], split] > 1:  # one who moved has joined it
            continue
        near = mine[here[items, split] > 1]
        if len(near):
            counts["retargeted"] += 1
            targets[user] = near[0]
            continue
        # nobody else here has any of the user's items: no other target is left alone where the user moves
        others = here[items]  # a copy
        others[:, split] -= 1  # the user itself
        place, new = np.unravel_index(int(others.argmax()), others.shape)
        if others[place, new] > 0:
            counts["moved"] += 1
            here[np.unique(items), split] -= 1
            here[np.unique(items), new] += 1
            splits[user], targets[user] = new, mine[place]
        else:
            counts["untargeted"] += 1
            targets[user] = NO_TARGET
    return GraphSplit(splits, targets, 0, counts["retargeted"], counts["moved"], counts["untargeted"])


def _checked(edge_user: np.ndarray, edge_item: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    users, items = np.asarray(edge_user), np.asarray(edge_item)
    if users.ndim != 1 or users.shape != items.shape or not len(users):
        raise ValueError(
            f"edges: users {users.shape} and items {items.shape}; two arrays of one length, not empty"
        )
    if users.dtype.kind not in "iu" or items.dtype.kind not in "iu" or min(users.min(), items.min()) < 0:
        raise ValueError("edges: users and items must be whole numbers from 0")
    return users.astype(np.int64), items.astype(np.int64)


def _checked_targets(targets: np.ndarray, edge_user: np.ndarray) -> np.ndarray:
    found = np.asarray(targets, dtype=np.int64)
    n_users = count_of(edge_user)
    if found.shape != (n_users,):
        raise ValueError(f"targets {found.shape}: one edge for each of the {n_users:,} users")
    has = np.flatnonzero(found != NO_TARGET)
    edges = found[has]
    if ((edges < 0) | (edges >= len(edge_user))).any() or (edge_user[edges] != has).any():
        raise ValueError(f"targets: each must be an edge of its user, or {NO_TARGET} for none")
    return found
