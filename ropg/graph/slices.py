"""Slices of the targets: users with and without a history of their own, items with few and many neighbours.

PGraphRAG's claim is about users of whom little is known; a mean over all targets, most of which have no history at
all, cannot show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ropg.evaluation.results import Result, compute_results
from ropg.examples import Example

NO_HISTORY, SOME_HISTORY = "no own history", "some own history"
NO_NEIGHBOR, ONE, FEW, MANY = "no neighbor", "one neighbor", "two to four neighbors", "five or more neighbors"
#: All slices in the order of the tables; a target is in one of the first two and in one of the others.
SLICES = (NO_HISTORY, SOME_HISTORY, NO_NEIGHBOR, ONE, FEW, MANY)


def slices_of(example: Example) -> tuple[str, str]:
    """The two slices of one target: by its user's own documents, by the documents of neighbours.

    Both are counted in the profile, so what retrieval could find decides.

    >>> from ropg.examples import Document
    >>> slices_of(Example("e", "u", "x", "y", [Document("d", "t", provenance="neighbor")]))
    ('no own history', 'one neighbor')
    """
    own = neighbors = 0
    for document in example.profile:
        own += document.provenance == "own"
        neighbors += document.provenance == "neighbor"
    by_number = NO_NEIGHBOR if neighbors == 0 else ONE if neighbors == 1 else FEW if neighbors < 5 else MANY
    return (SOME_HISTORY if own else NO_HISTORY, by_number)


def slice_ids(examples: Iterable[Example]) -> dict[str, list[str]]:
    """Slice -> ids of its targets, in the order of ``SLICES``; slices without a target are left out."""
    found: dict[str, list[str]] = {name: [] for name in SLICES}
    for example in examples:
        for name in slices_of(example):
            found[name].append(example.id)
    return {name: ids for name, ids in found.items() if ids}


def slice_results(
    task: Any,
    examples: Sequence[Example],
    predictions: Mapping[str, Mapping[str, str]],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, list[Result]]:
    """Slice -> the rows of :func:`ropg.evaluation.results.compute_results` on its targets alone.

    predictions: system -> example id -> output. Examples without a gold are left out, as everywhere.
    """
    golds = {example.id: example.target for example in examples if example.target is not None}
    found = {}
    for name, ids in slice_ids(e for e in examples if e.target is not None).items():
        targets = {i: golds[i] for i in ids}
        found[name] = compute_results(
            task, targets, predictions, resamples=resamples, seed=seed, progress=False
        )
    return found
