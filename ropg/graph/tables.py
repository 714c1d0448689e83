"""PGraphRAG's tables, one command each: ``python -m ropg.graph.tables 3 data.root=DIR llm=smollm2``.

Every task of a table is composed as train.py and evaluate.py compose it, from ``experiment=pgraphrag_<task>`` and the
keys given. Answers go through the generation store: a table that was interrupted goes on where it stopped, and one
table uses what another generated.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropg.graph.catalogue import OVER_RETRIEVERS, TABLES, TASKS, PaperTable
from ropg.graph.options import Options, compose_task, data_file, parse, profile_options

if TYPE_CHECKING:
    from ropg.configuration import Config
    from ropg.graph.comparison import TaskOutcome
    from ropg.graph.layout import Report

NO_TEST_FILE = (
    "The paper's table is on the test files; data.root has none for some tasks, for which dev is taken."
)

HELP = """python -m ropg.graph.tables TABLE [KEY=VALUE …]

Makes one table of the PGraphRAG paper with any LLM, prints it, and writes it as Markdown and JSON below
<run.root>/pgraphrag (or into run.dir). The same command goes on where it was interrupted.

TABLE
{tables}

Keys of a table
  tasks=1,5         only these of its tasks
  limit=N           only the first N targets of each task
  split=test        the file <dataset>_<split>.json of data.root: test or dev. Without it the paper's split, or dev
                    where there is no such file, which the table says
  users=all         every user of the file is a target; heldout: only those of the test split that data.seed draws,
                    whom no training saw
  budget=each_side  what k means for PGraphRAG: k of the user's own and k of neighbours, as in the released code, with
                    the equal-budget variant beside it; equal: k in all
  retriever=bm25    bm25, dense (the encoder as it is), ropg_kd or ropg_rl (the newest finished run of the task, or
                    models.ropg_kd=RUN), another of conf/retriever, or several: retriever=bm25,ropg_kd

All other keys are those of train.py and evaluate.py (python evaluate.py --help): data.root=DIR, llm=smollm2,
encoder=minilm, llm.max_new_tokens=64, retrieval.k=4, store.dir=stores, run.root=runs, seed=0, …

Examples
  python -m ropg.graph.tables 4 data.root=DIR llm=smollm2 encoder=minilm tasks=5,6 limit=40
  python -m ropg.graph.tables 13 data.root=DIR users=heldout retriever=bm25,dense,ropg_kd
"""


def make_table(table: PaperTable, options: Options, overrides: Sequence[str]) -> Path:
    """Make a table, print it and write it; the path of the Markdown file.

    All tasks are composed, and their files and runs looked for, before the LLM is asked anything.
    """
    from ropg import processes
    from ropg.console import say
    from ropg.files import write_json, write_text
    from ropg.graph.layout import as_json, markdown, print_report

    stage = f"table {table.number}"
    split = options.split or ("dev" if table.split == "dev" else "")
    configs: dict[int, Config] = {}
    splits: dict[int, str] = {}
    for number in options.tasks or table.tasks:
        configs[number], splits[number] = compose_task(TASKS[number], overrides, split)
    retrievers = options.retriever or (("bm25", "dense") if table.number in OVER_RETRIEVERS else ("bm25",))
    runs = {number: runs_of(config, retrievers, options.users) for number, config in configs.items()}
    outcomes: dict[int, TaskOutcome] = {}
    llms: dict[str, Any] = {}
    for place, (number, config) in enumerate(configs.items(), start=1):
        say(stage, f"task {number}, {place} of {len(configs)}: {TASKS[number].title}")
        outcomes[number] = run_task(table, options, config, retrievers, runs[number], llms, stage)
    report = report_of(table, options, configs, splits, retrievers, runs, outcomes)
    config = next(iter(configs.values()))
    folder = Path(config.run.dir) if config.run.dir else Path(config.run.root) / "pgraphrag"
    path = folder / f"table_{table.number}.md"
    if processes.is_main():
        print_report(report)
        write_json(path.with_suffix(".json"), as_json(report))
        write_text(path, markdown(report))
        calls = sum(outcome.llm_calls for outcome in outcomes.values())
        say(stage, f"{path} and .json; {calls} LLM calls, the rest from the store")
    return path


def runs_of(config: Config, retrievers: Sequence[str], users: str) -> dict[str, Path]:
    """The run of each trained retriever. Raises Refused where there is none, or where it saw the targets."""
    from ropg import build
    from ropg.cli import Refused
    from ropg.comparison import SELECTORS, is_selector, no_run, run_of
    from ropg.registry import UnknownName
    from ropg.runs import finished_runs, load_config

    found = {}
    for name in retrievers:
        base = build.base_retriever(name, config)
        if base in SELECTORS:
            raise Refused(
                f"retriever={name}: that is a selector; a table ranks with a retriever, such as ropg_kd"
            )
        if base != name:
            raise Refused(
                f"retriever={name}: it ranks a part of each profile, and a table's systems choose whose documents they "
                f"show; name what it is of: retriever={base}"
            )
        unknown = None
        if base not in config.models:
            try:
                build.takes_encoder(name, config)
                continue  # one that needs no training
            except UnknownName as error:
                unknown = f"retriever={name}: {error} Or a trained one: ropg_kd, ropg_rl"
        finished = [run for run in finished_runs(config) if not is_selector(run[0])]
        run = run_of(config, base, finished)
        if run is None:
            raise Refused(
                unknown or f"retriever={name}: {no_run(config, base)}; or name one: models.{base}=RUN"
            )
        if users == "all" and data_file(load_config(run)) == data_file(config):
            raise Refused(
                f"retriever={name}: {run} was trained on users of {data_file(config)}; add users=heldout, which leaves "
                "them out"
            )
        found[name] = run
    return found


def run_task(
    table: PaperTable,
    options: Options,
    config: Config,
    retrievers: Sequence[str],
    runs: Mapping[str, Path],
    llms: dict[str, Any],
    stage: str = "table",
) -> TaskOutcome:
    """One task's systems. ``llms`` keeps the LLM from task to task, as long as they ask for the same one."""
    from ropg import build, processes
    from ropg.comparison import build_retrievers
    from ropg.feedback.store import GenerationStore
    from ropg.graph.comparison import compare
    from ropg.splits import say_findings

    task = build.build_task(config)
    key = repr((config.llm, config.feedback, task.stop))
    if key not in llms:
        llms.clear()  # the one before makes room
        llms[key] = build.build_llm(config, task)
    split = config.data.test if options.users == "heldout" else None
    with processes.main_first():
        examples = build.build_examples(config, split, options.limit)
        everyone = build.build_examples(config, None, None)
    say_findings(data_file(config).name, examples)
    with GenerationStore(Path(config.store.dir) / "generations") as store:
        return compare(
            table.columns(retrievers, config.retrieval.k, options.budget),  # type: ignore[arg-type]  # checked
            build_retrievers(config, task, retrievers, runs),
            examples,
            everyone,
            task,
            llms[key],
            store,
            alpha=config.evaluation.alpha,
            resamples=config.evaluation.resamples,
            seed=config.seed,
            gains=table.gains,
            stage=stage,
        )


