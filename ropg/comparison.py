"""The comparison of all systems on held-out users: what evaluate.py does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg import build
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.console import counts, say
from ropg.evaluation.tables import LABELS
from ropg.examples import Document, Example
from ropg.feedback.answers import Answers, generate_answers
from ropg.feedback.store import GenerationStore
from ropg.outputs import write_outputs
from ropg.runs import (
    EVALUATION,
    SAME_SETTING,
    changes,
    decisive,
    evaluation_folder,
    finished_runs,
    load_config,
    open_run,
    read_json,
)
from ropg.splits import say_findings


def evaluate(config: Config) -> Path:
    """Answer every held-out example with every system; write results, predictions, tables and the report."""
    from ropg.evaluation import evaluate_systems, write_results

    task = build.build_task(config)
    llm = build.build_llm(config, task)
    examples = heldout_examples(config)
    runs = trained_runs(config, task)
    folder = evaluation_folder(config)
    with (
        open_run(config, folder, EVALUATION),
        GenerationStore(Path(config.store.dir) / "generations") as store,
    ):
        calls: dict[str, int] = {}
        compared = systems(config, task, runs, examples)
        if not compared:
            raise Refused("no system is left to evaluate; the lines above say why")

        def answer(name: str, rankings: Mapping[str, Sequence[Document]]) -> Answers:
            answers = generate_answers(examples, task, rankings, llm, store, description=f"answers {name}")
            calls[name] = answers.report.n_generated
            say("evaluate", f"{name}: {calls[name]} LLM calls; {counts(answers.counts)}")
            return answers

        evaluation = evaluate_systems(
            examples,
            task,
            compared,
            config.retrieval.k,
            answer,
            resamples=config.evaluation.resamples,
            seed=config.seed,
        )
    write_results(folder / "results.json", evaluation.results)
    write_outputs(config, task, examples, evaluation, runs, calls, folder)
    return folder


def heldout_examples(config: Config) -> Sequence[Example]:
    """The split that ``evaluation.split`` names. Without golds there are predictions and no scores."""
    data, wanted = config.data, config.evaluation.split
    splits = {"test": (data.test, data.limit_test), "dev": (data.dev, data.limit_dev)}
    if wanted == "heldout":
        test = build.build_examples(config, *splits["test"]) if data.test else []
        wanted = "test" if any(example.target is not None for example in test) else "dev"
        if wanted == "dev":
            say(
                "data",
                "the test split has no gold outputs: dev is reported; evaluation.split=test writes predictions",
            )
    if wanted not in splits:
        raise Refused(f"evaluation.split={wanted}: it is heldout, test or dev")
    examples = build.build_examples(config, *splits[wanted])
    say_findings(wanted, examples)
    return examples


def trained_runs(config: Config, task: Any) -> dict[str, Path]:
    """The run of each trained system: ``models.<system>`` where named, else the newest finished one.

    A system is trained where ``models`` has its name, as it has the paper's, or a finished run is of that
    method; so a new method needs no word here. Where a run was made with another task, data, LLM, wording or
    initial encoder, that is said.
    """
    found: dict[str, Path] = {}
    newest = finished_runs(config)
    for name in config.evaluation.systems:
        runs = [folder for folder, summary in newest if summary["method"] == name]
        if name not in config.models and not runs:
            continue
        named = config.models.get(name)
        if named is not None and not (Path(named) / "model").is_dir():
            raise Refused(f"models.{name}={named}: there is no trained model in that folder")
        if named is None and not runs:
            say(
                "evaluate",
                f"{name}: left out, no finished run of this task, data and LLM below {config.run.root}; "
                f"`python train.py method={name} …` with the same settings makes one",
            )
            continue
        found[name] = Path(named) if named is not None else runs[0]
        say("evaluate", f"{name}: {found[name]}")
        for line in unlike(config, task, found[name]):
            say("evaluate", f"{name} was trained with another {line}")
    return found


def unlike(config: Config, task: Any, run: Path) -> list[str]:
    """How a run differs from what is evaluated now, one line each."""
    before = load_config(run)
    lines = changes(decisive(before, SAME_SETTING), decisive(config, SAME_SETTING))
    lines = [line for line in lines if not line.startswith("data.limit_")]
    if before.encoder.model != config.encoder.model:
        lines.append(f"encoder: {before.encoder.model}, and `initial` is {config.encoder.model}")
    wording = (
        read_json(run / "data.json", "train again").get("wording") if (run / "data.json").exists() else None
    )
    if wording is not None and wording != build.task_fingerprint(task):
        lines.append("wording of the task: its definition has changed since; train again")
    return lines


def systems(config: Config, task: Any, runs: Mapping[str, Path], examples: Sequence[Example]) -> list[Any]:
    """The systems of ``evaluation.systems`` in their order, trained ones only where a run is there.

    A name is a trained system, ``initial``, or a retriever of ``ropg.retrievers`` or ``config.retrievers``.
    """
    from ropg.evaluation import retriever_system

    encoder = None
    found = []
    for name in config.evaluation.systems:
        if name in config.models and name not in runs:
            continue
        if name in runs:
            # as it was trained: this configuration may have another encoder, which reads more or less
            trained = build.build_encoder(load_config(runs[name]), runs[name] / "model")
            retriever = build.build_retriever("dense", config, task, trained)
        else:
            kind = "dense" if name == "initial" else name
            if encoder is None and build.takes_encoder(kind, config):
                encoder = build.build_encoder(config)
            retriever = build.build_retriever(kind, config, task, encoder)
        if not can_rank_any(retriever, task, examples):
            say("evaluate", f"{name}: left out, no profile has what it ranks by (recency needs dates)")
            continue
        found.append(retriever_system(name, retriever, task, LABELS.get(name, name)))
    return found


def can_rank_any(retriever: Any, task: Any, examples: Sequence[Example]) -> bool:
    """Whether there is a profile that the retriever can rank; True where all profiles are empty."""
    from ropg.retrievers import Request

    filled = [example for example in examples if len(example.profile)]
    return not filled or any(retriever.can_rank(Request(task.query(e.input), e.profile, e)) for e in filled)
