"""Candidate and feedback tables of a configuration: read where they exist, made where they do not.

They lie in ``store.dir/tables/<task>-<hash>/`` beside the generations, so that runs that differ only in
method, seed or optimiser share them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ropg import build, processes, training_split
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.console import say
from ropg.examples import Example
from ropg.feedback.candidates import CandidateTable, build_candidates
from ropg.feedback.lookup import examples_by_id
from ropg.feedback.mixture import build_mixture
from ropg.feedback.scorer import FeedbackTable, feedback_identity, score_candidates
from ropg.feedback.store import GenerationStore
from ropg.feedback.tables import TableError
from ropg.retrievers import CannotRank, ProvenanceFilter
from ropg.runs import retriever_options, short_hash, slug


def candidate_identity(
    config: Config, task: Any, encoder_fingerprint: str, data: str, proposers: Sequence[str] = ("initial",)
) -> dict[str, Any]:
    """What decides the candidates of one split: data, task, encoder, l, whose documents, and who proposes them."""
    provenance = config.candidates.provenance
    mixture = {"proposers": list(proposers), "proposer_options": retriever_options(proposers, config)}
    return {
        **({} if provenance is None else {"provenance": sorted(provenance)}),  # tables of before stay good
        **({} if list(proposers) == ["initial"] else mixture),
        "data": data,
        "task": task.name,
        "wording": build.task_fingerprint(task),
        "encoder": encoder_fingerprint,
        "max_length": config.encoder.max_length,
        "l": config.candidates.l,
    }


def candidates_for(
    config: Config, task: Any, encoder: Any, split: str, examples: Sequence[Example]
) -> tuple[CandidateTable, Path]:
    """The candidates of every profile, and the folder of the tables.

    They are the top l by the initial retriever; those of the training split come from ``candidates.proposers``. Of
    several processes the main one ranks, and the others read what it wrote.
    """
    with processes.main_first():
        return _candidates(config, task, encoder, split, examples, training_split.proposers_of(config, split))


def initial_ranking(
    config: Config, task: Any, encoder: Any, split: str, examples: Sequence[Example]
) -> CandidateTable:
    """Whole profiles as the initial retriever ranks them; the table of ``candidates.l=all``, made once."""
    with processes.main_first():
        return _candidates(_whole(config), task, encoder, split, examples)[0]


def _whole(config: Config) -> Config:
    return dataclasses.replace(config, candidates=dataclasses.replace(config.candidates, l="all"))


def _candidates(
    config: Config,
    task: Any,
    encoder: Any,
    split: str,
    examples: Sequence[Example],
    proposers: Sequence[str] = ("initial",),
) -> tuple[CandidateTable, Path]:
    """Read a table of candidates, or make and write it."""
    data = build.examples_fingerprint(examples)
    identity = candidate_identity(config, task, encoder.fingerprint, data, proposers)
    folder = Path(config.store.dir) / "tables" / slug(f"{task.name}-{short_hash(identity)}")
    path = folder / f"candidates-{split}.parquet"
    try:
        return CandidateTable.read(path, identity), folder
    except FileNotFoundError:
        pass
    except TableError as error:
        say("rank", f"{error}; building it again")
    if list(proposers) == ["initial"]:
        retriever = retriever_of("initial", config, task, encoder)
        table = build_candidates(examples, task, retriever, l=config.candidates.l, identity=identity)
    else:
        ranking = _candidates(_whole(config), task, encoder, split, examples)[0]
        proposals = {
            name: proposed_ids(name, config, task, encoder, examples, ranking) for name in proposers[1:]
        }
        table = build_mixture(examples, ranking, proposals, config.candidates.l, identity=identity)
    table.write(path)
    return table, folder


def retriever_of(name: str, config: Config, task: Any, encoder: Any) -> Any:
    """A retriever that sees the documents that may be candidates."""
    retriever = build.build_retriever(name, config, task, encoder)
    if config.candidates.provenance is not None:
        retriever = ProvenanceFilter(retriever, config.candidates.provenance)
    return retriever


def proposed_ids(
    name: str, config: Config, task: Any, encoder: Any, examples: Sequence[Example], ranking: CandidateTable
) -> Iterator[list[str]]:
    """What a proposer ranks of each profile in ``ranking``, in turn, best first; nothing where it cannot.

    Raises Refused where it can rank none of them.
    """
    from ropg.evaluation.systems import rank_examples

    retriever = retriever_of(name, config, task, encoder)
    found = examples_by_id(examples, ranking.example_ids)
    wanted = (examples[found[example_id]] for example_id in ranking.example_ids)
    try:
        for places in rank_examples(retriever, task, wanted):
            yield [place.document.id for place in places]
    except CannotRank as error:
        raise Refused(f"candidates.proposers: {name} can rank no training profile ({error})") from error


def feedback_for(
    config: Config,
    task: Any,
    llm: Any,
    store: GenerationStore,
    split: str,
    examples: Sequence[Example],
    candidates: CandidateTable,
    folder: Path,
) -> tuple[FeedbackTable, int]:
    """Eval of every candidate, and the number of texts that the LLM generated for it just now.

    Several processes share the prompts out, and the main one writes the table.
    """
    eval = training_split.eval_of(config, split)
    identity = feedback_identity(task, candidates, llm, eval)
    path = folder / f"feedback-{split}-{short_hash(identity)}.parquet"
    found = None
    try:
        found = FeedbackTable.read(path, identity)
    except FileNotFoundError:
        pass
    except TableError as error:
        say("feedback", f"{error}; building it again")
    nowhere_missing = processes.total(int(found is None)) == 0
    if found is not None and nowhere_missing:
        return found, 0
    table = score_candidates(examples, task, candidates, llm, store, eval)
    if processes.is_main():
        table.write(path)
    processes.wait()
    return table, table.llm_calls
