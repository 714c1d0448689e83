"""The comparison of all systems, selectors among them: what evaluate.py does.

Beside the paper's Table 3 it makes Table 4 (success rates), Table 5 (with and without ROPG, oracle bounds),
Figure 3 (winning rates), where Pre and Post disagree, and what each costs in LLM calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ropg.comparison
from ropg.build import base_retriever
from ropg.comparison import Comparison, is_selector, no_run
from ropg.configuration import Config
from ropg.console import counts, say
from ropg.evaluation.plots import learning_curves
from ropg.evaluation.report import Grid, Picture, Section, Text
from ropg.evaluation.systems import System
from ropg.evaluation.table_text import markdown_grid
from ropg.evaluation.tables import LABELS
from ropg.examples import Document, Example
from ropg.files import write_json
from ropg.outputs import Extra, curve_of
from ropg.runs import DECIDES_SELECTOR, RunError, decisive, finished_runs, load_config, read_json
from rspg.heldout import outcome_of
from rspg.members import able_members, build_members, check_pool, pinned_pool, pool_runs
from rspg.metrics_table import metrics_table
from rspg.pool import PoolTable, read_pool
from rspg.report_sections import selection_sections
from rspg.results_file import rspg_json
from rspg.scorer import Scorer
from rspg.seeds import SEED_HEADER, SEED_NOTE, print_selector_seeds, selector_seed_rows
from rspg.selections import PoolOutcome
from rspg.selector import choose
from rspg.table_text import blocks, markdown, print_selection_table
from rspg.tables import selection_tables

RESTRICTED = "{}, trained on the whole pool, chooses from a part of it"
RETRAINED = "{} was trained on that pool"


def evaluate(config: Config) -> Path:
    """Answer every held-out example with every system; write results, predictions, tables and the report."""
    return ropg.comparison.evaluate(config, Selectors())


@dataclass
class Selectors:
    """The selectors' part of a comparison (:class:`ropg.comparison.Extension`).

    ``table``: the whole pool on the held-out examples. ``choices``: pool ("with" or "without" ROPG) ->
    selector -> Q indices. ``untrained``: the members of the pool without ROPG, none where it would be the
    same pool. ``made``: selector -> how it came to choose from that pool. ``dev_rewards``: what each selector's
    run says of the members' mean Eval on dev, from which the best fixed one follows.
    """

    table: PoolTable | None = None
    choices: dict[str, dict[str, list[int]]] = field(default_factory=lambda: {"with": {}, "without": {}})
    untrained: tuple[str, ...] = ()
    made: dict[str, str] = field(default_factory=dict)
    dev_rewards: list[Mapping[str, float]] = field(default_factory=list)

    def systems(self, comparison: Comparison, compared: Sequence[System]) -> list[System]:
        """Read the pool, let every selector choose, and add the selectors to the systems.

        Without a selector the pool is made of those of its members that are evaluated anyway; trained members
        without a run are left out, and that is said.
        """
        config, task = comparison.config, comparison.task
        check_pool(config)
        selectors = {name: run for name, run in comparison.runs.items() if is_selector(run)}
        there = {system.name for system in compared}
        names = [name for name in config.selector.pool if selectors or name in there]
        runs = dict(comparison.runs)
        found, missing = pool_runs(config, [name for name in names if name not in runs])
        runs |= found
        for name in missing:
            say("pool", f"{name}: left out of the pool, {no_run(config, base_retriever(name, config))}")
        names = [name for name in names if name not in missing]
        if not names or (not selectors and len(names) < 2):
            return list(compared)
        members = able_members(build_members(config, task, names, runs), task, comparison.examples)
        self.table = read_pool(
            members,
            comparison.examples,
            task,
            comparison.llm,
            comparison.store,
            config.retrieval.k,
            eval=config.feedback.eval,
            description="pool",
        )
        say("pool", f"{self.table.llm_calls} LLM calls, for all members; {counts(self.table.counts)}")
        untrained = tuple(name for name in self.table.names if name not in runs)
        self.untrained = untrained if len(untrained) < len(self.table.names) else ()
        for name, run in selectors.items():
            say_other_pool(name, run, runs, self.table.names, config)
            self._choose(config, task, name, run)
        known = {member: column for column, member in enumerate(self.table.names)}
        result = [
            _from_table(s.name, s.label, self.table, [known[s.name]] * len(self.table.readings))
            if s.name in known
            else s
            for s in compared
        ]
        for name, chosen in self.choices["with"].items():
            result.append(_from_table(name, LABELS.get(name, name), self.table, chosen))
        return result

    def _choose(self, config: Config, task: Any, name: str, run: Path) -> None:
        """The choices of one selector from the whole pool, and from the pool without trained retrievers."""
        assert self.table is not None
        scorer = _scorer(run)
        self.choices["with"][name] = choose(scorer, task, self.table)
        self._note_dev(run)
        if not self.untrained:
            return
        own = _run_with_pool(config, name, run, self.untrained)
        if own is not None:
            say("evaluate", f"{name} without ROPG: {own}")
            self._note_dev(own)
        self.made[LABELS.get(name, name)] = RESTRICTED if own is None else RETRAINED
        scorer = scorer if own is None else _scorer(own)
        self.choices["without"][name] = choose(scorer, task, self.table.restricted(self.untrained))

    def _note_dev(self, run: Path) -> None:
        if (run / "summary.json").exists():
            self.dev_rewards.append(read_json(run / "summary.json", "train again").get("dev_rewards", {}))

    @property
    def note(self) -> str:
        """How the column without ROPG was made.

        >>> Selectors(made={"RSPG-Pre": RETRAINED, "RSPG-Post": RESTRICTED}).note
        'RSPG-Pre was trained on that pool; RSPG-Post, trained on the whole pool, chooses from a part of it'
        """
        return "; ".join(how.format(label) for label, how in self.made.items())

    def outcomes(self) -> tuple[PoolOutcome | None, PoolOutcome | None]:
        """All ways of choosing from the whole pool, and from the one without ROPG; None without golds."""
        if self.table is None:
            return None, None
        whole = outcome_of(self.table, self.choices["with"], self._dev_of(self.table.names))
        if whole is None or not self.untrained:
            return whole, None
        part = self.table.restricted(self.untrained)
        return whole, outcome_of(part, self.choices["without"], self._dev_of(part.names))

    def _dev_of(self, names: Sequence[str]) -> Mapping[str, float] | None:
        """The first selector's rewards on dev that know these members; said where none does."""
        found = next((dev for dev in self.dev_rewards if set(names) <= dev.keys()), None)
        if found is None and self.dev_rewards:
            unknown = [name for name in names if name not in self.dev_rewards[0]]
            say(
                "evaluate",
                f"best fixed retriever: left out, no selector was trained with {', '.join(unknown)} in its pool",
            )
        return found

    def outputs(self, comparison: Comparison) -> Extra:
        """Tables 4 and 5, Figure 3 and the rest as Markdown, report and print; ``rspg.json`` into the folder."""
        whole, without = self.outcomes()
        (comparison.folder / "rspg.json").unlink(missing_ok=True)
        if whole is None or self.table is None:
            return Extra()
        cost = self.table.distinct_prompts
        alpha = comparison.config.evaluation.alpha
        options: dict[str, Any] = {"note_without": self.note, "distinct_prompts": cost}
        write_json(comparison.folder / "rspg.json", rspg_json(whole, without, **options))
        tables = selection_tables(whole, without, **options, alpha=alpha)
        by_metric = metrics_table(
            comparison.task,
            self.table,
            self.choices,
            self.untrained,
            alpha=alpha,
            seed=comparison.config.seed,
        )
        tables.insert(2, by_metric)
        seeds = selector_seed_rows([summary for _, summary in finished_runs(comparison.config)])
        parts = [part for table in tables for part in (f"## {table.title}", markdown(table))]
        sections = list(selection_sections(whole, without, **options, alpha=alpha))
        sections.insert(3, Section(by_metric.title, blocks(by_metric)))
        curves = {
            LABELS.get(name, name): curve_of(comparison.runs[name])
            for name in self.choices["with"]
            if (comparison.runs[name] / "metrics.jsonl").exists()
        }
        if any(curves.values()):
            drawn = learning_curves(curves, "Random choice", "Chosen retriever's reward")
            about = "Expected reward and reward of the chosen retriever on the dev split, by training step."
            sections.append(Section("Learning of the selectors", [Picture(drawn, about)]))
        if seeds:
            parts += ["## Selectors, every seed", SEED_NOTE, markdown_grid(SEED_HEADER, seeds, left=1)]
            sections.append(Section("Selectors, every seed", [Grid(SEED_HEADER, seeds), Text(SEED_NOTE)]))

        def show() -> None:
            for table in tables:
                print_selection_table(table)
            if seeds:
                print_selector_seeds(seeds)

        return Extra(parts, sections, show)


