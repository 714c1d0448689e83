"""Candidates: the documents of a profile that the LLM is asked about, ranked by the initial retriever."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from tqdm import tqdm

from ropg.examples import Example
from ropg.feedback.owners import owner_digest
from ropg.feedback.tables import ExampleTable
from ropg.retrievers import Ranked, Request, Retriever
from ropg.tasks import Task

_SCHEMA = pa.schema(
    [
        ("example_id", pa.string()),
        ("document_id", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float64()),
        ("source", pa.string()),
        ("round", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True)
class CandidateRows:
    """The candidates of one example, best first; all tuples have the same length."""

    example_id: str
    document_ids: tuple[str, ...]
    ranks: tuple[int, ...]
    scores: tuple[float, ...]


class CandidateTable(ExampleTable):
    """Rows (example_id, document_id, rank from 1, score, source, round); those of an example lie together.

    ``identity`` says what made the table, ``counts`` how many examples were ranked and skipped.
    """

    kind = "candidates"
    schema = _SCHEMA

    def rows(self, example_id: str) -> CandidateRows:
        """The candidates of one example, read from those rows alone. Raises KeyError where it has none."""
        part = self.part(example_id)
        return CandidateRows(
            example_id,
            tuple(part.column("document_id").to_pylist()),
            tuple(part.column("rank").to_pylist()),
            tuple(part.column("score").to_pylist()),
        )


def build_candidates(
    examples: Sequence[Example],
    task: Task,
    retriever: Retriever,
    l: int | Literal["all"] = 16,  # noqa: E741  (the paper's letter)
    source: str = "initial",
    round: int = 0,
    *,
    identity: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> CandidateTable:
    """Rank every profile with φ_q(x) and keep the top ``l`` documents (``"all"``: the whole ranking).

    Examples are read one after another and only ids and scores are kept, so lazy ones stay lazy. A profile
    with fewer than two documents has nothing to learn; it gets no rows and is counted
    (``skipped_profiles``), as is a ranking that a retriever cut below two (``skipped_rankings``).
    ``source`` and ``round`` say where candidates come from when a later round refreshes them; ``identity``
    (data, retriever, …) is kept in the file so that a stale one is noticed.

    Raises ValueError, naming the example, for a repeated example id or document, a score that is not
    finite, and an ``l`` below 2.
    """
    if l != "all" and (isinstance(l, bool) or not isinstance(l, int) or l < 2):
        raise ValueError(f"l is {l!r}; it is a whole number from 2 on, or 'all'")
    counts = {"examples": len(examples), "kept": 0, "skipped_profiles": 0, "skipped_rankings": 0}
    columns: dict[str, list[Any]] = {"example_id": [], "document_id": [], "rank": [], "score": []}
    seen: set[str] = set()
    owners: dict[str, None] = {}
    waiting: deque[str] = deque()  # examples asked about whose ranking has not yet come
    with tqdm(total=len(examples), desc="rank", unit=" examples", disable=not progress, delay=2.0) as bar:

        def requests() -> Iterator[Request]:
            for index in range(len(examples)):
                example = examples[index]
                if example.id in seen:
                    raise ValueError(f"example {example.id!r} comes twice; ids must be unique")
                seen.add(example.id)
                if len(example.profile) < 2:
                    counts["skipped_profiles"] += 1
                    bar.update()
                    continue
                waiting.append(example.id)
                owners[owner_digest(example.user)] = None
                yield Request(task.query(example.input), example.profile, example)

        for ranking in retriever.rank_stream(requests()):
            example_id = waiting.popleft()
            bar.update()
            if len(ranking) < 2:
                counts["skipped_rankings"] += 1
                continue
            _check(example_id, ranking)
            counts["kept"] += 1
            for rank, place in enumerate(ranking if l == "all" else ranking[:l], start=1):
                columns["example_id"].append(example_id)
                columns["document_id"].append(place.document.id)
                columns["rank"].append(rank)
                columns["score"].append(float(place.score))
    if waiting:
        raise ValueError(
            f"the retriever gave no ranking for example {waiting[0]!r} and {len(waiting) - 1} more"
        )
    size = len(columns["rank"])
    table = pa.table({**columns, "source": [source] * size, "round": [round] * size}, schema=_SCHEMA)
    made = CandidateTable(table, identity or {}, counts)
    made.owners = list(owners)
    return made


def _check(example_id: str, ranking: Sequence[Ranked]) -> None:
    seen: set[str] = set()
    for place in ranking:
        document = place.document.id
        if document in seen:
            raise ValueError(f"example {example_id!r}: the retriever ranks document {document!r} twice")
        seen.add(document)
        if not math.isfinite(place.score):
            raise ValueError(
                f"example {example_id!r}, document {document!r}: the retriever's score is {place.score}; "
                "look at the document's text and at the encoder"
            )
