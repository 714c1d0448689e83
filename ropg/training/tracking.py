"""Optional tracking with Weights & Biases. A tracker is any callable that takes a record (a dict).

metrics.jsonl is always written; wandb only where asked for.
"""

from __future__ import annotations

import hashlib
import netrc
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

Tracker = Callable[[Mapping[str, Any]], None]

_SECRET = re.compile(r"(^|[_\W])(api_?key|key|token|secret|password)$", re.IGNORECASE)
_HOST = "api.wandb.ai"


@contextmanager
def wandb_tracker(
    mode: Literal["disabled", "auto", "offline"],
    *,
    folder: Path,
    project: str = "ropg",
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Iterator[Tracker | None]:
    """Yield a tracker that logs to wandb, None where ``mode`` is "disabled".

    ``auto`` goes online where wandb finds a key and stays offline where it does not, so that nothing ever
    asks for one at the terminal; ``offline`` never goes online. Entries of ``config`` that are named like
    a secret are left out. A resumed run of the same folder goes on in the same wandb run.
    """
    if mode == "disabled":
        yield None
        return
    if mode not in ("auto", "offline"):
        raise ValueError(f"wandb mode must be disabled, auto or offline, not {mode!r}")
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project=project,
        name=name,
        id=hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16],
        resume="allow",
        dir=str(folder),
        mode="online" if mode == "auto" and _has_key() else "offline",
        config=without_secrets(config or {}),
    )

    def track(record: Mapping[str, Any]) -> None:
        # steps and evaluations of one step share names such as "loss", so each has its own section
        section = record.get("event", "run")
        run.log({f"{section}/{k}": v for k, v in record.items() if k != "event"}, step=record.get("step"))

    try:
        yield track
    finally:
        run.finish()


def without_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a nested configuration without entries that are named like a secret.

    >>> without_secrets({"lr": 1e-5, "llm": {"api_key": "x", "max_tokens": 32}})
    {'lr': 1e-05, 'llm': {'max_tokens': 32}}
    """
    return {
        name: without_secrets(value) if isinstance(value, Mapping) else value
        for name, value in config.items()
        if not _SECRET.search(str(name))
    }


def _has_key() -> bool:
    """Whether wandb would find a key by itself; the key is neither kept nor passed on."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(_HOST) is not None
    except (OSError, netrc.NetrcParseError):
        return False
