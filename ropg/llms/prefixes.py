"""Which prompts begin alike, so that a decoder-only LLM reads what they share once.

Users of one item share its reviews, and a chat template begins every prompt with the same words. Legend: n prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: A shorter beginning is not worth a forward pass of its own.
LEAST = 16
#: The share of a batch's padded tokens that sharing must save.
WORTH = 0.1
#: How much wider than its longest prompt a batch may become by being padded in two parts.
WIDER = 1.25


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """Prompts whose first ``length`` tokens are the same; one prompt alone has ``length`` 0."""

    members: tuple[int, ...]
    length: int

    @property
    def saved(self) -> int:
        """Tokens that need not be read again."""
        return self.length * (len(self.members) - 1)


def prefix_groups(prompts: Sequence[Sequence[int]], most: int, least: int = LEAST) -> list[PrefixGroup]:
    """Divide prompts into groups of at most ``most`` so that as many tokens as possible are read only once.

    At least one token of each prompt is left out of its prefix: the answer begins from what the model makes of it.
    Every index stands in one group. The best division of the sorted prompts is found exactly, by dynamic programming;
    it depends on nothing but the arguments.

    >>> prefix_groups([[1, 2, 3, 9], [5, 5, 5], [1, 2, 3, 4, 4], [1, 2, 3, 7]], most=8, least=2)
    [PrefixGroup(members=(2, 3, 0), length=3), PrefixGroup(members=(1,), length=0)]
    >>> [group.members for group in prefix_groups([[1, 2], [1, 2], [1, 2]], most=2, least=1)]
    [(0, 1), (2,)]
    """
    order = sorted(range(len(prompts)), key=lambda i: (list(prompts[i]), i))
    shared = [0, *(_shared(prompts[a], prompts[b]) for a, b in pairwise(order))]
    best = [0] * (len(order) + 1)  # tokens saved by the first i prompts
    start = list(range(-1, len(order)))  # where the last group of that division begins
    for end in range(1, len(order) + 1):
        best[end] = best[end - 1]
        length = len(prompts[order[end - 1]]) - 1
        for begin in range(end - 2, max(-1, end - 1 - most), -1):
            length = min(length, shared[begin + 1], len(prompts[order[begin]]) - 1)
            if length < least:
                break
            saved = best[begin] + length * (end - begin - 1)
            if saved > best[end]:
                best[end], start[end] = saved, begin
    groups, end = [], len(order)
    while end > 0:
        begin = start[end]
        members = tuple(order[begin:end])
        groups.append(PrefixGroup(members, _length(prompts, members)))
        end = begin
    return groups[::-1]


def prefix_lengths(lengths: Sequence[int], groups: Sequence[PrefixGroup]) -> list[int] | None:
    """How many tokens of each group to read once; None where reading all prompts whole costs less.

    Prefixes are padded to the longest prefix, what follows to the longest rest; so a long prefix may be better read in
    part, and a prompt alone is cut where it needs no more room than the others. Every prefix has at least one token and
    leaves one.

    Parameters
    ----------
    lengths: tokens of each of the n prompts. groups: of these prompts.

    >>> prefix_lengths([30, 31, 12], [PrefixGroup((0, 1), 25), PrefixGroup((2,), 0)])
    [25, 6]
    >>> prefix_lengths([30, 31, 12], [PrefixGroup((0,), 0), PrefixGroup((1,), 0), PrefixGroup((2,), 0)]) is None
    True
    """
    if min(lengths, default=0) < 2:
        return None
    longest, best = max(lengths), None
    least_cost = (1 - WORTH) * len(lengths) * longest
    shared = [group for group in groups if group.length]
    for cap in sorted({group.length for group in shared}):
        after = max(
            (lengths[i] - min(group.length, cap) for group in shared for i in group.members), default=1
        )
        own = [
            min(group.length, cap)
            if group.length
            else max(1, min(lengths[group.members[0]] - after, lengths[group.members[0]] - 1, cap))
            for group in groups
        ]
        rest = max(lengths[i] - read for group, read in zip(groups, own, strict=True) for i in group.members)
        cost = len(groups) * max(own) + len(lengths) * rest
        if cost < least_cost and max(own) + rest <= WIDER * longest:
            best, least_cost = own, cost
    return best


def _length(prompts: Sequence[Sequence[int]], members: Sequence[int]) -> int:
    if len(members) == 1:
        return 0
    # sorted: what the first and the last share, all share
    shared = _shared(prompts[members[0]], prompts[members[-1]])
    return min(shared, *(len(prompts[i]) - 1 for i in members))


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two prompts have in common at the start."""
    limit = min(len(a), len(b))
    if a[:limit] == b[:limit]:
        return limit
    return next(i for i in range(limit) if a[i] != b[i])
