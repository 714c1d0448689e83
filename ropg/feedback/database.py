"""One SQLite file of the generation store: its tables, how it is opened, and its errors in plain words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

APPLICATION_ID = 0x524F5047  # "ROPG": tells a store file from any other SQLite file
VERSION = 2  # 1 had neither checksums nor owners; it is read, and brought up to date by its next writer
_WAIT = 120.0  # seconds that a reader and a writer of one file wait for each other
_FORMAT_1 = (
    "CREATE TABLE identities (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, json TEXT NOT NULL)",
    "CREATE TABLE generations (key TEXT PRIMARY KEY, identity INTEGER REFERENCES identities, text NOT NULL, "
    "finish_reason TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, new_tokens INTEGER NOT NULL, "
    "created REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE likelihoods (key TEXT PRIMARY KEY, identity INTEGER REFERENCES identities, "
    "value REAL NOT NULL) WITHOUT ROWID",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
_FORMAT_2 = (
    # of the row's values; SQLite itself would not notice a bit that flips inside a text
    "ALTER TABLE generations ADD COLUMN checksum INTEGER",
    "ALTER TABLE likelihoods ADD COLUMN checksum INTEGER",
    "CREATE TABLE owners (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE)",
    # the key may lie in another file of the folder
    "CREATE TABLE owned (key TEXT NOT NULL, owner INTEGER NOT NULL REFERENCES owners, "
    "PRIMARY KEY (key, owner)) WITHOUT ROWID",
    "PRAGMA user_version = 2",
)


class StoreError(RuntimeError):
    """A file of the generation store that cannot be read or written; the message names it and the remedy."""


def open_writer(path: Path) -> sqlite3.Connection:
    """Open or create a store file for writing.

    The rollback journal (not WAL) keeps one file per writer that is whole between commits, can be copied
    and needs no shared memory; ``synchronous=EXTRA`` syncs the file, the journal and the folder at every
    commit, so that a commit survives a power cut.
    """
    with plain_errors(path):
        connection = sqlite3.connect(path, timeout=_WAIT, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = EXTRA")
            with transaction(connection):  # in one piece: a kill in between leaves an empty file
                version = format_version(connection, path)
                for statement in {0: _FORMAT_1 + _FORMAT_2, 1: _FORMAT_2}.get(version, ()):
                    connection.execute(statement)
        except BaseException:
            connection.close()
            raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection | None:
    """Open a store file for reading only; None while its writer has not yet created the tables.

    A writer that was killed inside a commit leaves a journal, which a read-only connection cannot roll
    back; the file is then opened for writing once, which restores the last commit.
    """
    with plain_errors(path):
        try:
            return _open_read_only(path)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise
        roll_back(path)
        return _open_read_only(path)


def roll_back(path: Path) -> None:
    """Restore the last commit of a file whose writer died inside a commit."""
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=_WAIT)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    finally:
        connection.close()


def _open_read_only(path: Path) -> sqlite3.Connection | None:
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_WAIT)
    try:
        if format_version(connection, path):
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def format_version(connection: sqlite3.Connection, path: Path) -> int:
    """The store format of a file, 0 for one without tables. Raises StoreError for a foreign or later one."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables == 0:
        return 0
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application != APPLICATION_ID:
        raise StoreError(
            f"{path} is an SQLite file, but not one of a generation store; move it out of this folder or "
            "choose another store.dir"
        )
    if not 1 <= version <= VERSION:
        raise StoreError(
            f"{path} has store format {version}, this program reads formats up to {VERSION}; use the program "
            "that wrote it or choose another store.dir"
        )
    return version


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is written inside becomes visible and durable at once, or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into a StoreError that names the file and says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        # errors of SQLite's Python layer carry no code
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        raise StoreError(f"{path}: {error}; {_remedy(code, path)}") from error


def _remedy(code: int, path: Path) -> str:
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            "the file is damaged (torn or overwritten outside this program). Move it out of the folder and "
            "run again: only what it held is generated again. To save first what is readable: "
            f"sqlite3 {path.name} .recover | sqlite3 recovered.sqlite, then put recovered.sqlite in its place"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another process holds the file; wait for it or end it, then run again"
    if code == sqlite3.SQLITE_FULL:
        return "free some disk space and run again; all batches committed before are kept"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR):
        return "check that the folder is there, writable and on a healthy disk, or choose another store.dir"
    return "run again; if it happens again, move the file out of the folder"
