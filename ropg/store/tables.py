"""The Parquet tables beside the generations, read without knowing the configuration that made them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropg.store.files import table_files


@dataclass(frozen=True)
class TableInfo:
    """One table file. ``state`` is ``ok``, ``stale: …`` (a run would build it again) or ``damaged: …``.

    ``keys``: the prompt keys of its rows. ``owners``: digests of its users, None where it does not say them.
    """

    path: Path
    bytes: int
    state: str
    kind: str = ""
    task: str = ""
    rows: int = 0
    example_ids: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    owners: frozenset[str] | None = None
    identity: dict[str, Any] | None = None
    bad_rewards: int = 0

    @property
    def damaged(self) -> bool:
        """Whether it cannot be read."""
        return self.state.startswith("damaged")


def read_tables(store: str | Path) -> list[TableInfo]:
    """All tables of a store by file name; damaged ones say so instead of raising."""
    return [_read(path) for path in table_files(store)]


def _read(path: Path) -> TableInfo:
    import json
    import math

    import pyarrow.parquet as pq

    from ropg.feedback.candidates import CandidateTable
    from ropg.feedback.scorer import FeedbackTable
    from ropg.feedback.tables import METADATA, TableError
    from ropg.runs import short_hash

    kinds = {kind.kind: kind for kind in (CandidateTable, FeedbackTable)}
    size = path.stat().st_size
    try:
        head = json.loads((pq.read_schema(path).metadata or {})[METADATA])
        kind = head.get("kind")
        table = kinds[kind].read(path) if kind in kinds else None
        if table is None:
            rows = pq.read_table(path, page_checksum_verification=True)
    except (TableError, KeyError, ValueError, OSError, AttributeError) as error:
        return TableInfo(path, size, f"damaged: {error}")
    if table is not None:
        rows = table.table
    identity = head["identity"]
    names = set(rows.column_names)
    # the names under which runs look for it hold the hash of what made it (ropg.tables)
    candidates = identity.get("candidates", identity) if isinstance(identity, dict) else {}
    fits = path.parent.name.endswith(short_hash(candidates))
    if kind == "feedback":
        fits = fits and path.stem.endswith(short_hash(identity))
    rewards = rows.column("reward").to_pylist() if "reward" in names else []
    owners = head.get("owners")
    return TableInfo(
        path,
        size,
        "ok" if fits or kind not in kinds else "stale: its name is not that of what made it",
        str(kind),
        str(identity.get("task", "")),
        len(rows),
        frozenset(rows.column("example_id").to_pylist() if "example_id" in names else ()),
        frozenset(rows.column("prompt_key").to_pylist() if "prompt_key" in names else ()),
        None if owners is None else frozenset(owners),
        identity,
        sum(r is None or not math.isfinite(r) or not 0 <= r <= 1 for r in rewards),
    )


def remove_table(path: Path) -> None:
    """Delete a table for good; a run builds it again from the store."""
    from ropg.files import sync

    path.unlink(missing_ok=True)
    sync(path.parent)


def leftovers(store: str | Path) -> list[Path]:
    """Temporary files of writers that were killed while they wrote a table (or that write one now)."""
    return sorted((Path(store) / "tables").rglob(".*.tmp"))
