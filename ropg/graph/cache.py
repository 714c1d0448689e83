"""Tables of reviews are parsed once: the graph is kept as a folder, and memory-mapped ever after."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from ropg.graph.files import DamagedGraph, is_graph
from ropg.graph.reading import from_reviews_file, from_saved, is_split_file, read_graph
from ropg.graph.reading_report import BadRecords, ReadGraph
from ropg.sources.arrow_store import cache_file

_log = logging.getLogger(__name__)


def cached_graph(
    path: str | Path,
    fields: Mapping[str, str] | None = None,
    bad_records: BadRecords = "error",
    cache_dir: str | None = None,
) -> ReadGraph:
    """Read ``path`` as :func:`ropg.graph.reading.read_graph` does; the graph of a table of reviews is kept in
    ``cache_dir`` until the file changes. Released split files are small, and read every time."""
    file = Path(path).expanduser()
    if not file.is_file() or (not fields and is_split_file(file)):
        return read_graph(file, fields, bad_records)
    settings = {"source": "reviews", "fields": dict(fields or {}), "bad_records": bad_records}
    folder = cache_file([file], settings, cache_dir).with_suffix(".graph")
    if is_graph(folder):
        try:
            return from_saved(folder)
        except DamagedGraph as error:
            _log.warning("%s; reading %s again", error, file)
    read = from_reviews_file(file, fields, bad_records)
    try:
        read.graph.save(folder)
    except OSError as error:
        raise OSError(
            f"{error}. Remedy: name a folder for converted files by cache_dir or ROPG_CACHE"
        ) from error
    for old in folder.parent.glob(f"{folder.name.partition('-')[0]}-*.graph"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)  # a process that has it mapped keeps it
    return from_saved(folder)
