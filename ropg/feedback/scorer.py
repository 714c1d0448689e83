"""Feedback: how well the LLM does with each candidate alone in its prompt, Eval(y, M(φ_p(x, [d]))).

This is the expensive stage. All texts go through the generation store, so another metric, a selector or
an evaluation costs no LLM call for what was generated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from tqdm import tqdm

from ropg.examples import Example
from ropg.feedback.candidates import CandidateTable
from ropg.feedback.generation import GenerationReport, generate_missing
from ropg.feedback.likelihood import likelihoods_missing
from ropg.feedback.lookup import documents_by_id, examples_by_id
from ropg.feedback.store import GenerationStore
from ropg.feedback.tables import ExampleTable
from ropg.llms import LLM
from ropg.tasks import Task
from ropg.tasks.budget import CUTS, count_cuts
from ropg.tasks.metrics import LIKELIHOOD

Eval = Literal["metric", "likelihood"]
_SCHEMA = pa.schema(
    [
        ("example_id", pa.string()),
        ("document_id", pa.string()),
        ("prompt_key", pa.string()),
        ("reward", pa.float64()),
    ]
)


class FeedbackTable(ExampleTable):
    """Rows (example_id, document_id, prompt_key, reward in [0, 1]) in the order of the candidates.

    ``prompt_key`` finds the text (or likelihood) in the store. ``counts`` holds what was skipped or cut;
    ``report`` says what generation took and ``llm_calls`` how many texts or likelihoods the LLM made for
    this table just now; both are of the run that scored and never in the file.
    """

    kind = "feedback"
    schema = _SCHEMA

    def __init__(
        self,
        table: pa.Table,
        identity: Mapping[str, Any],
        counts: Mapping[str, int],
        report: GenerationReport | None = None,
        llm_calls: int = 0,
    ) -> None:
        super().__init__(table, identity, counts)
        self.report = report
        self.llm_calls = llm_calls

    def rewards(self, example_id: str) -> dict[str, float]:
        """Document id -> reward of one example, in table order. Raises KeyError where it has none."""
        part = self.part(example_id)
        return dict(
            zip(part.column("document_id").to_pylist(), part.column("reward").to_pylist(), strict=True)
        )


def feedback_identity(
    task: Task, candidates: CandidateTable, llm: LLM, eval: Eval = "metric"
) -> dict[str, Any]:
    """What makes a feedback table: the LLM with its decoding, the task with its Eval, and the candidates."""
    return {
        "candidates": candidates.identity,
        "decoding": dict(llm.decoding),
        "eval": task.eval_identity if eval == "metric" else "likelihood",
        "llm": dict(llm.identity),
        "task": task.name,
        "template": task.template,
    }


@dataclass(frozen=True, slots=True)
class _Asked:
    """One candidate and the prompt that holds it."""

    example_id: str
    document_id: str
    prompt: str
    target: str
    user: str


def score_candidates(
    examples: Sequence[Example],
    task: Task,
    candidates: CandidateTable,
    llm: LLM,
    store: GenerationStore,
    eval: Eval = "metric",
    *,
    progress: bool = True,
) -> FeedbackTable:
    """Ask the LLM with every candidate alone in the prompt and reward what it answers (Eq. 2's Eval).

    ``eval="metric"`` is the task's metric between the generated text and y; ``"likelihood"`` is
    exp(mean log-probability per token of y), which generates nothing. Examples without a target are
    skipped and counted. Counts: ``rows``, ``examples``, ``skipped_no_target``, ``unparsed`` (answers that
    the task's parser cannot read), ``truncated_answers`` (cut off by the limit of new tokens),
    ``trimmed_prompts``, ``shortened_documents`` and ``dropped_documents`` (by the token budget).

    Raises ValueError, naming the record, before any LLM call where the task does not know a target or a
    candidate is not in its profile; after it, where a reward is not a number in [0, 1].
    """
    if eval not in ("metric", "likelihood"):
        raise ValueError(f"eval is {eval!r}; it is 'metric' or 'likelihood'")
    if eval == "metric" and task.metric == LIKELIHOOD:
        raise ValueError(
            f"{task.name}: the metric 'likelihood' is no property of a generated text; score with "
            "eval='likelihood' (feedback.eval=likelihood), or choose another metric"
        )
    found = examples_by_id(examples, candidates.example_ids)
    with_target = [i for i in candidates.example_ids if examples[found[i]].target is not None]
    for example_id in with_target:
        task.check_target(str(examples[found[example_id]].target), record=example_id)

    counts = dict.fromkeys(("rows", "examples", "skipped_no_target"), 0)
    counts["skipped_no_target"] = len(candidates.example_ids) - len(with_target)
    asked, cut = _build_prompts(examples, found, with_target, task, candidates, llm, progress)
    counts |= {"rows": len(asked), "examples": len(with_target)} | cut

    users = [a.user for a in asked]
    if eval == "metric":
        prompts = [a.prompt for a in asked]
        report = generate_missing(
            llm, prompts, store, owners=users, progress=progress, description="feedback"
        )
        rewards = [
            task.score(text, a.target)
            for a, text in zip(
                tqdm(asked, desc="rewards", disable=not progress, delay=2.0), report.texts, strict=True
            )
        ]
        counts["unparsed"] = sum(not task.is_parsed(text) for text in report.texts)
        counts["truncated_answers"] = sum(
            r is not None and r.finish_reason == "length" for r in report.records
        )
        keys, llm_calls = report.keys, report.n_generated
    else:
        report = None
        pairs = [(a.prompt, a.target) for a in asked]
        keys, values, llm_calls = likelihoods_missing(
            llm, pairs, store, owners=users, progress=progress, description="likelihood"
        )
        rewards = [math.exp(min(value, 0.0)) for value in values]
    for a, reward in zip(asked, rewards, strict=True):
        check_reward(reward, f"example {a.example_id!r}, document {a.document_id!r}", task, eval)
    table = pa.table(
        {
            "example_id": [a.example_id for a in asked],
            "document_id": [a.document_id for a in asked],
            "prompt_key": keys,
            "reward": [float(reward) for reward in rewards],
        },
        schema=_SCHEMA,
    )
    return FeedbackTable(table, feedback_identity(task, candidates, llm, eval), counts, report, llm_calls)


def _build_prompts(
    examples: Sequence[Example],
    found: Mapping[str, int],
    example_ids: Sequence[str],
    task: Task,
    candidates: CandidateTable,
    llm: LLM,
    progress: bool,
) -> tuple[list[_Asked], dict[str, int]]:
    asked: list[_Asked] = []
    cut = dict.fromkeys(CUTS, 0)
    for example_id in tqdm(example_ids, desc="prompts", unit=" examples", disable=not progress, delay=2.0):
        example = examples[found[example_id]]
        ids = candidates.rows(example_id).document_ids
        for document in documents_by_id(example, ids):
            prompt = task.build_prompt(
                example.input, [document], tokenizer=llm.count_tokens, max_tokens=llm.max_input_tokens
            )
            count_cuts(cut, prompt)
            asked.append(_Asked(example_id, document.id, prompt.text, str(example.target), example.user))
    return asked, cut


def check_reward(reward: float, where: str, task: Task, eval: Eval) -> None:
    """Raise ValueError, saying ``where``, unless a reward is a number in [0, 1]."""
    if not (math.isfinite(reward) and 0.0 <= reward <= 1.0):
        name = task.eval_identity if eval == "metric" else "likelihood"
        raise ValueError(
            f"{where}: the reward by {name} is {reward}, not a number in [0, 1]; correct the metric (the texts are "
            "kept in the store)"
        )
