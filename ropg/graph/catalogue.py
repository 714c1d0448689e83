"""PGraphRAG's twelve tasks, and which systems each of its tables compares on which of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ropg.graph.systems import Budget, Recipe

Split = Literal["test", "dev"]


@dataclass(frozen=True, slots=True)
class GraphTask:
    """One of the twelve. ``dataset``: the file is ``<dataset>_<split>.json``. ``kind``: text, title or rating."""

    number: int
    dataset: str
    kind: str
    title: str


TASKS: dict[int, GraphTask] = {
    task.number: task
    for task in (
        GraphTask(1, "amazon", "text", "User-Product Review Generation"),
        GraphTask(2, "hotel", "text", "Hotel Experiences Generation"),
        GraphTask(3, "gap", "text", "Stylized Feedback Generation"),
        GraphTask(4, "b2w", "text", "Multilingual Product Review Generation"),
        GraphTask(5, "amazon", "title", "User-Product Review Title Generation"),
        GraphTask(6, "hotel", "title", "Hotel Experience Summary Generation"),
        GraphTask(7, "gap", "title", "Stylized Feedback Title Generation"),
        GraphTask(8, "b2w", "title", "Multilingual Product Review Title Generation"),
        GraphTask(9, "amazon", "rating", "User-Product Review Ratings"),
        GraphTask(10, "hotel", "rating", "Hotel Experience Ratings"),
        GraphTask(11, "gap", "rating", "Stylized Feedback Ratings"),
        GraphTask(12, "b2w", "rating", "Multilingual Product Ratings"),
    )
}

LONG, SHORT, RATINGS = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12)

#: (retrievers, k, budget) -> the systems of a table, in its order, baselines among them.
Columns = Callable[[Sequence[str], int, Budget], list[Recipe]]


@dataclass(frozen=True, slots=True)
class PaperTable:
    """One table of the paper. ``gains``: it shows gains over LaMP in per cent instead of values."""

    number: int
    title: str
    tasks: tuple[int, ...]
    columns: Columns
    split: Split = "test"
    gains: bool = False


def _both(retriever: str, k: int, budget: Budget) -> list[Recipe]:
    """PGraphRAG with the budget asked for, and beside the paper's its equal-budget variant."""
    recipe = Recipe("both", retriever, k, budget)
    return [recipe] if budget == "equal" else [recipe, replace(recipe, budget="equal")]


def pairs(retrievers: Sequence[str], k: int, budget: Budget) -> list[Recipe]:
    """Tables 6, 13 and 14: PGraphRAG and LaMP with each retriever."""
    found = []
    for name in retrievers:
        found += [*_both(name, k, budget), Recipe("own", name, k)]
    return found


def systems(retrievers: Sequence[str], k: int, budget: Budget) -> list[Recipe]:
    """Tables 3, 4, 8 and 16 to 18: the pairs, nothing retrieved, and anything."""
    return [
        *pairs(retrievers, k, budget),
        Recipe("none", retrievers[0], k),
        Recipe("anyone", retrievers[0], k),
    ]


def modes(retrievers: Sequence[str], k: int, budget: Budget) -> list[Recipe]:
    """Tables 9 and 10; PGraphRAG-U is LaMP."""
    found = []
    for name in retrievers:
        found += [*_both(name, k, budget), Recipe("neighbors", name, k), Recipe("own", name, k)]
    return found


def depths(retrievers: Sequence[str], k: int, budget: Budget) -> list[Recipe]:
    """Tables 11 and 12: k = 1, 2, 4, whatever the configuration's k, each with LaMP at the same k."""
    found = []
    for name in retrievers:
        for depth in (1, 2, 4):
            found += [*_both(name, depth, budget), Recipe("own", name, depth)]
    return found


def choices(retrievers: Sequence[str], k: int, budget: Budget) -> list[Recipe]:
    """Table 15: ranked, k at random, all that fits; the random ones once, since no retriever ranks them."""
    found: list[Recipe] = []
    for name in retrievers:
        for ranked in (*_both(name, k, budget), Recipe("own", name, k)):
            star, stars = replace(ranked, choice="random"), replace(ranked, choice="all_that_fits")
            found += [r for r in (ranked, star, stars) if r.name not in {f.name for f in found}]
    return found


TABLES: dict[int, PaperTable] = {
    table.number: table
    for table in (
        PaperTable(3, "Long text generation", LONG, systems),
        PaperTable(4, "Short text generation", SHORT, systems),
        PaperTable(6, "Gains of PGraphRAG over LaMP, per cent", LONG + SHORT, pairs, gains=True),
        PaperTable(8, "Rating prediction", RATINGS, systems),
        PaperTable(9, "Whose documents: long text generation", LONG, modes),
        PaperTable(10, "Whose documents: short text generation", SHORT, modes),
        PaperTable(11, "Number of documents k: long text generation", LONG, depths),
        PaperTable(12, "Number of documents k: short text generation", SHORT, depths),
        PaperTable(13, "Retrievers: long text generation", LONG, pairs),
        PaperTable(14, "Retrievers: short text generation", SHORT, pairs),
        PaperTable(15, "Ranked, at random (*), all that fits (**)", LONG + SHORT, choices),
        PaperTable(16, "Long text generation", LONG, systems, "dev"),
        PaperTable(17, "Short text generation", SHORT, systems, "dev"),
        PaperTable(18, "Rating prediction", RATINGS, systems, "dev"),
    )
}

#: Tables that compare retrievers; the others use one, unless more are named.
OVER_RETRIEVERS = (13, 14)


def labels(recipes: Sequence[Recipe]) -> dict[str, str]:
    """Name of each system -> its title in a table, with k and the retriever where the table has several.

    >>> list(labels(depths(["bm25"], 4, "equal")).values())[:2]
    ['PGraphRAG, equal budget, k = 1', 'LaMP, k = 1']
    >>> list(labels(pairs(["bm25", "dense"], 4, "equal")).values())
    ['PGraphRAG, equal budget, bm25', 'LaMP, bm25', 'PGraphRAG, equal budget, dense', 'LaMP, dense']
    """
    several_k = len({recipe.k for recipe in recipes if recipe.uses_k}) > 1
    several = len({recipe.retriever for recipe in recipes if recipe.uses_retriever}) > 1
    found = {}
    for recipe in recipes:
        parts = [recipe.label]
        parts += [f"k = {recipe.k}"] if several_k and recipe.uses_k else []
        parts += [recipe.retriever] if several and recipe.uses_retriever else []
        found[recipe.name] = ", ".join(parts)
    return found
