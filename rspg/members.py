"""Who is in the pool: names of the configuration, resolved to retrievers and to the runs that trained them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg.cli import Refused
from ropg.comparison import build_retrievers, can_rank_any, no_run, run_of
from ropg.configuration import Config
from ropg.console import say
from ropg.evaluation.tables import LABELS
from ropg.examples import Example
from ropg.files import write_json
from ropg.models import fingerprint
from ropg.runs import RunError, finished_runs, load_config, read_json
from rspg.pool import Member

POOL_FILE = "pool.json"


def pool_runs(config: Config, names: Sequence[str]) -> dict[str, Path]:
    """The finished run of each trained member: ``models.<name>``, else the newest of this seed, else of any.

    Raises Refused, with the command that makes it, where a trained member has no run, and for a selector in
    the pool.
    """
    finished = finished_runs(config)
    ordered = sorted(finished, key=lambda run: run[1]["seed"] != config.seed)  # stable: newest first
    methods = {summary["method"] for _, summary in finished}
    found: dict[str, Path] = {}
    for name in names:
        if name not in config.models and name not in methods:
            continue  # a retriever that needs no training
        run = run_of(config, name, ordered)
        if run is None:
            rest = [member for member in names if member != name]
            raise Refused(
                f"selector.pool has {name}, and there is {no_run(config, name)}; selector.pool=[{','.join(rest)}] "
                "does without it"
            )
        if load_config(run).method.reads is not None:
            raise Refused(f"selector.pool has {name}, which is a selector itself; leave it out")
        found[name] = run
    return found


def pin_runs(config: Config, folder: Path) -> dict[str, Path]:
    """The runs of the pool's trained members, kept in ``pool.json``: a resumed run goes on with the same ones.

    Raises RunError where a kept one is gone, has changed, or is not the one that ``models`` names now.
    """
    if (folder / POOL_FILE).exists():
        runs = pinned_runs(folder)
        for name, run in runs.items():
            named = config.models.get(name)
            if named is not None and Path(named).resolve() != run.resolve():
                raise RunError(
                    f"{folder} was begun with {name} from {run}, and models.{name} is {named}; name another "
                    "run.dir, or delete the folder"
                )
        return runs
    runs = pool_runs(config, config.selector.pool)
    for name, run in runs.items():
        say("pool", f"{name}: {run}")
    kept = {
        name: {"run": str(run.resolve()), "weights": fingerprint(run / "model")} for name, run in runs.items()
    }
    write_json(folder / POOL_FILE, {"pool": list(config.selector.pool), "trained": kept})
    return runs


def pinned_runs(folder: Path) -> dict[str, Path]:
    """Member -> run, as ``pool.json`` of a selector's run has them.

    Raises RunError, naming what is wrong, for a damaged file, a run that is gone, or weights that changed.
    """
    path = Path(folder) / POOL_FILE
    remedy = f"delete {folder} and train the selector again"
    try:
        kept = {
            name: (Path(entry["run"]), entry["weights"])
            for name, entry in read_json(path, remedy)["trained"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is damaged (it lacks {error}); {remedy}") from error
    for name, (run, weights) in kept.items():
        now = fingerprint(run / "model")
        if now is None:
            raise RunError(f"{path}: {name} was trained in {run}, and there is no model now; {remedy}")
        if now != weights:
            raise RunError(f"{path}: {name} in {run} has been trained again since; {remedy}")
    return {name: run for name, (run, _) in kept.items()}


def build_members(
    config: Config, task: Any, runs: Mapping[str, Path], names: Sequence[str] | None = None
) -> list[Member]:
    """The retrievers of ``names``, by default of ``selector.pool``, the trained ones from ``runs``.

    Raises Refused for a pool that is empty or names a member twice, and for a trained member without a run.
    """
    names = list(config.selector.pool if names is None else names)
    if not names or len(set(names)) < len(names):
        raise Refused(f"selector.pool={names}: it names retrievers, at least one, each once")
    missing = [name for name in names if name in config.models and name not in runs]
    if missing:
        raise Refused(f"selector.pool has {missing[0]}, and no run of it was given")
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
