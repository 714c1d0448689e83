"""``python -m benchmarks [name …]``: run them one after another, print the table, write the JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

from benchmarks.measure import in_own_process, run_by_name

NAMES = (
    "start",
    "stored",
    "bm25",
    "dense",
    "kd_step",
    "rspg_step",
    "memory_step",
    "feedback_t5",
    "feedback_prefix",
)


def main() -> int:
    """Return 0 where every promise holds, 1 else."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which; all by default: {', '.join(NAMES)}")
    parser.add_argument("--pairs", type=int, default=3, help="how often both ways run (3)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks.json"), help="the JSON file")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in NAMES]
    if unknown or chosen.pairs < 1:
        parser.error(f"there is no benchmark {', '.join(unknown)}" if unknown else "--pairs is at least 1")
    outcomes, failed = [], []
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
        mark = "" if outcome.reached else "  BELOW"
        print(
            f"{outcome.ratio:.1f} x (at least {outcome.at_least:g} x){mark}; {outcome.what}; {outcome.checked}"
            + (f"; {outcome.limit}" if outcome.limit else "")
            + f" [{time.perf_counter() - started:.0f} s]"
        )
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(
        json.dumps(
            {"machine": machine, "benchmarks": [o.record() for o in outcomes], "failed": failed}, indent=1
        )
    )
    print(f"written to {chosen.out}")
    return 0 if not failed and all(outcome.reached for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
