"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write into; once all is written and on disk, it takes the place of ``path``.

    A process that is killed on the way leaves what was there before. Folders are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def write_text(path: Path, text: str) -> Path:
    """Write ``text`` in UTF-8, whole or not at all; return the path."""
    with replaced_file(path) as stream:
        stream.write(text.encode("utf-8"))
    return Path(path)


def write_json(path: Path, value: Any) -> Path:
    """Write JSON; ValueError for NaN and infinities."""
    return write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def sync(path: Path) -> None:
    """Have the operating system write a file, or a folder's entries, to disk now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
