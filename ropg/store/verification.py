"""Whether everything in a store is as it was written, and what to do where it is not."""

from __future__ import annotations

import heapq
import json
import math
import re
import sqlite3
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ropg.feedback.database import StoreError
from ropg.feedback.keys import digest
from ropg.feedback.rows import checksum
from ropg.store.files import readers, reading, rows, store_files
from ropg.store.tables import leftovers, read_tables

_HEX = re.compile(r"[0-9a-f]{64}")
_AGAIN = (
    "delete these rows' LLM with `prune --llm`, or move the file out of the folder; a run makes them again"
)
_TABLE = "delete the file; a run builds it again from the store, and asks the LLM only for what is not there"
_COLUMNS = {
    "generations": "text, finish_reason, prompt_tokens, new_tokens, created, checksum",
    "likelihoods": "value, checksum",
}


@dataclass(frozen=True)
class Finding:
    """Something wrong in one file, and the remedy."""

    file: Path
    what: str
    remedy: str


@dataclass
class Verified:
    """``findings`` are wrong; ``notes`` are worth knowing. The rest counts what was looked at."""

    findings: list[Finding]
    notes: list[str]
    rows: int = 0
    tables: int = 0


def verify(store: str | Path) -> Verified:
    """Look at every row and every table of a store; nothing is changed.

    SQLite's own integrity check, keys, checksums, finite likelihoods, settings against their hashes; tables
    with their checksums, rewards in [0, 1], and the presence of every row that they refer to.

    Raises StoreError for a folder that is no store.
    """
    done = Verified([], [])
    whole = []
    keys: set[str] = set()
    for path in store_files(store):
        try:
            with reading(path) as (connection, version):
                if version and _check_file(path, connection, version, keys, done):
                    whole.append(path)
        except StoreError as error:
            done.findings.append(Finding(path, str(error), "see there"))
    with readers(whole) as opened:
        merged = heapq.merge(*(rows(c, "generations", "text") for _, c, _ in opened), key=lambda row: row[0])
        differing = sum(
            len({row[1] for row in found}) > 1 for _, found in groupby(merged, lambda row: row[0])
        )
    if differing:
        done.notes.append(
            f"{differing} keys have different texts in two files; the first file by name counts"
        )
    if len(whole) < len(store_files(store)):
        done.notes.append("rows of damaged files count as missing")
    for table in read_tables(store):
        done.tables += 1
        if table.state != "ok":
            done.findings.append(Finding(table.path, table.state, _TABLE))
        if table.bad_rewards:
            done.findings.append(
                Finding(table.path, f"{table.bad_rewards} rewards are not in [0, 1]", _TABLE)
            )
        missing = len(table.keys - keys)
        if missing:
            what = f"{missing} of its {len(table.keys)} prompt keys are not in the store"
            done.findings.append(Finding(table.path, what, _TABLE))
    done.notes += [
        f"{path} was left by a process that was killed (or is being written)" for path in leftovers(store)
    ]
    return done


def _check_file(
    path: Path, connection: sqlite3.Connection, version: int, keys: set[str], done: Verified
) -> bool:
    """Whether the file's rows can be read; what is wrong with it goes to the findings."""
    answers = [row[0] for row in connection.execute("PRAGMA integrity_check").fetchall()]
    if answers != ["ok"]:
        remedy = "move it out of the folder; only what it held is generated again"
        done.findings.append(Finding(path, f"integrity check: {answers[0]}", remedy))
        return False
    for hash, settings in connection.execute("SELECT hash, json FROM identities").fetchall():
        try:
            same = digest(json.loads(settings)) == hash
        except (ValueError, TypeError):
            same = False
        if not same:
            done.findings.append(
                Finding(path, f"the settings under {str(hash)[:12]} have another hash", _AGAIN)
            )
    unchecked = 0
    for table, columns in _COLUMNS.items():
        bad: dict[str, list[str]] = {}
        for row in rows(connection, table, columns if version > 1 else columns.replace("checksum", "NULL")):
            *values, kept = row
            key = values[0]
            keys.add(key)
            done.rows += 1
            unchecked += kept is None
            if not (isinstance(key, str) and _HEX.fullmatch(key)):
                bad.setdefault("keys that are not 64 hexadecimal digits", []).append(repr(key))
            if kept is not None and checksum(tuple(values)) != kept:
                bad.setdefault("rows that do not fit their checksum", []).append(repr(key))
            number = values[1] if table == "likelihoods" else values[-1]
            if not isinstance(number, float) or not math.isfinite(number):
                bad.setdefault("values that are not finite", []).append(repr(key))
        for what, where in bad.items():
            done.findings.append(Finding(path, f"{table}: {len(where)} {what}, such as {where[0]}", _AGAIN))
    if unchecked:
        done.notes.append(f"{path}: {unchecked} rows of an older program have no checksum")
    if version > 1:
        for (value,) in connection.execute("SELECT digest FROM owners").fetchall():
            if not (isinstance(value, str) and _HEX.fullmatch(value)):
                remedy = "run the commands of that user again, which records the owner anew"
                done.findings.append(Finding(path, f"the owner {value!r} is no digest", remedy))
    return True
