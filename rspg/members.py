"""Who is in the pool: names of the configuration, resolved to retrievers and to the runs that trained them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg import build
from ropg.cli import Refused
from ropg.comparison import SELECTORS, build_retrievers, can_rank_any, is_selector, no_run, run_of
from ropg.configuration import Config
from ropg.console import say
from ropg.evaluation.tables import LABELS
from ropg.examples import Example
from ropg.files import write_json
from ropg.models import fingerprint
from ropg.registry import UnknownName
from ropg.runs import RunError, finished_runs, read_json
from rspg.pool import Member

POOL_FILE = "pool.json"
TRAINED = "ropg_rl, ropg_kd"


def check_pool(config: Config) -> None:
    """Refuse a pool that is empty, names a member twice, a selector, or a retriever that does not exist."""
    names = list(config.selector.pool)
    if not names or len(set(names)) < len(names):
        raise Refused(f"selector.pool={names}: it names retrievers, at least one, each once")
    finished = finished_runs(config)
    selectors = {summary["method"] for run, summary in finished if is_selector(run)} | set(SELECTORS)
    methods = {summary["method"] for _, summary in finished} | set(config.models)
    for name in names:
        base = build.base_retriever(name, config)
        if base in selectors:
            raise Refused(f"selector.pool has {name}, which is a selector itself; leave it out")
        if base not in methods:
            try:
                build.takes_encoder("dense" if name == "initial" else name, config)
            except UnknownName as error:
                raise Refused(f"selector.pool: {error} Or initial, or a trained one: {TRAINED}") from error


def pool_runs(config: Config, names: Sequence[str]) -> tuple[dict[str, Path], list[str]]:
    """The finished run of each trained member, and the trained members that have none.

    A run is ``models.<name>``, else the newest of this seed, else of any seed. Members that restrict a trained
    one (``of: ropg_kd``) have its run.
    """
    finished = finished_runs(config)
    ordered = sorted(finished, key=lambda run: run[1]["seed"] != config.seed)  # stable: newest first
    methods = {summary["method"] for _, summary in finished}
    found: dict[str, Path] = {}
    missing = []
    for name in names:
        base = build.base_retriever(name, config)
        if base not in config.models and base not in methods:
            continue  # a retriever that needs no training
        run = run_of(config, base, ordered)
        if run is None:
            missing.append(name)
        else:
            found[name] = run
    return found, missing


def resolve_runs(config: Config, folder: Path) -> tuple[list[str], dict[str, Path]]:
    """The pool of a selector's run and the runs of its trained members: as kept in ``pool.json``, else as found.

    Raises Refused, with the command that makes it, where a trained member has no run; RunError as
    :func:`pinned_pool`.
    """
    if (folder / POOL_FILE).exists():
        return pinned_pool(folder)
    names = list(config.selector.pool)
    runs, missing = pool_runs(config, names)
    if missing:
        rest = ",".join(name for name in names if name not in missing)
        raise Refused(
            f"selector.pool has {missing[0]}, and there is {no_run(config, build.base_retriever(missing[0], config))}; "
            f"selector.pool=[{rest}] does without trained retrievers"
        )
    for name, run in runs.items():
        say("pool", f"{name}: {run}")
    return names, runs


def pin_pool(folder: Path, names: Sequence[str], runs: Mapping[str, Path]) -> None:
    """Keep the members and their runs in ``pool.json``, so that a resumed run goes on with the same ones."""
    kept = {
        name: {
            "run": str(run.resolve()),
            "relative": os.path.relpath(run.resolve(), Path(folder).resolve()),  # survives a move of all runs
            "weights": fingerprint(run / "model"),
        }
        for name, run in runs.items()
        if name in names
    }
    write_json(folder / POOL_FILE, {"pool": list(names), "trained": kept})


def refuse_other_runs(config: Config, folder: Path) -> None:
    """Raise RunError where ``models`` names another run of a member than the one this folder was begun with."""
    if not (folder / POOL_FILE).exists():
        return
    for name, (run, _) in _read_pool_file(folder)[1].items():
        base = build.base_retriever(name, config)
        named = config.models.get(base)
        if named is not None and Path(named).resolve() != run.resolve():
            raise RunError(
                f"{folder} was begun with {name} from {run}, and models.{base} is {named}; name another run.dir, "
                "or delete the folder"
            )


def pinned_pool(folder: Path) -> tuple[list[str], dict[str, Path]]:
    """The members of a selector's pool, and the runs of the trained ones, as ``pool.json`` has them.

    Raises RunError, naming what is wrong, for a damaged file, a run that is gone, or weights that changed.
    """
    names, kept = _read_pool_file(folder)
    for name, (run, weights) in kept.items():
        now = fingerprint(run / "model")
        if now is None:
            raise RunError(
                f"{folder / POOL_FILE}: {name} was trained in {run}, and there is no model now; put that run back, or "
                f"{_remedy(folder)}"
            )
        if now != weights:
            raise RunError(
                f"{folder / POOL_FILE}: {name} in {run} has been trained again since; {_remedy(folder)}"
            )
    return names, {name: run for name, (run, _) in kept.items()}


def _remedy(folder: Path) -> str:
    return f"delete {folder} and train the selector again"


def _read_pool_file(folder: Path) -> tuple[list[str], dict[str, tuple[Path, str]]]:
    path = Path(folder) / POOL_FILE
    values = read_json(path, _remedy(folder))
    names: Any = values.get("pool")
    trained: Any = values.get("trained")
    sound = isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)
    sound = sound and isinstance(trained, dict)
    for entry in trained.values() if sound else ():
        sound = sound and isinstance(entry, dict) and {"run", "weights"} <= entry.keys()
        sound = sound and all(isinstance(entry[key], str) for key in ("run", "weights"))
    if not sound or [name for name in names if name in ("ropg_rl", "ropg_kd") and name not in trained]:
        raise RunError(f"{path} is damaged (it lacks members of the pool, or their runs); {_remedy(folder)}")
    return names, {name: (_found(Path(folder), entry), entry["weights"]) for name, entry in trained.items()}


def _found(folder: Path, entry: Mapping[str, str]) -> Path:
    """Where a member's run lies: where it was, or beside the selector's as it was when all runs were moved."""
    moved = Path(os.path.normpath(folder.resolve() / entry.get("relative", entry["run"])))
    if moved.exists() and fingerprint(moved / "model") == entry["weights"]:
        return moved
    return Path(entry["run"])


def build_members(config: Config, task: Any, names: Sequence[str], runs: Mapping[str, Path]) -> list[Member]:
    """The retrievers of ``names``, the trained ones from ``runs``. Raises as :func:`ropg.build.build_retriever`."""
    retrievers = build_retrievers(config, task, names, runs)
    return [Member(name, LABELS.get(name, name), retrievers[name]) for name in names]


def able_members(members: Sequence[Member], task: Any, examples: Sequence[Example]) -> list[Member]:
    """Those that can rank a profile at all; the others are left out, and that is said."""
    able = []
    for member in members:
        if can_rank_any(member.retriever, task, examples):
            able.append(member)
        else:
            say("pool", f"{member.name}: left out, no profile has what it ranks by (recency needs dates)")
    if not able:
        raise Refused("no member of selector.pool can rank any profile; the lines above say why")
    return able
