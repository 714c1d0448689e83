"""Feedback on sets of documents, asked while training: Eval(y, M(φ_p(x, [d_1 … d_k]))), through the store.

Which sets the policy draws is known only as it trains, so they cannot be asked beforehand as single candidates are.
All prompts of a call are planned together and each batch is committed whole, as :func:`generate_missing` does it: a
run that was killed finds what it had asked, and makes of the rest what it would have made undisturbed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ropg.examples import Example
from ropg.feedback.generation import generate_missing
from ropg.feedback.likelihood import likelihoods_missing
from ropg.feedback.lookup import documents_by_id, examples_by_id
from ropg.feedback.queries import ScoredQuery
from ropg.feedback.scorer import Eval, check_reward
from ropg.feedback.store import GenerationStore
from ropg.llms import LLM
from ropg.tasks import Task
from ropg.tasks.budget import CUTS, count_cuts


@dataclass(frozen=True, slots=True)
class _Asked:
    """A set of documents of one query and the prompt that holds it; new where this set was not asked before."""

    example_id: str
    document_ids: tuple[str, ...]
    prompt: str
    target: str
    user: str
    is_new: bool


class SetFeedback:
    """The function (rows, sets) -> rewards that training asks.

    Parameters
    ----------
    examples: where inputs, targets and documents of the queries are read from.
    queries: those that may be asked about.
    task, llm, store: as for :func:`ropg.feedback.score_candidates`; the LLM loads at the first missing prompt.
    eval: "metric" or "likelihood", as for single documents.

    Attributes
    ----------
    llm_calls: texts, or likelihoods, that the LLM made here; what the store had is not among them.
    counts: ``sets``, the different ones (of a query, in their order) that were asked, ``unparsed`` and
        ``truncated_answers`` among their answers, and what the token budget cut from their prompts.

    Raises ValueError, naming the example, for a query that is not among the examples.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        queries: Sequence[ScoredQuery],
        task: Task,
        llm: LLM,
        store: GenerationStore,
        eval: Eval = "metric",
    ) -> None:
        self._examples = examples
        self._found = examples_by_id(examples, [query.example_id for query in queries])
        self._task, self._llm, self._store, self._eval = task, llm, store, eval
        self._seen: set[tuple[str, tuple[str, ...]]] = set()
        self.llm_calls = 0
        self.counts = dict.fromkeys(("sets", *CUTS, "unparsed", "truncated_answers"), 0)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the rewards besides the rows: the LLM with its decoding, and the task with its Eval."""
        return {
            "decoding": dict(self._llm.decoding),
            "eval": self._task.eval_identity if self._eval == "metric" else "likelihood",
            "llm": dict(self._llm.identity),
            "template": self._task.template,
        }

    def __call__(
        self, rows: Sequence[ScoredQuery], sets: Sequence[Sequence[Sequence[int]]]
    ) -> list[list[float]]:
        """The reward of each set: B rows, for each its sets, for each its candidates' places in their order.

        Raises ValueError, naming the example, where a reward is not a number in [0, 1]; else what the LLM and
        the store raise.
        """
        asked = [
            one
            for row, chosen in zip(rows, sets, strict=True)
            for one in self._prompts(row, [[row.document_ids[c] for c in columns] for columns in chosen])
        ]
        values = self._rewards(asked)
        for one, value in zip(asked, values, strict=True):
            where = f"example {one.example_id!r}, documents {', '.join(map(repr, one.document_ids))}"
            check_reward(value, where, self._task, self._eval)
        rewards = iter(values)
        return [[float(next(rewards)) for _ in chosen] for chosen in sets]

    def _prompts(self, row: ScoredQuery, sets: Sequence[Sequence[str]]) -> list[_Asked]:
        """What is asked about sets of document ids of one query."""
        example = self._examples[self._found[row.example_id]]
        wanted = list(dict.fromkeys(document_id for ids in sets for document_id in ids))
        documents = dict(zip(wanted, documents_by_id(example, wanted), strict=True))
        asked = []
        for ids in map(tuple, sets):
            prompt = self._task.build_prompt(
                example.input,
                [documents[document_id] for document_id in ids],
                tokenizer=self._llm.count_tokens,
                max_tokens=self._llm.max_input_tokens,
            )
            is_new = (row.example_id, ids) not in self._seen
            if is_new:
                self._seen.add((row.example_id, ids))
                self.counts["sets"] += 1
                count_cuts(self.counts, prompt)
            asked.append(_Asked(row.example_id, ids, prompt.text, str(example.target), example.user, is_new))
        return asked

    def _rewards(self, asked: Sequence[_Asked]) -> list[float]:
        """Eval of each; unreadable and cut answers to new sets are counted."""
        users = [one.user for one in asked]
        if self._eval == "likelihood":
            pairs = [(one.prompt, one.target) for one in asked]
            _, values, made = likelihoods_missing(self._llm, pairs, self._store, owners=users, progress=False)
            self.llm_calls += made
            return [math.exp(min(value, 0.0)) for value in values]
        prompts = [one.prompt for one in asked]
        report = generate_missing(self._llm, prompts, self._store, owners=users, progress=False)
        self.llm_calls += report.n_generated
        rewards = []
        for one, record in zip(asked, report.records, strict=True):
            assert record is not None  # no shard left it to others
            rewards.append(self._task.score(record.text, one.target))
            if one.is_new:
                self.counts["unparsed"] += not self._task.is_parsed(record.text)
                self.counts["truncated_answers"] += record.finish_reason == "length"
        return rewards
