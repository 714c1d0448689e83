"""rank -> feedback -> train -> held-out report, and the evaluation of all systems: what the two commands call.

Every function takes a :class:`~ropg.configuration.Config` and can be called from a notebook::

    from ropg.cli import compose
    from ropg.pipeline import train
    folder = train(compose("method=ropg_rl", "seed=1"))
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ropg import build, encoder_training, processes, tables, training_split
from ropg.asking import asks_sets, check_asking, set_feedback
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.console import counts, say
from ropg.costs import training_costs
from ropg.examples import Example
from ropg.feedback.owners import Owners
from ropg.feedback.queries import ScoredQuery, join
from ropg.feedback.scorer import Eval
from ropg.feedback.sets import SetFeedback
from ropg.feedback.store import GenerationRecord, GenerationStore
from ropg.files import write_json
from ropg.heldout import write_summary
from ropg.llms import LLMS
from ropg.refresh import refreshing
from ropg.retrievers.provenance_filter import known_provenances
from ropg.runs import open_run, read_json, run_folder, way_of_training
from ropg.splits import load_splits

STAGES = ("rank", "feedback", "train", "all")


@dataclass
class Workbench:
    """The objects of one configuration. ``splits`` are train, dev (chooses checkpoints) and heldout."""

    config: Config
    task: Any
    llm: Any
    encoder: Any
    splits: dict[str, Sequence[Example]]


def prepare(config: Config, splits: dict[str, Sequence[Example]]) -> Workbench:
    """Build what the stages need; the LLM's weights stay unloaded until a prompt is missing in the store."""
    task = build.build_task(config)
    llm, encoder = build.build_llm(config, task), build.build_encoder(config)
    encoder_training.check_encoder(config, encoder)
    return Workbench(config, task, llm, encoder, splits)


def check(config: Config) -> None:
    """Refuse at once what a later stage would refuse after hours of feedback."""
    if config.stage not in STAGES:
        raise Refused(f"stage={config.stage}: there is no such stage; it is one of {', '.join(STAGES)}")
    level = config.candidates.l
    if level != "all" and (not isinstance(level, int) or isinstance(level, bool) or level < 2):
        raise Refused(f"candidates.l={level}: it is a number from 2, or all")
    if config.candidates.provenance is not None:
        known_provenances(config.candidates.provenance)
        if not config.candidates.provenance:
            raise Refused("candidates.provenance=[] leaves no document; name own, neighbor, or leave it out")
    if config.feedback.eval not in get_args(Eval):
        raise Refused(f"feedback.eval={config.feedback.eval}: it is {' or '.join(get_args(Eval))}")
    training_split.check(config)
    encoder_training.check(config)
    check_asking(config)
    build.build_settings(config)
    build.build_task(config)
    LLMS.get(config.llm.kind)
    build.check_engine(config)


def same_data(task: Any, splits: Mapping[str, Sequence[Example]], folder: Path) -> dict[str, str]:
    """The fingerprints of the splits, the task's wording and its Eval. Raises Refused where one has changed."""
    now = {name: build.examples_fingerprint(examples) for name, examples in splits.items()}
    now |= {"wording": build.task_fingerprint(task), "eval": task.eval_identity}
    path = folder / "data.json"
    before = (
        read_json(path, "delete the folder, the store keeps what was generated") if path.exists() else now
    )
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        raise Refused(
            f"{folder}: the data or the task has changed since this run began ({', '.join(changed)}); delete the "
            "folder, or name another run.dir"
        )
    return now


def train(config: Config) -> Path:
    """Run the stages up to ``config.stage`` and return the run folder.

    A run that was interrupted goes on where it stopped; a finished one is left as it is.
    """
    started = time.monotonic()
    check(config)
    folder = run_folder(config)
    with open_run(config, folder):
        with processes.main_first():
            splits = load_splits(config)
        data = same_data(build.build_task(config), splits, folder)
        if processes.agree(is_finished(config, folder)):
            return folder
        bench = prepare(config, splits)
        if processes.is_main():
            write_json(folder / "data.json", data)
        queries, llm_calls = collect(bench, folder)
        if config.stage in ("rank", "feedback"):
            return folder
        result = fit(bench, queries, folder)
        if asks_sets(config) or config.candidates.refresh is not None:  # training has asked more
            llm_calls = counting_store(config, folder).all_calls()
        if processes.is_main():
            write_summary(
                config,
                bench.task,
                bench.encoder,
                bench.splits["heldout"],
                queries,
                folder,
                llm_calls,
                time.monotonic() - started,
                training_costs(bench.encoder.module, result.seconds),
            )
        processes.wait()
    say("done", f"{folder}")
    return folder


def is_finished(config: Config, folder: Path) -> bool:
    """Whether nothing is left to do in this run, which is said then. Raises RunError for a damaged summary."""
    summary = folder / "summary.json"
    if not (summary.exists() and (folder / "model").is_dir()) or config.stage != "all":
        return False
    read_json(summary, "delete this file, and the same command writes it again")
    say("done", f"{folder} is finished already; delete it, or name another run.dir, to train again")
    return True


def collect(bench: Workbench, folder: Path) -> tuple[dict[str, list[ScoredQuery]], int]:
    """The offline stages, rank and feedback, for every split; queries with rewards, and LLM calls made.

    The calls are those of all tries of this run.
    """
    config, queries = bench.config, {}
    store = counting_store(config, folder)
    with store:
        for split, examples in bench.splits.items():
            candidates, where = tables.candidates_for(config, bench.task, bench.encoder, split, examples)
            say(
                "rank",
                f"{split}: {len(examples)} examples, {len(candidates)} candidates; {counts(candidates.counts)}",
            )
            ranking = None
            if split == "train" and training_split.needs_ranking(config):
                ranking = tables.initial_ranking(config, bench.task, bench.encoder, split, examples)
            if config.stage == "rank":
                continue
            feedback, made = tables.feedback_for(
                config, bench.task, bench.llm, store, split, examples, candidates, where
            )
            say("feedback", f"{split}: {len(feedback)} rewards, {made} LLM calls; {counts(feedback.counts)}")
            if config.stage != "feedback":
                queries[split] = join(candidates, feedback, examples, bench.task)
                if ranking is not None:
                    queries[split] = training_split.add_negatives(
                        config, bench.task, examples, queries[split], ranking
                    )
    return queries, store.all_calls()


