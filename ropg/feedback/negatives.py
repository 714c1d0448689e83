"""Hard negatives: documents just outside the candidates, which train without feedback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ropg.examples import Example
from ropg.feedback.candidates import CandidateTable
from ropg.feedback.lookup import documents_by_id, examples_by_id
from ropg.feedback.queries import ScoredQuery
from ropg.tasks import Task


def with_negatives(
    queries: Sequence[ScoredQuery],
    ranking: CandidateTable,
    l: int,  # noqa: E741  (the paper's letter)
    number: int,
    examples: Sequence[Example],
    task: Task,
) -> list[ScoredQuery]:
    """Append to each query the ``number`` documents that the initial retriever ranks right after its top ``l``.

    Nobody asked the LLM about them: their reward is assumed to be the lowest of the query's candidates. They keep
    their rank and score of ``ranking``, the initial retriever's of whole profiles, and leave the baseline as it is.
    Documents that are candidates already (other retrievers may propose them) are passed over; a profile that ends
    before gives fewer.

    Raises ValueError, naming the example, where ranking or examples are of other data.
    """
    found = examples_by_id(examples, [query.example_id for query in queries])
    grown = []
    for query in queries:
        if query.example_id not in ranking:
            raise ValueError(f"example {query.example_id!r} is not in the initial ranking; build it again")
        rows = ranking.rows(query.example_id)
        below = [
            place
            for place in zip(rows.document_ids, rows.scores, rows.ranks, strict=True)
            if place[2] > l and place[0] not in query.document_ids
        ][:number]
        ids, scores, ranks = zip(*below, strict=True) if below else ((), (), ())
        documents = documents_by_id(examples[found[query.example_id]], ids)
        grown.append(
            replace(
                query,
                document_ids=query.document_ids + ids,
                documents=query.documents + tuple(map(task.document_text, documents)),
                rewards=query.rewards + (min(query.rewards),) * len(ids),
                initial_scores=query.initial_scores + scores,
                ranks=query.ranks + ranks,
            )
        )
    return grown
