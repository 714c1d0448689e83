"""Where the files of a store lie, how a command gets them for itself, and how rows leave them for good."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from ropg.feedback.database import (
    StoreError,
    format_version,
    open_reader,
    open_writer,
    plain_errors,
    transaction,
)

_PAGE = 5000  # rows read at once; an open cursor would keep the file's writer from committing


def generations_folder(store: str | Path) -> Path:
    """The folder of the SQLite files: ``<store>/generations``, or the store itself where they lie right in it.

    Raises StoreError where there is neither.
    """
    store = Path(store)
    inner = store / "generations"
    if not inner.is_dir() and any(store.glob("*.sqlite")):
        return store
    if not inner.is_dir() and not (store / "tables").is_dir():
        raise StoreError(f"{store} is not a store: it has no generations/; name the folder of store.dir")
    return inner


def store_files(store: str | Path) -> list[Path]:
    """The SQLite files of a store by name, which is the order in which readers look into them."""
    return sorted(generations_folder(store).glob("*.sqlite"))


def table_files(store: str | Path) -> list[Path]:
    """The Parquet files below ``<store>/tables``, by name."""
    return sorted((Path(store) / "tables").rglob("*.parquet"))


def is_locked(path: Path) -> bool:
    """Whether a process writes this SQLite file now."""
    try:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


@contextmanager
def all_writers(*folders: Path) -> Iterator[None]:
    """Hold the locks of every writer that these folders know of.

    A run that starts meanwhile takes another name. Raises StoreError, naming the writer, where one is at work.
    """
    held: dict[Path, int] = {}
    try:
        while True:  # until no writer has come since we looked
            found = {
                p.with_suffix(".lock") for f in folders for p in [*f.glob("*.sqlite"), *f.glob("*.lock")]
            }
            new = sorted(found.difference(held))
            if not new:
                break
            for path in new:
                held[path] = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    fcntl.flock(held[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StoreError(
                        f"the writer {path.stem!r} of {path.parent} is at work; wait for its run or end it, "
                        "then run this command again"
                    ) from None
        yield
    finally:
        for lock in held.values():
            os.close(lock)


@contextmanager
def reading(path: Path) -> Iterator[tuple[sqlite3.Connection, int]]:
    """A read-only connection and the file's format; an in-memory stand-in of format 0 for an empty file."""
    connection = open_reader(path)
    if connection is None:
        with closing(sqlite3.connect(":memory:")) as nothing:
            yield nothing, 0
        return
    with closing(connection), plain_errors(path):
        connection.execute("PRAGMA trusted_schema = OFF")
        yield connection, format_version(connection, path)


@contextmanager
def readers(paths: Sequence[Path]) -> Iterator[list[tuple[Path, sqlite3.Connection, int]]]:
    """``reading`` for all files at once, empty ones left out."""
    with ExitStack() as stack:
        opened = [(path, *stack.enter_context(reading(path))) for path in paths]
        yield [entry for entry in opened if entry[2]]


@contextmanager
def changing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that changes a file; what it deletes is overwritten."""
    with closing(open_writer(path)) as connection, plain_errors(path):
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        yield connection


def rows(connection: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """Rows (key, …) of a table in the order of their keys, a page at a time."""
    last = ""
    while True:
        query = f"SELECT key, {columns} FROM {table} WHERE key > ? ORDER BY key LIMIT {_PAGE}"  # noqa: S608
        page = connection.execute(query, (last,)).fetchall()
        yield from page
        if len(page) < _PAGE:
            return
        last = page[-1][0]


def delete_keys(paths: Sequence[Path], keys: Collection[str], tell: Callable[[str], None]) -> None:
    """Delete the rows of ``keys`` from all files, then whose they were, and leave no trace in the files.

    Owners go last, over all files: a command that is killed finds by them what it has still to delete.
    Files are rebuilt (VACUUM) even where nothing went, since a killed command may have left that to do.
    """
    for path in paths:
        with changing(path) as connection, transaction(connection):
            _name_keys(connection, keys)
            for table in ("generations", "likelihoods"):
                connection.execute(f"DELETE FROM {table} WHERE key IN temp.gone")  # noqa: S608
    for path in paths:
        with changing(path) as connection:
            with transaction(connection):
                _name_keys(connection, keys)
                connection.execute("DELETE FROM owned WHERE key IN temp.gone")
                connection.execute("DELETE FROM owners WHERE id NOT IN (SELECT owner FROM owned)")
                connection.execute(
                    "DELETE FROM identities WHERE id NOT IN (SELECT identity FROM generations WHERE identity "
                    "IS NOT NULL UNION SELECT identity FROM likelihoods WHERE identity IS NOT NULL)"
                )
            connection.execute("DROP TABLE temp.gone")
            connection.execute("VACUUM")
        tell(f"rebuilt {path}")


def _name_keys(connection: sqlite3.Connection, keys: Collection[str]) -> None:
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS gone (key TEXT PRIMARY KEY) WITHOUT ROWID")
    connection.executemany("INSERT OR IGNORE INTO temp.gone VALUES (?)", ((key,) for key in keys))


def shown(text: str, lines: bool = False) -> str:
    r"""Text as a terminal may show it: control characters, which could command it, as escapes.

    ``lines`` leaves line ends as they are.

    >>> print(shown("a\x1b[31m\nb"))
    a\x1b[31m\nb
    """
    return "".join(
        c
        if not unicodedata.category(c).startswith(("C", "Zl", "Zp")) or (lines and c == "\n")
        else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
