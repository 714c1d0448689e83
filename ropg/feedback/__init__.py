"""The offline reward stage: candidates, what the LLM makes of each, and where its answers are kept.

``build_candidates`` ranks profiles, ``score_candidates`` asks the LLM about each candidate through a
``GenerationStore``, and ``join`` puts the two tables and the texts together for training; ``SetFeedback`` asks
about sets of documents while it trains.
``generate_answers`` serves evaluation from the same store.
"""

from ropg.feedback.answers import Answers, generate_answers
from ropg.feedback.candidates import CandidateRows, CandidateTable, build_candidates
from ropg.feedback.database import StoreError
from ropg.feedback.generation import GenerationReport, generate_missing
from ropg.feedback.keys import canonical_json, generation_key, likelihood_key
from ropg.feedback.likelihood import likelihoods_missing
from ropg.feedback.queries import ScoredQuery, join
from ropg.feedback.scorer import FeedbackTable, feedback_identity, score_candidates
from ropg.feedback.sets import SetFeedback
from ropg.feedback.store import GenerationRecord, GenerationStore
from ropg.feedback.tables import StaleTable, TableError

__all__ = [
    "Answers",
    "CandidateRows",
    "CandidateTable",
    "FeedbackTable",
    "GenerationRecord",
    "GenerationReport",
    "GenerationStore",
    "ScoredQuery",
    "SetFeedback",
    "StaleTable",
    "StoreError",
    "TableError",
    "build_candidates",
    "canonical_json",
    "feedback_identity",
    "generate_answers",
    "generate_missing",
    "generation_key",
    "join",
    "likelihood_key",
    "likelihoods_missing",
    "score_candidates",
]
