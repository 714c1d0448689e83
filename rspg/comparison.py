"""The comparison of all systems, selectors among them: what evaluate.py does.

Beside the paper's Table 3 it makes Table 4 (success rates), Table 5 (with and without ROPG, oracle bounds),
Figure 3 (winning rates), where Pre and Post disagree, and what each costs in LLM calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ropg.comparison
from ropg.comparison import Comparison, is_selector
from ropg.configuration import Config
from ropg.console import counts, say
from ropg.evaluation.systems import System
from ropg.evaluation.tables import LABELS
from ropg.examples import Document, Example
from ropg.files import write_json
from ropg.outputs import Extra
from ropg.runs import RunError, finished_runs, load_config, read_json
from rspg.heldout import outcome_of
from rspg.members import able_members, build_members, pinned_runs, pool_runs
from rspg.pool import PoolTable, read_pool
from rspg.report_sections import selection_sections
from rspg.scorer import Scorer
from rspg.seeds import SEED_HEADER, SEED_NOTE, print_selector_seeds, selector_seed_rows
from rspg.selections import PoolOutcome
from rspg.selector import choose
from rspg.tables import markdown, print_selection_table, rspg_json, selection_tables

RESTRICTED = "the selectors trained on the whole pool choose from a part of it"
RETRAINED = "the selectors were trained on that pool"


def evaluate(config: Config) -> Path:
    """Answer every held-out example with every system; write results, predictions, tables and the report."""
    return ropg.comparison.evaluate(config, Selectors())


@dataclass
class Selectors:
    """The selectors' part of a comparison (:class:`ropg.comparison.Extension`).

    ``table``: the whole pool on the held-out examples. ``choices``: pool ("with" or "without" ROPG) ->
    selector -> Q indices. ``dev_rewards``: of the members, from which the best fixed one follows.
    """

    table: PoolTable | None = None
    choices: dict[str, dict[str, list[int]]] = field(default_factory=lambda: {"with": {}, "without": {}})
    untrained: tuple[str, ...] = ()
    note: str = RESTRICTED
    dev_rewards: Mapping[str, float] | None = None

    def systems(self, comparison: Comparison, compared: Sequence[System]) -> list[System]:
        """Read the pool, let every selector choose, and add the selectors to the systems.

        Without a selector the pool is made of those of its members that are evaluated anyway.
        """
        config, task = comparison.config, comparison.task
        selectors = {name: run for name, run in comparison.runs.items() if is_selector(run)}
        there = {system.name for system in compared}
        names = [name for name in config.selector.pool if selectors or name in there]
        if not names or (not selectors and len(names) < 2):
            return list(compared)
        runs = dict(comparison.runs)
        if selectors:
            runs |= pool_runs(config, [name for name in names if name not in comparison.runs])
        members = able_members(build_members(config, task, runs, names), task, comparison.examples)
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
        say("pool", f"{self.table.llm_calls} LLM calls; {counts(self.table.counts)}")
        trained = [name for name in self.table.names if name in runs]
        self.untrained = tuple(name for name in self.table.names if name not in runs) if trained else ()
        for name, run in selectors.items():
            say_other_pool(name, run, runs, self.table.names, config)
            self._choose(config, task, name, run)
        known = {member: column for column, member in enumerate(self.table.names)}
        found = [
            _from_table(s.name, s.label, self.table, [known[s.name]] * len(self.table.readings))
            if s.name in known
            else s
            for s in compared
        ]
        for name, chosen in self.choices["with"].items():
            found.append(_from_table(name, LABELS.get(name, name), self.table, chosen))
        return found

    def _choose(self, config: Config, task: Any, name: str, run: Path) -> None:
        """The choices of one selector from the whole pool, and from the pool without trained retrievers."""
        assert self.table is not None
        scorer = _scorer(run)
        self.choices["with"][name] = choose(scorer, task, self.table)
        summary = run / "summary.json"
        if summary.exists() and self.dev_rewards is None:
            self.dev_rewards = read_json(summary, "train again").get("dev_rewards")
        if not self.untrained:
            return
        own = _run_with_pool(config, name, self.untrained)
        if own is not None:
            say("evaluate", f"{name} without ROPG: {own}")
            self.note, scorer = RETRAINED, _scorer(own)
        self.choices["without"][name] = choose(scorer, task, self.table.restricted(self.untrained))

    def outcomes(self) -> tuple[PoolOutcome | None, PoolOutcome | None]:
        """All ways of choosing from the whole pool, and from the one without ROPG; None without golds."""
        if self.table is None:
            return None, None
        whole = outcome_of(self.table, self.choices["with"], self.dev_rewards)
        if whole is None or not self.untrained:
            return whole, None
        return whole, outcome_of(
            self.table.restricted(self.untrained), self.choices["without"], self.dev_rewards
        )

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
        seeds = selector_seed_rows([summary for _, summary in finished_runs(comparison.config)])
        parts = [part for table in tables for part in (f"## {table.title}", markdown(table))]
        sections = list(selection_sections(whole, without, **options, alpha=alpha))
        if seeds:
            from ropg.evaluation.report import Grid, Section, Text
            from ropg.evaluation.table_text import markdown_grid

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
    """Say where a selector was trained with another pool, or another k, than it chooses from now."""
    before = load_config(run)
    if sorted(before.selector.pool) != sorted(members):
        say("evaluate", f"{name} was trained with the pool {', '.join(before.selector.pool)}")
    if before.retrieval.k != config.retrieval.k:
        say("evaluate", f"{name} was trained with retrieval.k={before.retrieval.k}, not {config.retrieval.k}")
    try:
        pinned = pinned_runs(run)
    except RunError as error:
        say("evaluate", f"{name}: {error}")
        return
    for member, its_run in pinned.items():
        if member in runs and runs[member].resolve() != its_run.resolve():
            say("evaluate", f"{name} was trained with {member} from {its_run}")


def _scorer(run: Path) -> Scorer:
    return Scorer.load(run / "model", batch_tokens=load_config(run).selector.batch_tokens)


def _run_with_pool(config: Config, name: str, pool: Sequence[str]) -> Path | None:
    """The newest finished run of a selector that was trained with exactly that pool."""
    for run, summary in finished_runs(config):
        if summary["method"] == name and sorted(load_config(run).selector.pool) == sorted(pool):
            return run
    return None


def _from_table(name: str, label: str, table: PoolTable, chosen: Sequence[int]) -> System:
    """The system that gives each example the documents of its chosen member; nothing is ranked again."""

    def rank(examples: Sequence[Example]) -> list[tuple[Document, ...]]:
        return [readings[member].top for readings, member in zip(table.readings, chosen, strict=True)]

    return System(name, label, rank)
