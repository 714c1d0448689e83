"""An endpoint that misbehaves: nothing is lost or stored twice, and an end is clear."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from endpoint_stub import Stub, answer_to

from ropg.feedback import GenerationStore
from ropg.feedback.generation import generate_missing
from ropg.llms import load_llm
from ropg.llms.endpoint_protocol import EndpointError, Unanswered

PROMPTS = [f"prompt number {i}" for i in range(40)]
TROUBLE = ["429 slow down", "500 {}", "cut", "half", "silent", "503 {}"]


def endpoint(llama, url, **options):
    quick = {"timeout": 0.8, "connect_timeout": 0.8, "patience": 1.0, "max_failures": 6, "concurrency": 8}
    return load_llm("endpoint", model="served", url=url, tokenizer=str(llama), **{**quick, **options})


def run(llm, folder, prompts=PROMPTS):
    with GenerationStore(folder) as store:
        return generate_missing(llm, prompts, store, progress=False)


def rows(folder: Path) -> list[tuple[str, str]]:
    """Every stored generation: (key, text)."""
    found = []
    for file in folder.glob("*.sqlite*"):
        if file.name.endswith("-journal"):
            continue
        with sqlite3.connect(file) as connection:
            for (table,) in connection.execute(
                "select name from sqlite_master where type='table'"
            ).fetchall():
                columns = [c[1] for c in connection.execute(f"pragma table_info({table})")]
                if {"key", "text"} <= set(columns):
                    found += connection.execute(f"select key, text from {table}").fetchall()
    return found


def endpoint_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "endpoint"]


def test_every_kind_of_trouble_costs_nothing(llama, tmp_path):
    """A night of scoring would end, or miss or double texts, at the first hiccup of a server."""

    def behave(prompt, before):
        number = int(prompt.split()[-1])
        if before == 0 and number % 2:
            return TROUBLE[number // 2 % len(TROUBLE)]
        return TROUBLE[number % 4] if before == 1 and number % 5 == 0 else "ok"

    with Stub(behave) as stub:
        report = run(endpoint(llama, stub.url), tmp_path / "store")
        assert stub.asked.total() >= len(PROMPTS) + 20
    assert report.texts == [answer_to(prompt) for prompt in PROMPTS]
    stored = rows(tmp_path / "store")
    assert sorted(text for _, text in stored) == sorted(map(answer_to, PROMPTS))
    assert len({key for key, _ in stored}) == len(PROMPTS)
    assert not endpoint_threads()


def test_dead_server_ends_clearly_and_resumes(llama, tmp_path):
    """A run would retry for ever; or end and ask again for what was answered already."""
    number = itertools.count()
    with (
        Stub(lambda prompt, before: "ok" if next(number) < 15 else "500 out of memory") as stub,
        pytest.raises(
            EndpointError, match=r"failures in a row.*500: out of memory.*15 prompts were answered"
        ),
    ):
        run(endpoint(llama, stub.url), tmp_path / "store")
    dead = stub.url
    assert len(rows(tmp_path / "store")) == 15
    with pytest.raises(EndpointError, match=r"ConnectError.*Start the server.*0 prompts were answered"):
        run(endpoint(llama, dead), tmp_path / "store")
    with Stub() as again:  # another address: the same entries
        report = run(endpoint(llama, again.url), tmp_path / "store")
        assert report.texts == [answer_to(prompt) for prompt in PROMPTS]
        assert report.n_generated == 25
        assert again.asked.total() == 25


def test_a_dead_replica_is_left_out(llama, tmp_path):
    """One machine of a fleet that goes down would end the run, or slow it to a crawl."""
    with Stub() as gone:
        pass
    with Stub() as first, Stub() as second:
        report = run(endpoint(llama, [first.url, gone.url, second.url]), tmp_path / "store")
        assert report.texts == [answer_to(prompt) for prompt in PROMPTS]
        assert min(first.asked.total(), second.asked.total()) >= 10


def test_one_prompt_without_an_answer_does_not_stop_the_others(llama, tmp_path):
    """A filtered text would be stored as an empty one, or end the run for all."""
    bad = {
        "prompt number 3": 'json{"choices": [{"text": "no", "finish_reason": "content_filter"}]}',
        "prompt number 4": 'json{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}',
        "prompt number 5": "400 " + '{"error": {"message": "filtered", "code": "content_filter"}}',
        "prompt number 6": "500 {}",
    }
    ended = pytest.raises(Unanswered, match=r"4 prompts have no answer.*36 prompts were answered")
    with Stub(lambda prompt, before: bad.get(prompt, "slow 0.02")) as stub, ended:
        run(endpoint(llama, stub.url, retries=1, concurrency=3), tmp_path / "store")
    assert len(rows(tmp_path / "store")) == 36


def test_a_refusal_stops_at_once_and_names_the_remedy(llama, tmp_path, monkeypatch):
    """Thousands of requests with a wrong key; and the key in a log file for everyone to read."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with Stub(lambda prompt, before: '401 {"error": {"message": "bad key sk-very-secret"}}') as stub:
        with pytest.raises(
            EndpointError, match=r"127\.0\.0\.1:\d+ answers 401: bad key \[key\].*key_variable"
        ) as e:
            run(endpoint(llama, stub.url), tmp_path / "store")
        assert stub.asked.total() <= 8
    raised: BaseException | None = e.value
    while raised is not None:
        assert "secret" not in repr(raised)
        raised = raised.__cause__ or raised.__context__
    with (
        Stub(lambda prompt, before: "404 no such model") as stub,
        pytest.raises(EndpointError, match=r"llm\.model"),
    ):
        run(endpoint(llama, stub.url), tmp_path / "store")
    with Stub(lambda prompt, before: "307 moved") as stub, pytest.raises(EndpointError, match="not followed"):
        run(endpoint(llama, stub.url), tmp_path / "store")


