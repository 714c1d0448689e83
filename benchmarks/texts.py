"""Made-up reviews as long as real ones, and people who wrote several.

Lengths are log-normal; median and spread in words were measured on released review corpora (hotels: 61 words in the
median, a twentieth over 275; clothing: 19, over 93). Words follow Zipf's law over an English-like vocabulary.
"""

from __future__ import annotations

import numpy as np

from ropg.examples import Document, Example

HOTELS, CLOTHES = (4.24, 0.81), (3.06, 0.83)  # mean and spread of the logarithm of the number of words
_SYLLABLES = ["ba", "ce", "di", "fo", "gu", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "wo", "ya"]


def vocabulary(size: int) -> list[str]:
    """Distinct made-up words of two to four syllables, most frequent first.

    >>> vocabulary(3)
    ['baba', 'bace', 'badi']
    """
    words: list[str] = []
    for length in (2, 3, 4):
        for number in range(len(_SYLLABLES) ** length):
            if len(words) == size:
                return words
            digits = [
                number // len(_SYLLABLES) ** place % len(_SYLLABLES) for place in reversed(range(length))
            ]
            words.append("".join(_SYLLABLES[digit] for digit in digits))
    return words


class Reviews:
    """A seeded source of reviews. ``lengths``: HOTELS or CLOTHES."""

    def __init__(self, seed: int, lengths: tuple[float, float] = HOTELS, words: int = 5000) -> None:
        self._draw = np.random.default_rng(seed)
        self._lengths = lengths
        self._words = np.array(vocabulary(words))
        weights = 1 / (np.arange(words) + 2.7)
        self._weights = weights / weights.sum()

    def text(self, shortest: int = 3, longest: int = 600) -> str:
        """One review."""
        n = int(np.clip(self._draw.lognormal(*self._lengths), shortest, longest))
        return " ".join(self._draw.choice(self._words, size=n, p=self._weights))

    def title(self) -> str:
        """A title of two to six words."""
        return " ".join(self._draw.choice(self._words, size=self._draw.integers(2, 7), p=self._weights))

    def documents(self, n: int, owner: str) -> list[Document]:
        """A profile."""
        return [Document(f"{owner}-{i}", self.text(), title=self.title()) for i in range(n)]

    def example(self, name: str, profile: list[Document]) -> Example:
        """One input of a user."""
        return Example(id=name, user=name, input=self.text(), target=self.title(), profile=tuple(profile))
