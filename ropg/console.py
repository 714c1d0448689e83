"""What a person reads while a command runs: one line per thing done."""

from __future__ import annotations

from collections.abc import Mapping

from ropg import processes


def say(stage: str, message: str) -> None:
    """One line for the person who waits; of several processes only the main one prints it."""
    if not processes.is_main():
        return
    print(f"[{stage}] {message}", flush=True)


def counts(values: Mapping[str, int]) -> str:
    """Counts in words and by name, those that are zero left out.

    >>> counts({"rows": 8, "examples": 1, "unparsed": 0})
    '1 examples, 8 rows'
    """
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in sorted(values.items()) if n)
