"""What failures, start-up and the last blocks cost as workers are added: ``python -m benchmarks.simulate_cluster``.

A discrete-event simulation of the feedback stage. Workers (GPUs) load the LLM, take blocks of prompts (planned batches)
and lose their machine at exponentially distributed times. Three ways to share the blocks out:

- ``scratch``: each worker has a fixed share and keeps its results in memory; a failure loses the whole share;
- ``resume``: each worker has a fixed share, and what is finished is in the store; a failure loses one block;
- ``dynamic``: workers take the next block from one queue, finished ones are in the store; a failure loses one block.

The lengths that block times come from are log-normal; ``benchmarks.token_lengths`` measures them.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

import numpy as np

from ropg.batching import plan_batches

Policy = Literal["scratch", "resume", "dynamic"]
POLICIES: tuple[Policy, ...] = ("scratch", "resume", "dynamic")
LABELS = {
    "scratch": "fixed shares, from scratch after a failure",
    "resume": "fixed shares, resumed from the store",
    "dynamic": "blocks on demand, resumed from the store",
}


@dataclass(frozen=True)
class Cluster:
    """W workers. All times in seconds.

    startup: from having a machine to the first block: processes, weights, planning. mtbf: mean time between failures
    of one worker. replace: until a lost machine is replaced; not paid. spread: log-normal spread of the workers' speed.
    commit: one process that writes all finished blocks needs this long for each; 0 where every worker writes its own
    file, whose commits are part of the blocks' times.
    """

    workers: int
    startup: float = 0.0
    mtbf: float = math.inf
    replace: float = 0.0
    spread: float = 0.0
    commit: float = 0.0


@dataclass(frozen=True)
class Result:
    """One simulated run, in seconds; all but ``wall`` are summed over workers.

    wall: until the last block is stored; infinite where the limit came first. paid: machines held until then.
    useful: of blocks whose result was kept. lost: of blocks done or begun in vain. starting: loading.
    idle: waiting for the last blocks. paid = useful + lost + starting + idle. failures: while there was work.
    """

    wall: float
    paid: float
    useful: float
    lost: float
    starting: float
    idle: float
    failures: int


def simulate(
    blocks: Sequence[float], cluster: Cluster, policy: Policy, seed: int = 0, limit: float = math.inf
) -> Result:
    """Run the blocks, given in seconds at speed 1 and in planned order, on the cluster.

    Fixed shares: ``resume`` deals the blocks out in turn, as ``shard=(i, n)`` does; ``scratch`` cuts them into equal
    runs. Raises ValueError for a cluster without workers and for an unknown policy.
    """
    if cluster.workers < 1:
        raise ValueError(f"{cluster.workers} workers; at least 1")
    queues, queue_of = _shares(len(blocks), cluster.workers, policy)
    return _Run(blocks, cluster, queues, queue_of, policy == "scratch", seed).until(limit)


def _shares(n: int, workers: int, policy: Policy) -> tuple[list[deque[int]], list[int]]:
    """Queues of block numbers, and which of them each worker takes from."""
    own = list(range(workers))
    if policy == "dynamic":
        return [deque(range(n))], [0] * workers
    if policy == "resume":
        return [deque(range(worker, n, workers)) for worker in own], own
    if policy == "scratch":
        edges = [n * worker // workers for worker in range(workers + 1)]
        return [deque(range(edges[worker], edges[worker + 1])) for worker in own], own
    raise ValueError(f"there is no policy {policy!r}; it is one of {', '.join(POLICIES)}")


class _Run:
    """The state of one simulation. A worker is down, starting, working on a block, or idle."""

    def __init__(
        self,
        blocks: Sequence[float],
        cluster: Cluster,
        queues: list[deque[int]],
        queue_of: list[int],
        keeps_in_memory: bool,
        seed: int,
    ) -> None:
        n = cluster.workers
        self.blocks, self.cluster, self.queues, self.queue_of = blocks, cluster, queues, queue_of
        self.keeps_in_memory = keeps_in_memory
        self.draw = np.random.default_rng(seed)
        self.speed = np.exp(self.draw.normal(0.0, cluster.spread, n)) if cluster.spread else np.ones(n)
        self.events: list[tuple[float, int, str, int, int]] = []
        self.order = count()
        self.life = [0] * n  # events of an earlier life of a worker are void
        self.state = ["down"] * n
        self.since = [0.0] * n
        self.block = [-1] * n
        self.kept: list[list[tuple[int, float]]] = [
            [] for _ in range(n)
        ]  # scratch: (block, seconds) in memory
        self.spent = dict.fromkeys(("down", "starting", "working", "idle"), 0.0)
        self.lost, self.failures = 0.0, 0
        self.left = len(blocks)
        self.stored_at = 0.0

    def until(self, limit: float) -> Result:
        """Run to the last block, or to the limit."""
        for worker in range(self.cluster.workers):
            self._begin(worker, 0.0)
        now = 0.0
        while self.left and self.events:
            now, _, kind, worker, life = heapq.heappop(self.events)
            if now > limit:
                now = limit
                break
            if life != self.life[worker]:
                continue
            if kind == "up":
                self._begin(worker, now)
            elif kind == "fail":
                self._fail(worker, now)
            else:
                if kind == "done":
                    self._finish(worker, now)
                self._next(worker, now)
        for worker in range(self.cluster.workers):
            self._enter(worker, "down", now)
        paid = self.spent["starting"] + self.spent["working"] + self.spent["idle"]
        unfinished = self.left > 0
        return Result(
            wall=math.inf if unfinished else max(now, self.stored_at),
            paid=paid,
            useful=self.spent["working"] - self.lost,
            lost=self.lost,
            starting=self.spent["starting"],
            idle=self.spent["idle"],
            failures=self.failures,
        )

    def _push(self, time: float, kind: str, worker: int) -> None:
        heapq.heappush(self.events, (time, next(self.order), kind, worker, self.life[worker]))

    def _enter(self, worker: int, state: str, now: float) -> None:
        self.spent[self.state[worker]] += now - self.since[worker]
        self.state[worker], self.since[worker] = state, now

    def _begin(self, worker: int, now: float) -> None:
        self._enter(worker, "starting", now)
        self._push(now + self.cluster.startup, "ready", worker)
        if math.isfinite(self.cluster.mtbf):
            self._push(now + self.draw.exponential(self.cluster.mtbf), "fail", worker)

    def _next(self, worker: int, now: float) -> None:
        queue = self.queues[self.queue_of[worker]]
        if not queue:
            self._enter(worker, "idle", now)
            return
        self._enter(worker, "working", now)
        self.block[worker] = queue.popleft()
        self._push(now + self.blocks[self.block[worker]] / self.speed[worker], "done", worker)

    def _finish(self, worker: int, now: float) -> None:
        if self.keeps_in_memory:
            self.kept[worker].append((self.block[worker], now - self.since[worker]))
        self.block[worker] = -1
        self.left -= 1
        self.stored_at = max(self.stored_at, now) + self.cluster.commit

    def _fail(self, worker: int, now: float) -> None:
        queue = self.queues[self.queue_of[worker]]
        done_share = (
            self.keeps_in_memory and not queue and self.block[worker] < 0
        )  # a finished share is written
        again = [self.block[worker]] if self.block[worker] >= 0 else []
        if again:
            self.lost += now - self.since[worker]
        if not done_share:
            again = [block for block, _ in self.kept[worker]] + again
            self.lost += sum(seconds for _, seconds in self.kept[worker])
            self.left += len(self.kept[worker])
            self.kept[worker] = []
        queue.extendleft(reversed(again))
        self.failures += 1
        self.block[worker] = -1
        self._enter(worker, "down", now)
        self.life[worker] += 1
        self._push(now + self.cluster.replace, "up", worker)
        if again and not self.keeps_in_memory:
            for other, state in enumerate(self.state):
                if state == "idle" and self.queue_of[other] == self.queue_of[worker] and queue:
                    self._next(other, now)


def expected_restarting(work: float, mtbf: float, replace: float = 0.0) -> float:
    """Mean time to get through ``work`` seconds without a failure, from scratch after each: (M + r)(e^(w/M) - 1).

    >>> round(expected_restarting(3600, 36_000))
    3786
    """
    return (mtbf + replace) * math.expm1(work / mtbf)


def expected_resuming(blocks: int, block: float, startup: float, mtbf: float, replace: float = 0.0) -> float:
    """Mean time of one worker for equal blocks, where a failure loses the block in flight and costs a new start.

    With D = (M + r)(e^((s+t)/M) - 1) for a start and one block: D + (n - 1)(M (1 - e^(-t/M)) + (1 - e^(-t/M))(r + D)).
    """
    first = expected_restarting(startup + block, mtbf, replace)
    failed = -math.expm1(-block / mtbf)
    return first + (blocks - 1) * (mtbf * failed + failed * (replace + first))


def block_seconds(
    prompts: int,
    log_mean: float,
    log_spread: float,
    tokens_per_second: float,
    batch_tokens: int,
    seed: int = 0,
    longest: int = 512,
) -> np.ndarray:
    """Seconds of each planned block: log-normal prompt lengths, batched as the project batches, at a steady rate."""
    lengths = np.random.default_rng(seed).lognormal(log_mean, log_spread, prompts)
    whole = np.clip(lengths, 8, longest).astype(int)
    batches = plan_batches(whole.tolist(), batch_tokens)
    return np.array([len(batch) * int(whole[batch[0]]) for batch in batches]) / tokens_per_second


def tabulate(
    blocks: np.ndarray, workers: Sequence[int], cluster: Cluster, repeats: int, limit: float
) -> dict[Policy, list[tuple[float, float]]]:
    """Mean (wall hours, paid GPU-hours) by policy and number of workers; infinite where a run met the limit."""
    found: dict[Policy, list[tuple[float, float]]] = {policy: [] for policy in POLICIES}
    shuffled = np.random.default_rng(1).permutation(blocks)  # research code works in the order of the file
    for number in workers:
        here = Cluster(**{**vars(cluster), "workers": number})
        for policy in POLICIES:
            given = (shuffled if policy == "scratch" else blocks).tolist()
            runs = [simulate(given, here, policy, seed, limit) for seed in range(repeats)]
            wall = sum(run.wall for run in runs) / repeats / 3600
            paid = sum(run.paid if math.isfinite(run.wall) else math.inf for run in runs) / repeats / 3600
            found[policy].append((wall, paid))
    return found


def plot(
    found: dict[float, dict[Policy, list[tuple[float, float]]]], workers: Sequence[int], to: Path
) -> None:
    """One row for each mean time between failures: wall time and GPU-hours against the number of workers."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(9.5, 3.4 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), 2, squeeze=False, sharex=True, sharey="col")
    styles = {
        "scratch": ("#b5442e", "s", ":"),
        "resume": ("#3a6ea5", "o", "--"),
        "dynamic": ("#1d7a4c", "D", "-"),
    }
    for row, (mtbf, by_policy) in zip(axes, found.items(), strict=True):
        failing = f"a failure per worker every {mtbf / 3600:g} h" if math.isfinite(mtbf) else "no failures"
        for place, (axis, what) in enumerate(zip(row, ("wall time, hours", "GPU-hours paid"), strict=True)):
            for policy, values in by_policy.items():
                colour, marker, line = styles[policy]
                heights = [v[place] if math.isfinite(v[place]) else np.nan for v in values]
                axis.plot(workers, heights, line, marker=marker, ms=4, color=colour, label=LABELS[policy])
            axis.set(xscale="log", yscale="log", ylabel=what, title=failing)
            axis.set_xticks(workers, [str(w) for w in workers])
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter("{x:g}")
            axis.minorticks_off()
            axis.grid(alpha=0.3, which="both")
    for axis in axes[-1]:
        axis.set_xlabel("workers (GPUs)")
    axes[0][0].legend(fontsize=8, frameon=False)
    figure.savefig(to, metadata={"Date": None} if to.suffix == ".svg" else None, dpi=110)


