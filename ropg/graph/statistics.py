"""Statistics of a user-item graph: Tables 1, 2 and 7 of the PGraphRAG paper, and what a target has around it.

Legend: E edges (reviews), U users, I items. Users and items are numbered from 0; per user one edge may be
the target, ``-1`` for none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

#: Lower bounds of the classes of profile size, in reviews of a user.
PROFILE_CLASSES = (1, 2, 3, 4, 5, 10, 20, 50)
RATINGS = ("1", "2", "3", "4", "5")


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and population standard deviation."""

    mean: float
    sd: float

    def __str__(self) -> str:
        return f"{self.mean:.2f}±{self.sd:.2f}"


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """A row of Table 2, with profile sizes (reviews of a user) and the share of users with one review.

    average_degree: 2 E / (U + I), as in the paper's Table 2.
    """

    users: int
    items: int
    reviews: int
    average_degree: float
    profile_size: Spread
    users_with_one_review: float


@dataclass(frozen=True, slots=True)
class ReviewCounts:
    """A row of Table 7: items with exactly ``reviews`` reviews, and with at most so many, with shares."""

    reviews: int
    exact: int
    exact_share: float
    cumulative: int
    cumulative_share: float


@dataclass(frozen=True, slots=True)
class TargetStatistics:
    """What the targets have around them.

    with_own_history: share of targets whose user has a review of another item. neighbors: documents per
    target, reviews of its item by other users. without_neighbor: targets that have none.
    """

    targets: int
    with_own_history: float
    neighbors_median: float
    neighbors_mean: float
    neighbors_min: int
    without_neighbor: int


@dataclass(frozen=True, slots=True)
class LengthStatistics:
    """Input and output of one kind of task, in words by whitespace; output None for ratings."""

    input: Spread
    output: Spread | None


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """All of one review file. ratings: share of targets per rating; lengths: per kind of task."""

    name: str
    graph: GraphStatistics
    targets: TargetStatistics
    target_words_median: float
    empty_targets: int
    ratings: Mapping[str, float]
    lengths: Mapping[str, LengthStatistics]
    reviews_per_item: tuple[ReviewCounts, ...]


def count_of(numbers: np.ndarray) -> int:
    """How many users or items there are, if they are numbered from 0."""
    return int(numbers.max()) + 1 if len(numbers) else 0


def users_per_item(edge_user: np.ndarray, edge_item: np.ndarray) -> np.ndarray:
    """(I,) the number of users of each item, each user once.

    >>> users_per_item(np.array([0, 0, 1]), np.array([0, 0, 0]))
    array([2])
    """
    return np.bincount(distinct_pairs(edge_user, edge_item)[1], minlength=count_of(edge_item))


