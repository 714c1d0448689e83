"""What every kind of LLM does the same way: batches in, answers in the order of the prompts out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from ropg.llms.protocol import Finished, Generation


class BatchedLLM(ABC):
    """``answer_batches``, ``stream`` and ``generate`` on top of ``plan`` and ``generate_batch``."""

    @abstractmethod
    def plan(self, prompts: Sequence[str]) -> list[list[int]]:
        """Deterministic batches of indices into ``prompts``; together they name every index once."""

    @abstractmethod
    def generate_batch(self, prompts: Sequence[str]) -> list[Generation]:
        """The answers to exactly these prompts, in order: one planned batch."""

    def answer_batches(
        self, batches: Iterable[Sequence[str]]
    ) -> Iterator[tuple[Sequence[str], list[Generation]]]:
        """Yield each batch with its answers as it is finished: here one after the other.

        ``batches`` is read only as fast as there is room for the next one: what decides at the last moment
        whether a batch is still wanted is asked then. An LLM that works on several at once overrides this
        and may finish them in another order.
        """
        for batch in batches:
            yield batch, self.generate_batch(batch)

    def likelihood_batches(
        self, batches: Iterable[Sequence[tuple[str, str]]]
    ) -> Iterator[tuple[Sequence[tuple[str, str]], list[float]]]:
        """Yield each batch of (prompt, target) with its ``log_likelihood``, as ``answer_batches`` does answers."""
        for batch in batches:
            yield batch, self.log_likelihood([p for p, _ in batch], [t for _, t in batch])  # type: ignore[attr-defined]

    def stream(self, prompts: Sequence[str]) -> Iterator[list[Finished]]:
        """Yield each batch as it is finished: (index into ``prompts``, new text, finish reason).

        A prompt that occurs more than once is answered once, and all its places come with that batch.
        """
        places: dict[str, list[int]] = {}
        for index, prompt in enumerate(prompts):
            places.setdefault(prompt, []).append(index)
        distinct = list(places)
        planned = ([distinct[index] for index in batch] for batch in self.plan(distinct))
        for texts, answers in self.answer_batches(planned):
            yield [
                (place, answer.text, answer.finish_reason)
                for text, answer in zip(texts, answers, strict=True)
                for place in places[text]
            ]

    def generate(self, prompts: Sequence[str]) -> list[str]:
        """The new text of every prompt, in the order of the prompts."""
        texts = [""] * len(prompts)
        for batch in self.stream(prompts):
            for index, text, _ in batch:
                texts[index] = text
        return texts
