"""Stores for the tests of the store's commands: users with marker words, and commands that die on the way."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from feedback_fakes import ByLength, FakeLLM, FakeTask, make_examples

from ropg.feedback import GenerationStore, build_candidates, generation_key, score_candidates
from ropg.runs import short_hash

MARKERS = {f"u{i}": f"marker{i}word" for i in range(4)}


class MarkedLLM(FakeLLM):
    """Every answer holds the marker of the user whose prompt it is ("text 2 1 …" belongs to u2)."""

    def generate_batch(self, prompts):
        return [
            a._replace(text=f"{a.text} marker{p.split()[1]}word " + "x" * 300)
            for p, a in zip(prompts, super().generate_batch(prompts), strict=True)
        ]


class MarkedTask(FakeTask):
    def score(self, prediction, target):
        return float(prediction.split()[0])


def made(
    folder: Path, n: int = 4, writer: str = "main", llm: FakeLLM | None = None, start: int = 0, **options
) -> Path:
    """A store with feedback for users u<start> … of the fakes, four prompts each, and its tables as runs lay them."""
    examples, task, llm = make_examples(n)[start:], MarkedTask(), llm or MarkedLLM()
    identity = {"data": f"{start}-{n}", "task": task.name}
    candidates = build_candidates(examples, task, ByLength(), identity=identity, progress=False)
    with GenerationStore(folder / "generations", writer) as store:
        feedback = score_candidates(examples, task, candidates, llm, store, progress=False, **options)
    tables = folder / "tables" / f"lamp-0-{short_hash(identity)}"
    candidates.write(tables / "candidates-train.parquet")
    feedback.write(tables / f"feedback-train-{short_hash(feedback.identity)}.parquet")
    return folder


def keys_of(user: int, llm: FakeLLM | None = None) -> list[str]:
    """The keys of one user's prompts."""
    llm, task, example = llm or MarkedLLM(), MarkedTask(), make_examples(user + 1)[user]
    return [
        generation_key(llm.identity, task.build_prompt(example.input, [d]).text, llm.decoding)
        for d in example.profile
    ]


def texts(folder: Path, keys) -> dict[str, str]:
    with GenerationStore(folder / "generations") as store:
        return {key: r.text for key, r in store.get_many(keys).items()}


def raw(folder: Path) -> bytes:
    """Everything that the files of a folder hold."""
    return b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


def copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


# kills itself at the n-th call that touches a file, or after n × 50 instructions inside SQLite
CHILD = """
import os, signal, sqlite3, sys
mode, n, arguments = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
from ropg.store.__main__ import main
import ropg.store.files, ropg.store.tables, ropg.store.merging, ropg.store.pruning, ropg.store.forgetting
import ropg.feedback.candidates, ropg.feedback.scorer, pyarrow.parquet
count = 0
def step():
    global count
    count += 1
    if count == n:
        os.kill(os.getpid(), signal.SIGKILL)
if mode == "call":
    names = {"execute", "executemany", "unlink", "replace", "fsync"}
    sys.setprofile(lambda frame, event, what: step() if event == "c_call" and what.__name__ in names else None)
else:
    connect = sqlite3.connect
    def stepping(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.set_progress_handler(step, 50)
        return connection
    sqlite3.connect = stepping
status = main(arguments)
sys.setprofile(None)
print("steps", count)
sys.exit(status)
"""


def killed(mode: str, n: int, *arguments: str) -> tuple[bool, int]:
    """Run a command that dies at step ``n`` (0: never); whether it died, and the steps of a whole one."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, mode, str(n), *map(str, arguments)], capture_output=True, text=True
    )
    if done.returncode == -9:
        return True, 0
    assert done.returncode == 0, done.stderr
    return False, int(done.stdout.split()[-1])
