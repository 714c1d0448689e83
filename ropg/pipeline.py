"""rank -> feedback -> train -> held-out report, and the evaluation of all systems: what the two commands call.

Every function takes a :class:`~ropg.configuration.Config` and can be called from a notebook::

    from ropg.cli import compose
    from ropg.pipeline import train
    folder = train(compose("method=ropg_rl", "seed=1"))
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ropg import build, tables
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.evaluation.files import write_json
from ropg.examples import Example
from ropg.feedback.queries import ScoredQuery, join
from ropg.feedback.scorer import Eval
from ropg.feedback.store import GenerationRecord, GenerationStore
from ropg.runs import open_run, run_folder

STAGES = ("rank", "feedback", "train", "all")


@dataclass
class Workbench:
    """The objects of one configuration. ``splits`` are train, dev (chooses checkpoints) and heldout."""

    config: Config
    task: Any
    llm: Any
    encoder: Any
    splits: dict[str, Sequence[Example]]


def say(stage: str, message: str) -> None:
    """One line for the person who waits."""
    print(f"[{stage}] {message}", flush=True)


def prepare(config: Config) -> Workbench:
    """Load what the stages need; the LLM's weights stay unloaded until a prompt is missing in the store."""
    if config.stage not in STAGES:
        raise Refused(f"stage={config.stage}: there is no such stage; it is one of {', '.join(STAGES)}")
    level = config.candidates.l
    if level != "all" and (not isinstance(level, int) or isinstance(level, bool) or level < 2):
        raise Refused(f"candidates.l={level}: it is a number from 2, or all")
    if config.feedback.eval not in get_args(Eval):
        raise Refused(f"feedback.eval={config.feedback.eval}: it is {' or '.join(get_args(Eval))}")
    build.build_objective(config)  # what training would refuse is refused before hours of feedback
    build.build_settings(config)
    task = build.build_task(config)
    splits = load_splits(config)
    return Workbench(config, task, build.build_llm(config, task), build.build_encoder(config), splits)


def load_splits(config: Config) -> dict[str, Sequence[Example]]:
    """train, dev and heldout by the rule of the data.

    heldout is the test split and dev chooses checkpoints. Where there is no test split or it has no golds
    (LaMP's own), a tenth of the training users, drawn by a hash of the user, chooses checkpoints and dev is
    held out.
    """
    data = config.data
    train = build.build_examples(config, data.train, data.limit_train)
    dev = build.build_examples(config, data.dev, data.limit_dev)
    test = build.build_examples(config, data.test, data.limit_test) if data.test else []
    for name, part in (("train", train), ("dev", dev), ("test", test)):
        for line in getattr(getattr(part, "report", None), "lines", list)():
            say("data", f"{name}: {line}")
    if any(example.target is not None for example in test):
        return {"train": train, "dev": dev, "heldout": test}
    say(
        "data",
        "the test split has no gold outputs: a tenth of the training users chooses checkpoints, dev is held out",
    )
    chooses = [_tenth(train[i].user) for i in range(len(train))]
    return {
        "train": _Subset(train, [i for i, c in enumerate(chooses) if not c]),
        "dev": _Subset(train, [i for i, c in enumerate(chooses) if c]),
        "heldout": dev,
    }


def _tenth(user: str) -> bool:
    return hashlib.sha256(user.encode()).digest()[0] % 10 == 0


class _Subset(Sequence[Example]):
    """Some examples of a lazy sequence."""

    def __init__(self, examples: Sequence[Example], indices: list[int]) -> None:
        self.examples, self.indices = examples, indices
        known = getattr(examples, "fingerprint", None)
        if isinstance(known, str):
            self.fingerprint = hashlib.sha256(repr((known, indices)).encode()).hexdigest()[:32]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.examples[i] for i in self.indices[index]]
        return self.examples[self.indices[index]]


def train(config: Config) -> Path:
    """Run the stages up to ``config.stage`` and return the run folder.

    A run that was interrupted goes on where it stopped; a finished one is left as it is.
    """
    started = time.monotonic()
    folder = run_folder(config)
    with open_run(config, folder):
        if (folder / "summary.json").exists() and config.stage == "all":
            say(
                "done",
                f"{folder} is finished already; name another run.dir, or delete the folder, to train again",
            )
            return folder
        bench = prepare(config)
        queries, llm_calls = collect(bench, folder)
        if config.stage in ("rank", "feedback"):
            return folder
        fit(bench, queries, folder)
        write_summary(bench, queries, folder, llm_calls, time.monotonic() - started)
    say("done", f"{folder}")
    return folder


def collect(bench: Workbench, folder: Path) -> tuple[dict[str, list[ScoredQuery]], int]:
    """The offline stages, rank and feedback, for every split; queries with rewards, and LLM calls made.

    The calls are those of all tries of this run.
    """
    config, queries = bench.config, {}
    store = CountingStore(Path(config.store.dir) / "generations", folder / "feedback.json")
    with store:
        for split, examples in bench.splits.items():
            candidates, where = tables.candidates_for(config, bench.task, bench.encoder, split, examples)
            say(
                "rank",
                f"{split}: {len(examples)} examples, {len(candidates)} candidates; {counts(candidates.counts)}",
            )
            if config.stage == "rank":
                continue
            feedback, made = tables.feedback_for(
                config, bench.task, bench.llm, store, split, examples, candidates, where
            )
            say("feedback", f"{split}: {len(feedback)} rewards, {made} LLM calls; {counts(feedback.counts)}")
            if config.stage != "feedback":
                queries[split] = join(candidates, feedback, examples, bench.task)
    return queries, store.calls


