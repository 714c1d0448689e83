"""What this package needs of a task, of a retriever and of an LLM; any object of this shape will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ropg.examples import Document


class GenerationLike(Protocol):
    """One answer of an LLM: ``finish_reason`` is "stop" or "length" (cut off by the limit of new tokens)."""

    @property
    def text(self) -> str: ...
    @property
    def finish_reason(self) -> str: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def new_tokens(self) -> int: ...


class LanguageModel(Protocol):
    """The frozen M. ``identity`` and ``decoding`` hold the JSON values that decide the text, never a path."""

    @property
    def identity(self) -> Mapping[str, Any]: ...
    @property
    def decoding(self) -> Mapping[str, Any]: ...
    @property
    def max_input_tokens(self) -> int: ...

    def count_tokens(self, text: str) -> int:
        """Tokens of a whole prompt, special and chat-template tokens included."""

    def plan(self, prompts: Sequence[str]) -> list[list[int]]:
        """Deterministic batches of indices into ``prompts``; together they name every index once."""

    def generate_batch(self, prompts: list[str]) -> Sequence[GenerationLike]:
        """The answers to one planned batch, in order."""

    def log_likelihood(self, prompts: list[str], targets: list[str]) -> list[float]:
        """Mean log-probability per token of each target after its prompt, at most 0."""


class PromptLike(Protocol):
    """A built φ_p with what the token budget did to it."""

    @property
    def text(self) -> str: ...
    @property
    def kept_ids(self) -> tuple[str, ...]: ...
    @property
    def dropped(self) -> int: ...
    @property
    def trimmed(self) -> bool: ...


class TaskLike(Protocol):
    """The part of a task that ranking and scoring use."""

    @property
    def name(self) -> str: ...
    @property
    def template(self) -> str: ...
    @property
    def eval_identity(self) -> str: ...

    def query(self, input: str) -> str: ...
    def document_text(self, document: Document) -> str: ...
    def build_prompt(
        self, input: str, documents: Sequence[Document], tokenizer: Any = None, max_tokens: int | None = None
    ) -> PromptLike: ...
    def is_parsed(self, output: str) -> bool: ...
    def check_target(self, target: str, record: str = "") -> object: ...
    def score(self, prediction: str, target: str) -> float: ...


class RankedLike(Protocol):
    """One place of a ranking."""

    @property
    def document(self) -> Document: ...
    @property
    def score(self) -> float: ...


class RetrieverLike(Protocol):
    """The batched form of a retriever; a request has ``query``, ``documents`` and ``example``."""

    def rank_many(self, requests: Sequence[Any]) -> Sequence[Sequence[RankedLike]]: ...
