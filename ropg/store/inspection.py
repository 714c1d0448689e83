"""What a store holds, from whom, and in which files."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from ropg.feedback.database import StoreError
from ropg.feedback.keys import digest
from ropg.feedback.rows import read_text
from ropg.store.files import generations_folder, is_locked, readers, rows, shown, store_files
from ropg.store.tables import read_tables

_SUMS = (
    "SELECT coalesce(hash, ''), coalesce(json, ''), count(*), sum(prompt_tokens), sum(new_tokens), "
    "sum(length(CAST(text AS BLOB))), min(created), max(created) FROM generations "
    "LEFT JOIN identities ON id = identity GROUP BY identity"
)
_LIKELIHOODS = (
    "SELECT coalesce(hash, ''), coalesce(json, ''), count(*) FROM likelihoods "
    "LEFT JOIN identities ON id = identity GROUP BY identity"
)


@dataclass
class Holding:
    """What one LLM made under one decoding. ``llm`` and ``hash`` are what ``prune --llm`` takes."""

    hash: str
    llm: str
    settings: dict[str, Any]
    generations: int = 0
    likelihoods: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    text_bytes: int = 0
    first: float | None = None
    last: float | None = None


def inspect(store: str | Path) -> dict[str, Any]:
    """Everything ``inspect`` prints, as plain data; a row that two files hold counts twice but in ``distinct``.

    Raises StoreError for a folder that is no store and for a damaged SQLite file; damaged tables are listed.
    """
    found: dict[str, Holding] = {}
    files = []
    paths = store_files(store)
    with readers(paths) as opened:
        for path, connection, version in opened:
            for hash, settings, number, *sums, first, last in connection.execute(_SUMS).fetchall():
                held = _holding(found, hash, settings)
                held.generations += number
                held.prompt_tokens += sums[0]
                held.new_tokens += sums[1]
                held.text_bytes += sums[2]
                held.first = min(first, first if held.first is None else held.first)
                held.last = max(last, last if held.last is None else held.last)
            for hash, settings, number in connection.execute(_LIKELIHOODS).fetchall():
                _holding(found, hash, settings).likelihoods += number
            files.append({"file": path.name, "format": version})
        keys = heapq.merge(*(rows(c, "generations", "0") for _, c, _ in opened))
        distinct = sum(1 for _ in groupby(keys, key=lambda row: row[0]))
    by_name = {file["file"]: file for file in files}
    return {
        "store": str(store),
        "distinct_generations": distinct,
        "holdings": [vars(held) for held in sorted(found.values(), key=lambda h: (h.llm, h.hash))],
        "files": [
            {
                "file": path.name,
                "bytes": path.stat().st_size,
                "format": by_name.get(path.name, {}).get("format", 0),
                "writing": is_locked(path),
            }
            for path in paths
        ],
        "writing": sorted(
            p.stem for p in generations_folder(store).glob("*.lock") if is_locked(p.with_suffix(".sqlite"))
        ),
        "tables": [
            {
                "file": str(t.path.relative_to(store)),
                "kind": t.kind,
                "task": t.task,
                "rows": t.rows,
                "examples": len(t.example_ids),
                "llm": digest(t.identity["llm"]) if t.identity and "llm" in t.identity else None,
                "bytes": t.bytes,
                "state": t.state,
            }
            for t in read_tables(store)
        ],
    }


def _holding(found: dict[str, Holding], hash: str, settings: str) -> Holding:
    if hash not in found:
        try:
            values = json.loads(settings) if settings else {}
            llm = digest(values["identity"]) if "identity" in values else ""
        except (ValueError, TypeError):  # `verify` names it
            values, llm = {"unreadable": settings}, ""
        found[hash] = Holding(hash, llm, values)
    return found[hash]


def text_of(store: str | Path, key: str) -> dict[str, Any]:
    """One row by its key or the beginning of it: key, text or value, tokens, file.

    Raises StoreError where no row or several begin so.
    """
    if not key or not set(key) <= set("0123456789abcdef"):
        raise StoreError(
            f"{shown(key)!r} is no key: keys are 64 hexadecimal digits, or the first ones of them"
        )
    found: dict[str, dict[str, Any]] = {}
    with readers(store_files(store)) as opened:
        for path, connection, _ in opened:
            query = (
                "SELECT key, text, finish_reason, prompt_tokens, new_tokens, created, NULL FROM generations "
                "WHERE key >= ?1 AND key < ?1 || 'g' UNION ALL "
                "SELECT key, NULL, NULL, NULL, NULL, NULL, value FROM likelihoods "
                "WHERE key >= ?1 AND key < ?1 || 'g' LIMIT 3"
            )
            for row in connection.execute(query, (key,)).fetchall():
                names = (
                    "key",
                    "text",
                    "finish_reason",
                    "prompt_tokens",
                    "new_tokens",
                    "created",
                    "log_likelihood",
                )
                values = {n: v for n, v in zip(names, row, strict=True) if v is not None}
                if "text" in values:
                    values["text"] = read_text(values["text"])
                found.setdefault(row[0], values | {"file": path.name})
    if len(found) != 1:
        several = f"several keys begin with {key}, such as {', '.join(sorted(found)[:2])}; give more digits"
        raise StoreError(several if found else f"{store} holds no key that begins with {key}")
    return next(iter(found.values()))


def report(told: dict[str, Any]) -> str:
    """``inspect``'s result for a person."""
    lines = [f"{told['store']}: {told['distinct_generations']:,} distinct generations"]
    for held in told["holdings"]:
        settings = held["settings"]
        what = [_words(settings.get("identity", settings)) or "(made by an unknown LLM)"]
        if "decoding" in settings:
            what.append(_words(settings["decoding"]))
        lines.append(f"\n{held['hash'][:12] or '-'}  {'; '.join(what)}")
        lines.append(f"  LLM {held['llm'][:12] or '-'}")
        if held["generations"]:
            lines.append(
                f"  {held['generations']:,} generations, {held['prompt_tokens']:,} tokens in, {held['new_tokens']:,} "
                f"out, {held['text_bytes']:,} bytes of text, {_when(held['first'])} to {_when(held['last'])}"
            )
        if held["likelihoods"]:
            lines.append(f"  {held['likelihoods']:,} likelihoods")
    lines.append("")
    for file in told["files"]:
        state = "being written" if file["writing"] else "free"
        lines.append(f"{shown(file['file'])}: {file['bytes']:,} bytes, format {file['format']}, {state}")
    for table in told["tables"]:
        llm = f", LLM {table['llm'][:12]}" if table["llm"] else ""
        line = (
            f"{table['kind']} of {table['task']}, {table['rows']:,} rows, {table['examples']:,} examples{llm}"
        )
        lines.append(
            f"{shown(table['file'])}: {shown(line)}, {table['bytes']:,} bytes, {shown(table['state'])}"
        )
    return "\n".join(lines)


def _words(values: Any) -> str:
    pairs = values.items() if isinstance(values, dict) else [("settings", values)]
    return shown(", ".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in pairs))


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
