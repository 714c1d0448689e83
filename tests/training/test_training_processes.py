"""Any number of processes takes the steps of one, and a run may go on with another number than it began with."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_training import run

PROGRAM = Path(__file__).with_name("tiny_training.py")


def start(count, folder, *options):
    """The training program in ``count`` processes, as `accelerate launch --cpu` starts them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"OMP_NUM_THREADS": "1"}
    own: list[dict[str, str]] = [{}]
    if count > 1:
        common |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "ACCELERATE_USE_CPU": "true"}
        common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        own = [{"RANK": str(i), "LOCAL_RANK": str(i)} for i in range(count)]
    return [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **common, **place},
        )
        for place in own
    ]


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same_records(folder, expected):
    """Every loss, norm and reward of a run to 1e-5."""
    found = records(folder)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if a["event"] == "step":  # the objective's own number is of the main process's rows only
            a, b = ({k: v for k, v in r.items() if k != "expected_reward"} for r in (a, b))
        assert a.pop("event") == b["event"]
        assert a == pytest.approx({k: v for k, v in b.items() if k != "event"}, rel=1e-5, abs=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Records and result of one process."""
    folder = tmp_path_factory.mktemp("alone")
    _, result = run(folder, double=True)
    return records(folder), result


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_several_processes_train_like_one(tmp_path, alone, count):
    """Steps of four rows, some of three, over two and three processes: some have one row, or none.

    A mean of the processes' means would weigh the rows of a small share more.
    """
    processes = start(count, tmp_path, "double=true")
    lines = [p.communicate(timeout=120)[0].splitlines() for p in processes]
    assert [p.returncode for p in processes] == [0] * count
    assert len({found[-1] for found in lines}) == 1  # the same weights in all
    assert len(lines[0]) > 1  # only the main process tells
    assert [len(found) for found in lines[1:]] == [1] * (count - 1)
    assert_same_records(tmp_path, alone[0])


@pytest.mark.parametrize(("before", "after"), [(2, 1), pytest.param(1, 2, marks=pytest.mark.slow)])
def test_killed_it_resumes_with_another_number_of_processes(tmp_path, alone, before, after):
    """A cluster gives what it has: a checkpoint must not know how many wrote it."""
    processes = start(before, tmp_path, "double=true", "checkpoint_every=2")
    for _ in range(9):
        processes[0].stdout.readline()
    for process in processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        process.communicate()
    assert not (tmp_path / "model").exists()
    assert list((tmp_path / "checkpoints").glob("step-*"))
    processes = start(after, tmp_path, "double=true", "checkpoint_every=2")
    lines = [p.communicate(timeout=120)[0].splitlines() for p in processes]
    assert [p.returncode for p in processes] == [0] * after
    assert lines[0][-1].split()[-1] == str(alone[1].best_step)
    assert len(lines[0]) < len(alone[0])  # it went on, it did not begin anew
    assert_same_records(tmp_path, alone[0])
