"""Training that asks the LLM: which configurations do, where that can be, and the store that is open meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ropg import build, processes
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.console import counts, say
from ropg.examples import Example
from ropg.feedback.queries import ScoredQuery
from ropg.feedback.scorer import Eval
from ropg.feedback.sets import SetFeedback
from ropg.feedback.store import GenerationStore


def asks_sets(config: Config) -> bool:
    """Whether the objective asks the LLM about sets of documents while training."""
    return bool(getattr(build.build_objective(config), "asks_sets", False))


def check_asking(config: Config) -> None:
    """Refuse an objective that asks the LLM while training where it could not be asked."""
    if not asks_sets(config):
        return
    if config.method.reads is not None:
        raise Refused(
            "method.options.set_reward=llm asks about sets of documents, and a selector chooses retrievers; choose "
            "another set_reward"
        )
    if config.candidates.negatives:
        raise Refused(
            "method.options.set_reward=llm asks what the LLM does with a set, and candidates.negatives are documents "
            "that it is not asked about; leave one of the two out"
        )
    if processes.count() > 1:
        raise Refused(
            "method.options.set_reward=llm asks the LLM in every step for what the step has drawn, in one process; "
            "start one, without launcher, or choose another set_reward"
        )


@contextmanager
def set_feedback(
    config: Config,
    examples: Sequence[Example],
    queries: Sequence[ScoredQuery],
    task: Any,
    llm: Any,
    store: GenerationStore,
    eval: Eval,
) -> Iterator[SetFeedback | None]:
    """What an objective asks the LLM with, the store open meanwhile; None where it asks nothing.

    ``eval``: of the training split, so that sets and single documents are rewarded alike.
    What was asked is said at the end.
    """
    if not asks_sets(config):
        yield None
        return
    with store:
        ask = SetFeedback(examples, queries, task, llm, store, eval)
        yield ask
    say("train", f"{ask.llm_calls} LLM calls about sets while training; {counts(ask.counts)}")
