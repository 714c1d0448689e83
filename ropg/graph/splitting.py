"""Review files into train, dev and test files with a report, whose properties the files are checked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ropg.files import write_json
from ropg.graph.review_files import read_reviews, write_released
from ropg.graph.split import SPLITS, check_fractions, split_graph
from ropg.graph.split_report import split_report
from ropg.graph.statistics import target_statistics


def split_files(
    paths: Sequence[str | Path],
    out: str | Path,
    name: str,
    fractions: Sequence[float],
    seed: int,
    fields: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], str]:
    """Split review files, write ``<name>_<split>.json`` and ``report.json`` into ``out``; the report.

    Targets are drawn anew, also those of released files. A split of fraction 0 gets no file, and one that an earlier
    call with other fractions left there under its name is removed: its users are in other files now. Raises ValueError
    for other fractions, for a name that is a path, and a folder that is a file, before anything is read; and what
    :func:`ropg.graph.review_files.read_reviews` raises.
    """
    check_fractions(fractions)
    if not name or Path(name).name != name:
        raise ValueError(f"--name {name!r}: it begins the names of the files, and --out names their folder")
    if Path(out).exists() and not Path(out).is_dir():
        raise ValueError(f"--out {out}: that is a file; name a folder")
    outputs = {(Path(out) / f"{name}_{part}.json").resolve() for part in SPLITS}
    for path in paths:
        if Path(path).expanduser().resolve() in outputs:
            raise ValueError(f"{path} would be replaced by its own split: choose another --out or --name")
    if seed < 0:
        raise ValueError(f"--seed {seed}: a whole number from 0")
    table = read_reviews(paths, fields)
    split = split_graph(table.edge_user, table.edge_item, fractions, seed)
    report = split_report(table.edge_user, table.edge_item, split, fractions, seed)
    written = []
    (Path(out) / "report.json").unlink(missing_ok=True)  # it stands only beside the files that it is about
    for place, part in enumerate(SPLITS):
        users = np.flatnonzero(split.splits == place).tolist()
        if users:
            written.append(Path(out) / f"{name}_{part}.json")
            write_released(written[-1], table, users, split.targets)
        else:
            (Path(out) / f"{name}_{part}.json").unlink(missing_ok=True)
    checked = check_files(written, len(table.users), len(table.reviews))
    report = dataclasses.replace(report, checks={**report.checks, **checked})
    files = {"input": [str(path) for path in paths], "files": [path.name for path in written]}
    content = {**files, **report.as_json()}
    write_json(Path(out) / "report.json", content)
    return content, report.text()


def check_files(paths: Sequence[str | Path], users: int, reviews: int) -> dict[str, bool]:
    """The same properties from the written files alone: property -> holds."""
    tables = [read_reviews([path]) for path in paths]
    names = [name for table in tables for name in table.users]
    around = [
        target_statistics(table.edge_user, table.edge_item, table.targets)
        for table in tables
        if table.targets is not None
    ]
    return {
        "files: every user is in exactly one": len(names) == len(set(names)) == users,
        "files: every review is in one": sum(len(table.reviews) for table in tables) == reviews,
        "files: every target has a neighbor in its file": len(around) == len(tables)
        and all(found.without_neighbor == 0 for found in around),
    }
