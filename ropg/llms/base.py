"""What every kind of LLM does the same way: batches in, answers in the order of the prompts out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from ropg.llms.protocol import Finished, Generation


class BatchedLLM(ABC):
    """``stream`` and ``generate`` on top of ``plan`` and ``generate_batch``."""

    @abstractmethod
    def plan(self, prompts: Sequence[str]) -> list[list[int]]:
        """Deterministic batches of indices into ``prompts``; together they name every index once."""

    @abstractmethod
    def generate_batch(self, prompts: Sequence[str]) -> list[Generation]:
        """The answers to exactly these prompts, in order: one planned batch."""

    def stream(self, prompts: Sequence[str]) -> Iterator[list[Finished]]:
        """Yield each batch as it is finished: (index into ``prompts``, new text, finish reason).

        A prompt that occurs more than once is answered once, and all its places come with that batch.
        """
        places: dict[str, list[int]] = {}
        for index, prompt in enumerate(prompts):
            places.setdefault(prompt, []).append(index)
        distinct = list(places)
        for batch in self.plan(distinct):
            texts = [distinct[index] for index in batch]
            answers = self.generate_batch(texts)
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
