"""metrics.jsonl: one JSON object per line, never NaN, cut back to the checkpoint when a run resumes."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


class MetricsLog:
    """Appends records to ``path``, keeping the first ``position`` bytes of what is there.

    What a killed run wrote after its last checkpoint is written again by the resumed one, so a resumed
    run's file equals an undisturbed one's. Records therefore hold no times.
    """

    def __init__(self, path: Path, position: int = 0) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        size = path.stat().st_size
        if size < position:
            log.warning("%s is shorter than its checkpoint says: earlier records are lost", path)
        if size > position:
            self._file.truncate(position)
        self._file.seek(0, os.SEEK_END)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record and flush it. Raises ValueError for NaN and infinities."""
        self._file.write(json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def position(self) -> int:
        """Bytes so far, safely on disk."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
