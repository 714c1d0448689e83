"""What the benchmarks share: alternating pairs, peak memory of a process of its own, one outcome."""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ropg.costs import peak_memory_mib as peak_mib


@dataclass(frozen=True)
class Promise:
    """A further figure of a benchmark, which must not be above ``at_most``."""

    what: str
    value: float
    at_most: float
    unit: str = ""

    @property
    def kept(self) -> bool:
        """Whether the promise holds."""
        return self.value <= self.at_most

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        mark = "" if self.kept else "  ABOVE"
        return f"{self.what}: {self.value:.3g}{unit} (at most {self.at_most:.3g}{unit}){mark}"


@dataclass(frozen=True)
class Outcome:
    """One benchmark.

    straightforward, ours: what each of the pairs took, in ``unit`` (s or MiB).
    at_least: the ratio that is promised. more: what is promised besides.
    checked: how it was seen that both ways give the same.
    limit: what bounds this on any machine, how close it is, and where the rest goes.
    notes: further figures. ``ideal_seconds`` is what the limit alone would take; :attr:`share` comes from it.
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
    more: tuple[Promise, ...] = ()

    @property
    def ratio(self) -> float:
        """The median over the pairs of straightforward / ours."""
        return statistics.median(a / b for a, b in zip(self.straightforward, self.ours, strict=True))

    @property
    def share(self) -> float | None:
        """The share of the physical limit that is reached; None where no limit was measured."""
        ideal = self.notes.get("ideal_seconds")
        return None if ideal is None else ideal / min(self.ours)

    @property
    def reached(self) -> bool:
        """Whether all that is promised holds."""
        return self.ratio >= self.at_least and all(promise.kept for promise in self.more)

    def record(self) -> dict[str, Any]:
        """All of it as JSON values."""
        share = None if self.share is None else round(self.share, 3)
        return asdict(self) | {"ratio": round(self.ratio, 3), "share": share, "reached": self.reached}


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


def and_more(
    first: tuple[float, float],
    straightforward: Callable[[], Any],
    ours: Callable[[], Any],
    pairs: int,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """As :func:`alternate`, where the first pair (its seconds) was taken by the check that both ways are equal."""
    slow, fast = alternate(ours, straightforward, pairs - 1)[
        ::-1
    ]  # ours first: the check had the other order
    return (first[0], *slow), (first[1], *fast)


def seconds(function: Callable[[], Any]) -> float:
    """Wall-clock time of one call, with the garbage of earlier ones collected before."""
    gc.collect()
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def in_own_process(function: Callable[..., Any], *args: Any) -> tuple[Any, float, float]:
    """Call a function of a module in a fresh process: (its result, its seconds, peak memory in MiB above the start).

    Raises RuntimeError with what the function raised, and where the process was killed.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(sender, function, args))
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        found = None
    process.join()
    if found is None:
        raise RuntimeError(
            f"the process ended without a result (exit code {process.exitcode}: out of memory?)"
        )
    if isinstance(found, BaseException):
        raise found
    return found


def _measured(sender: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        started = time.perf_counter()
        result, peak = peak_above(lambda: function(*args))
        sender.send((result, time.perf_counter() - started, peak))
    except BaseException as error:
        sender.send(RuntimeError(f"{type(error).__name__}: {error}"))


def peak_above(function: Callable[[], Any]) -> tuple[Any, float]:
    """Call a function: (its result, how far memory rose above what was in use before, in MiB)."""
    before = restart_peak()
    result = function()
    return result, peak_mib() - before


def restart_peak() -> float:
    """Let the peak begin anew where the system can (Linux), and return the memory from which it now rises, in MiB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_mib()


def available_mib() -> float:
    """The memory that is free for new processes, in MiB; without limit where the system does not say."""
    try:
        return int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) / 1024
    except OSError:
        return float("inf")


def run_by_name(name: str, pairs: int) -> Outcome:
    """The outcome of ``benchmarks/<name>.py``, for :func:`in_own_process`."""
    found: Outcome = importlib.import_module(f"benchmarks.{name}").run(pairs)
    return found
