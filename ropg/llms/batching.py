"""What happens to a batch that does not fit into memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device or the machine has no memory left.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    True
    >>> is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
    False
    """
    # torch's own OutOfMemoryError is a RuntimeError whose message matches
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _OUT_OF_MEMORY)
    )


def halve_on_out_of_memory(
    run: Callable[[Sequence[T]], list[R]], items: Sequence[T], release: Callable[[], None] = lambda: None
) -> list[R]:
    """``run(items)``; where memory runs out, the two halves one after the other, and so on down to one.

    ``release`` gives cached memory back before a retry. A warning tells of every halving. Raises
    MemoryError with the remedy when a single item does not fit; other errors pass through.

    >>> def two_at_most(items):
    ...     if len(items) > 2:
    ...         raise RuntimeError("out of memory")
    ...     return [item * 10 for item in items]
    >>> with warnings.catch_warnings(action="ignore"):
    ...     halve_on_out_of_memory(two_at_most, [1, 2, 3, 4, 5])
    [10, 20, 30, 40, 50]
    """
    try:
        return run(items)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if len(items) <= 1:
            raise MemoryError(
                "one prompt alone does not fit into memory: lower num_beams, max_input_tokens or "
                f"max_new_tokens, or use dtype=bfloat16 or a smaller model ({error})"
            ) from error
    # Outside the except clause: the traceback in it would keep the tensors of the failed try alive.
    release()
    half = (len(items) + 1) // 2
    warnings.warn(
        f"out of memory with a batch of {len(items)}: retried as {half} and {len(items) - half}; "
        "a lower batch_tokens saves the time of the failed tries",
        RuntimeWarning,
        stacklevel=2,
    )
    first = halve_on_out_of_memory(run, items[:half], release)
    return first + halve_on_out_of_memory(run, items[half:], release)
