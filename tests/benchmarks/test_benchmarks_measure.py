"""What ``make bench`` rests on: how pairs are timed and counted, and that a benchmark that is wrong says so."""

import importlib
import inspect
import json

import pytest

import benchmarks.__main__ as command
from benchmarks.measure import Outcome, Promise, alternate, in_own_process, peak_above


def outcome(**changes) -> Outcome:
    settings = {
        "name": "bm25",
        "what": "w",
        "straightforward": (6.0, 8.0, 90.0),
        "ours": (2.0, 2.0, 1.0),
        "at_least": 4,
        "checked": "equal",
    }
    return Outcome(**{**settings, **changes})


def test_the_ratio_is_the_median_over_the_pairs():
    """One disturbed pair (90 to 1) must not carry the result: 3, 4 and 90 give 4."""
    assert outcome().ratio == 4
    assert outcome().reached
    assert not outcome(at_least=4.1).reached


def test_a_further_promise_that_is_broken_breaks_the_benchmark():
    assert outcome(more=(Promise("again", 2.0, 2.0, "s"),)).reached
    broken = outcome(more=(Promise("again", 2.1, 2.0, "s"),))
    assert not broken.reached
    assert "ABOVE" in str(broken.more[0])


def test_the_share_of_the_limit_comes_from_the_best_time():
    assert outcome().share is None
    assert outcome(notes={"ideal_seconds": 0.5}).share == 0.5


def test_both_ways_take_turns_at_being_first():
    calls = []
    slow, fast = alternate(lambda: calls.append("a"), lambda: calls.append("b"), 3)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert (len(slow), len(fast)) == (3, 3)


def test_a_record_is_json_with_the_ratio():
    record = json.loads(json.dumps(outcome(more=(Promise("again", 1, 2),)).record()))
    assert (record["ratio"], record["reached"], record["more"][0]["at_most"]) == (4, True, 2)


def test_memory_is_counted_from_the_start_of_the_call():
    """Neither what the caller held nor what was freed before counts; what is freed inside does."""
    held = bytearray(150 << 20)
    held[::4096] = b"x" * len(held[::4096])
    del held
    _, small = peak_above(lambda: None)
    _, large = peak_above(lambda: len(bytearray(b"x" * (100 << 20))))
    assert small < 50
    assert large >= 95


def test_what_fails_in_its_own_process_is_an_error_here():
    with pytest.raises(RuntimeError, match="ModuleNotFoundError"):
        in_own_process(importlib.import_module, "no_such_module")
    with pytest.raises(RuntimeError, match="without a result"):
        in_own_process(importlib.import_module("os")._exit, 3)


@pytest.mark.parametrize("name", command.NAMES)
def test_every_benchmark_can_be_run_by_its_name(name):
    module = importlib.import_module(f"benchmarks.{name}")
    assert next(iter(inspect.signature(module.run).parameters)) == "pairs"


@pytest.mark.parametrize(
    ("found", "status"),
    [(outcome(), 0), (outcome(at_least=5), 1), (RuntimeError("AssertionError: 3 of 90 answers differ"), 1)],
)
def test_the_command_says_what_is_below_or_unequal_by_its_exit_status(
    found, status, monkeypatch, tmp_path, capsys
):
    def fake(function, name, pairs):
        if isinstance(found, Exception):
            raise found
        return found, 0.0, 0.0

    monkeypatch.setattr(command, "in_own_process", fake)
    file = tmp_path / "out" / "b.json"
    assert command.main(["bm25", "--out", str(file)]) == status
    written, printed = json.loads(file.read_text()), capsys.readouterr().out
    assert written["machine"]["cores"] >= 1
    if isinstance(found, Exception):
        assert written["failed"] == ["bm25"]
        assert "FAILED: AssertionError: 3 of 90 answers differ" in printed
    else:
        assert written["benchmarks"][0]["ratio"] == 4
        assert ("BELOW" in printed) == (status == 1)
