"""What the training split alone may have: rewards of another Eval, and candidates from elsewhere.

dev and held-out are measured the same way whatever the training learns from, so that figures of different
settings can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from ropg import build
from ropg.asking import asks_sets
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.console import say
from ropg.examples import Example
from ropg.feedback.candidates import CandidateTable
from ropg.feedback.negatives import with_negatives
from ropg.feedback.queries import ScoredQuery
from ropg.feedback.scorer import Eval


def eval_of(config: Config, split: str) -> Eval:
    """The Eval of a split: ``feedback.train_eval`` for train where it is set, else ``feedback.eval``."""
    own = config.feedback.train_eval if split == "train" else None
    return own or config.feedback.eval  # type: ignore[return-value]  # both are checked before anything runs


def proposers_of(config: Config, split: str) -> Sequence[str]:
    """Which retrievers name the candidates of a split: ``candidates.proposers`` for train, else the initial one."""
    return config.candidates.proposers if split == "train" else ("initial",)


def needs_ranking(config: Config) -> bool:
    """Whether the training split needs whole profiles as the initial retriever ranks them."""
    return config.candidates.negatives > 0 or config.candidates.refresh is not None


def add_negatives(
    config: Config,
    task: Any,
    examples: Sequence[Example],
    queries: list[ScoredQuery],
    ranking: CandidateTable,
) -> list[ScoredQuery]:
    """The queries with ``candidates.negatives`` documents from outside the top l each, which are counted and said."""
    number = config.candidates.negatives
    if not number:
        return queries
    grown = with_negatives(queries, ranking, config.candidates.l, number, examples, task)
    sizes = [len(q.document_ids) - len(before.document_ids) for q, before in zip(grown, queries, strict=True)]
    short = sum(size < number for size in sizes)
    say(
        "train",
        f"{sum(sizes)} negatives, taken to be worth their query's lowest reward, without an LLM call"
        + (f"; {short} of {len(grown)} profiles have fewer than {number}" if short else ""),
    )
    return grown


def check(config: Config) -> None:
    """Raise Refused or ValueError, with the key, for what a training split cannot have."""
    eval = config.feedback.train_eval
    if eval is not None and eval not in get_args(Eval):
        raise Refused(
            f"feedback.train_eval={eval}: it is {' or '.join(get_args(Eval))}, or null for feedback.eval"
        )
    candidates = config.candidates
    if candidates.proposers != ["initial"]:
        _check_proposers(config)
        _check_applies("proposers", config)
    if candidates.negatives:
        if candidates.negatives < 0:
            raise Refused(f"candidates.negatives={candidates.negatives}: it is a number of documents, from 0")
        _check_applies("negatives", config)
    if candidates.refresh is not None:
        _check_refresh(config)


def _check_applies(key: str, config: Config) -> None:
    if config.method.reads is not None:
        raise Refused(
            f"candidates.{key} is for retrievers: {config.method.name} learns from what its pool retrieves; "
            f"leave candidates.{key} out"
        )
    if config.candidates.l == "all":
        raise Refused(
            f"candidates.l=all makes every document a candidate already; leave candidates.{key} out, or set "
            "candidates.l to a number"
        )


def _check_refresh(config: Config) -> None:
    candidates = config.candidates
    if candidates.refresh is None or candidates.refresh < 1:
        raise Refused(f"candidates.refresh={candidates.refresh}: it is a number of epochs from 1, or null")
    if candidates.refresh >= config.optim.epochs:
        raise Refused(
            f"candidates.refresh={candidates.refresh} would never refresh in optim.epochs={config.optim.epochs}; lower "
            "it, or leave it out"
        )
    _check_applies("refresh", config)
    for key, others in (
        ("candidates.proposers", candidates.proposers != ["initial"]),
        ("candidates.negatives", candidates.negatives),
        ("method.options.set_reward=llm", asks_sets(config)),
    ):
        if others:
            raise Refused(
                f"candidates.refresh and {key} do not go together: the encoder in training names a refreshed query's "
                "candidates, and nobody else; leave one of the two out"
            )


def _check_proposers(config: Config) -> None:
    names = config.candidates.proposers
    if names[:1] != ["initial"]:
        raise Refused(
            f"candidates.proposers=[{','.join(names)}]: initial comes first, so that its first document (d_b of "
            "Eq. 2) is always a candidate"
        )
    for number, name in enumerate(names):
        if name in names[:number] or name == "dense":  # dense is what initial ranks with
            raise Refused(f"candidates.proposers names {name} twice (initial is dense); once is enough")
        try:
            build.takes_encoder(name, config)  # looks it up
        except ValueError as error:
            raise Refused(f"candidates.proposers: {error}") from None
        if build.base_retriever(name, config) == "none":
            raise Refused(f"candidates.proposers: {name} ranks nothing, so it has nothing to propose")
