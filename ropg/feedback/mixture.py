"""Candidates that several retrievers propose: in turns, each document once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from ropg.examples import Example
from ropg.feedback.candidates import CandidateTable
from ropg.feedback.lookup import examples_by_id
from ropg.feedback.owners import owner_digest

T = TypeVar("T")


def round_robin(rankings: Sequence[Sequence[T]], size: int) -> dict[T, int]:
    """Take ``size`` distinct items in turns: item -> number of the ranking that gave it, in the order of taking.

    In its turn a ranking gives the best item that is not taken yet; one that has none left is passed over. All
    items are taken where there are fewer than ``size``.

    >>> round_robin([["a", "b", "c"], ["b", "a", "d"]], 3)
    {'a': 0, 'b': 1, 'c': 0}
    >>> round_robin([["a"], ["b", "c", "d"]], 3)
    {'a': 0, 'b': 1, 'c': 1}
    """
    taken: dict[T, int] = {}
    left = [iter(ranking) for ranking in rankings]
    alive = list(range(len(rankings)))
    while alive:
        for number in list(alive):
            if len(taken) >= size:
                return taken
            item = next((item for item in left[number] if item not in taken), None)
            if item is None:
                alive.remove(number)
            else:
                taken[item] = number
    return taken


def build_mixture(
    examples: Sequence[Example],
    ranking: CandidateTable,
    proposals: Mapping[str, Iterable[Sequence[str]]],
    l: int,  # noqa: E741  (the paper's letter)
    *,
    identity: Mapping[str, Any],
) -> CandidateTable:
    """The ``l`` documents of each profile that the proposers name in turns, in the initial retriever's order.

    ``ranking`` is the initial retriever's of whole profiles; it takes the first turn, so its first document is
    always a candidate. ``proposals``: name -> for each example of ``ranking`` in turn, the ids that this proposer
    ranks, best first; none where it cannot rank the profile. Ranks and scores are those of ``ranking``, whoever
    proposed; ``source`` says who did. Counts: those of ``ranking``, how many documents came ``from_`` each, and
    the profiles that went ``without_`` one.

    Raises ValueError, naming the example, for a proposed document that the initial retriever does not rank.
    """
    names = ["initial", *proposals]
    counts = {**ranking.counts, **{f"from_{n}": 0 for n in names}, **{f"without_{n}": 0 for n in proposals}}
    columns: dict[str, list[Any]] = {name: [] for name in CandidateTable.schema.names}
    for example_id, *proposed in zip(ranking.example_ids, *proposals.values(), strict=True):
        rows = ranking.rows(example_id)
        place = {document_id: position for position, document_id in enumerate(rows.document_ids)}
        taken = round_robin([rows.document_ids, *proposed], l)
        unknown = [document_id for document_id in taken if document_id not in place]
        if unknown:
            raise ValueError(
                f"example {example_id!r}: {names[taken[unknown[0]]]} proposes document {unknown[0]!r}, which the "
                "initial retriever does not rank; give both the same documents"
            )
        for name, ids in zip(proposals, proposed, strict=True):
            counts[f"without_{name}"] += not ids
        for document_id in sorted(taken, key=place.__getitem__):
            source, position = names[taken[document_id]], place[document_id]
            counts[f"from_{source}"] += 1
            columns["example_id"].append(example_id)
            columns["document_id"].append(document_id)
            columns["rank"].append(rows.ranks[position])
            columns["score"].append(rows.scores[position])
            columns["source"].append(source)
            columns["round"].append(0)
    made = CandidateTable(pa.table(columns, schema=CandidateTable.schema), identity, counts)
    found = examples_by_id(examples, ranking.example_ids)
    made.owners = list({owner_digest(examples[index].user): None for index in found.values()})
    return made
