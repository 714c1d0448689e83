"""The pool: what every retriever of it finds for every input, and what the LLM answers and earns with it.

All texts go through the generation store that ROPG's feedback filled, so that the LLM is asked for no
prompt that it has answered before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tqdm import tqdm

from ropg.evaluation.systems import rank_examples
from ropg.examples import Document, Example
from ropg.feedback.generation import generate_missing
from ropg.feedback.likelihood import likelihoods_missing
from ropg.feedback.store import GenerationStore
from ropg.retrievers import Ranked
from rspg.qpp import PREDICTORS


@dataclass(frozen=True, slots=True)
class Member:
    """One retriever of the pool. ``name`` is that of files and keys, ``label`` that of tables."""

    name: str
    label: str
    retriever: Any


@dataclass(frozen=True, slots=True)
class Reading:
    """What one member gives for one input.

    top: its first k documents. documents: those of them that stand in the prompt. prompt: φ_p. text: what the
    LLM generated; None where nothing has been generated yet.
    """

    member: str
    top: tuple[Document, ...]
    documents: tuple[Document, ...]
    prompt: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class PoolTable:
    """A pool of R members on Q examples.

    names, labels: (R,) of the members. example_ids: (Q,). inputs: (Q,) the x of each example.
    readings: (Q,) tuples of R. rewards: (Q, R) Eval of each text, NaN where an example has no target.
    predictions: query performance predictor -> (Q, R).
    counts: ``examples``, ``without_target``, ``empty_rankings``, ``prompts``, ``distinct_prompts``,
    ``unparsed``, ``trimmed_prompts``, ``dropped_documents``. llm_calls: texts generated just now.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    example_ids: tuple[str, ...]
    inputs: tuple[str, ...]
    readings: tuple[tuple[Reading, ...], ...]
    rewards: np.ndarray
    predictions: Mapping[str, np.ndarray]
    counts: dict[str, int] = field(default_factory=dict)
    llm_calls: int = 0

    @property
    def scored(self) -> np.ndarray:
        """(Q,) bool: the examples with a target."""
        return ~np.isnan(self.rewards).any(axis=1)

    @property
    def distinct_prompts(self) -> float:
        """How many different prompts an example has on average: what Post costs in LLM calls."""
        return float(np.mean([len({r.prompt for r in members}) for members in self.readings]))

    def restricted(self, names: Sequence[str]) -> PoolTable:
        """The same table for some of its members, in the order of ``names``. Raises ValueError for another name."""
        unknown = [name for name in names if name not in self.names]
        if unknown or not names:
            raise ValueError(
                f"the pool has {', '.join(self.names)}, and not {', '.join(unknown) or 'no one'}"
            )
        kept = [self.names.index(name) for name in names]
        return PoolTable(
            tuple(names),
            tuple(self.labels[i] for i in kept),
            self.example_ids,
            self.inputs,
            tuple(tuple(members[i] for i in kept) for members in self.readings),
            self.rewards[:, kept],
            {name: values[:, kept] for name, values in self.predictions.items()},
            self.counts,
            self.llm_calls,
        )


