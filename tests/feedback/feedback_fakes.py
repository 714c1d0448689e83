"""Small stand-ins for a task, a retriever and an LLM that count what is asked of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ropg.examples import Document, Example
from ropg.llms.base import BatchedLLM
from ropg.tasks.budget import Prompt


class Answer(NamedTuple):
    text: str
    finish_reason: str
    prompt_tokens: int
    new_tokens: int


def number(text: str) -> float:
    """A value in [0, 1) that depends on every character."""
    return int(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16) / 2**32


@dataclass
class FakeLLM(BatchedLLM):
    """Answers depend on the whole batch, so a run that forms other batches gives other texts."""

    batch: int = 4
    sleep: float = 0.0
    log: str | None = None  # a file that outlives a kill: one line per prompt that is begun
    fail_at: int | None = None
    error: type[BaseException] = RuntimeError
    max_input_tokens: int = 512
    identity: dict = field(default_factory=lambda: {"kind": "fake", "model": "m"})
    decoding: dict = field(default_factory=lambda: {"num_beams": 1})
    loaded: bool = False
    planned: list[list[str]] = field(default_factory=list)
    batches: list[list[str]] = field(default_factory=list)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def plan(self, prompts: Sequence[str]) -> list[list[int]]:
        self.planned.append(list(prompts))
        order = sorted(range(len(prompts)), key=lambda i: (-len(prompts[i]), i))
        return [order[i : i + self.batch] for i in range(0, len(order), self.batch)]

    def generate_batch(self, prompts: list[str]) -> list[Answer]:
        self._begin(prompts)
        whole = "\n".join(prompts)
        return [
            Answer(f"{number(p + whole):.6f}", "length" if number(p) < 0.25 else "stop", len(p.split()), 3)
            for p in prompts
        ]

    def log_likelihood(self, prompts: list[str], targets: list[str]) -> list[float]:
        self._begin(prompts)
        return [-2 * number(p + t) for p, t in zip(prompts, targets, strict=True)]

    def _begin(self, prompts: list[str]) -> None:
        self.loaded = True
        self.batches.append(list(prompts))
        if self.fail_at == len(self.batches):
            raise self.error("the LLM gave up")
        if self.log is not None:
            with open(self.log, "a") as stream:
                stream.write("".join(f"{hashlib.sha256(p.encode()).hexdigest()}\n" for p in prompts))
        time.sleep(self.sleep)


class FakeTask:
    """Rewards are the number that the fake LLM writes; the target "Horror" is unknown."""

    name = "LaMP-0"
    metric = "number"
    template = "paper"
    eval_identity = "number:1"

    def query(self, input: str) -> str:
        return input.upper()

    def document_text(self, document: Document) -> str:
        return f"{document.title} {document.text}"

    def build_prompt(self, input, documents, tokenizer=None, max_tokens=None) -> Prompt:
        kept = [d for d in documents if tokenizer is None or tokenizer(d.text) <= max_tokens]
        text = "\n".join([*(d.text for d in kept), input])
        return Prompt(text, tuple(d.id for d in kept), len(documents) - len(kept), len(kept) < len(documents))

    def is_parsed(self, output: str) -> bool:
        return not output.startswith("0.0")

    def check_target(self, target: str, record: str = "") -> None:
        if target == "Horror":
            raise ValueError(f"{record}: unknown gold {target!r}")

    def score(self, prediction: str, target: str) -> float:
        return float(prediction)


class Place(NamedTuple):
    document: Document
    score: float


class ByLength:
    """Longest text first, ties in the order of the profile."""

    def __init__(self) -> None:
        self.requests = []

    def rank_stream(self, requests):
        for request in requests:
            self.requests.append((request.query, request.example.id))
            longest = sorted(request.documents, key=lambda d: -len(d.text))
            yield [Place(d, float(len(d.text))) for d in longest]


def make_examples(n: int = 5, documents: int = 4) -> list[Example]:
    return [
        Example(
            f"e{i}",
            f"u{i}",
            f"input {i}",
            f"target {i}",
            [Document(f"d{j}", f"text {i} {j} " + "w " * j, title=f"t{j}") for j in range(documents)],
        )
        for i in range(n)
    ]