class CountingStore(GenerationStore):
    """A generation store that keeps, beside it, the number of LLM calls a run has made.

    It is written with every batch, so that a killed run has counted what it generated when it is resumed.
    """

    def __init__(self, folder: Path, count: Path) -> None:
        super().__init__(folder)
        self._count = count
        self.calls = json.loads(count.read_text())["llm_calls"] if count.exists() else 0

    def put_many(
        self, records: Iterable[GenerationRecord], settings: Mapping[str, Any] | None = None
    ) -> None:
        """Commit a batch of texts, and count it."""
        batch = list(records)
        super().put_many(batch, settings)
        self._add(len(batch))

    def put_likelihoods(self, values: Mapping[str, float], settings: Mapping[str, Any] | None = None) -> None:
        """Commit a batch of likelihoods, and count it."""
        super().put_likelihoods(values, settings)
        self._add(len(values))

    def _add(self, calls: int) -> None:
        self.calls += calls
        write_json(self._count, {"llm_calls": self.calls})


def counts(values: dict[str, int]) -> str:
    """Counts in words, those that are zero left out."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in values.items() if n) or "nothing skipped"


def fit(bench: Workbench, queries: dict[str, list[ScoredQuery]], folder: Path) -> Any:
    """Fine-tune the encoder on the queries' rewards; the best weights by dev expected reward are kept."""
    from ropg.training import bi_encoder_scorer, wandb_tracker
    from ropg.training import train as training_loop

    config = bench.config
    if not queries["train"] or not queries["dev"]:
        raise Refused(
            "no training or no dev query has feedback: profiles need two documents; see the counts above"
        )
    tracking = config.tracking
    with wandb_tracker(
        tracking.mode if tracking.wandb else "disabled",  # type: ignore[arg-type]
        folder=folder,
        project=tracking.project,
        name=folder.name,
        config=dataclasses.asdict(config),
    ) as tracker:
        result = training_loop(
            bench.encoder.module,
            bi_encoder_scorer(bench.encoder),
            queries["train"],
            queries["dev"],
            build.build_objective(config),
            build.build_settings(config),
            folder,
            save_model=bench.encoder.save,
            tracker=tracker,
            identity={"encoder": bench.encoder.fingerprint, "max_length": config.encoder.max_length},
        )
    say(
        "train",
        f"best dev expected reward {result.best_value:.4f} at step {result.best_step} of {result.steps}",
    )
    return result


def write_summary(
    bench: Workbench, queries: dict[str, list[ScoredQuery]], folder: Path, llm_calls: int, seconds: float
) -> dict[str, Any]:
    """Score the held-out candidates with the trained encoder and BM25 and write ``summary.json``."""
    from ropg.evaluation import heldout_summary

    config, heldout = bench.config, queries["heldout"]
    if not heldout:
        raise Refused(
            "no held-out query has feedback: profiles need two documents and golds; see the counts above"
        )
    summary = {
        "method": config.method.name,
        "task": bench.task.name,
        "seed": config.seed,
        "n_train": len(queries["train"]),
        **heldout_summary(
            [q.rewards for q in heldout],
            [q.initial_scores for q in heldout],
            dense_scores(bench.encoder, heldout),
            bm25_order(bench, heldout),
            temperature=config.method.temperature,
        ),
        "llm_calls": llm_calls,
        "seconds": round(seconds, 1),
    }
    write_json(folder / "summary.json", summary)
    for line in summary_lines(summary):
        say("heldout", line)
    return summary


def dense_scores(encoder: Any, queries: Sequence[ScoredQuery]) -> list[list[float]]:
    """Dot products of each query with its own candidates."""
    texts = [text for q in queries for text in (q.query, *q.documents)]
    vectors = dict(zip(texts, encoder.encode(texts), strict=True))
    return [[float(vectors[q.query] @ vectors[text]) for text in q.documents] for q in queries]


def bm25_order(bench: Workbench, queries: Sequence[ScoredQuery]) -> list[list[float]]:
    """BM25's order of each query's candidates as scores, from its ranking of the whole profile."""
    retriever = build.build_retriever("bm25", bench.config, bench.task)
    wanted = {q.example_id for q in queries}
    examples = {e.id: e for e in bench.splits["heldout"] if e.id in wanted}
    scores = []
    for q in queries:
        ranked = retriever.rank(q.query, examples[q.example_id].profile, example=examples[q.example_id])
        place = {r.document.id: -float(position) for position, r in enumerate(ranked)}
        scores.append([place[document_id] for document_id in q.document_ids])
    return scores


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """The summary in words: mean Eval of the first-ranked candidate, and the gap to the oracle closed."""
    reward = {name: values["first_reward"] for name, values in summary["heldout"].items()}
    lines = ["first-document reward: " + ", ".join(f"{name} {value:.3f}" for name, value in reward.items())]
    closed = gap_closed(summary)
    p = {name: "not testable" if v is None else f"{v:.4f}" for name, v in summary["p_values"].items()}
    gap = (
        "no gap between the initial retriever and the oracle"
        if closed is None
        else f"gap closed {closed:.0%}"
    )
    lines.append(
        f"{gap}; p {p['initial']} against initial, {p['bm25']} against BM25; n = {summary['n_heldout']}"
    )
    return lines


def gap_closed(summary: dict[str, Any]) -> float | None:
    """(trained − initial) / (oracle − initial) of the first-document rewards; None where there is no gap.

    >>> gap_closed({"heldout": {"trained": {"first_reward": 0.6}, "initial": {"first_reward": 0.4},
    ...                         "oracle": {"first_reward": 0.8}}})
    0.5
    """
    first = {name: summary["heldout"][name]["first_reward"] for name in ("initial", "trained", "oracle")}
    room = first["oracle"] - first["initial"]
    return round((first["trained"] - first["initial"]) / room, 6) if room > 0 else None
