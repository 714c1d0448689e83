"""The comparison of all systems on held-out users: what evaluate.py does."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ropg import build, processes
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.console import counts, say
from ropg.evaluation.systems import System
from ropg.evaluation.tables import LABELS
from ropg.examples import Document, Example
from ropg.feedback.answers import Answers, generate_answers
from ropg.feedback.store import GenerationStore
from ropg.outputs import Extra, write_outputs
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
    slug,
)
from ropg.splits import load_splits, say_findings


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison works with. ``runs``: the run of each trained system."""

    config: Config
    task: Any
    llm: Any
    examples: Sequence[Example]
    runs: Mapping[str, Path]
    store: GenerationStore
    folder: Path


#: The paper's selectors; another method is one where its ``method.reads`` says so.
SELECTORS = ("rspg_pre", "rspg_post")


class Extension(Protocol):
    """What another package adds to a comparison: systems, and what is to be said about them."""

    def systems(self, comparison: Comparison, compared: Sequence[System]) -> list[System]:
        """The systems to evaluate, from those that are there already."""
        ...

    def outputs(self, comparison: Comparison) -> Extra:
        """What goes into tables.md, the report and the console, once all systems are evaluated."""
        ...


def evaluate(config: Config, extension: Extension | None = None) -> Path:
    """Answer every held-out example with every system; write results, predictions, tables and the report.

    Several processes share the LLM's work; the main one writes.
    """
    from ropg.evaluation import evaluate_systems, write_results

    check_file_names(config.evaluation.systems)
    if config.retrieval.k < 1:
        raise Refused(f"retrieval.k={config.retrieval.k}: a prompt takes at least one document")
    task = build.build_task(config)
    llm = build.build_llm(config, task)
    with processes.main_first():
        examples = heldout_examples(config)
    runs = trained_runs(config, task)
    folder = evaluation_folder(config)
    with (
        open_run(config, folder, EVALUATION),
        GenerationStore(Path(config.store.dir) / "generations") as store,
    ):
        calls: dict[str, int] = {}
        compared = systems(config, task, runs, examples)
        comparison = Comparison(config, task, llm, examples, runs, store, folder)
        if extension is not None:
            compared = extension.systems(comparison, compared)
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
        if not processes.is_main():
            return folder
        extra = Extra() if extension is None else extension.outputs(comparison)
    write_results(folder / "results.json", evaluation.results)
    write_outputs(config, task, examples, evaluation, runs, calls, folder, extra)
    return folder


