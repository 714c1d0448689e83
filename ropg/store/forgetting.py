"""Delete all that concerns one user."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from ropg.feedback.owners import owner_digest
from ropg.store.files import all_writers, delete_keys, generations_folder, readers, rows, store_files
from ropg.store.run_folders import Traces, forget_in_runs, traces_in_runs
from ropg.store.tables import TableInfo, leftovers, read_tables, remove_table

_ABANDONED = 3600.0  # seconds after which a temporary file is nobody's


@dataclass
class Forgotten:
    """What goes or went, and what has to be looked after by hand (``unreachable``).

    ``shared``: keys that answer another user's prompt as well; they are deleted, and generated again for the
    other. ``unowned``: generations of which nobody is recorded, which may be anybody's.
    """

    keys: set[str] = field(default_factory=set)
    shared: int = 0
    unowned: int = 0
    tables: list[Path] = field(default_factory=list)
    unclear_tables: list[Path] = field(default_factory=list)
    runs: list[Traces] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)


def forget(
    store: str | Path,
    user: str,
    *,
    runs: str | Path | None = None,
    examples: Collection[str] = (),
    yes: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Forgotten:
    """Delete a user's generations, likelihoods and tables, so that the files hold no trace of the texts.

    A table that has rows of the user goes whole, since the run that reads it wants it whole; it is built again
    from the store. ``runs``: a folder of run folders whose predictions and reports of the user are deleted too.
    ``examples``: ids of the user's examples, where ``runs``' own data files no longer tell them. Without
    ``yes`` nothing is changed.

    A command that is killed is finished by the same command: tables go before rows, and whose rows were goes
    last. Raises StoreError where a writer is at work, RunError where a run is.
    """
    digest = owner_digest(user)
    folder = generations_folder(store)
    if not yes:
        return _found(store, user, digest, runs, examples)
    with all_writers(folder):
        found = _found(store, user, digest, runs, examples)
        for run in found.runs:
            forget_in_runs(run)
            tell(f"removed from {run.folder}: {run.words()}")
        for path in found.tables:
            remove_table(path)
            tell(f"removed {path}")
        for path in leftovers(store):
            if time.time() - path.stat().st_mtime > _ABANDONED:
                remove_table(path)
        delete_keys(store_files(store), found.keys, tell)
    return found


def _found(
    store: str | Path, user: str, digest: str, runs: str | Path | None, examples: Collection[str]
) -> Forgotten:
    found = Forgotten()
    ids = {user, *examples}
    others: set[str] = set()
    owned: set[str] = set()
    generations: set[str] = set()
    with readers(store_files(store)) as opened:
        for _, connection, version in opened:
            generations.update(row[0] for row in rows(connection, "generations", "0"))
            if version < 2:
                continue
            query = "SELECT key, digest FROM owned JOIN owners ON id = owner"
            for key, owner in connection.execute(query):
                owned.add(key)
                (found.keys if owner == digest else others).add(key)
    found.shared = len(found.keys & others)
    found.unowned = len(generations - owned)
    tables = read_tables(store)
    mine = [t for t in tables if _concerns(t, digest, ids, found.keys)]
    # candidates of an older program do not name their users: those of a split whose feedback is this user's
    splits = {(t.path.parent, t.path.stem.split("-")[1]) for t in mine if t.kind == "feedback"}
    for table in tables:
        unclear = table.damaged or (table.kind == "candidates" and table.owners is None)
        if table in mine or (unclear and (table.path.parent, table.path.stem.partition("-")[2]) in splits):
            found.tables.append(table.path)
        elif unclear:
            found.unclear_tables.append(table.path)
    if runs is not None:
        found.runs, found.unreachable = traces_in_runs(Path(runs), user, ids)
    return found


def _concerns(table: TableInfo, digest: str, ids: Collection[str], keys: Collection[str]) -> bool:
    return (
        digest in (table.owners or ())
        or not table.example_ids.isdisjoint(ids)
        or not table.keys.isdisjoint(keys)
    )


def report(found: Forgotten, user: str, yes: bool) -> str:
    """``forget``'s result for a person."""
    verb = "removed" if yes else "would remove"
    lines = [f"{verb} {len(found.keys)} generations and likelihoods of {user!r}"]
    if found.shared:
        lines.append(
            f"  {found.shared} of them answer another user's prompt too; for that one they are generated again"
        )
    lines += [f"{verb} {path} (a run builds it again from the store)" for path in found.tables]
    lines += [f"{verb} from {run.folder}: {run.words()}" for run in found.runs]
    if found.unowned:
        lines.append(
            f"not reached: {found.unowned} generations of which nobody is recorded (an older program made them). The "
            "commands that made them, run once more, record it without an LLM call; `prune --unowned` removes them"
        )
    lines += [
        f"not reached: {path} does not say whose it is; delete it, a run builds it again"
        for path in found.unclear_tables
    ]
    lines += [f"not reached: {what}" for what in found.unreachable]
    lines.append(
        "not reached: the data files themselves, copies and backups of this store, wandb, and blocks that the disk or "
        "its snapshots keep of deleted files"
    )
    return "\n".join(lines)