def test_leaving_early_cancels_everything(llama):
    """Ctrl-C would hang until the last request is answered, or leave a thread behind that goes on asking."""
    with Stub(lambda prompt, before: "ok" if int(prompt.split()[-1]) < 3 else "silent", silence=30) as stub:
        llm = endpoint(llama, stub.url, timeout=60)
        for leave in (KeyboardInterrupt, ValueError, GeneratorExit):
            taken = llm.answer_batches([prompt] for prompt in PROMPTS)
            next(taken)
            if leave is GeneratorExit:
                taken.close()
            else:
                with pytest.raises(leave):
                    taken.throw(leave())
            assert not endpoint_threads()
        assert stub.asked.total() <= 3 * 9


def test_interrupted_in_the_middle_keeps_what_was_answered(llama, tmp_path, monkeypatch):
    """An interrupt would cost what was answered before it."""
    from ropg.feedback import store as stores

    plain, calls = stores.GenerationStore.put_many, []

    def put_many(self, *args):
        calls.append(1)
        if len(calls) == 11:
            raise KeyboardInterrupt
        return plain(self, *args)

    monkeypatch.setattr(stores.GenerationStore, "put_many", put_many)
    with Stub() as stub:
        with pytest.raises(KeyboardInterrupt):
            run(endpoint(llama, stub.url), tmp_path / "store")
        assert not endpoint_threads()
        assert len(rows(tmp_path / "store")) == 10
        assert run(endpoint(llama, stub.url), tmp_path / "store").n_generated == 30


def test_works_where_a_loop_is_running(llama):
    """In a notebook every call would raise 'this event loop is already running'."""
    import asyncio

    async def cell(llm):
        return llm.generate(["a", "b", "a"])

    with Stub() as stub:
        assert asyncio.run(cell(endpoint(llama, stub.url))) == [
            " answer to a",
            " answer to b",
            " answer to a",
        ]


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import test_llm_endpoint_failures as t
t.run(t.endpoint(sys.argv[2], sys.argv[3], concurrency=4, timeout=20), Path(sys.argv[4]))
"""


def test_sigkill_loses_only_what_is_in_flight(llama, tmp_path):
    """Whoever pays per token would pay twice for what was answered."""
    root = Path(__file__).parents[2]
    with Stub(lambda prompt, before: "slow 0.15") as stub:
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                CHILD,
                str(Path(__file__).parent),
                str(llama),
                stub.url,
                str(tmp_path / "store"),
            ],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        while stub.asked.total() < 18 and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
        begun = stub.asked.total()
        assert 18 <= begun < 40
        kept = len(rows(tmp_path / "store"))
        assert begun - 2 * 4 <= kept  # in flight, and answered but not yet written
        report = run(endpoint(llama, stub.url), tmp_path / "store")
        assert report.texts == [answer_to(prompt) for prompt in PROMPTS]
        assert report.n_generated == 40 - kept
        assert len(rows(tmp_path / "store")) == 40


@pytest.mark.slow
def test_thirty_seconds_of_silence(llama, tmp_path):
    """A server that hangs would hang the run."""
    with Stub(lambda prompt, before: "silent" if before == 0 else "ok", silence=30) as stub:
        report = run(endpoint(llama, stub.url, timeout=5, patience=20), tmp_path / "store", PROMPTS[:8])
    assert report.texts == [answer_to(prompt) for prompt in PROMPTS[:8]]
    assert report.seconds < 25
