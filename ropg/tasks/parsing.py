"""The one reading of model outputs, used for rewards and for evaluation alike.

A parser maps an output to the form in which predictions are stored and compared. ``read`` gives that form,
or None where the output cannot be read; the task then keeps the stripped output and counts it as unparsed,
which is the worst case of every metric. What each parser returns it reads as itself, so parsing is
idempotent. The rules, in full:

* *references* (LaMP-1): the markers in brackets, ``[1]``; only where there is none, the bare numbers.
  Exactly one distinct marker, and it is a label. ``[1] or [2]`` and ``[11]`` are not read.
* *tags* (LaMP-2): the labels that stand in the output as whole words, whatever the case; the longest label
  wins over one inside it ("dark comedy" is not "comedy"), and a hyphen may be a space. Exactly one distinct
  label. "sci-fi, action" and "scifi" are not read.
* *ratings* (LaMP-3): the numbers in the output, without the scale in "4/5", "4 out of 5", "on a scale of 1
  to 5". Exactly one distinct number, whole ("2" or "2.0"), and it is a label: "4 stars" reads as 4. "100",
  "-3", "2.5", "nan" and number words ("four") are not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

_BRACKETED = re.compile(r"\[\s*([0-9]+)\s*\]")
_NUMBER = re.compile(r"(?<!\w)(?<!\w[.,])[-+−–]?[0-9]+(?:[.,][0-9]+)*(?!\w)")
_RATING = re.compile(r"([0-9]+)(?:\.0+)?")


class Parser(Protocol):
    """Reads outputs. ``name`` identifies the rule wherever values computed with it are stored."""

    name: str

    def read(self, output: str) -> str | None:
        """The output in the form that is compared with the gold, or None where it cannot be read."""
        ...


class TextParser:
    """Generated text: every output is readable and stays as it is.

    >>> TextParser().read("Sleepy cats")
    'Sleepy cats'
    """

    name = "text"

    def read(self, output: str) -> str | None:
        return output


class ReferenceParser:
    """Which of the numbered references is meant.

    >>> p = ReferenceParser(["[1]", "[2]"])
    >>> [p.read(o) for o in ("[1].", "1", "The answer is [2]", "[1] or [2]", "[11]", "")]
    ['[1]', '[1]', '[2]', None, None, None]
    """

    name = "reference"

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = frozenset(labels)

    def read(self, output: str) -> str | None:
        found = {f"[{n}]" for n in _BRACKETED.findall(output)} or {f"[{n}]" for n in _NUMBER.findall(output)}
        return found.pop() if len(found) == 1 and found <= self._labels else None


class LabelParser:
    """Which one of the labels stands in the output.

    >>> p = LabelParser(["comedy", "dark comedy", "sci-fi"])
    >>> [p.read(o) for o in ("Dark comedy.", "the tag is Sci fi", "comedy, sci-fi", "scifi")]
    ['dark comedy', 'sci-fi', None, None]
    """

    name = "label"

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = {self._plain(label): label for label in labels}
        longest_first = sorted(labels, key=len, reverse=True)
        choices = "|".join(self._choice(label) for label in longest_first)
        # a label is not part of a word, of a hyphenated word or of a number
        self._pattern = re.compile(rf"(?<!\w)(?<!\w[-.])(?:{choices})(?!\w|[-.]\w)", re.IGNORECASE)

    def read(self, output: str) -> str | None:
        found = {self._labels.get(self._plain(match)) for match in self._pattern.findall(output)}
        return found.pop() if len(found) == 1 else None

    @classmethod
    def _choice(cls, label: str) -> str:
        unsigned = r"(?<![-+−])" if label[:1].isdigit() else ""
        return unsigned + r"[\s_-]+".join(map(re.escape, cls._words(label)))

    @staticmethod
    def _words(label: str) -> list[str]:
        return [word for word in re.split(r"[\s_-]+", label) if word] or [label]

    def _plain(self, label: str) -> str:
        return " ".join(self._words(label)).casefold()


class RatingParser:
    """The one whole number of the scale that the output gives.

    >>> p = RatingParser(["1", "2", "3", "4", "5"])
    >>> [p.read(o) for o in ("2.0", "4 stars", "4/5", "between 3 and 4", "100", "-3", "nan", "four")]
    ['2', '4', '4', None, None, None, None, None]
    """

    name = "rating"

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = frozenset(labels)
        highest = max(labels, key=float)
        lowest = min(labels, key=float)
        self._scale = re.compile(
            rf"\b(?:on|from)\s+(?:a|the)\s+scale\s+(?:of|from)\s+{lowest}\s*(?:to|-|–)\s*{highest}\b"
            rf"|(?<=[0-9])\s*(?:stars?\s*)?\(?\s*(?:/|\bout\s+of\b|\bof\b)\s*{highest}(?![\w/]|\.\w)",
            re.IGNORECASE,
        )

    def read(self, output: str) -> str | None:
        numbers = {self._number(n) for n in _NUMBER.findall(self._scale.sub(" ", output))}
        number = numbers.pop() if len(numbers) == 1 else None
        return number if number in self._labels else None

    @staticmethod
    def _number(text: str) -> str:
        match = _RATING.fullmatch(text)
        return str(int(match[1])) if match else text
