"""Systems, and their comparison on held-out examples.

A :class:`System` is all that evaluation knows of a retriever or a selector: a name and a function from
examples to the documents that go into the prompt. What answers the prompts comes from outside too, so a
stored generation, a live LLM and a test's dictionary are one thing here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tqdm import tqdm

from ropg.evaluation.results import Result, compute_results, listed
from ropg.examples import Document, Example
from ropg.tasks.metrics import LIKELIHOOD

if TYPE_CHECKING:
    from ropg.retrievers import Ranked

Rank: TypeAlias = Callable[[Sequence[Example]], Iterable[Sequence[Document]]]


@dataclass(frozen=True, slots=True)
class System:
    """One thing to compare.

    name: in files (``bm25``). label: in tables (``BM25``). rank: examples -> one list of documents each,
    best first, of any length (evaluation cuts it to k); an empty list means no personalization. It may be a
    generator, so that whole rankings of large profiles are never held together.
    """

    name: str
    label: str
    rank: Rank


class Answered(Protocol):
    """Outputs by example id; :class:`ropg.feedback.answers.Answers` is one."""

    @property
    def texts(self) -> Mapping[str, str]: ...

    @property
    def kept_ids(self) -> Mapping[str, Sequence[str]]: ...

    @property
    def counts(self) -> Mapping[str, int]: ...


#: (name of the system, example id -> its documents) -> outputs, alone or with their counts.
Answer: TypeAlias = Callable[[str, Mapping[str, Sequence[Document]]], "Answered | Mapping[str, str]"]


@dataclass(frozen=True, slots=True)
class SystemOutcome:
    """What one system did.

    predictions: example id -> parsed output. document_ids: example id -> documents in the prompt, best first.
    evals: example id -> Eval, for examples with a target. counts: ``examples``, ``without_target``,
    ``empty_rankings``, ``unparsed``, and what the answering function counted (``dropped_documents`` …).
    """

    name: str
    label: str
    predictions: dict[str, str]
    document_ids: dict[str, tuple[str, ...]]
    evals: dict[str, float]
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All systems on the same examples; ``results`` has no rows where no example has a target."""

    task: str
    k: int
    outcomes: dict[str, SystemOutcome] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)


def rank_examples(
    retriever: Any, task: Any, examples: Iterable[Example], *, must_rank: bool = True
) -> Iterator[list[Ranked]]:
    """The whole ranking of each profile for φ_q(x), one list of Ranked(document, score) per example.

    A profile that the retriever cannot rank (recency without any date) gives an empty list; where that is so
    for every profile and it ``must_rank`` one, the retriever's own error is raised.
    """
    from ropg.retrievers import Request

    rankable: deque[bool] = deque()  # of the examples read so far; the stream reads ahead
    refused: list[Request] = []

    def requests() -> Iterator[Request]:
        for example in examples:
            request = Request(task.query(example.input), example.profile, example)
            rankable.append(len(request.documents) > 0 and retriever.can_rank(request))
            if rankable[-1]:
                yield request
            elif len(request.documents) > 0 and not refused:
                refused.append(request)

    none_ranked = True
    for ranking in retriever.rank_stream(requests()):
        while not rankable.popleft():
            yield []
        none_ranked = False
        yield ranking
    if none_ranked and refused and must_rank:
        retriever.rank_many(refused)  # raises, and says what the profile lacks
    yield from ([] for _ in rankable)


def retriever_system(name: str, retriever: Any, task: Any, label: str | None = None) -> System:
    """The system of a retriever, which ranks as :func:`rank_examples`; unrankable profiles count as empty.

    A retriever that fills no prompt (``NoRetrieval``) gives no documents.
    """

    def rank(examples: Sequence[Example]) -> Iterator[list[Document]]:
        if not retriever.fills_prompt:
            yield from ([] for _ in range(len(examples)))
            return
        for ranking in rank_examples(retriever, task, examples):
            yield [ranked.document for ranked in ranking]

    return System(name, label or name, rank)