def distinct_pairs(edge_user: np.ndarray, edge_item: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Users and items of the edges, each pair once, ordered by user."""
    n_items = max(count_of(edge_item), 1)
    keys = np.unique(edge_user.astype(np.int64) * n_items + edge_item)
    return keys // n_items, keys % n_items


def profile_classes(sizes: np.ndarray) -> np.ndarray:
    """The place of each profile size in ``PROFILE_CLASSES``, from 1; 0 for a user without reviews.

    >>> profile_classes(np.array([1, 4, 7, 100]))
    array([1, 4, 5, 8])
    """
    return np.searchsorted(PROFILE_CLASSES, sizes, side="right")


def spread(values: np.ndarray) -> Spread:
    """Mean and standard deviation; zeros for no values.

    >>> str(spread(np.array([1, 3])))
    '2.00±1.00'
    """
    if not len(values):
        return Spread(0.0, 0.0)
    return Spread(float(np.mean(values)), float(np.std(values)))


def graph_statistics(edge_user: np.ndarray, edge_item: np.ndarray) -> GraphStatistics:
    """Table 2 of the edges; users and items without any edge do not count.

    >>> graph_statistics(np.array([0, 0, 1]), np.array([0, 1, 1])).average_degree
    1.5
    """
    sizes = np.bincount(edge_user)
    sizes = sizes[sizes > 0]
    items = len(np.unique(edge_item))
    ends = len(sizes) + items
    return GraphStatistics(
        users=len(sizes),
        items=items,
        reviews=len(edge_user),
        average_degree=2 * len(edge_user) / ends if ends else 0.0,
        profile_size=spread(sizes),
        users_with_one_review=float((sizes == 1).mean()) if len(sizes) else 0.0,
    )


def reviews_per_item(edge_item: np.ndarray, up_to: int = 5) -> tuple[ReviewCounts, ...]:
    """Table 7: items with 1, 2, … ``up_to`` reviews, exactly and cumulatively.

    >>> [(row.exact, row.cumulative) for row in reviews_per_item(np.array([0, 1, 1, 2]), up_to=2)]
    [(2, 2), (1, 3)]
    """
    counts = np.bincount(edge_item)
    counts = counts[counts > 0]
    n = max(len(counts), 1)
    rows = []
    for reviews in range(1, up_to + 1):
        exact, cumulative = int((counts == reviews).sum()), int((counts <= reviews).sum())
        rows.append(ReviewCounts(reviews, exact, exact / n, cumulative, cumulative / n))
    return tuple(rows)


def neighbor_documents(edge_user: np.ndarray, edge_item: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Per target, in the order of users, the number of reviews of its item by other users.

    >>> neighbor_documents(np.array([0, 0, 1, 2]), np.array([7, 7, 7, 7]), np.array([0, 2, -1]))
    array([2, 3])
    """
    users = np.flatnonzero(targets >= 0)
    items = edge_item[targets[users]]
    all_reviews = np.bincount(edge_item, minlength=1)[items]
    return all_reviews - _own_of_item(edge_user, edge_item, users, items)


def _own_of_item(
    edge_user: np.ndarray, edge_item: np.ndarray, users: np.ndarray, items: np.ndarray
) -> np.ndarray:
    """Reviews that each of ``users`` wrote of the item beside it."""
    n_items = max(count_of(edge_item), 1)
    keys, counts = np.unique(edge_user.astype(np.int64) * n_items + edge_item, return_counts=True)
    return counts[np.searchsorted(keys, users.astype(np.int64) * n_items + items)]


def target_statistics(edge_user: np.ndarray, edge_item: np.ndarray, targets: np.ndarray) -> TargetStatistics:
    """Own history and neighbours of the targets; zeros where there are no targets."""
    users = np.flatnonzero(targets >= 0)
    if not len(users):
        return TargetStatistics(0, 0.0, 0.0, 0.0, 0, 0)
    neighbors = neighbor_documents(edge_user, edge_item, targets)
    same_item = _own_of_item(edge_user, edge_item, users, edge_item[targets[users]])
    own = np.bincount(edge_user)[users] - same_item
    return TargetStatistics(
        targets=len(users),
        with_own_history=float((own > 0).mean()),
        neighbors_median=float(np.median(neighbors)),
        neighbors_mean=float(neighbors.mean()),
        neighbors_min=int(neighbors.min()),
        without_neighbor=int((neighbors == 0).sum()),
    )


def length_statistics(titles: Sequence[str], texts: Sequence[str]) -> dict[str, LengthStatistics]:
    """Table 1's lengths of the targets, per kind of task: text from title, title from text, rating from both.

    Outputs are the gold ones; the paper's table gives those of an LLM.

    >>> length_statistics(["So good"], ["I loved every day"])["text"].output.mean
    4.0
    """
    title, text = (np.array([len(s.split()) for s in strings]) for strings in (titles, texts))
    return {
        "text": LengthStatistics(spread(title), spread(text)),
        "title": LengthStatistics(spread(text), spread(title)),
        "rating": LengthStatistics(spread(title + text), None),
    }


def file_statistics(
    name: str,
    edge_user: np.ndarray,
    edge_item: np.ndarray,
    targets: np.ndarray,
    titles: Sequence[str],
    texts: Sequence[str],
    ratings: Sequence[str],
) -> FileStatistics:
    """All statistics of one file. titles, texts, ratings: of the targets, in the order of users."""
    words = np.array([len(text.split()) for text in texts])
    n = max(len(ratings), 1)
    known = [*RATINGS, *sorted(set(ratings) - set(RATINGS))]
    return FileStatistics(
        name=name,
        graph=graph_statistics(edge_user, edge_item),
        targets=target_statistics(edge_user, edge_item, targets),
        target_words_median=float(np.median(words)) if len(words) else 0.0,
        empty_targets=int((words == 0).sum()),
        ratings={rating: sum(r == rating for r in ratings) / n for rating in known},
        lengths=length_statistics(titles, texts),
        reviews_per_item=reviews_per_item(edge_item),
    )
