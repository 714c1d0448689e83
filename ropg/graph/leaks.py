"""Reviews that other accounts post word for word again: they would hand out the answer."""

from __future__ import annotations

import hashlib

import numpy as np

from ropg.graph.interactions import InteractionGraph
from ropg.sources.validation import normalise

PARTS = ("text", "title")


class SameContent:
    """Finds reviews with the text, or the title, of another one.

    Compared is what :func:`ropg.sources.validation.normalise` makes of them (case, punctuation and white space
    do not count); an empty text equals nothing. Each review is normalised when it is first met, and a number
    of 8 bytes is kept of it.
    """

    def __init__(self, graph: InteractionGraph, part: str) -> None:
        self._read = {"text": graph.texts.text, "title": graph.texts.title}[part]
        self._keys = np.zeros(graph.n_edges, np.uint64)  # 0: not met yet, 1: empty

    def matches(self, edges: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Which of ``edges`` have the content of one of ``targets``: (n,) bool."""
        found = np.zeros(len(edges), bool)
        keys = self._of(edges)
        for wanted in self._of(targets).tolist():
            if wanted > 1:
                found |= keys == wanted
        for place in np.flatnonzero(found):  # few; two texts may have one key
            content = normalise(self._read(int(edges[place])))
            found[place] = any(content == normalise(self._read(int(target))) for target in targets)
        return found

    def _of(self, edges: np.ndarray) -> np.ndarray:
        for edge in edges[self._keys[edges] == 0].tolist():
            self._keys[edge] = _key(normalise(self._read(edge)))
        return self._keys[edges]


def _key(content: str) -> int:
    if not content:
        return 1
    digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return max(2, int.from_bytes(digest, "little"))
