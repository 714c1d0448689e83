"""What the command line of a table says: which table, its own options, and the configuration of each task."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropg.graph.catalogue import TABLES, GraphTask, PaperTable

if TYPE_CHECKING:
    from ropg.configuration import Config


@dataclass(frozen=True, slots=True)
class Options:
    """The keys of a table itself. ``tasks``, ``split``: None for those of the paper. ``limit``: None for all."""

    tasks: tuple[int, ...] | None = None
    limit: int | None = None
    split: str | None = None
    users: str = "all"
    budget: str = "each_side"
    retriever: tuple[str, ...] | None = None


_CHOICES = {"split": ("test", "dev"), "users": ("all", "heldout"), "budget": ("each_side", "equal")}


def parse(arguments: Sequence[str]) -> tuple[PaperTable, Options, list[str]]:
    """The table, its own options, and the overrides that are left for the configuration.

    Raises Refused, with the remedy, for a table that is not there, and for a value that an option does not take.

    >>> table, options, overrides = parse(["4", "tasks=5,6", "limit=40", "llm=smollm2"])
    >>> table.number, options.tasks, options.limit, overrides
    (4, (5, 6), 40, ['llm=smollm2'])
    """
    from ropg.cli import Refused

    number, *keys = arguments
    if not number.isdecimal() or int(number) not in TABLES:
        known = ", ".join(map(str, TABLES))
        raise Refused(f"there is no table {number!r}; the first argument is one of {known}")
    table = TABLES[int(number)]
    found: dict[str, Any] = {}
    overrides = []
    own = {field.name for field in dataclasses.fields(Options)}
    for argument in keys:
        key, equals, value = argument.partition("=")
        if not equals:
            raise Refused(
                f"{argument!r} is no KEY=VALUE; `python -m ropg.graph.tables --help` lists the keys"
            )
        if key not in own:
            if key in ("experiment", "task", "--multirun"):
                raise Refused(f"{argument}: a table chooses its own; tasks=… names some of the table's tasks")
            if near := _nearest_own(key, own):
                raise Refused(f"{argument}: there is no key {key}; did you mean {near}?")
            overrides.append(argument)
        elif key in found:
            raise Refused(f"{key} is given twice")
        else:
            found[key] = _value(table, key, value)
    return table, Options(**found), overrides


def _nearest_own(key: str, own: Collection[str]) -> str | None:
    """The own key that a key which no configuration has is spelled much like."""
    from ropg.configuration import Config

    if not key.isidentifier() or key in {field.name for field in dataclasses.fields(Config)}:
        return None
    return next(iter(difflib.get_close_matches(key, own, n=1, cutoff=0.7)), None)


def _value(table: PaperTable, key: str, value: str) -> Any:
    from ropg.cli import Refused

    if key in _CHOICES:
        if value not in _CHOICES[key]:
            raise Refused(f"{key}={value}: it is {' or '.join(_CHOICES[key])}")
        return value
    parts = [part.strip() for part in value.strip("[]").split(",")]
    if key == "limit":
        if not value.isdecimal() or int(value) < 1:
            raise Refused(f"limit={value}: it is a number of targets from 1; leave it out for all")
        return int(value)
    if not all(parts) or len(set(parts)) < len(parts):
        raise Refused(f"{key}={value}: name each once, with commas between them")
    if key == "tasks":
        wrong = [part for part in parts if not part.isdecimal() or int(part) not in table.tasks]
        if wrong:
            raise Refused(
                f"tasks={value}: table {table.number} has tasks {', '.join(map(str, table.tasks))}, not {wrong[0]}"
            )
        return tuple(sorted(map(int, parts)))
    return tuple(parts)


def compose_task(graph_task: GraphTask, overrides: Sequence[str], split: str) -> tuple[Config, str]:
    """The configuration of one task, over the file of a split; and the split that the file is of.

    Where the paper's split was meant (``split`` is "") and its file is not there, dev's is taken.
    Raises Refused where neither is there.
    """
    from ropg.cli import Refused, compose

    config = compose(f"experiment=pgraphrag_{graph_task.number}", *overrides)
    data = config.data
    if data.source != "pgraphrag":
        raise Refused(f"data={data.source}: PGraphRAG's tasks are made of its review files; leave data=… out")
    if data.path:
        raise Refused(
            f"data.path={data.path}: a table reads <dataset>_<split>.json of a folder; give data.root=DIR"
        )
    if (mode := data.options.get("mode", "both")) != "both":
        raise Refused(
            f"data.options.mode={mode}: a table compares the modes itself, over profiles of both; leave it out"
        )
    if not data.root:
        raise Refused(
            f"give data.root=DIR, the folder of {graph_task.dataset}_dev.json or {graph_task.dataset}_test.json"
        )
    names = [split] if split else ["test", "dev"]
    for name in names:
        if (Path(data.root) / f"{graph_task.dataset}_{name}.json").is_file():
            data.file = f"{graph_task.dataset}_{name}.json"
            return config, name
    files = " nor ".join(f"{graph_task.dataset}_{name}.json" for name in names)
    other = {"test": "; split=dev takes the other file", "dev": "; split=test takes the other file"}
    raise Refused(f"data.root={data.root} holds no {files}{other.get(split, '')}")


def profile_options(config: Config) -> dict[str, Any]:
    """What decides which documents the profiles hold, where the command line says more than the experiment."""
    data = config.data
    cap = {} if data.max_documents is None else {"max_documents": data.max_documents}
    return {**data.options, **cap, **data.on_problem}


def data_file(config: Config) -> Path:
    """The review file of a configuration."""
    data = config.data
    return Path(data.path or Path(data.root or "") / (data.file or "")).resolve()
