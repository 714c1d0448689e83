"""Several stores, or the files of several writers, into one."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ropg.feedback.database import StoreError, plain_errors, transaction
from ropg.files import replaced_file, sync
from ropg.store.files import all_writers, changing, generations_folder, reading, store_files, table_files


@dataclass
class Merged:
    """What a merge did. ``differing``: keys for which a later file held another text or value, which was left."""

    target: Path
    files: int = 0
    generations: int = 0
    likelihoods: int = 0
    differing: int = 0
    tables: int = 0
    other_tables: int = 0


def merge(
    into: str | Path,
    sources: Sequence[str | Path] = (),
    *,
    delete_sources: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Merged:
    """Bring all that ``sources`` (stores, or single SQLite files) hold into one file of the store ``into``.

    The files of ``into`` itself become that one file too, so without sources this compacts a store. As for
    readers, the first file that holds a key wins: those of ``into`` by name, then the sources in order. Each
    file is taken over in one transaction and only then, if at all, deleted: a merge that is killed is
    finished by the same command. Tables are copied where ``into`` has none of their name.

    Raises StoreError where a writer is at work, and where a source is the target.
    """
    into = Path(into)
    if not sources:
        generations_folder(into)  # refuses a folder that is no store
    stores = [Path(source) for source in sources]
    for source in stores:
        inside = source.parent if source.suffix == ".sqlite" else source
        if inside.resolve() in (into.resolve(), (into / "generations").resolve()):
            raise StoreError(
                f"{source} lies in the target {into} itself; merge --store {into} joins its files"
            )
        if source.suffix == ".sqlite" and not source.is_file():
            raise StoreError(f"{source} is not there; name a store folder or an SQLite file of one")
        if source.suffix != ".sqlite":
            generations_folder(source)  # before anything is made: a slip of the pen leaves no empty store
    if into.exists() and not into.is_dir():
        raise StoreError(f"{into} is a file; name the folder of store.dir")
    flat = not (into / "generations").is_dir() and any(into.glob("*.sqlite"))
    folder = into if flat else into / "generations"
    folder.mkdir(parents=True, exist_ok=True)
    others = [s.parent if s.suffix == ".sqlite" else generations_folder(s) for s in stores]
    with all_writers(*dict.fromkeys([folder, *others])):
        own = sorted(folder.glob("*.sqlite"))
        target = own[0] if own else folder / "main.sqlite"
        done = Merged(target)
        for path in own[1:]:
            _take_over(path, target, done, tell)
            _delete(path)
        for source in stores:
            for path in [source] if source.suffix == ".sqlite" else store_files(source):
                _take_over(path, target, done, tell)
                if delete_sources:
                    _delete(path)
            if source.suffix != ".sqlite":
                _take_tables(source, into, delete_sources, done)
        if own or done.files:
            with changing(target) as connection:
                connection.execute("VACUUM")
    return done


def _take_over(path: Path, target: Path, done: Merged, tell: Callable[[str], None]) -> None:
    with reading(path) as (_, version):  # refuses foreign files, and rolls back what a killed writer left
        pass
    done.files += 1
    if not version:
        return
    with changing(target) as connection, plain_errors(path):
        connection.execute("ATTACH ? AS src", (str(path),))
        with transaction(connection):
            connection.execute(
                "INSERT INTO main.identities (hash, json) SELECT hash, json FROM src.identities WHERE true "
                "ON CONFLICT (hash) DO NOTHING"
            )
            counts = []
            for table, value in (("generations", "text"), ("likelihoods", "value")):
                differing = connection.execute(
                    f"SELECT count(*) FROM src.{table} s JOIN main.{table} m USING (key) "  # noqa: S608
                    f"WHERE m.{value} IS NOT s.{value}"
                ).fetchone()[0]
                counts.append((_insert(connection, table, version), differing))
            if version > 1:
                connection.execute(
                    "INSERT INTO main.owners (digest) SELECT digest FROM src.owners WHERE true "
                    "ON CONFLICT (digest) DO NOTHING"
                )
                connection.execute(
                    "INSERT INTO main.owned (key, owner) SELECT s.key, m.id FROM src.owned s "
                    "JOIN src.owners o ON o.id = s.owner JOIN main.owners m ON m.digest = o.digest WHERE true "
                    "ON CONFLICT (key, owner) DO NOTHING"
                )
    (generations, a), (likelihoods, b) = counts
    done.generations += generations
    done.likelihoods += likelihoods
    done.differing += a + b
    left = f", {a + b} differing ones left" if a + b else ""
    tell(f"{path}: {generations + likelihoods} rows taken over{left}")


def _insert(connection: sqlite3.Connection, table: str, version: int) -> int:
    columns = {
        "generations": "text, finish_reason, prompt_tokens, new_tokens, created",
        "likelihoods": "value",
    }[table]
    checksum = "checksum" if version > 1 else "NULL"
    return connection.execute(
        f"INSERT INTO main.{table} (key, identity, {columns}, checksum) "  # noqa: S608
        f"SELECT s.key, m.id, {columns}, {checksum} FROM src.{table} s "
        "LEFT JOIN src.identities i ON i.id = s.identity LEFT JOIN main.identities m ON m.hash = i.hash "
        "WHERE true ORDER BY s.key ON CONFLICT (key) DO NOTHING"
    ).rowcount


def _delete(path: Path) -> None:
    # the lock file stays: deleting it could hand one name to two processes
    path.unlink()
    sync(path.parent)


def _take_tables(source: Path, into: Path, delete: bool, done: Merged) -> None:
    for path in table_files(source):
        place = into / path.relative_to(source)
        if not place.exists():
            with path.open("rb") as old, replaced_file(place) as new:
                shutil.copyfileobj(old, new)
            done.tables += 1
        elif place.read_bytes() != path.read_bytes():
            done.other_tables += 1
        if delete:
            _delete(path)
