"""No retrieval: the un-personalised baseline as a retriever."""

from __future__ import annotations

from collections.abc import Sequence

from ropg.retrievers.base import RETRIEVERS, Request, Scorer, ScoringRetriever


@RETRIEVERS.register("none")
class NoRetrieval(ScoringRetriever):
    """Returns all documents at score 0, in the order of the profile, and puts none into a prompt.

    Scores of zero are what the paper's query performance predictors see for "no personalization".
    """

    name = "none"
    fills_prompt = False

    def scorer(self) -> Scorer:
        """Score everything 0."""
        return _zeros


def _zeros(requests: Sequence[Request]) -> list[list[float]]:
    return [[0.0] * len(request.documents) for request in requests]
