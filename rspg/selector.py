"""The selector at inference: which retriever of its pool serves an input best, and the answer with it.

In five lines::

    from ropg.sources import load_examples
    from rspg.selector import load_selector
    selector = load_selector("runs/lamp-4-rspg_post-seed0-1a2b3c4d")
    choice = selector.select(load_examples("sample", split="test")[0])
    print(choice.retriever, choice.text)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ropg.console import say
from ropg.examples import Document, Example
from rspg.inputs import SelectorInput
from rspg.objectives import selection_log_probs
from rspg.pool import Member, PoolTable, Reading, read_one
from rspg.scorer import Scorer


@dataclass(frozen=True, slots=True)
class Choice:
    """What a selector chose for one input.

    retriever: the member's name. probabilities: P_S(R_i|x) of every member, Eq. 6. documents: those in the
    prompt, best first. prompt: φ_p. text: the LLM's parsed output, which Post has read; None for Pre, which
    chooses before anything is generated.
    """

    retriever: str
    probabilities: Mapping[str, float]
    documents: tuple[Document, ...]
    prompt: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Selector:
    """A trained scorer with a pool to choose from; the pool need not be the one it was trained with.

    ``llm`` counts the tokens of the prompts, and answers them where the scorer reads what was generated.
    """

    scorer: Scorer
    members: Sequence[Member]
    task: Any
    llm: Any
    k: int = 4
    temperature: float = 1.0

    def select(self, example: Example) -> Choice:
        """Choose for one example. Post asks the LLM once for every different prompt of the pool.

        Of equal scores the first member's counts. A member that cannot rank the profile (recency without
        dates) reads no documents.
        """
        readings = [self._read(member, example) for member in self.members]
        if self.scorer.reads == "post":
            prompts = list(dict.fromkeys(reading.prompt for reading in readings))
            texts = dict(zip(prompts, self.llm.generate(prompts), strict=True))
            readings = [replace(r, text=texts[r.prompt]) for r in readings]
        scores = score(self.scorer, [self.scorer.read(self.task, example.input, readings)])  # (1, R)
        probabilities = selection_log_probs(
            scores, torch.ones_like(scores, dtype=torch.bool), self.temperature
        )
        best = readings[first_best(scores)[0]]
        return Choice(
            best.member,
            {r.member: float(p) for r, p in zip(readings, probabilities.exp()[0], strict=True)},
            best.documents,
            best.prompt,
            None if best.text is None else self.task.parse(best.text),
        )

    def _read(self, member: Member, example: Example) -> Reading:
        from ropg.retrievers import Request

        query, ranking = self.task.query(example.input), []
        if len(example.profile) and member.retriever.can_rank(Request(query, example.profile, example)):
            ranking = member.retriever.rank(query, example.profile, example=example)
        return read_one(member, example, ranking, self.task, self.llm, self.k)


def score(scorer: Scorer, inputs: Sequence[Sequence[SelectorInput]]) -> torch.Tensor:
    """Selection scores of what the scorer reads of every member for every input, without gradient. -> (Q, R)"""
    with torch.no_grad():
        scores = scorer.scores([one for members in inputs for one in members])
    return scores.float().cpu().reshape(len(inputs), -1)


def say_cut(
    stage: str,
    scorer: Scorer,
    readings: Iterable[Sequence[Reading]],
    inputs: Iterable[Sequence[SelectorInput]],
) -> None:
    """Say how many inputs of a selector are not the whole of what the LLM read and wrote."""
    pairs = [
        pair
        for members, read in zip(readings, inputs, strict=True)
        for pair in zip(members, read, strict=True)
    ]
    cut = sum(
        not read.prompt.endswith(reading.prompt)
        or (read.text is not None and read.text != (reading.text or ""))
        for reading, read in pairs
    )
    if cut:
        say(
            stage,
            f"{cut} of {len(pairs)} prompts or answers are cut to selector.max_length={scorer.max_length}",
        )


def first_best(scores: torch.Tensor) -> list[int]:
    """The index of the highest score of each row, the first one on ties. (Q, R) -> Q indices

    >>> first_best(torch.tensor([[0.5, 2.0, 2.0], [1.0, 0.0, 1.0]]))
    [1, 0]
    """
    found: list[int] = scores.numpy().argmax(axis=1).tolist()  # numpy promises the first of equal maxima
    return found


def choose(scorer: Scorer, task: Any, table: PoolTable) -> list[int]:
    """The member that a selector picks for every example of a pool's table. -> Q indices"""
    if not table.example_ids:
        return []
    read = [scorer.read(task, x, members) for x, members in zip(table.inputs, table.readings, strict=True)]
    say_cut("choose", scorer, table.readings, read)
    return first_best(score(scorer, read))


def load_selector(run: str | Path, llm: Any = None) -> Selector:
    """The selector of a finished run, with the pool, the task and the LLM that it was trained with.

    ``llm``: another object with ``generate``, ``count_tokens`` and ``max_input_tokens``.

    Raises :class:`ropg.runs.RunError` where the folder is no run of a selector, holds no trained model yet, or where
    a trained member of its pool is not where it was.
    """
    from ropg import build
    from ropg.runs import RunError, load_config
    from rspg.members import build_members, pinned_pool

    folder = Path(run)
    config = load_config(folder)
    if config.method.reads is None:
        raise RunError(f"{folder} trained a retriever, {config.method.name}; name the run of a selector")
    if not (folder / "model").is_dir():
        raise RunError(f"{folder} holds no trained model yet; run train.py with run.dir={folder} to its end")
    task = build.build_task(config)
    members = build_members(config, task, *pinned_pool(folder))
    return Selector(
        Scorer.load(folder / "model", batch_tokens=config.selector.batch_tokens),
        members,
        task,
        build.build_llm(config, task) if llm is None else llm,
        config.retrieval.k,
        config.method.temperature,
    )
