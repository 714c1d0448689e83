"""Which texts share a batch, and how a batch is read: one rule for the LLM's prompts and the encoder's texts."""

from __future__ import annotations

from collections.abc import Sequence


def plan_batches(
    lengths: Sequence[int],
    max_tokens: int,
    max_batch: int | None = None,
    units: Sequence[Sequence[int]] | None = None,
) -> list[list[int]]:
    """Group texts of like length into batches whose padded size keeps to a token budget.

    The longest come first, so that what does not fit into memory shows at the start; ties keep the order
    of the texts. A batch of n texts costs n times the longest of them. A text that is over the budget on its
    own gets a batch of its own.

    Parameters
    ----------
    lengths: tokens of each text; of a prompt, the tokens to be generated included.
    max_tokens: the largest padded size of a batch, in tokens.
    max_batch: the largest number of texts in a batch, None for any.
    units: texts that belong together (indices into ``lengths``, each in one unit); they come one after another,
        and are parted only where a batch is full. By default each text is a unit.

    Returns lists of indices into ``lengths``; together they name every index once, and they depend on
    nothing but the arguments. Raises ValueError for a limit below one.

    >>> plan_batches([3, 9, 4, 9, 3], max_tokens=18, max_batch=4)
    [[1, 3], [2, 0, 4]]
    >>> plan_batches([40, 2], max_tokens=10, max_batch=4)
    [[0], [1]]
    >>> plan_batches([5, 9, 9, 4], max_tokens=18, units=[[0, 1], [2], [3]])
    [[1, 0], [2, 3]]
    """
    if max_tokens < 1 or (max_batch is not None and max_batch < 1):
        raise ValueError(f"batch_tokens ({max_tokens}) and max_batch_size ({max_batch}) must be at least 1")

    def place(index: int) -> tuple[int, int]:
        return -lengths[index], index

    ordered = sorted(
        (sorted(unit, key=place) for unit in units or [[i] for i in range(len(lengths))]),
        key=lambda u: place(u[0]),
    )
    batches: list[list[int]] = []
    longest = 0
    for index in (index for unit in ordered for index in unit):
        longest = max(longest, lengths[index])
        if not batches or len(batches[-1]) == max_batch or (len(batches[-1]) + 1) * longest > max_tokens:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return batches


def plan_passes(
    lengths: Sequence[int], max_tokens: int, device: str, max_batch: int | None = None
) -> list[list[int]]:
    """The batches of :func:`plan_batches`, each divided into passes of like length where that saves time.

    >>> plan_passes([50, 10, 500, 11], max_tokens=4096, device="cpu")
    [[1, 3], [0], [2]]
    >>> plan_passes([50, 10, 500, 11], max_tokens=4096, device="cuda")
    [[1, 3, 0, 2]]
    """
    cost = overhead(device)
    return [
        [batch[i] for i in part]
        for batch in plan_batches(lengths, max_tokens, max_batch)
        for part in slices([lengths[i] for i in batch], cost)
    ]


#: What a pass costs besides its tokens, in tokens: on a CPU mostly reading the weights, on a GPU starting kernels.
OVERHEAD = {"cpu": 48}
OTHERS = 4096


def overhead(device: str) -> int:
    """What a pass over a model on ``device`` costs besides its tokens, in tokens."""
    return OVERHEAD.get(device.split(":")[0], OTHERS)


def slices(lengths: Sequence[int], overhead: int) -> list[list[int]]:
    """Divide the texts of a batch into passes of like length, so that little padding is computed.

    A pass over n texts costs n times the longest of them, and ``overhead`` on top: what reading the weights and
    starting the pass cost, in tokens. The cheapest division of the sorted lengths is found exactly.

    Returns lists of indices into ``lengths``, shortest texts first; together they name every index once.

    >>> slices([50, 10, 52, 11], overhead=20)
    [[1, 3], [0, 2]]
    >>> slices([50, 10, 52, 11], overhead=200)
    [[1, 3, 0, 2]]
    """
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    if not order or len(order) * lengths[order[-1]] - sum(lengths) <= overhead:
        return [order] if order else []
    # texts of one length are never parted
    ends = [
        i + 1 for i in range(len(order)) if lengths[order[i]] != lengths[order[min(i + 1, len(order) - 1)]]
    ]
    ends.append(len(order))
    cost = {0: 0}  # the least for the first texts
    start: dict[int, int] = {}  # where the last pass over them begins
    for end in ends:
        longest = lengths[order[end - 1]]
        cost[end], start[end] = min(
            (cost[begin] + (end - begin) * longest + overhead, begin) for begin in cost
        )
    found: list[list[int]] = []
    end = len(order)
    while end:
        found.append(order[start[end] : end])
        end = start[end]
    return found[::-1]
