"""Which of several servers gets the next request, when to ask again, and when to give up. No I/O, no clock."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

_REST_AFTER = 3  # failures in a row that take a server out of the rotation
_LONGEST_WAIT = 30.0  # seconds


@dataclass(eq=False)
class Replica:
    """One base URL and how it has behaved. Times are seconds of one monotonic clock."""

    url: str
    failures: int = 0  # in a row
    rests_until: float = 0.0
    paused_until: float = 0.0  # it asked to wait (429, Retry-After)
    in_flight: int = 0


class Rotation:
    """Servers in turn. One that failed three times in a row rests, and is then tried by one request.

    ``silent`` counts failures in a row over all servers, ``since`` is when the first of them was.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.replicas = [Replica(url) for url in urls]
        self.silent = 0
        self.since = 0.0
        self._turn = 0

    def choose(self, now: float) -> Replica | float:
        """The server for the next request, or the seconds until there is one."""
        order = [*self.replicas[self._turn :], *self.replicas[: self._turn]]
        open_now = [r for r in order if r.paused_until <= now]
        if not open_now:
            return min(r.paused_until for r in order) - now
        well = [r for r in open_now if r.failures < _REST_AFTER or (r.rests_until <= now and not r.in_flight)]
        # where all rest, requests have waits of their own, and there is nothing else to ask
        chosen = well[0] if well else min(open_now, key=lambda r: r.rests_until)
        self._turn = (self.replicas.index(chosen) + 1) % len(self.replicas)
        return chosen

    def succeeded(self, replica: Replica) -> None:
        """An answer came: the server is there."""
        replica.failures = self.silent = 0

    def failed(self, replica: Replica, now: float) -> None:
        """Nothing usable came."""
        self.since = now if self.silent == 0 else self.since
        self.silent += 1
        replica.failures += 1
        if replica.failures >= _REST_AFTER:
            replica.rests_until = now + wait_before(replica.failures - 1, replica.url)

    def gone(self, now: float, max_failures: int, patience: float) -> bool:
        """Whether nothing but failures came: at least so many, over at least ``patience`` seconds."""
        return self.silent >= max_failures and now - self.since >= patience


def wait_before(attempt: int, of: str) -> float:
    """Seconds before trying again after ``attempt`` failures: doubling from a half to 30, less up to half.

    The jitter depends on what is tried, so that requests that failed together do not return together.

    >>> [0.25 * 2**n <= wait_before(n + 1, "a prompt") <= 0.5 * 2**n for n in range(3)]
    [True, True, True]
    >>> wait_before(1, "a prompt") == wait_before(1, "a prompt") != wait_before(1, "another")
    True
    """
    longest = min(_LONGEST_WAIT, 0.5 * 2 ** min(attempt - 1, 10))
    return longest * random.Random(f"{attempt} {of}").uniform(0.5, 1.0)
