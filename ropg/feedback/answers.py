"""Answers for evaluation: one generated text per example from a ranking, through the same store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from ropg.examples import Document, Example
from ropg.feedback.generation import GenerationReport, generate_missing
from ropg.feedback.store import GenerationStore
from ropg.llms import LLM
from ropg.tasks import Task
from ropg.tasks.budget import CUTS, count_cuts


@dataclass(frozen=True, slots=True)
class Answers:
    """Raw generated texts by example id, the documents that stood in each prompt, and counts.

    Counts: ``examples``, ``unparsed``, ``truncated_answers``, and those of
    :func:`ropg.tasks.budget.count_cuts`.
    """

    texts: dict[str, str]
    kept_ids: dict[str, tuple[str, ...]]
    counts: dict[str, int]
    report: GenerationReport


def generate_answers(
    examples: Sequence[Example],
    task: Task,
    rankings: Mapping[str, Sequence[Document]],
    llm: LLM,
    store: GenerationStore,
    *,
    progress: bool = True,
    description: str = "answers",
) -> Answers:
    """Answer every example with the documents that ``rankings`` gives it, already cut to the top k.

    An empty ranking gives the prompt without personalization, φ_p(x, []) = x. No target is needed.

    Raises ValueError, naming the example, where one has no ranking or comes twice.
    """
    prompts: list[str] = []
    users: list[str] = []
    kept_ids: dict[str, tuple[str, ...]] = {}
    counts = {"examples": len(examples)} | dict.fromkeys(CUTS, 0)
    for index in tqdm(
        range(len(examples)), desc="prompts", unit=" examples", disable=not progress, delay=2.0
    ):
        example = examples[index]
        if example.id not in rankings:
            raise ValueError(f"example {example.id!r} has no ranking; give an empty list for no documents")
        if example.id in kept_ids:
            raise ValueError(f"example {example.id!r} comes twice; ids must be unique")
        prompt = task.build_prompt(
            example.input,
            list(rankings[example.id]),
            tokenizer=llm.count_tokens,
            max_tokens=llm.max_input_tokens,
        )
        prompts.append(prompt.text)
        users.append(example.user)
        kept_ids[example.id] = tuple(prompt.kept_ids)
        count_cuts(counts, prompt)
    report = generate_missing(llm, prompts, store, owners=users, progress=progress, description=description)
    counts["unparsed"] = sum(not task.is_parsed(text) for text in report.texts)
    counts["truncated_answers"] = sum(r is not None and r.finish_reason == "length" for r in report.records)
    return Answers(dict(zip(kept_ids, report.texts, strict=True)), kept_ids, counts, report)