def evaluate_systems(
    examples: Sequence[Example],
    task: Any,
    systems: Sequence[System],
    k: int,
    answer: Answer,
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> Evaluation:
    """Rank, answer and score every system.

    Parameters
    ----------
    examples: may be lazy; only k documents each are kept. systems: with distinct names. k: documents per
    prompt. answer: gets a system's name and its rankings. resamples, seed: of the bootstrap.

    Examples without a target get predictions and no scores. Raises ValueError where ids or names stand
    twice, a ranking or an answer is missing, an answer has no example, or a ranking repeats a document.
    """
    names = [system.name for system in systems]
    if len(set(names)) < len(names):
        raise ValueError(f"system names must be distinct: {', '.join(names)}")
    if k < 1:
        raise ValueError(f"k={k}: a prompt takes at least one document; the system 'none' puts none in")
    targets = _targets(examples)
    evaluation = Evaluation(task.name, k)
    for system in systems:
        rankings = _rankings(system, examples, list(targets), k, progress)
        answered = answer(system.name, rankings)
        evaluation.outcomes[system.name] = _outcome(system, task, targets, rankings, answered)
    golds = {i: target for i, target in targets.items() if target is not None}
    predictions = {name: outcome.predictions for name, outcome in evaluation.outcomes.items()}
    evaluation.results.extend(
        compute_results(task, golds, predictions, resamples=resamples, seed=seed, progress=progress)
    )
    return evaluation


def _targets(examples: Sequence[Example]) -> dict[str, str | None]:
    targets: dict[str, str | None] = {}
    for example in examples:
        if example.id in targets:
            raise ValueError(f"example {example.id!r} stands twice; ids must be unique")
        targets[example.id] = example.target
    return targets


def _rankings(
    system: System, examples: Sequence[Example], ids: Sequence[str], k: int, progress: bool
) -> dict[str, list[Document]]:
    kept: dict[str, list[Document]] = {}
    ranked = tqdm(
        system.rank(examples),
        total=len(ids),
        desc=f"rank {system.name}",
        unit=" examples",
        disable=not progress,
        delay=2.0,
    )
    count = 0
    for count, documents in enumerate(ranked, start=1):
        if count > len(ids):
            break
        top = list(documents[:k])
        if len({document.id for document in top}) < len(top):
            raise ValueError(f"system {system.name!r}, example {ids[count - 1]!r}: a document stands twice")
        kept[ids[count - 1]] = top
    if count != len(ids):
        raise ValueError(
            f"system {system.name!r} gave another number of rankings than the {len(ids)} examples"
        )
    return kept


def _outcome(
    system: System,
    task: Any,
    targets: Mapping[str, str | None],
    rankings: Mapping[str, Sequence[Document]],
    answered: Answered | Mapping[str, str],
) -> SystemOutcome:
    counts = {
        "examples": len(targets),
        "without_target": sum(target is None for target in targets.values()),
        "empty_rankings": sum(not documents for documents in rankings.values()),
    }
    document_ids = {i: tuple(document.id for document in documents) for i, documents in rankings.items()}
    texts = answered if isinstance(answered, Mapping) else answered.texts
    if not isinstance(answered, Mapping):
        document_ids = {i: tuple(ids) for i, ids in answered.kept_ids.items()}
        counts |= answered.counts
    missing = [i for i in targets if i not in texts]
    extra = [i for i in texts if i not in targets]
    if missing or extra:
        raise ValueError(
            f"system {system.name!r}: no answer for {listed(missing) or 'none'}, answers without an example "
            f"for {listed(extra) or 'none'}"
        )
    counts["unparsed"] = sum(not task.is_parsed(texts[i]) for i in targets)
    predictions = {i: task.parse(texts[i]) for i in targets}
    evals = {}
    if task.metric != LIKELIHOOD:  # that Eval is the LLM's, not a property of the output
        evals = {i: task.score(predictions[i], y) for i, y in targets.items() if y is not None}
    return SystemOutcome(system.name, system.label, predictions, document_ids, evals, counts)
