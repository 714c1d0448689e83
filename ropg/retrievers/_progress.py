"""Progress bars: shown on the main process's terminal, and only once something has taken a while."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm


def progress_bar(
    iterable: Iterable[Any] | None = None, *, total: int | None, title: str, unit: str, show: bool = True
) -> Any:
    """A tqdm bar over ``iterable``, or one to be updated by hand, with throughput and time left."""
    main_process = os.environ.get("RANK", "0") == "0"
    return tqdm(
        iterable,
        total=total,
        desc=title,
        unit=unit,
        delay=2,
        leave=False,
        disable=None if show and main_process else True,  # None: where the output is no terminal
    )
