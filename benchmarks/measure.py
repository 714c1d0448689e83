"""What the benchmarks share: alternating pairs, peak memory of a process of its own, one outcome."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """One benchmark.

    straightforward, ours: what each of the pairs took, in ``unit`` (s or MiB).
    at_least: the ratio that is promised. checked: how it was seen that both ways give the same.
    limit: what bounds this on any machine, and how close it is, where that was measured.
    """

    name: str
    what: str
    straightforward: tuple[float, ...]
    ours: tuple[float, ...]
    at_least: float
    checked: str
    unit: str = "s"
    limit: str = ""
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """The median over the pairs of straightforward / ours."""
        return statistics.median(a / b for a, b in zip(self.straightforward, self.ours, strict=True))

    @property
    def reached(self) -> bool:
        """Whether the promise holds."""
        return self.ratio >= self.at_least

    def record(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return asdict(self) | {"ratio": round(self.ratio, 3), "reached": self.reached}


def alternate(
    straightforward: Callable[[], Any], ours: Callable[[], Any], pairs: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Time both ways turn by turn: seconds of each pair. Which comes first changes, so that neither always warms up."""
    slow, fast = [], []
    for pair in range(pairs):
        order = [(straightforward, slow), (ours, fast)]
        for function, times in order if pair % 2 == 0 else reversed(order):
            times.append(seconds(function))
    return tuple(slow), tuple(fast)


def seconds(function: Callable[[], Any]) -> float:
    """Wall-clock time of one call, with the garbage of earlier ones collected before."""
    gc.collect()
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def in_own_process(function: Callable[..., Any], *args: Any) -> tuple[Any, float, float]:
    """Call a function of a module in a fresh process: (its result, its seconds, peak memory in MiB above the start)."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(sender, function, args))
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        found = RuntimeError("the process ended without a result")
    process.join()
    if isinstance(found, BaseException):
        raise found
    return found


def _measured(sender: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        before = peak_mib()
        started = time.perf_counter()
        result = function(*args)
        sender.send((result, time.perf_counter() - started, peak_mib() - before))
    except BaseException as error:
        sender.send(RuntimeError(f"{type(error).__name__}: {error}"))


def peak_mib() -> float:
    """The largest memory this process has had so far, in MiB (Linux: ru_maxrss is in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run_by_name(name: str, pairs: int) -> Outcome:
    """The outcome of ``benchmarks/<name>.py``, for :func:`in_own_process`."""
    found: Outcome = importlib.import_module(f"benchmarks.{name}").run(pairs)
    return found