def counting_store(config: Config, folder: Path) -> CountingStore:
    """The generation store of a configuration, which counts what this run generates."""
    return CountingStore(Path(config.store.dir) / "generations", folder)


def _counted(path: Path) -> int:
    """The calls counted so far; only a count, so one that cannot be read is said and begun anew."""
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["llm_calls"])
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError):
        say("feedback", f"{path} cannot be read; LLM calls are counted from here on")
        return 0


class CountingStore(GenerationStore):
    """A generation store that keeps, beside it, the number of LLM calls a run has made.

    It is written with every batch, so that a killed run has counted what it generated when it is resumed. Each
    of several processes counts its own, in ``feedback.json`` or ``feedback-<number>.json`` of the run folder.
    """

    def __init__(self, folder: Path, run: Path) -> None:
        super().__init__(folder)
        self._run = run
        number = processes.index()
        self._count = run / ("feedback.json" if number == 0 else f"feedback-{number}.json")
        self.calls = _counted(self._count)

    def all_calls(self) -> int:
        """The calls of all processes that this run has ever had, once they have come here."""
        processes.wait()
        return sum(_counted(path) for path in {self._count, *self._run.glob("feedback*.json")})

    def put_many(
        self,
        records: Iterable[GenerationRecord],
        settings: Mapping[str, Any] | None = None,
        owners: Owners | None = None,
    ) -> None:
        """Commit a batch of texts, and count it."""
        batch = list(records)
        super().put_many(batch, settings, owners)
        self._add(len(batch))

    def put_likelihoods(
        self,
        values: Mapping[str, float],
        settings: Mapping[str, Any] | None = None,
        owners: Owners | None = None,
    ) -> None:
        """Commit a batch of likelihoods, and count it."""
        super().put_likelihoods(values, settings, owners)
        self._add(len(values))

    def _add(self, calls: int) -> None:
        self.calls += calls
        write_json(self._count, {"llm_calls": self.calls})


def fit(bench: Workbench, queries: dict[str, list[ScoredQuery]], folder: Path) -> Any:
    """Fine-tune the encoder on the queries' rewards; the weights that ``optim.choose_by`` finds best on dev are kept.

    ``bench.encoder`` becomes the trained one: the initial encoder, with adapters, or as one of two towers.
    """
    from ropg.training import bi_encoder_scorer

    config = bench.config
    if not queries["train"] or not queries["dev"]:
        raise Refused(
            "no training or no dev query has feedback: profiles need two documents and golds; see the counts above"
        )
    initial = bench.encoder
    encoder = bench.encoder = encoder_training.trainable(config, bench.encoder)
    encoder.train_mode(config.encoder.dropout)
    identity = {
        "encoder": encoder.fingerprint,
        "max_length": config.encoder.max_length,
        **way_of_training(config.encoder),
    }
    store = counting_store(config, folder)
    train = (bench.splits["train"], queries["train"])
    score_rows = bi_encoder_scorer(encoder, [*queries["train"], *queries["dev"]])
    meet = getattr(score_rows, "meet", None)
    with (
        set_feedback(
            config, *train, bench.task, bench.llm, store, training_split.eval_of(config, "train")
        ) as ask_sets,
        refreshing(config, *train, bench.task, (initial, encoder), bench.llm, store, folder, meet) as refresh,
    ):
        return learn(
            config,
            folder,
            encoder.module,
            score_rows,
            queries,
            encoder.save,
            identity if ask_sets is None else {**identity, "sets": ask_sets.identity},
            ask_sets,
            refresh,
        )


def learn(
    config: Config,
    folder: Path,
    module: Any,
    score_rows: Any,
    rows: Mapping[str, Sequence[Any]],
    save_model: Callable[[Path], None],
    identity: Mapping[str, Any],
    ask_sets: SetFeedback | None = None,
    refresh: Any = None,
) -> Any:
    """Run the training loop on ``rows["train"]`` and ``rows["dev"]`` as the configuration says, tracked and resumed.

    The other arguments are those of :func:`ropg.training.train`, whose result is returned.
    """
    from ropg.training import train as training_loop
    from ropg.training import wandb_tracker

    tracking = config.tracking
    with wandb_tracker(
        tracking.mode if tracking.wandb and processes.is_main() else "disabled",  # type: ignore[arg-type]
        folder=folder,
        project=tracking.project,
        name=folder.name,
        config=dataclasses.asdict(config),
    ) as tracker:
        result = training_loop(
            module,
            score_rows,
            rows["train"],
            rows["dev"],
            build.build_objective(config),
            build.build_settings(config),
            folder,
            save_model=save_model,
            tracker=tracker,
            identity=identity,
            ask_sets=ask_sets,
            refresh=refresh,
        )
    measure = config.optim.choose_by.replace("_", " ")
    if result.steps < result.planned_steps:
        say(
            "train",
            f"stopped at step {result.steps} of {result.planned_steps}: the dev {measure} has not risen in "
            f"{config.optim.patience} evaluations in a row (optim.patience)",
        )
    say(
        "train",
        f"best dev {measure} {result.best_value:.4f} at step {result.best_step} of {result.steps}",
    )
    return result