def report_of(
    table: PaperTable,
    options: Options,
    configs: Mapping[int, Config],
    splits: Mapping[int, str],
    retrievers: Sequence[str],
    runs: Mapping[int, Mapping[str, Path]],
    outcomes: Mapping[int, TaskOutcome],
) -> Report:
    """The table with what it was made from."""
    from ropg.graph.layout import Report

    config = next(iter(configs.values()))
    k = config.retrieval.k
    if options.budget == "equal":
        budget = f"Budget: equal. k = {k} documents in all, PGraphRAG's as LaMP's."
    else:
        budget = (
            f"Budget: each side. PGraphRAG shows up to k = {k} documents of the user and k of neighbours, up to twice "
            "what LaMP shows; its equal-budget variant shows k in all."
        )
    if table.number in (11, 12):
        budget = budget.replace(f"k = {k}", "k")
    whom = "every user of the file" if options.users == "all" else "held-out users only"
    limit = f", the first {options.limit}" if options.limit else ""
    trained = [f"{name} of task {n}: {run}" for n, found in runs.items() for name, run in found.items()]
    files = ", ".join(dict.fromkeys(data_file(c).name for c in configs.values()))
    unlike = [n for n, split in splits.items() if not options.split and split != table.split]
    profiles = ", ".join(
        f"{name}={' and '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in profile_options(config).items()
    )
    facts = [
        f"LLM: {config.llm.model}. Retriever: {', '.join(retrievers)}. Data: {files}; targets: {whom}{limit}.",
        *([f"Profiles: {profiles}."] if profiles else []),
        *([NO_TEST_FILE] if unlike else []),
        *([f"Trained encoders: {'; '.join(trained)}."] if trained else []),
        budget,
    ]
    settings = {
        "llm": config.llm.model,
        "llms": {str(n): dataclasses.asdict(c.llm) for n, c in configs.items()},
        "encoder": config.encoder.model,
        "retrievers": list(retrievers),
        "runs": {str(n): {name: str(run) for name, run in found.items()} for n, found in runs.items()},
        "files": {str(n): str(data_file(c)) for n, c in configs.items()},
        "splits": {str(n): split for n, split in splits.items()},
        "profiles": profile_options(config),
        "users": options.users,
        "limit": options.limit,
        "budget": options.budget,
        "k": k,
        "alpha": config.evaluation.alpha,
        "resamples": config.evaluation.resamples,
        "seed": config.seed,
    }
    return Report(table, outcomes, settings, tuple(facts), config.evaluation.alpha)


def main(arguments: Sequence[str]) -> int:
    """The command line; the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = [f"  {t.number:<4}{t.title} (tasks {t.tasks[0]} to {t.tasks[-1]})" for t in TABLES.values()]
        print(HELP.format(tables="\n".join(lines)))
        return 0 if arguments else 2
    from ropg.cli import plain_errors, settle_process

    settle_process()
    with plain_errors():
        make_table(*parse(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
