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
from ropg.tasks.budget import CUTS, count_cuts
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

    names, labels: (R,) of the members. example_ids: (Q,). inputs, targets: (Q,) x and y of each example.
    readings: (Q,) tuples of R. rewards: (Q, R) Eval of each text, NaN where an example has no target.
    predictions: query performance predictor -> (Q, R).
    counts: ``examples``, ``without_target``, ``empty_rankings``, ``prompts``, ``distinct_prompts``,
    ``unparsed``, ``truncated_answers``, and those of :func:`ropg.tasks.budget.count_cuts`.
    llm_calls: texts generated just now.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    example_ids: tuple[str, ...]
    inputs: tuple[str, ...]
    targets: tuple[str | None, ...]
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
        """The same table for some of its members, in the order of ``names``; counts are left out.

        Raises ValueError for another name.
        """
        unknown = [name for name in names if name not in self.names]
        if unknown or not names:
            raise ValueError(
                f"the pool has {', '.join(self.names)}, and not {', '.join(unknown) or 'no one'}"
            )
        kept = [self.names.index(name) for name in names]
        return replace(
            self,
            names=tuple(names),
            labels=tuple(self.labels[i] for i in kept),
            readings=tuple(tuple(members[i] for i in kept) for members in self.readings),
            rewards=self.rewards[:, kept],
            predictions={name: values[:, kept] for name, values in self.predictions.items()},
            counts={},
            llm_calls=0,
        )

    def texts(self, chosen: Sequence[int]) -> dict[str, str]:
        """Example id -> what the LLM generated with the chosen member of each; (Q,) indices."""
        picked = zip(self.example_ids, self.readings, chosen, strict=True)
        return {example_id: members[member].text or "" for example_id, members, member in picked}


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

    Raises ValueError as :func:`rank_pool`, and, naming the record, for a target that the task does not know.
    """
    ranked = rank_pool(members, examples, task, llm, k, description=description, progress=progress)
    return _answered(ranked, examples, task, llm, store, eval, description, progress)


def rank_pool(
    members: Sequence[Member],
    examples: Sequence[Example],
    task: Any,
    llm: Any,
    k: int,
    *,
    description: str = "pool",
    progress: bool = True,
) -> PoolTable:
    """The table without texts and rewards: rankings, prompts and predictions, for which no LLM is asked.

    Raises ValueError for an empty pool, two members of one name, and an example id that comes twice.
    """
    names = [member.name for member in members]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"a pool has members of different names, at least one; this one has {names}")
    ids = [examples[i].id for i in range(len(examples))]
    if len(set(ids)) < len(ids):
        raise ValueError(
            f"example {next(i for i in ids if ids.count(i) > 1)!r} comes twice; ids must be unique"
        )
    counts = dict.fromkeys(("empty_rankings", *CUTS), 0)
    predictions = {name: np.zeros((len(ids), len(names))) for name in PREDICTORS}
    columns = []
    for column, member in enumerate(members):
        bar = tqdm(
            rank_examples(member.retriever, task, examples, must_rank=False),
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
    readings = tuple(tuple(column[row] for column in columns) for row in range(len(ids)))
    prompts = [reading.prompt for row in readings for reading in row]
    targets = tuple(example.target for example in examples)
    counts |= {
        "examples": len(ids),
        "without_target": sum(target is None for target in targets),
        "prompts": len(prompts),
        "distinct_prompts": len(set(prompts)),
    }
    return PoolTable(
        tuple(names),
        tuple(member.label for member in members),
        tuple(ids),
        tuple(example.input for example in examples),
        targets,
        readings,
        np.full((len(ids), len(names)), np.nan),
        predictions,
        counts,
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
        count_cuts(counts, prompt)
    kept = set(prompt.kept_ids)
    return Reading(member.name, tuple(top), tuple(d for d in top if d.id in kept), prompt.text)


def _answered(
    table: PoolTable,
    examples: Sequence[Example],
    task: Any,
    llm: Any,
    store: GenerationStore,
    eval: str,
    description: str,
    progress: bool,
) -> PoolTable:
    """Generate and score the prompts of a ranked table."""
    for example_id, target in zip(table.example_ids, table.targets, strict=True):
        if target is not None:
            task.check_target(target, record=example_id)
    prompts = [reading.prompt for row in table.readings for reading in row]
    width, users = len(table.names), [example.user for example in examples]
    owners = [user for user in users for _ in range(width)]
    report = generate_missing(llm, prompts, store, owners=owners, progress=progress, description=description)
    llm_calls = report.n_generated
    texts = [report.texts[row * width : (row + 1) * width] for row in range(len(table.readings))]
    rewards = table.rewards.copy()
    scored = [row for row, target in enumerate(table.targets) if target is not None]
    if eval == "likelihood":
        pairs = [
            (reading.prompt, str(table.targets[row])) for row in scored for reading in table.readings[row]
        ]
        owners = [users[row] for row in scored for _ in range(width)]
        _, values, calls = likelihoods_missing(
            llm, pairs, store, owners=owners, progress=progress, description="likelihood"
        )
        llm_calls += calls
        rewards[scored] = np.exp(np.minimum(np.array(values), 0.0)).reshape(len(scored), width)
    else:
        for row in scored:
            rewards[row] = [task.score(text, table.targets[row]) for text in texts[row]]
    return replace(
        table,
        readings=tuple(
            tuple(replace(r, text=text) for r, text in zip(row, answers, strict=True))
            for row, answers in zip(table.readings, texts, strict=True)
        ),
        rewards=rewards,
        counts=table.counts
        | {
            "unparsed": sum(not task.is_parsed(text) for text in report.texts),
            "truncated_answers": report.n_truncated,
        },
        llm_calls=llm_calls,
    )
