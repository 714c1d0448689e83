"""Candidates that follow the encoder: every few epochs a training query's are the top l by the encoder as it now is.

The run folder keeps the tables of each round, ``candidates-round-<r>.parquet`` and ``feedback-round-<r>.parquet``; the
generations go to the store, so that only prompts that nobody has asked yet cost LLM calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from ropg import build, processes, tables, training_split
from ropg.configuration import Config
from ropg.console import counts, say
from ropg.examples import Example
from ropg.feedback.candidates import CandidateTable, build_candidates
from ropg.feedback.queries import ScoredQuery, join
from ropg.feedback.scorer import FeedbackTable, feedback_identity, score_candidates
from ropg.feedback.store import GenerationStore
from ropg.feedback.tables import TableError
from ropg.runs import RunError, decisive
from ropg.training.rows import Refreshed


class Refresher:
    """The function (round, whether it begins now) -> rows that training asks, see :data:`ropg.training.rows.Refresh`.

    A round that begins is made, over what a killed try may have left of it; one that began before an interruption
    is read back, since the encoder has been trained on since.

    Parameters
    ----------
    config, task, llm, store: of the run; the store is open, and the LLM loads at the first missing prompt.
    examples: of the training split.
    queries: with the candidates of round 0. Their baseline, d_b's reward, stays.
    ranking: whole profiles as the initial encoder ranks them: rank and score that every document keeps.
    encoder: the one in training.
    folder: the run's.
    meet: told the rows of each round, for a scorer that keeps vectors of documents.
    """

    def __init__(
        self,
        config: Config,
        examples: Sequence[Example],
        queries: Sequence[ScoredQuery],
        task: Any,
        encoder: Any,
        llm: Any,
        store: GenerationStore,
        ranking: CandidateTable,
        folder: Path,
        meet: Callable[[Sequence[Any]], None] | None = None,
    ) -> None:
        self._config, self._task, self._encoder, self._llm, self._store = config, task, encoder, llm, store
        self._examples, self._ranking, self._folder, self._meet = examples, ranking, folder, meet
        self._first = {query.example_id: query for query in queries}
        data = build.examples_fingerprint(examples)
        self._identity = {
            **tables.candidate_identity(config, task, encoder.fingerprint, data),
            "run": decisive(config),
        }

    def __call__(self, round: int, begins: bool) -> Refreshed:
        """The rows of a round from 1 on. Raises RunError where a round of before cannot be read back."""
        candidates, feedback = self._make(round) if begins else self._read(round)
        baselines = {example_id: query.baseline for example_id, query in self._first.items()}
        rows = join(candidates, feedback, self._examples, self._task, baselines)
        if self._meet is not None:
            self._meet(rows)
        numbers = {name: candidates.counts[name] for name in ("candidates", "new_candidates")}
        return Refreshed(rows, numbers)

    def _make(self, round: int) -> tuple[CandidateTable, FeedbackTable]:
        path = self._path("candidates", round)
        with processes.main_first():
            if processes.is_main():
                self._rank(round).write(path)
            candidates = self._read_candidates(round)
        new = candidates.counts["new_candidates"]
        say(
            "rank",
            f"round {round}: {len(candidates)} candidates by the encoder as it is now, {new} of them new",
        )
        eval = training_split.eval_of(self._config, "train")
        feedback = score_candidates(self._examples, self._task, candidates, self._llm, self._store, eval)
        if processes.is_main():
            feedback.write(self._path("feedback", round))
        processes.wait()
        calls = feedback.llm_calls
        say(
            "feedback",
            f"round {round}: {len(feedback)} rewards, {calls} LLM calls; {counts(feedback.counts)}",
        )
        return candidates, feedback

    def _rank(self, round: int) -> CandidateTable:
        """The encoder's top l of every query of round 0, with the initial ranking's ranks and scores."""
        retriever = tables.retriever_of("initial", self._config, self._task, self._encoder)
        top = build_candidates(
            self._examples,
            self._task,
            retriever,
            l=self._config.candidates.l,
            identity={**self._identity, "round": round},
        )
        seen = {(query.example_id, d) for query in self._first.values() for d in query.document_ids}
        for earlier in range(1, round):
            kept = self._read_candidates(earlier).table
            pairs = (kept.column(name).to_pylist() for name in ("example_id", "document_id"))
            seen.update(zip(*pairs, strict=True))
        return with_initial_places(top, self._ranking, self._first, seen, round)

    def _read(self, round: int) -> tuple[CandidateTable, FeedbackTable]:
        candidates = self._read_candidates(round)
        eval = training_split.eval_of(self._config, "train")
        identity = feedback_identity(self._task, candidates, self._llm, eval)
        path = self._path("feedback", round)
        return candidates, self._readable(path, lambda: FeedbackTable.read(path, identity))

    def _read_candidates(self, round: int) -> CandidateTable:
        path = self._path("candidates", round)
        return self._readable(path, lambda: CandidateTable.read(path, {**self._identity, "round": round}))

    def _readable(self, path: Path, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (FileNotFoundError, TableError) as error:
            raise RunError(
                f"{path}, which the training has learned from, cannot be read back ({error}); remove "
                f"{self._folder / 'checkpoints'} to train anew"
            ) from error

    def _path(self, kind: str, round: int) -> Path:
        return self._folder / f"{kind}-round-{round}.parquet"


def with_initial_places(
    top: CandidateTable,
    ranking: CandidateTable,
    wanted: Mapping[str, Any],
    seen: set[tuple[str, str]],
    round: int,
) -> CandidateTable:
    """The rows of ``top`` in the order, and with the ranks and scores, of the initial ``ranking`` of whole profiles.

    Examples that are not ``wanted`` are left out. Counts, besides those of ``top``: ``candidates``, and
    ``new_candidates``, the pairs of example and document that are not among ``seen``. ``source`` becomes "trained".

    Raises ValueError, naming the example, for a document that the initial ranking lacks.
    """
    columns: dict[str, list[Any]] = {name: [] for name in CandidateTable.schema.names}
    new = 0
    for example_id in top.example_ids:
        if example_id not in wanted:
            continue
        chosen = set(top.rows(example_id).document_ids)
        rows = ranking.rows(example_id)
        places = [
            place
            for place in zip(rows.document_ids, rows.ranks, rows.scores, strict=True)
            if place[0] in chosen
        ]
        if len(places) < len(chosen):
            lost = min(chosen - {document_id for document_id, _, _ in places})
            raise ValueError(
                f"example {example_id!r}: document {lost!r} is not in the initial ranking; build it again"
            )
        for document_id, rank, score in places:
            new += (example_id, document_id) not in seen
            row = (example_id, document_id, rank, score, "trained", round)
            for name, value in zip(CandidateTable.schema.names, row, strict=True):
                columns[name].append(value)
    table = pa.table(columns, schema=CandidateTable.schema)
    numbers = {**top.counts, "candidates": len(table), "new_candidates": new}
    made = CandidateTable(table, top.identity, numbers)
    made.owners = top.owners
    return made


@contextmanager
def refreshing(
    config: Config,
    examples: Sequence[Example],
    queries: Sequence[ScoredQuery],
    task: Any,
    encoders: tuple[Any, Any],
    llm: Any,
    store: GenerationStore,
    folder: Path,
    meet: Callable[[Sequence[Any]], None] | None = None,
) -> Iterator[Refresher | None]:
    """What ``candidates.refresh`` makes rows with, the store open meanwhile; None where it is null.

    ``encoders``: the initial one, not trained yet, and the one in training, which may be the same object.
    """
    if config.candidates.refresh is None:
        yield None
        return
    initial, encoder = encoders
    ranking = tables.initial_ranking(config, task, initial, "train", examples)
    with store:
        yield Refresher(config, examples, queries, task, encoder, llm, store, ranking, folder, meet)
