"""What an LLM is to the rest of the project, what it returns, and the errors that stop a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

FinishReason = Literal["stop", "length"]
Finished = tuple[int, str, FinishReason]  # index of the prompt, new text, why it ended


class PromptTooLong(ValueError):
    """A prompt over the LLM's budget. Prompts are cut where they are built, never here."""


class NonFiniteLogits(RuntimeError):
    """The model computed NaN or infinity, so no text of that batch means anything."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One answer.

    ``text`` is new text only, cut before the stop string. ``finish_reason`` is "stop" when the model ended
    it (end-of-sequence token or stop string) and "length" when ``max_new_tokens`` did. ``new_tokens``
    counts what the model wrote, the end-of-sequence token or the stop string included.
    """

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    new_tokens: int


class LLM(Protocol):
    """The frozen M.

    ``identity`` and ``decoding`` are JSON values that together decide the text of a prompt; they key the
    generation store, so neither holds a path nor anything that leaves the text as it is. ``family`` is
    ``seq2seq`` or ``causal``.
    """

    family: str

    @property
    def identity(self) -> Mapping[str, Any]: ...
    @property
    def decoding(self) -> Mapping[str, Any]: ...
    @property
    def loaded(self) -> bool: ...
    @property
    def max_input_tokens(self) -> int: ...

    def count_tokens(self, text: str) -> int:
        """Tokens of a whole prompt, special and chat-template tokens included."""

    def plan(self, prompts: Sequence[str]) -> list[list[int]]:
        """Deterministic batches of indices into ``prompts``; together they name every index once."""

    def generate_batch(self, prompts: Sequence[str]) -> list[Generation]:
        """The answers to exactly these prompts, in order: one planned batch."""

    def answer_batches(
        self, batches: Iterable[Sequence[str]]
    ) -> Iterator[tuple[Sequence[str], list[Generation]]]:
        """Each batch with its answers as it is finished, in any order; ``batches`` is read no faster than needed."""

    def stream(self, prompts: Sequence[str]) -> Iterator[list[Finished]]:
        """Finished batches of (index, text, finish reason)."""

    def generate(self, prompts: Sequence[str]) -> list[str]:
        """The new text of every prompt, in the order of the prompts."""

    def likelihood_batches(
        self, batches: Iterable[Sequence[tuple[str, str]]]
    ) -> Iterator[tuple[Sequence[tuple[str, str]], list[float]]]:
        """Each batch of (prompt, target) with its log-likelihoods as it is finished, in any order."""

    def log_likelihood(self, prompts: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Mean log-probability per token of each target after its prompt, at most 0."""
