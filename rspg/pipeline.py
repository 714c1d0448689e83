"""pool -> feedback -> train -> held-out report for selectors, and the way to the retrievers' for the rest.

from ropg.cli import compose
from rspg.pipeline import train
folder = train(compose("method=rspg_post", "seed=1"))
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

import ropg.pipeline
from ropg import build, processes, training_split
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.console import counts, say
from ropg.costs import training_costs
from ropg.examples import Example
from ropg.files import write_json
from ropg.pipeline import CountingStore, is_finished, learn, same_data
from ropg.runs import open_run, run_folder
from ropg.splits import load_splits
from rspg.heldout import write_summary
from rspg.inputs import Reads
from rspg.members import able_members, build_members, check_pool, pin_pool, refuse_other_runs, resolve_runs
from rspg.pool import Member, PoolTable, rank_pool, read_pool
from rspg.scorer import Scorer, SelectionRow
from rspg.selector import say_cut


def train(config: Config) -> Path:
    """Train what ``method`` names, a selector or a retriever, up to ``config.stage``; returns the run folder.

    A run that was interrupted goes on where it stopped; a finished one is left as it is.
    """
    if config.method.reads is None:
        return ropg.pipeline.train(config)
    started = time.monotonic()
    check(config)
    folder = run_folder(config)
    with open_run(config, folder):
        with processes.main_first():
            splits = load_splits(config)
        task = build.build_task(config)
        data = same_data(task, splits, folder)
        refuse_other_runs(config, folder)
        if processes.agree(is_finished(config, folder)):
            return folder
        require_golds(splits)
        names, runs = resolve_runs(config, folder)
        scorer = build_scorer(config)  # before the LLM's hours, for what cannot be built
        members = able_members(build_members(config, task, names, runs), task, splits["train"])
        if processes.is_main():
            pin_pool(folder, [member.name for member in members], runs)
            write_json(folder / "data.json", data)
        tables, llm_calls = collect(config, task, members, splits, folder)
        del members  # their encoders make room for the selector
        if config.stage in ("rank", "feedback"):
            return folder
        result = fit(config, task, scorer, tables, folder)
        if processes.is_main():
            costs = training_costs(scorer.module, result.seconds)
            write_summary(config, task, scorer, tables, folder, llm_calls, time.monotonic() - started, costs)
        processes.wait()
    say("done", f"{folder}")
    return folder


def check(config: Config) -> None:
    """Refuse at once what a later stage would refuse after hours of feedback."""
    if config.method.reads not in get_args(Reads):
        raise Refused(f"method.reads={config.method.reads}: it is {' or '.join(get_args(Reads))}")
    if config.retrieval.k < 1:
        raise Refused(f"retrieval.k={config.retrieval.k}: a prompt takes at least one document")
    check_pool(config)
    ropg.pipeline.check(config)


def require_golds(splits: Mapping[str, Sequence[Example]]) -> None:
    """Refuse a split without a gold output: there is nothing to learn from, or nothing to report."""
    for split, examples in splits.items():
        if not any(example.target is not None for example in examples):
            raise Refused(
                f"none of the {len(examples)} {split} examples has a gold output; a selector needs some to train on, "
                "to choose its checkpoint by and to be judged on"
            )


def collect(
    config: Config,
    task: Any,
    members: Sequence[Member],
    splits: Mapping[str, Sequence[Example]],
    folder: Path,
) -> tuple[dict[str, PoolTable], int]:
    """The offline stage for every split: what each member retrieves, and what the LLM earns with it.

    The calls are those of all tries of this run.
    """
    llm = build.build_llm(config, task)
    tables = {}
    store = CountingStore(Path(config.store.dir) / "generations", folder)
    with store:
        for split, examples in splits.items():
            if config.stage == "rank":
                table = rank_pool(
                    members, examples, task, llm, config.retrieval.k, description=f"pool, {split}"
                )
                say("rank", f"{split}: {counts(table.counts)}")
                continue
            table = read_pool(
                members,
                examples,
                task,
                llm,
                store,
                config.retrieval.k,
                eval=training_split.eval_of(config, split),
                description=f"pool, {split}",
            )
            say("pool", f"{split}: {table.llm_calls} LLM calls; {counts(table.counts)}")
            tables[split] = table
    return tables, store.all_calls()


def build_scorer(config: Config) -> Scorer:
    """The untrained selector of a configuration."""
    selector = config.selector
    return Scorer.from_encoder(
        selector.encoder,
        reads=config.method.reads,  # type: ignore[arg-type]  # checked by check()
        attention_window=selector.attention_window,
        layers=selector.layers,
        max_length=selector.max_length,
        with_names=selector.names,
        batch_tokens=selector.batch_tokens,
        recompute=selector.recompute,  # type: ignore[arg-type]  # checked by the scorer
        gradient_checkpointing=selector.gradient_checkpointing,
        seed=config.seed,
    )


def selection_rows(table: PoolTable, scorer: Scorer, task: Any) -> list[SelectionRow]:
    """What the training loop reads: the examples with a target.

    ``baseline`` is the mean Eval of the pool, what choosing at random gives.
    """
    rows = []
    for q in np.flatnonzero(table.scored):
        rewards = tuple(float(reward) for reward in table.rewards[q])
        rows.append(
            SelectionRow(
                example_id=table.example_ids[q],
                inputs=scorer.read(task, table.inputs[q], table.readings[q]),
                rewards=rewards,
                initial_scores=(0.0,) * len(rewards),
                ranks=tuple(range(1, len(rewards) + 1)),
                baseline=float(np.mean(rewards)),
            )
        )
    return rows


def fit(config: Config, task: Any, scorer: Scorer, tables: Mapping[str, PoolTable], folder: Path) -> Any:
    """Train the selector on the pool's rewards; the best weights by dev expected reward are kept."""
    rows = {split: selection_rows(tables[split], scorer, task) for split in ("train", "dev")}
    for split, found in rows.items():
        table = tables[split]
        readings = [table.readings[q] for q in np.flatnonzero(table.scored)]
        say_cut(f"train, {split}", scorer, readings, [row.inputs for row in found])
    flat = sum(max(row.rewards) == min(row.rewards) for row in rows["train"])
    say("train", f"{len(rows['train'])} inputs, {flat} of them without a difference between the retrievers")
    scorer.train_mode(config.selector.dropout)
    return learn(
        config,
        folder,
        scorer.module,
        scorer.score_rows,
        rows,
        scorer.save,
        {
            "encoder": scorer.fingerprint,
            "max_length": config.selector.max_length,
            "pool": tables["train"].names,
        },
    )
