"""What a person reads while a command runs: one line per thing done."""

from __future__ import annotations

from collections.abc import Mapping


def say(stage: str, message: str) -> None:
    """One line for the person who waits."""
    print(f"[{stage}] {message}", flush=True)


def counts(values: Mapping[str, int]) -> str:
    """Counts in words, those that are zero left out."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in values.items() if n) or "nothing skipped"
