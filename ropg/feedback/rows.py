"""What one row of a store file holds: how texts are written and read back, and each row's checksum."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One stored answer. ``created`` is in seconds since 1970; tokens are those of the LLM."""

    key: str
    text: str
    finish_reason: str
    prompt_tokens: int
    new_tokens: int
    created: float = 0.0


def generation_row(r: GenerationRecord) -> tuple[Any, ...]:
    """(key, text, finish_reason, prompt_tokens, new_tokens, created, checksum) as SQLite takes it."""
    values = (
        r.key,
        write_text(r.text),
        r.finish_reason,
        r.prompt_tokens,
        r.new_tokens,
        finite(r.created, r.key),
    )
    return (*values, checksum(values))


def likelihood_row(key: str, value: float) -> tuple[Any, ...]:
    """(key, value, checksum) as SQLite takes it."""
    return key, value, checksum((key, value))


def checksum(values: tuple[Any, ...]) -> int:
    """CRC-32 of a row's values, which tells a bit that flipped on the disk.

    >>> checksum(("k", -1.0)) == checksum(("k", -1.0)) != checksum(("k", -1.5))
    True
    """
    return zlib.crc32("\0".join(map(repr, values)).encode("ascii", "backslashreplace"))


def write_text(text: str) -> str | bytes:
    """Text as it is stored. A lone surrogate has no UTF-8 form; text with one is kept as bytes and told by its type."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def read_text(stored: str | bytes) -> str:
    """What ``write_text`` was given."""
    return stored.decode("utf-8", "surrogatepass") if isinstance(stored, bytes) else stored


def finite(value: float, key: str) -> float:
    """``value`` as a float. Raises ValueError, naming the key, for NaN and infinities."""
    if not math.isfinite(value):
        raise ValueError(f"the value of {key} is {value}; only finite numbers are stored")
    return float(value)