def read_pool(
    members: Sequence[Member],
    examples: Sequence[Example],
    task: Any,
    llm: Any,
    store: GenerationStore,
    k: int,
    *,
    eval: str = "metric",
    description: str = "pool",
    progress: bool = True,
) -> PoolTable:
    """Rank, build the prompts with the top k documents, generate what the store lacks, and score.

    ``eval`` is ``metric``, the task's, or ``likelihood``, the LLM's own probability of y. A profile that a
    member cannot rank counts among the empty rankings and is answered without documents.

    Raises ValueError for an empty pool, two members of one name, an example id that comes twice, and, naming
    the record, a target that the task does not know.
    """
    names = [member.name for member in members]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"a pool has members of different names, at least one; this one has {names}")
    ids = [examples[i].id for i in range(len(examples))]
    if len(set(ids)) < len(ids):
        raise ValueError(
            f"example {next(i for i in ids if ids.count(i) > 1)!r} comes twice; ids must be unique"
        )
    counts = dict.fromkeys(("empty_rankings", "trimmed_prompts", "dropped_documents"), 0)
    predictions = {name: np.zeros((len(ids), len(names))) for name in PREDICTORS}
    columns = []
    for column, member in enumerate(members):
        bar = tqdm(
            rank_examples(member.retriever, task, examples),
            total=len(ids),
            desc=f"{description}: {member.name}",
            unit=" examples",
            disable=not progress,
            delay=2.0,
        )
        found = []
        for row, (example, ranking) in enumerate(zip(examples, bar, strict=True)):
            scores, terms = np.array([r.score for r in ranking]), len(task.query(example.input).split())
            for name, predict in PREDICTORS.items():
                predictions[name][row, column] = predict(scores, terms)
            counts["empty_rankings"] += not ranking and member.retriever.fills_prompt
            found.append(read_one(member, example, ranking, task, llm, k, counts))
        columns.append(found)
    table = [tuple(column[row] for column in columns) for row in range(len(ids))]
    return _answered(
        members, examples, table, predictions, task, llm, store, eval, description, counts, progress
    )


def read_one(
    member: Member,
    example: Example,
    ranking: Sequence[Ranked],
    task: Any,
    llm: Any,
    k: int,
    counts: dict[str, int] | None = None,
) -> Reading:
    """The prompt of one member's top k for one example; ``counts`` gets what the token budget cut."""
    top = [ranked.document for ranked in ranking[:k]] if member.retriever.fills_prompt else []
    prompt = task.build_prompt(
        example.input, top, tokenizer=llm.count_tokens, max_tokens=llm.max_input_tokens
    )
    if counts is not None:
        counts["trimmed_prompts"] += prompt.trimmed
        counts["dropped_documents"] += prompt.dropped
    kept = set(prompt.kept_ids)
    return Reading(member.name, tuple(top), tuple(d for d in top if d.id in kept), prompt.text)


def _answered(
    members: Sequence[Member],
    examples: Sequence[Example],
    table: Sequence[tuple[Reading, ...]],
    predictions: Mapping[str, np.ndarray],
    task: Any,
    llm: Any,
    store: GenerationStore,
    eval: str,
    description: str,
    counts: dict[str, int],
    progress: bool,
) -> PoolTable:
    """Generate and score the prompts of a table."""
    targets = [examples[i].target for i in range(len(examples))]
    for example, target in zip(examples, targets, strict=True):
        if target is not None:
            task.check_target(target, record=example.id)
    prompts = [reading.prompt for row in table for reading in row]
    report = generate_missing(llm, prompts, store, progress=progress, description=description)
    llm_calls = report.n_generated
    width = len(members)
    texts = [report.texts[row * width : (row + 1) * width] for row in range(len(table))]
    readings = tuple(
        tuple(replace(r, text=text) for r, text in zip(row, answers, strict=True))
        for row, answers in zip(table, texts, strict=True)
    )
    rewards = np.full((len(table), width), np.nan)
    scored = [row for row, target in enumerate(targets) if target is not None]
    if eval == "likelihood":
        pairs = [(reading.prompt, str(targets[row])) for row in scored for reading in table[row]]
        _, values, calls = likelihoods_missing(llm, pairs, store, progress=progress, description="likelihood")
        llm_calls += calls
        rewards[scored] = np.exp(np.minimum(np.array(values), 0.0)).reshape(len(scored), width)
    else:
        for row in scored:
            rewards[row] = [task.score(text, targets[row]) for text in texts[row]]
    counts |= {
        "examples": len(table),
        "without_target": len(table) - len(scored),
        "prompts": len(prompts),
        "distinct_prompts": report.n_distinct,
        "unparsed": sum(not task.is_parsed(text) for text in report.texts),
    }
    return PoolTable(
        tuple(member.name for member in members),
        tuple(member.label for member in members),
        tuple(example.id for example in examples),
        tuple(example.input for example in examples),
        readings,
        rewards,
        predictions,
        counts,
        llm_calls,
    )
