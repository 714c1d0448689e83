"""Which prompts share a batch, and what happens to a batch that does not fit into memory. Pure functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")


def plan(lengths: Sequence[int], max_tokens: int, max_batch: int) -> list[list[int]]:
    """Group prompts of like length into batches whose padded size keeps to a token budget.

    The longest come first, so that what does not fit into memory shows at the start; ties keep the order
    of the prompts. A batch of n prompts costs n times the longest of them. A prompt that is over the
    budget on its own gets a batch of its own.

    Parameters
    ----------
    lengths: tokens of each prompt, the tokens to be generated included.
    max_tokens: the largest padded size of a batch, in tokens.
    max_batch: the largest number of prompts in a batch.

    Returns lists of indices into ``lengths``; together they name every index once, and they depend on
    nothing but the arguments. Raises ValueError for a limit below one.

    >>> plan([3, 9, 4, 9, 3], max_tokens=18, max_batch=4)
    [[1, 3], [2, 0, 4]]
    >>> plan([40, 2], max_tokens=10, max_batch=4)
    [[0], [1]]
    """
    if max_tokens < 1 or max_batch < 1:
        raise ValueError(f"batch_tokens ({max_tokens}) and max_batch_size ({max_batch}) must be at least 1")
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        full = not batches or len(batches[-1]) == max_batch or (len(batches[-1]) + 1) * longest > max_tokens
        if full:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return batches


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