def say_other_pool(
    name: str, run: Path, runs: Mapping[str, Path], members: Sequence[str], config: Config
) -> None:
    """Say where a selector was trained with another pool, k or Eval than it chooses by now."""
    before = load_config(run)
    if before.retrieval.k != config.retrieval.k:
        say("evaluate", f"{name} was trained with retrieval.k={before.retrieval.k}, not {config.retrieval.k}")
    if before.feedback.eval != config.feedback.eval:
        say("evaluate", f"{name} was trained with feedback.eval={before.feedback.eval}")
    try:
        pool, pinned = pinned_pool(run)
    except RunError as error:
        say("evaluate", f"{name}: {error}")
        return
    if sorted(pool) != sorted(members):
        say("evaluate", f"{name} was trained with the pool {', '.join(pool)}")
    for member, its_run in pinned.items():
        if member in runs and runs[member].resolve() != its_run.resolve():
            say("evaluate", f"{name} was trained with {member} from {its_run}")


def _scorer(run: Path) -> Scorer:
    return Scorer.load(run / "model", batch_tokens=load_config(run).selector.batch_tokens)


def _run_with_pool(config: Config, name: str, run: Path, pool: Sequence[str]) -> Path | None:
    """The newest finished run that differs from a selector's own in nothing but its pool, which is this one."""

    def settings(folder: Path) -> dict[str, Any]:
        other = load_config(folder)
        return decisive(
            dataclasses.replace(other, selector=dataclasses.replace(other.selector, pool=[])),
            DECIDES_SELECTOR,
        )

    for folder, summary in finished_runs(config):
        same = summary["method"] == name and sorted(summary.get("pool", [])) == sorted(pool)
        if same and settings(folder) == settings(run):
            return folder
    return None


def _from_table(name: str, label: str, table: PoolTable, chosen: Sequence[int]) -> System:
    """The system that gives each example the documents of its chosen member; nothing is ranked again."""

    def rank(examples: Sequence[Example]) -> list[tuple[Document, ...]]:
        return [readings[member].top for readings, member in zip(table.readings, chosen, strict=True)]

    return System(name, label, rank)
