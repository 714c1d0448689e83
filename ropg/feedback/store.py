"""The generation store: what an LLM produced is kept for good and never produced twice.

A store is a folder with one SQLite file per writer. A writer appends to its own file, one transaction
per batch; everyone reads all files. Losing the process or the power at any instant loses at most the
batch in flight. Two processes that ask for the same writer name get different files, so runs can share a
folder without knowing of each other.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ropg.feedback.claims import Claims
from ropg.feedback.database import (
    StoreError,
    format_version,
    open_reader,
    open_writer,
    plain_errors,
    roll_back,
    transaction,
)
from ropg.feedback.keys import canonical_json, digest
from ropg.feedback.owners import Owners, pairs_of, record
from ropg.feedback.rows import GenerationRecord, finite, generation_row, likelihood_row, read_text

log = logging.getLogger(__name__)

_CHUNK = 500  # keys per query; SQLite before 3.32 allows 999 variables
_GENERATIONS = "SELECT key, text, finish_reason, prompt_tokens, new_tokens, created FROM generations"
_LIKELIHOODS = "SELECT key, value FROM likelihoods"
_OWNED = "SELECT key, digest FROM owned JOIN owners ON id = owner"


class GenerationStore:
    """Texts and likelihoods of LLMs by key, in a folder shared by any number of readers and writers.

    Parameters
    ----------
    folder: where the files lie; made at the first write. Keep it outside run folders, so that runs share it.
    writer: name of the file this store writes. While another process (or object) writes under that name
        the next free one of ``<writer>-1``, ``<writer>-2``, … is taken. The name is claimed at the first
        write, so a store that is only read leaves the folder as it is.

    Where files hold the same key, the first by file name wins.

    Raises StoreError, naming the file and the remedy, where a file is damaged, foreign or out of reach.
    """

    def __init__(self, folder: str | Path, writer: str = "main") -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", writer):
            raise ValueError(f"the writer name {writer!r} may hold letters, digits, '_', '-' and '.' only")
        self.folder = Path(folder)
        self.writer = writer
        self.claims = Claims(self.folder)  # of what this store's owner is generating
        self._process = os.getpid()
        self._lock: int | None = None
        self._path: Path | None = None
        self._connection: sqlite3.Connection | None = None
        self._readers: dict[Path, tuple[tuple[int, int], sqlite3.Connection]] = {}

    def __enter__(self) -> GenerationStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all files and free the writer name; a later call opens them again."""
        self.claims.release_all()
        for path in list(self._readers):
            self._forget(path)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._path = None

    @property
    def path(self) -> Path | None:
        """The file this store writes; None before the first write."""
        return self._path

    # -- reading ------------------------------------------------------------------------------------

    def get_many(self, keys: Iterable[str]) -> dict[str, GenerationRecord]:
        """The stored answers among ``keys``; keys that no file holds are left out."""
        return {
            row[0]: GenerationRecord(row[0], read_text(row[1]), *row[2:])
            for row in self._rows(_GENERATIONS, keys)
        }

    def get_likelihoods(self, keys: Iterable[str]) -> dict[str, float]:
        """The stored mean log-probabilities per token among ``keys`` (see ``likelihood_key``)."""
        return dict(self._rows(_LIKELIHOODS, keys))

    def contents(self) -> dict[str, dict[str, int]]:
        """How much the store holds: settings (LLM identity and decoding, as JSON) -> rows per table.

        Rows that two files hold count twice.
        """
        found: dict[str, dict[str, int]] = {}
        for path, connection in self._open_readers():
            for table in ("generations", "likelihoods"):
                query = (
                    f"SELECT coalesce(json, ''), count(*) FROM {table} "  # noqa: S608  (two fixed names)
                    "LEFT JOIN identities ON identities.id = identity GROUP BY identity"
                )
                for settings, number in self._fetch(path, connection, query, ()):
                    counts = found.setdefault(settings, {"generations": 0, "likelihoods": 0})
                    counts[table] += number
        return found

    def _rows(self, select: str, keys: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        missing = list(dict.fromkeys(keys))
        for path, connection in self._open_readers():
            left: list[str] = []
            for start in range(0, len(missing), _CHUNK):
                chunk = missing[start : start + _CHUNK]
                marks = ",".join("?" * len(chunk))
                rows = self._fetch(path, connection, f"{select} WHERE key IN ({marks})", chunk)
                found = {row[0] for row in rows}
                left.extend(key for key in chunk if key not in found)
                yield from rows
            missing = left
            if not missing:
                return

    def _fetch(
        self, path: Path, connection: sqlite3.Connection, query: str, values: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        # fetched at once: an open cursor would keep the file's writer from committing
        with plain_errors(path):
            try:
                return connection.execute(query, values).fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                    raise
                roll_back(path)  # its writer was killed inside a commit since we opened the file
                return connection.execute(query, values).fetchall()

    def _open_readers(self) -> list[tuple[Path, sqlite3.Connection]]:
        """Connections to every file now in the folder, by file name."""
        self._check_process()
        paths = sorted(self.folder.glob("*.sqlite"))
        for gone in set(self._readers).difference(paths):
            self._forget(gone)
        for path in paths:
            try:
                status = path.stat()
            except FileNotFoundError:
                self._forget(path)
                continue
            inode = (status.st_dev, status.st_ino)
            if path in self._readers and self._readers[path][0] != inode:  # replaced by another file
                self._forget(path)
            if path not in self._readers:
                try:
                    connection = open_reader(path)
                except StoreError:
                    if path.exists():
                        raise
                    continue  # merged into another file just now
                if connection is not None:
                    self._readers[path] = (inode, connection)
        return [(path, self._readers[path][1]) for path in paths if path in self._readers]

    def _forget(self, path: Path) -> None:
        _, connection = self._readers.pop(path, (None, None))
        if connection is not None:
            connection.close()

    # -- writing ------------------------------------------------------------------------------------

    def put_many(
        self,
        records: Iterable[GenerationRecord],
        settings: Mapping[str, Any] | None = None,
        owners: Owners | None = None,
    ) -> None:
        """Commit a batch whole: once this returns, all of it survives a kill and a power cut.

        ``settings`` says what made the batch (``{"identity": …, "decoding": …}``) and is kept once per
        file, so that a store can be inspected. ``owners`` (key -> user ids) says whose prompts they are, so
        that a user can be forgotten; digests of the ids are kept. A key that this writer's file already
        holds stays as it is.
        """
        self._commit(
            "INSERT INTO generations (identity, key, text, finish_reason, prompt_tokens, new_tokens, "
            "created, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
            [generation_row(r) for r in records],
            settings,
            pairs_of(owners or {}),
        )

    def put_likelihoods(
        self,
        values: Mapping[str, float],
        settings: Mapping[str, Any] | None = None,
        owners: Owners | None = None,
    ) -> None:
        """Commit a batch of mean log-probabilities by ``likelihood_key``; NaN and infinities are refused."""
        self._commit(
            "INSERT INTO likelihoods (identity, key, value, checksum) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (key) DO NOTHING",
            [likelihood_row(key, finite(value, key)) for key, value in values.items()],
            settings,
            pairs_of(owners or {}),
        )

    def put_owners(self, owners: Owners) -> None:
        """Record whose prompts the store answers already (key -> user ids); what it knows is not written.

        A folder that may only be read is left as it is, with a warning: what others made is still of use.
        """
        known = self._owned(owners)
        new = [pair for pair in pairs_of(owners) if pair not in known]
        if not new:
            return
        try:
            self._writing()
        except StoreError as error:
            if getattr(error.__cause__, "errno", None) not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            log.warning(
                "%s; that %d of its answers are used here for a user is not recorded", error, len(new)
            )
            return
        self._commit("", [], None, new)

    def _owned(self, keys: Iterable[str]) -> set[tuple[str, str]]:
        """The recorded (key, digest of a user) pairs of ``keys``, of all files."""
        wanted, found = list(keys), set()
        for path, connection in self._open_readers() if wanted else []:
            with plain_errors(path):
                if format_version(connection, path) < 2:
                    continue
            for start in range(0, len(wanted), _CHUNK):
                chunk = wanted[start : start + _CHUNK]
                marks = ",".join("?" * len(chunk))
                found.update(self._fetch(path, connection, f"{_OWNED} WHERE key IN ({marks})", chunk))
        return found

    def claim_writer(self) -> Path:
        """Take a free writer name and open its file, so that a folder without room or rights fails early."""
        self._writing()
        assert self._path is not None
        return self._path

    def _commit(
        self,
        insert: str,
        rows: Sequence[tuple[Any, ...]],
        settings: Mapping[str, Any] | None,
        owned: Sequence[tuple[str, str]],
    ) -> None:
        if not rows and not owned:
            return
        connection = self._writing()
        assert self._path is not None
        with plain_errors(self._path), transaction(connection):
            identity = None if settings is None else _identity(connection, settings)
            if rows:
                connection.executemany(insert, [(identity, *row) for row in rows])
            record(connection, owned)

    def _writing(self) -> sqlite3.Connection:
        self._check_process()
        if self._connection is None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                name = self._claim_name()
            except OSError as error:
                raise StoreError(
                    f"the store {self.folder} cannot be written: {error}; choose another store.dir"
                ) from error
            self._path = self.folder / f"{name}.sqlite"
            try:
                self._connection = open_writer(self._path)
            except BaseException:
                self.close()
                raise
        return self._connection

    def _claim_name(self) -> str:
        # The lock belongs to the open file, so it goes with the process however that ends. The empty lock
        # file stays: deleting it could hand one name to two processes.
        number = 0
        while True:
            name = self.writer if number == 0 else f"{self.writer}-{number}"
            lock = os.open(self.folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                number += 1
                continue
            except OSError as error:
                os.close(lock)
                raise StoreError(
                    f"{self.folder / name}.lock cannot be locked ({error}); put store.dir on a file system "
                    "that knows file locks"
                ) from error
            self._lock = lock
            return name

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise StoreError(
                f"the store {self.folder} was opened in process {self._process} and used in its fork "
                f"{os.getpid()}; open a GenerationStore of its own in every process"
            )


def _identity(connection: sqlite3.Connection, settings: Mapping[str, Any]) -> int:
    key = digest(settings)
    connection.execute(
        "INSERT INTO identities (hash, json) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING",
        (key, canonical_json(settings)),
    )
    return int(connection.execute("SELECT id FROM identities WHERE hash = ?", (key,)).fetchone()[0])
