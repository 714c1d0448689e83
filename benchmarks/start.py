"""How long a person waits for ``--help`` and for an import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Outcome, seconds

_ROOT = Path(__file__).resolve().parent.parent
_COMMANDS = {
    "train.py --help": [sys.executable, "train.py", "--help"],
    "import ropg, rspg": [
        sys.executable,
        "-c",
        "import ropg, rspg, sys; assert 'torch' not in sys.modules, 'torch was imported'",
    ],
}


def run(pairs: int = 3) -> Outcome:
    """Time both; the straightforward way is the promised two seconds."""

    def call(command: list[str]) -> None:
        subprocess.run(command, cwd=_ROOT, check=True, capture_output=True)

    for command in _COMMANDS.values():
        call(command)  # the first time compiles and reads from the disk
    times = {
        name: [seconds(lambda c=command: call(c)) for _ in range(pairs)]
        for name, command in _COMMANDS.items()
    }
    slowest = max(times.values(), key=min)
    return Outcome(
        "start",
        "train.py --help and import of ropg and rspg, against two seconds; no torch is imported",
        (2.0,) * pairs,
        tuple(slowest),
        at_least=1,
        checked="torch is not among the imported modules",
        notes={name: round(min(found), 3) for name, found in times.items()},
    )
