"""What a split of a user-item graph keeps to, in numbers: each stated property with a check."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropg.graph.split import NO_TARGET, SPLITS, GraphSplit
from ropg.graph.statistics import (
    PROFILE_CLASSES,
    count_of,
    distinct_pairs,
    profile_classes,
    target_statistics,
    users_per_item,
)

SIZE_TOLERANCE = 0.01  # of all users
_RANDOM_SPLITS = 400  # with which the distances are compared


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One split.

    share, asked: of all users. with_neighbor: targets whose item has another user in this split.
    neighbors_median: reviews of the target's item by other users of this split. profile_sizes: share of
    users per class of profile size. distance: half the sum of the absolute differences of these shares from
    those of all users, 0 to 1 (total variation); random_distance: what 95 % of random splits of this size
    stay within.
    """

    name: str
    users: int
    share: float
    asked: float
    reviews: int
    items: int
    targets: int
    with_neighbor: int
    neighbors_median: float
    profile_sizes: Mapping[str, float]
    distance: float
    random_distance: float


@dataclass(frozen=True, slots=True)
class SplitReport:
    """A whole split.

    without_neighbor, retargeted, moved, untargeted: see :class:`ropg.graph.split.GraphSplit`. shared_items:
    items with several users; cut_items: those with users in several splits. neighbors_kept: share of the
    targets' neighbours (other users of the target's item) who are in the target's split. digest: of the
    splits and targets of all users; the same input and seed give the same. checks: property -> holds.
    """

    seed: int
    users: int
    reviews: int
    items: int
    without_neighbor: int
    retargeted: int
    moved: int
    untargeted: int
    shared_items: int
    cut_items: int
    neighbors_kept: float
    splits: tuple[SplitPart, ...]
    digest: str
    checks: Mapping[str, bool]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)

    def text(self) -> str:
        """A table of the splits, and a line per property."""
        head = ["", "users", "share", "asked", "reviews", "items", "targets", "with neighbor",
                "neighbors (median)", "distance", "random (95 %)"]  # fmt: skip
        rows = [
            [
                part.name,
                f"{part.users:,}",
                f"{part.share:.4f}",
                f"{part.asked:.4f}",
                f"{part.reviews:,}",
                f"{part.items:,}",
                f"{part.targets:,}",
                f"{part.with_neighbor:,}",
                f"{part.neighbors_median:g}",
                f"{part.distance:.4f}",
                f"{part.random_distance:.4f}",
            ]
            for part in self.splits
        ]
        classes = list(self.splits[0].profile_sizes)
        sizes = [[part.name, *(f"{part.profile_sizes[c]:.4f}" for c in classes)] for part in self.splits]
        return "\n".join(
            [
                f"{self.users:,} users, {self.items:,} items, {self.reviews:,} reviews, seed {self.seed}",
                "",
                *grid([head, *rows]),
                "",
                "Share of users by number of reviews; distance is half the sum of differences from all users:",
                *grid([["", *classes], *sizes]),
                "",
                f"{self.cut_items:,} of {self.shared_items:,} items with several users have them in several "
                f"splits; {self.neighbors_kept:.1%} of the targets' neighbours are in the target's split",
                f"users none of whose items has another user, so no targets: {self.without_neighbor:,}",
                f"targets alone in their split: {self.retargeted + self.moved + self.untargeted:,}, of whose "
                f"users {self.retargeted:,} got another target, {self.moved:,} went to another split, "
                f"{self.untargeted:,} are no target",
                *(f"{'holds' if holds else 'FAILS'}: {name}" for name, holds in self.checks.items()),
                f"digest {self.digest}",
            ]
        )


def grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a plain table, the first column left, the others right.

    >>> grid([["", "n"], ["dev", "10"]])
    ['      n', 'dev  10']
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(w) if k == 0 else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def split_report(
    edge_user: np.ndarray,
    edge_item: np.ndarray,
    split: GraphSplit,
    fractions: Sequence[float],
    seed: int,
) -> SplitReport:
    """Measure a split; every number is counted here anew, whatever the splitter believed."""
    n_users, n_items = len(split.splits), count_of(edge_item)
    pair_user, pair_item = distinct_pairs(edge_user, edge_item)
    present = np.zeros((n_items, len(SPLITS)), dtype=np.int64)  # users of each item in each split
    np.add.at(present, (pair_item, split.splits[pair_user]), 1)
    users_of = users_per_item(edge_user, edge_item)
    classes = profile_classes(np.bincount(edge_user, minlength=n_users))
    whole = np.bincount(classes, minlength=len(PROFILE_CLASSES) + 1)
    has = np.flatnonzero(split.targets != NO_TARGET)
    items = edge_item[split.targets[has]]
    inside = present[items, split.splits[has]] - 1
    parts = tuple(
        _part(place, edge_user, edge_item, split, fractions[place], classes, whole, seed)
        for place in range(len(SPLITS))
    )
    around = int((users_of[items] - 1).sum())
    shared = users_of > 1
    known = np.isin(split.splits, np.arange(len(SPLITS)))
    checks = {
        "every user is in exactly one split": bool(known.all()) and sum(p.users for p in parts) == n_users,
        "every review is in its user's split": sum(p.reviews for p in parts) == len(edge_user),
        "every target is a review of its user": bool((edge_user[split.targets[has]] == has).all()),
        "every target's item has another user in its split": bool((inside > 0).all()),
        "every user with a neighbor is a target": len(has) + split.without_neighbor + split.untargeted
        == n_users,
        f"the sizes are within {SIZE_TOLERANCE:.0%} of all users of the fractions": all(
            abs(part.share - part.asked) <= SIZE_TOLERANCE for part in parts
        ),
        "profile sizes are distributed as in the whole, within what is usual for random splits": all(
            part.distance <= part.random_distance + 1e-12 for part in parts
        ),
    }
    return SplitReport(
        seed=seed,
        users=n_users,
        reviews=len(edge_user),
        items=int((users_of > 0).sum()),
        without_neighbor=split.without_neighbor,
        retargeted=split.retargeted,
        moved=split.moved,
        untargeted=split.untargeted,
        shared_items=int(shared.sum()),
        cut_items=int(((present > 0).sum(axis=1) > 1).sum()),
        neighbors_kept=float(inside.sum()) / around if around else 1.0,
        splits=parts,
        digest=split_digest(split),
        checks=checks,
    )


def split_digest(split: GraphSplit) -> str:
    """32 hex digits that stand for the splits and targets of all users."""
    digest = hashlib.sha256(split.splits.astype("<i1").tobytes())
    digest.update(split.targets.astype("<i8").tobytes())
    return digest.hexdigest()[:32]


def _part(
    place: int,
    edge_user: np.ndarray,
    edge_item: np.ndarray,
    split: GraphSplit,
    asked: float,
    classes: np.ndarray,
    whole: np.ndarray,
    seed: int,
) -> SplitPart:
    n_users = len(split.splits)
    inside = split.splits == place
    edges = np.flatnonzero(inside[edge_user])
    there = np.full(len(edge_user), -1, dtype=np.int64)  # edge of the whole -> edge of this split
    there[edges] = np.arange(len(edges))
    targets = np.where(inside & (split.targets != NO_TARGET), there[split.targets], -1)
    around = target_statistics(edge_user[edges], edge_item[edges], targets)
    users = int(inside.sum())
    counts = np.bincount(classes[inside], minlength=len(whole))
    shares = counts / max(users, 1)
    drawn = np.random.default_rng(seed).multivariate_hypergeometric(whole, users, size=_RANDOM_SPLITS)
    names = [_class_name(k) for k in range(1, len(PROFILE_CLASSES) + 1)]
    return SplitPart(
        name=SPLITS[place],
        users=users,
        share=users / n_users,
        asked=float(asked),
        reviews=len(edges),
        items=len(np.unique(edge_item[edges])),
        targets=around.targets,
        with_neighbor=around.targets - around.without_neighbor,
        neighbors_median=around.neighbors_median,
        profile_sizes={name: float(shares[k]) for k, name in enumerate(names, start=1) if whole[k]},
        distance=float(_distances(counts[None], whole)[0]),
        random_distance=float(np.quantile(_distances(drawn, whole), 0.95)),
    )


def _distances(counts: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Total variation of each row of counts from the whole; 0 where there are no users."""
    users = counts.sum(axis=1, keepdims=True)
    differences = np.abs(counts / np.maximum(users, 1) - whole / whole.sum()) * (users > 0)
    distances: np.ndarray = differences.sum(axis=1) / 2
    return distances


def _class_name(place: int) -> str:
    low = PROFILE_CLASSES[place - 1]
    if place == len(PROFILE_CLASSES):
        return f"{low}+"
    high = PROFILE_CLASSES[place] - 1
    return str(low) if high == low else f"{low}-{high}"