def main() -> None:
    """Print the tables and, with --plot, draw them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate_cluster", description=__doc__)
    parser.add_argument(
        "--prompts", type=int, default=320_000, help="20,000 queries x 16 candidates (320000)"
    )
    parser.add_argument(
        "--rate", type=float, default=10_000, help="padded tokens a second of one worker (10000)"
    )
    parser.add_argument(
        "--lengths", type=float, nargs=2, default=(5.61, 0.48), help="ln mean, ln sd (5.61 0.48)"
    )
    parser.add_argument("--batch-tokens", type=int, default=65_536, help="padded tokens of a block (65536)")
    parser.add_argument("--startup", type=float, default=180, help="seconds until the first block (180)")
    parser.add_argument(
        "--replace", type=float, default=300, help="seconds until a machine is replaced (300)"
    )
    parser.add_argument("--mtbf", type=float, nargs="+", default=[24, 2], help="hours (24 2)")
    parser.add_argument("--spread", type=float, default=0.05, help="spread of the workers' speed (0.05)")
    parser.add_argument("--commit", type=float, default=0.0, help="seconds a block, one writer for all (0)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128, 256])
    parser.add_argument("--repeats", type=int, default=10, help="seeds 0, 1, …; their mean is shown (10)")
    parser.add_argument("--limit", type=float, default=240, help="hours after which a run is given up (240)")
    parser.add_argument("--plot", type=Path, help="an SVG or PNG file")
    chosen = parser.parse_args()
    mean, spread = chosen.lengths
    blocks = block_seconds(chosen.prompts, mean, spread, chosen.rate, chosen.batch_tokens)
    total = float(blocks.sum())
    print(f"{len(blocks)} blocks, mean {blocks.mean():.2f} s, {total / 3600:.2f} GPU-hours of work")
    found = {}
    for hours in chosen.mtbf:
        base = Cluster(1, chosen.startup, hours * 3600, chosen.replace, chosen.spread, chosen.commit)
        found[hours * 3600] = tabulate(blocks, chosen.workers, base, chosen.repeats, chosen.limit * 3600)
        print(f"\na failure per worker every {hours:g} h: wall hours / GPU-hours paid / share of them useful")
        print(f"{'workers':>8}" + "".join(f"{policy:>24}" for policy in POLICIES))
        for i, number in enumerate(chosen.workers):
            cells = (found[hours * 3600][policy][i] for policy in POLICIES)
            shown = "".join(
                f"{wall:9.2f} /{paid:7.2f} /{total / 3600 / paid:5.0%}"
                if math.isfinite(wall)
                else f"{'> ' + format(chosen.limit, 'g') + ' h':>24}"
                for wall, paid in cells
            )
            print(f"{number:8}{shown}")
    if chosen.plot:
        plot(found, chosen.workers, chosen.plot)


if __name__ == "__main__":
    main()