def check_file_names(names: Sequence[str]) -> None:
    """Refuse systems whose predictions could not be written, or only over those of another."""
    if not names:
        raise Refused("evaluation.systems is empty; it names what is compared, such as [none,bm25,initial]")
    if len(set(names)) < len(names):
        raise Refused(f"system names must be distinct: {', '.join(names)}")
    files = [slug(name) for name in names]
    for name, file in zip(names, files, strict=True):
        if file.startswith(("-", ".")):
            raise Refused(f"the system {name!r} cannot name a file; begin its name with a letter or a digit")
        if files.count(file) > 1:
            raise Refused(f"two systems would write predictions/{file}.json; {name!r} needs another name")


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
    method; so a new method needs no word here. A restricted one (``of: ropg_kd``) has the run of what it
    restricts. Where a run was made with another task, data, LLM, wording or initial encoder, or its data has
    changed, that is said.
    """
    found: dict[str, Path] = {}
    fingerprints: dict[str, dict[str, str]] = {}
    newest = finished_runs(config)
    # of selectors those with this pool come first: one trained without ROPG's models is for its own column
    newest.sort(key=lambda run: is_selector(run[0]) and not same_pool(run[0], config))
    for name in config.evaluation.systems:
        base = build.base_retriever(name, config)
        run = run_of(config, base, newest)
        if run is None and base in config.models:
            say("evaluate", f"{name}: left out, {no_run(config, base)}")
        if run is None:
            continue
        found[name] = run
        say("evaluate", f"{name}: {found[name]}")
        for line in unlike(config, task, found[name]):
            say("evaluate", f"{name} was trained with another {line}")
        if changed := changed_splits(found[name], fingerprints):
            say(
                "evaluate",
                f"{name} was trained on other data: {', '.join(changed)} changed since; train again",
            )
    return found


def changed_splits(run: Path, known: dict[str, dict[str, str]]) -> list[str]:
    """The splits of a run whose examples are not those that it was made with; none where its data is gone.

    known: fingerprints of the splits by configuration, filled here: runs mostly share their data.
    """
    if not (run / "data.json").exists():
        return []
    config = load_config(run)
    key = repr((config.data, config.task.name, config.method.reads is None))
    if key not in known:
        known[key] = {}
        with contextlib.suppress(ValueError, OSError), contextlib.redirect_stdout(io.StringIO()):
            known[key] = {
                name: build.examples_fingerprint(part) for name, part in load_splits(config).items()
            }
    before = read_json(run / "data.json", "train again")
    return [name for name, now in known[key].items() if before.get(name) != now]


def run_of(config: Config, name: str, finished: Sequence[tuple[Path, dict[str, Any]]]) -> Path | None:
    """``models.<name>``, else the first of the ``finished`` runs of that method, None where there is none.

    Raises Refused where ``models.<name>`` holds no trained model, or a selector where a retriever is meant.
    """
    named = config.models.get(name)
    if named is None:
        return next((folder for folder, summary in finished if summary["method"] == name), None)
    if not (Path(named) / "model").is_dir():
        raise Refused(f"models.{name}={named}: there is no trained model in that folder")
    method = load_config(Path(named)).method
    papers = ("ropg_rl", "ropg_kd", *SELECTORS)
    other_kind = (method.reads is not None) != (name in SELECTORS)
    if name in papers and (other_kind or (method.name in papers and method.name != name)):
        kind = "retriever" if method.reads is None else "selector"
        raise Refused(f"models.{name}={named}: that is the run of a {kind}, {method.name}")
    return Path(named)


def same_pool(run: Path, config: Config) -> bool:
    """Whether a selector's run has the pool of this configuration, in whatever order."""
    return sorted(load_config(run).selector.pool) == sorted(config.selector.pool)


def is_selector(run: Path) -> bool:
    """Whether a run trained a selector rather than a retriever."""
    return load_config(run).method.reads is not None


def no_run(config: Config, name: str) -> str:
    """Why a trained system cannot take part, and which command changes that."""
    return (
        f"no finished run of this task, data and LLM below {config.run.root}; "
        f"`python train.py method={name} …` with the same settings makes one"
    )


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
    """The systems of ``evaluation.systems`` that rank profiles, in their order, trained ones where a run is there.

    A name is a trained system, ``initial``, or a retriever of ``ropg.retrievers`` or ``config.retrievers``.
    """
    from ropg.evaluation import retriever_system

    named = config.evaluation.systems
    names = [n for n in named if build.base_retriever(n, config) not in config.models or n in runs]
    names = [name for name in names if name not in runs or not is_selector(runs[name])]
    found = []
    for name, retriever in build_retrievers(config, task, names, runs).items():
        if not can_rank_any(retriever, task, examples):
            say("evaluate", f"{name}: left out, no profile has what it ranks by (recency needs dates)")
            continue
        found.append(retriever_system(name, retriever, task, LABELS.get(name, name)))
    return found


def build_retrievers(
    config: Config, task: Any, names: Sequence[str], runs: Mapping[str, Path]
) -> dict[str, Any]:
    """The retriever of each name, those in ``runs`` with the encoder that was trained there."""
    encoder = None
    trained: dict[Path, Any] = {}  # a run's encoder is loaded once, however many restrict it
    found = {}
    for name in names:
        if name in runs:
            run = runs[name]
            if run not in trained:
                # as it was trained: this configuration may have another encoder, which reads more or less
                trained[run] = build.build_encoder(load_config(run), run / "model")
            retriever = build.build_retriever("dense", config, task, trained[run])
            found[name] = build.restricted(retriever, name, config)
            continue
        kind = "dense" if name == "initial" else name
        if encoder is None and build.takes_encoder(kind, config):
            encoder = build.build_encoder(config)
        found[name] = build.build_retriever(kind, config, task, encoder)
    return found


def can_rank_any(retriever: Any, task: Any, examples: Sequence[Example]) -> bool:
    """Whether there is a profile that the retriever can rank; True where all profiles are empty."""
    from ropg.retrievers import Request

    filled = [example for example in examples if len(example.profile)]
    return not filled or any(retriever.can_rank(Request(task.query(e.input), e.profile, e)) for e in filled)
