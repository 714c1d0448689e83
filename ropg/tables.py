"""Candidate and feedback tables of a configuration: read where they exist, made where they do not.

They lie in ``store.dir/tables/<task>-<hash>/`` beside the generations, so that runs that differ only in
method, seed or optimiser share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropg import build, processes, training_split
from ropg.configuration import Config
from ropg.console import say
from ropg.examples import Example
from ropg.feedback.candidates import CandidateTable, build_candidates
from ropg.feedback.scorer import FeedbackTable, feedback_identity, score_candidates
from ropg.feedback.store import GenerationStore
from ropg.feedback.tables import TableError
from ropg.retrievers import ProvenanceFilter
from ropg.runs import short_hash, slug


def candidate_identity(config: Config, task: Any, encoder_fingerprint: str, data: str) -> dict[str, Any]:
    """What decides the candidates of one split: data, task, encoder, l, and whose documents they may be."""
    provenance = config.candidates.provenance
    return {
        **({} if provenance is None else {"provenance": sorted(provenance)}),  # tables of before stay good
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
    """The top l documents of every profile by the initial retriever, and the folder of the tables.

    Of several processes the main one ranks, and the others read what it wrote.
    """
    data = build.examples_fingerprint(examples)
    identity = candidate_identity(config, task, encoder.fingerprint, data)
    folder = Path(config.store.dir) / "tables" / slug(f"{task.name}-{short_hash(identity)}")
    path = folder / f"candidates-{split}.parquet"
    with processes.main_first():
        try:
            return CandidateTable.read(path, identity), folder
        except FileNotFoundError:
            pass
        except TableError as error:
            say("rank", f"{error}; building it again")
        retriever = build.build_retriever("dense", config, task, encoder)
        if config.candidates.provenance is not None:
            retriever = ProvenanceFilter(retriever, config.candidates.provenance)
        table = build_candidates(examples, task, retriever, l=config.candidates.l, identity=identity)
        table.write(path)
    return table, folder


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
