"""Random order, the same in every run and on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from ropg.retrievers.base import RETRIEVERS, Request, Scorer, ScoringRetriever, TextOf, document_text


@RETRIEVERS.register("random")
class Random(ScoringRetriever):
    """A random permutation that depends only on the seed, the example's id and the documents' ids.

    Each document's score is a hash of the three, as a number in [0, 1). So the order of the profile
    does not matter, nor what was ranked before, and adding a document leaves the order of the others
    as it is. Without an example its id counts as empty.
    """

    name = "random"

    def __init__(self, seed: int = 0, *, text: TextOf = document_text) -> None:
        super().__init__(text=text)
        self.seed = seed

    def scorer(self) -> Scorer:
        """Score by hash."""
        return self._hashes

    def _hashes(self, requests: Sequence[Request]) -> list[list[float]]:
        return [
            [uniform(self.seed, _example_id(request), document.id) for document in request.documents]
            for request in requests
        ]


def _example_id(request: Request) -> str:
    return request.example.id if request.example is not None else ""


def uniform(seed: int, example_id: str, document_id: str) -> float:
    """A number in [0, 1) that only the arguments decide.

    >>> uniform(0, "q1", "d1") == uniform(0, "q1", "d1") != uniform(0, "q", "1d1")
    True
    """
    # JSON keeps the three apart: plain joining would hash ("a", "bc") and ("ab", "c") alike
    key = json.dumps([seed, example_id, document_id]).encode()
    bits = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
    return (bits >> 11) / (1 << 53)
