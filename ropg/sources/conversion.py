"""Convert a file once, open the converted one ever after."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from ropg.sources.arrow_store import ArrowRows, cache_file, write
from ropg.sources.normalised import Record
from ropg.sources.validation import Rules

_log = logging.getLogger(__name__)


def converted(
    paths: Sequence[Path],
    *,
    settings: Mapping[str, Any],
    records: Callable[[dict[str, list[str]]], Iterable[Record]],
    rules: Rules,
    cache_dir: str | None,
) -> ArrowRows:
    """The examples of ``paths`` as a memory-mapped Arrow file, converted now unless the cache holds them.

    ``records`` yields the records and puts findings about no single example into its argument (kind ->
    record ids). ``settings`` is everything besides the files that changes what is read.
    """
    file = cache_file(paths, settings, cache_dir)
    if file.exists():
        try:
            return ArrowRows(file)
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            _log.warning("%s is damaged (%s); converting %s again", file, error, paths[0])
    problems: dict[str, list[str]] = {}
    write(file, records(problems), rules, problems)
    return ArrowRows(file)


@contextmanager
def progress(path: Path) -> Iterator[Callable[[int], object]]:
    """Show how much of ``path`` is read once that takes more than two seconds; on the first process only."""
    first = os.environ.get("RANK", "0") == "0"
    with tqdm(
        total=path.stat().st_size,
        desc=f"reading {path.name}",
        unit="B",
        unit_scale=True,
        delay=2,
        mininterval=0.5,
        leave=False,
        disable=None if first else True,
    ) as bar:
        yield bar.update
