"""What training reads: each query with its candidates' texts, rewards and initial scores side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ropg.examples import Example
from ropg.feedback.candidates import CandidateTable
from ropg.feedback.lookup import documents_by_id, examples_by_id
from ropg.feedback.scorer import FeedbackTable
from ropg.tasks import Task


@dataclass(frozen=True, slots=True)
class ScoredQuery:
    """One query with its K candidates; the tuples all have length K and run in candidate order.

    ``baseline`` is the reward of d_b, the initial retriever's first document (Eq. 2). ``ranks`` start at 1.
    """

    example_id: str
    query: str
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    rewards: tuple[float, ...]
    initial_scores: tuple[float, ...]
    ranks: tuple[int, ...]
    baseline: float


def join(
    candidates: CandidateTable,
    feedback: FeedbackTable,
    examples: Sequence[Example],
    task: Task,
    baselines: Mapping[str, float] | None = None,
) -> list[ScoredQuery]:
    """Join the two tables with the texts, in candidate order, for the queries that have feedback (a target).

    ``baselines``: example id -> reward of d_b, for candidates among which d_b may be missing.

    Raises ValueError, naming the example, where the tables do not belong together or to the examples.
    """
    example_ids = [example_id for example_id in candidates.example_ids if example_id in feedback]
    unknown = [example_id for example_id in feedback.example_ids if example_id not in candidates]
    if unknown:
        raise ValueError(
            f"feedback for example {unknown[0]!r} and {len(unknown) - 1} more without candidates; the "
            "tables do not belong together: score the candidates again"
        )
    found = examples_by_id(examples, example_ids)
    return [
        _join_one(candidates, feedback, examples[found[i]], task, None if baselines is None else baselines[i])
        for i in example_ids
    ]


def _join_one(
    candidates: CandidateTable,
    feedback: FeedbackTable,
    example: Example,
    task: Task,
    baseline: float | None,
) -> ScoredQuery:
    rows = candidates.rows(example.id)
    rewards = feedback.rewards(example.id)
    if set(rewards) != set(rows.document_ids) or (baseline is None and 1 not in rows.ranks):
        raise ValueError(
            f"example {example.id!r}: its {len(rewards)} rewards and {len(rows.document_ids)} candidates are "
            "not of the same documents with one of rank 1; score the candidates again"
        )
    texts = [task.document_text(document) for document in documents_by_id(example, rows.document_ids)]
    return ScoredQuery(
        example_id=example.id,
        query=task.query(example.input),
        document_ids=rows.document_ids,
        documents=tuple(texts),
        rewards=tuple(rewards[document_id] for document_id in rows.document_ids),
        initial_scores=rows.scores,
        ranks=rows.ranks,
        baseline=rewards[rows.document_ids[rows.ranks.index(1)]] if baseline is None else baseline,
    )
