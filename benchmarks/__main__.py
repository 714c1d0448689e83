"""``python -m benchmarks [name …]``: run them one after another, print the table, write the JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Outcome, in_own_process, run_by_name

NAMES = (
    "start",
    "stored",
    "bm25",
    "dense",
    "kd_step",
    "rspg_step",
    "memory_step",
    "encoders",
    "opening",
    "growth",
    "graph",
    "feedback_t5",
    "feedback_prefix",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where every promise holds, 1 else."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which; all by default: {', '.join(NAMES)}")
    parser.add_argument("--pairs", type=int, default=3, help="how often both ways run (3)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks.json"), help="the JSON file")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in NAMES]
    if unknown or chosen.pairs < 1:
        parser.error(f"there is no benchmark {', '.join(unknown)}" if unknown else "--pairs is at least 1")
    outcomes: list[Outcome] = []
    failed: list[str] = []
    lasted: list[float] = []
    for name in chosen.names or NAMES:
        started = time.perf_counter()
        print(f"{name} …", end=" ", flush=True)
        try:
            outcome, _, _ = in_own_process(run_by_name, name, chosen.pairs)
        except RuntimeError as error:
            failed.append(name)
            print(f"FAILED: {error}")
            continue
        outcomes.append(outcome)
        lasted.append(time.perf_counter() - started)
        mark = "" if outcome.reached else "  BELOW"
        print(f"{outcome.ratio:.1f} x (at least {outcome.at_least:.3g} x){mark}")
        for line in (outcome.what, outcome.checked, outcome.limit, *map(str, outcome.more)):
            print(f"    {line}" if line else "", end="\n" if line else "")
    print(table(outcomes, lasted))
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(
        json.dumps(
            {"machine": machine, "benchmarks": [o.record() for o in outcomes], "failed": failed}, indent=1
        )
    )
    print(f"written to {chosen.out}")
    return 0 if not failed and all(outcome.reached for outcome in outcomes) else 1


def table(outcomes: Sequence[Outcome], lasted: Sequence[float]) -> str:
    """One line for each benchmark: ratio, what is promised, share of the physical limit, how long it all took."""
    lines = [f"{'benchmark':<16}{'ratio':>8}{'promised':>10}{'of limit':>10}{'seconds':>9}"]
    for outcome, seconds in zip(outcomes, lasted, strict=True):
        share = "-" if outcome.share is None else f"{outcome.share:.0%}"
        mark = "" if outcome.reached else "  BELOW"
        lines.append(
            f"{outcome.name:<16}{outcome.ratio:>7.1f}x{outcome.at_least:>9.3g}x{share:>10}{seconds:>9.0f}{mark}"
        )
        lines += [f"  {promise}" for promise in outcome.more]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
