"""Term frequencies as arrays: what BM25 needs of documents, read once for each distinct text of a stream.

Legend: n documents of a profile, T tokens of all of them, q distinct terms of a query, P pairs (document, query term
in it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

CACHE = 10_000_000  # tokens kept, of 4 bytes each
DENSE = 1 << 22  # cells of a table of frequencies (32 MiB); what needs more is sorted instead


class Profile(NamedTuple):
    """The documents of a profile, one behind the other: document and term of each token (T,), and lengths (n,)."""

    documents: np.ndarray
    terms: np.ndarray
    lengths: np.ndarray


class Matches(NamedTuple):
    """Where a query's terms stand in a profile.

    documents, terms, frequencies: (P,) each; a term is its place among the query's q distinct known ones.
    repeats: (q,), how often each stands in the query.
    """

    documents: np.ndarray
    terms: np.ndarray
    frequencies: np.ndarray
    repeats: np.ndarray


class _Numbers(dict[str, int]):
    """Term -> its number; a new term gets the next one."""

    def __missing__(self, term: str) -> int:
        self[term] = number = len(self)
        return number


class Terms:
    """The terms of one stream: each gets a number the first time it is seen."""

    def __init__(self, tokenize: Callable[[str], Sequence[str]]) -> None:
        self._tokenize = tokenize
        self._numbers = _Numbers()
        self._known: dict[str, np.ndarray] = {}  # text -> the numbers of its tokens, int32
        self._room = CACHE
        self._places = np.zeros(0, dtype=np.int32)  # term -> its place in the query at hand, -1 for none

    def profile(self, texts: Sequence[str]) -> Profile:
        """The tokens of a profile's texts; a text that came before is not tokenised again."""
        tokens = [self._of(text) for text in texts]
        lengths = np.fromiter(map(len, tokens), dtype=np.int64, count=len(tokens))
        whole = np.concatenate(tokens) if tokens else np.zeros(0, dtype=np.int32)
        return Profile(np.repeat(np.arange(len(tokens)), lengths), whole, lengths)

    def matches(self, query: str, profile: Profile) -> Matches:
        """Count the query's terms in each document; terms that no text of the stream had are left out."""
        known = self._numbers
        asked = Counter(known[term] for term in self._tokenize(query) if term in known)
        numbers = np.fromiter(asked, dtype=np.int64, count=len(asked))
        if len(self._places) < len(known):
            self._places = np.full(2 * len(known), -1, dtype=np.int32)
        self._places[numbers] = np.arange(len(numbers))
        places = self._places[profile.terms]  # (T,)
        self._places[numbers] = -1
        hits = np.flatnonzero(places >= 0)
        width = max(1, len(numbers))
        cells, frequencies = _counted(
            profile.documents[hits] * width + places[hits], len(profile.lengths) * width
        )
        repeats = np.fromiter(asked.values(), dtype=np.float64, count=len(asked))
        return Matches(*np.divmod(cells, width), frequencies, repeats)

    def _of(self, text: str) -> np.ndarray:
        found = self._known.get(text)
        if found is None:
            tokens = self._tokenize(text)
            found = np.fromiter(map(self._numbers.__getitem__, tokens), dtype=np.int32, count=len(tokens))
            if self._room < 0:  # begun anew: to know which is the oldest would cost something at every visit
                self._known.clear()
                self._room = CACHE
            self._room -= len(tokens) + 16
            self._known[text] = found
        return found


def _counted(cells: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values of ``cells``, all below ``size``, in order, and how often each occurs.

    >>> _counted(np.array([4, 0, 4]), 6)
    (array([0, 4]), array([1, 2]))
    """
    if size > DENSE:
        return np.unique(cells, return_counts=True)
    counts = np.bincount(cells, minlength=size)
    found = np.flatnonzero(counts)
    return found, counts[found]
