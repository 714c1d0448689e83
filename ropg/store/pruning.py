"""Remove what is no longer wanted: an LLM's rows, old ones, unused ones, those that belong to nobody."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ropg.feedback.database import StoreError
from ropg.feedback.keys import digest
from ropg.store.files import all_writers, delete_keys, generations_folder, readers, rows, shown, store_files
from ropg.store.tables import read_tables, remove_table


@dataclass
class Pruned:
    """What goes or went: ``keys`` of rows, and tables that refer to one of them."""

    keys: set[str] = field(default_factory=set)
    generations: int = 0
    likelihoods: int = 0
    tables: list[Path] = field(default_factory=list)


def prune(
    store: str | Path,
    *,
    llm: Sequence[str] = (),
    older_than: float | None = None,
    unused: bool = False,
    unowned: bool = False,
    yes: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Pruned:
    """Remove the rows that meet every condition given; without ``yes`` only say which they are.

    llm: first digits of hashes that ``inspect`` shows, of an LLM or of an LLM with a decoding.
    older_than: days since a generation was made; likelihoods have no date and stay.
    unused: no table refers to it. The answers of evaluations and of a selector's pool are in no table.
    unowned: nobody is recorded whose prompt it answers.

    Where files hold one key, the first by name decides and all lose it. Tables that refer to a removed row
    go too, so that a run builds them again whole. A prune that is killed is finished by the same command.

    Raises StoreError where no condition is given, a hash fits several LLMs (or, without ``yes``, none), a writer
    is at work, or ``unused`` meets a damaged table, which does not say what it refers to.
    """
    if not (llm or older_than is not None or unused or unowned):
        raise StoreError("name what to prune: --llm, --older-than, --unused or --unowned")
    if (
        older_than is not None and not 0 <= older_than < math.inf
    ):  # a date in the future would be after all rows
        raise StoreError(f"--older-than is {older_than:g}; it is a number of days, at least 0")
    folder = generations_folder(store)
    if not yes:
        return _chosen(store, llm, older_than, unused, unowned, yes)
    with all_writers(folder):
        found = _chosen(store, llm, older_than, unused, unowned, yes)
        for path in found.tables:  # first: what is left of a killed prune refers to rows that are there
            remove_table(path)
        delete_keys(store_files(store), found.keys, tell)
    return found


def _chosen(
    store: str | Path, llm: Sequence[str], older_than: float | None, unused: bool, unowned: bool, yes: bool
) -> Pruned:
    found, seen = Pruned(), set()
    tables = read_tables(store)
    used = frozenset[str]()
    if unused:
        for table in tables:
            if table.damaged:
                raise StoreError(
                    f"{table.path} does not say what it uses ({table.state}); delete it, a run builds it again"
                )
        used = used.union(*(table.keys for table in tables))
    before = None if older_than is None else time.time() - older_than * 86400
    with readers(store_files(store)) as opened:
        owned = {
            key
            for _, connection, version in opened
            if unowned and version > 1
            for (key,) in connection.execute("SELECT DISTINCT key FROM owned")
        }
        wanted = _identities([c for _, c, _ in opened], llm, yes)
        for _, connection, _ in opened:
            hashes = dict(connection.execute("SELECT id, hash FROM identities").fetchall())
            for name, date in (("generations", "created"), ("likelihoods", "NULL")):
                for key, identity, created in rows(connection, name, f"identity, {date}"):
                    if key in seen:
                        continue
                    seen.add(key)
                    if (
                        (llm and hashes.get(identity) not in wanted)
                        or (before is not None and (created is None or created >= before))
                        or (unused and key in used)
                        or (unowned and key in owned)
                    ):
                        continue
                    found.keys.add(key)
                    if name == "generations":
                        found.generations += 1
                    else:
                        found.likelihoods += 1
    found.tables = [table.path for table in tables if not table.keys.isdisjoint(found.keys)]
    return found


def _identities(connections: Sequence[sqlite3.Connection], prefixes: Sequence[str], gone: bool) -> set[str]:
    """The hashes of the settings that the prefixes mean; ``gone``: one may mean none, of a prune that was killed."""
    llms: dict[str, set[str]] = {}
    for connection in connections:
        for hash, settings in connection.execute("SELECT hash, json FROM identities").fetchall():
            llms.setdefault(hash, set()).add(hash)
            try:
                identity = json.loads(settings)["identity"]
            except (ValueError, KeyError, TypeError):
                continue  # `verify` names it
            llms.setdefault(digest(identity), set()).add(hash)
    found: set[str] = set()
    for prefix in prefixes:
        fitting = [name for name in llms if prefix and name.startswith(prefix.lower())]
        if len(fitting) > 1:
            raise StoreError(
                f"--llm {shown(prefix)} fits several: {', '.join(sorted(fitting)[:3])}; give more digits"
            )
        if not fitting and not gone:
            raise StoreError(f"--llm {shown(prefix)} fits no LLM of this store; `inspect` lists the hashes")
        found.update(*(llms[name] for name in fitting))
    return found
