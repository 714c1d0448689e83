"""feedback.engine=ray: two actors, one machine. The texts are those of the local engine, whoever dies."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from ropg import build
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.examples import Document, Example
from ropg.feedback import GenerationStore, build_candidates, score_candidates
from ropg.feedback.keys import generation_key
from ropg.llms import load_llm, ray_actors
from ropg.llms.ray_actors import BlockFailed, RayLLM
from ropg.retrievers import BM25
from ropg.runs import decisive, run_folder
from ropg.tasks import get_task

ray = pytest.importorskip("ray")
HERE = Path(__file__).parent
LOCAL = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
OPTIONS = {"num_beams": 1, "max_new_tokens": 4, "max_batch_size": 4, "dtype": "float32"}


@pytest.fixture(scope="module", autouse=True)
def _own_ray():
    """Each test process has a Ray of its own, which its first prompt starts and this ends."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *sys.path])
    yield
    ray.shutdown()
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@pytest.fixture
def on_actors():
    """Build a RayLLM with two actors that ends with the test."""
    made = []

    def make(factory, **settings):
        llm = RayLLM(factory, **{"actors": 2, "cpus": 1, "local": LOCAL, **settings})
        made.append(llm)
        return llm

    yield make
    for llm in made:
        llm.close()


def lethal(folder: Path, log: Path, **options):
    return partial(load_llm, "lethal_llm:LethalLlama", model=str(folder), log=str(log), **OPTIONS, **options)


def make_examples(n: int = 6, documents: int = 6) -> list[Example]:
    return [
        Example(
            f"e{i}",
            f"u{i}",
            f"review {i} of a quiet room",
            f"title {i}",
            [Document(f"d{j}", f"text {i} {j} " + "w " * j, title=f"t{j}") for j in range(documents)],
        )
        for i in range(n)
    ]


def feedback(llm, folder: Path, eval: str = "metric") -> bytes:
    """The feedback stage over 36 prompts in nine batches; the bytes of its table."""
    examples, task = make_examples(), get_task("LaMP-5")
    candidates = build_candidates(
        examples, task, BM25(text=task.document_text), identity={"data": "x"}, progress=False
    )
    with GenerationStore(folder / "store") as store:
        table = score_candidates(examples, task, candidates, llm, store, eval=eval, progress=False)
    table.write(folder / "feedback.parquet")
    return (folder / "feedback.parquet").read_bytes()


def stored(folder: Path) -> list[str]:
    """All keys of a store, of all its files, repeated where rows are."""
    found = []
    for path in (folder / "store").glob("*.sqlite"):
        connection = sqlite3.connect(path)
        found += [row[0] for row in connection.execute("SELECT key FROM generations")]
        connection.close()
    return sorted(found)


def begun(log: Path) -> list[tuple[int, tuple[str, ...]]]:
    return [(pid, tuple(prompts)) for pid, prompts in map(json.loads, log.read_text().splitlines())]


@pytest.mark.parametrize(
    ("kind", "eval"),
    [("causal", "metric"), pytest.param("seq2seq", "likelihood", marks=pytest.mark.slow)],
)
def test_two_actors_make_the_table_of_one_process(kind, eval, llama, t5, tmp_path, on_actors):
    """Whoever has more machines gets the same rewards; this process never loads the weights."""
    factory = partial(load_llm, kind, model=str(llama if kind == "causal" else t5), **OPTIONS)
    spread = on_actors(factory)
    assert not spread.loaded
    assert feedback(spread, tmp_path / "ray", eval) == feedback(factory(), tmp_path / "local", eval)
    assert stored(tmp_path / "ray") == stored(tmp_path / "local")
    assert spread.loaded
    assert not spread.llm.loaded


def test_a_killed_actor_costs_its_block(llama, tmp_path, on_actors):
    """SIGKILL in the middle: the same table, nothing twice in the store, one block begun twice."""
    log = tmp_path / "log"
    spread = on_actors(lethal(llama, log, dies_at=4))
    table = feedback(spread, tmp_path / "ray")
    assert log.with_suffix(".died").exists()
    assert table == feedback(lethal(llama, tmp_path / "other")(), tmp_path / "local")
    keys = stored(tmp_path / "ray")
    assert len(keys) == len(set(keys)) == 36
    blocks = [block for _, block in begun(log)]
    assert len(set(blocks)) == 9
    assert len(blocks) <= 10, "at most one block is generated twice"
    assert len({pid for pid, _ in begun(log)}) >= 2


@pytest.mark.slow
def test_batches_are_read_as_needed_and_actors_kept_until_idle(llama, tmp_path, on_actors):
    """Another process's answers are noticed, splits follow on loaded actors, and training has the GPUs."""
    read, log = [], tmp_path / "log"

    def batches():
        for i in range(12):
            read.append(i)
            yield [f"prompt {i}"]

    spread = on_actors(lethal(llama, log), actors=1, blocks=2, idle_seconds=10.0)
    done = 0
    for batch, answers in spread.answer_batches(batches()):
        done += 1
        assert len(batch) == len(answers) == 1
        assert len(read) < done + 2, "two blocks for the one actor"
    assert done == 12
    assert len(spread.generate(["one", "two"])) == 2
    assert len({pid for pid, _ in begun(log)}) == 1, "the second call finds the first one's actor"
    pid = begun(log)[0][0]
    for _ in range(600):
        if not Path(f"/proc/{pid}").exists():
            break
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists(), "an actor without work goes"


@pytest.mark.slow
def test_a_block_that_kills_ends_the_run_and_names_its_prompts(llama, tmp_path, on_actors):
    """A prompt that exhausts the memory must not restart actors for ever; the rest is kept."""
    log = tmp_path / "log"
    spread = on_actors(lethal(llama, log, poison="text 3 5"), tries=2)
    with pytest.raises(BlockFailed, match="lost its actor 2 times") as caught:
        feedback(spread, tmp_path / "ray")
    blocks = [block for _, block in begun(log)]
    fatal = next(block for block in blocks if any("text 3 5" in prompt for prompt in block))
    assert blocks.count(fatal) == 2
    for prompt in fatal:
        assert generation_key(spread.identity, prompt, spread.decoding) in str(caught.value)


@pytest.mark.slow
def test_errors_are_those_of_the_llm(llama, tmp_path, on_actors):
    """A refused prompt ends the run at once, as it does here."""
    log = tmp_path / "log"
    spread = on_actors(lethal(llama, log, fails="bad"))
    with pytest.raises(ValueError, match="this prompt is refused"):
        spread.generate(["good", "bad"])
    assert len([block for _, block in begun(log) if "bad" in block]) == 1
    assert len(spread.generate(["good"])) == 1, "the next call starts actors again"


CHILD = """
import sys
from pathlib import Path
import test_ray_actors as t
t.feedback(t.RayLLM(t.lethal(Path(sys.argv[1]), Path(sys.argv[2])), actors=2, local=t.LOCAL), Path(sys.argv[3]))
"""


@pytest.mark.slow
def test_a_killed_driver_loses_what_is_on_its_way(llama, tmp_path):
    """Begun on Ray, killed, finished without: the same table, and only blocks in flight were made again."""
    log, broken = tmp_path / "log", tmp_path / "broken"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    child = subprocess.Popen([sys.executable, "-c", CHILD, llama, log, broken], env=environment)
    while child.poll() is None and not (broken / "store").exists():
        time.sleep(0.01)
    while child.poll() is None and not stored(broken):
        time.sleep(0.01)
    assert child.poll() is None, "the child must die at work"
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = stored(broken)
    assert 0 < len(before) < 36
    again = lethal(llama, tmp_path / "again")()
    assert feedback(again, broken) == feedback(lethal(llama, tmp_path / "other")(), tmp_path / "local")
    keys = stored(broken)
    assert len(keys) == len(set(keys)) == 36
    assert sum(len(block) for _, block in begun(tmp_path / "again")) == 36 - len(before)


def test_ray_is_not_started_for_what_is_stored(llama, tmp_path, monkeypatch):
    """Another metric, a second run: no actor, no Ray."""
    factory = partial(load_llm, "causal", model=str(llama), **OPTIONS)
    table = feedback(factory(), tmp_path / "ray")
    monkeypatch.setattr(RayLLM, "_open", lambda self: pytest.fail("Ray was started"))
    spread = RayLLM(factory, actors=2)
    assert feedback(spread, tmp_path / "ray") == table
    assert not spread.loaded


def config(**changes) -> Config:
    made = Config()
    made.llm.model, made.task.name = "google/flan-t5-small", "LaMP-5"
    made.llm.kind = "seq2seq"
    made.feedback.engine = "ray"
    for name, value in changes.items():
        setattr(made.feedback.ray, name, value)
    return made


def test_the_engine_is_no_part_of_a_run():
    """A run begun here is found again on a cluster, and so are its texts."""
    here, there = config(), config(address="auto", actors=64, gpus=1.0, blocks=3)
    here.feedback.engine = "local"
    assert decisive(here) == decisive(there)
    assert run_folder(here) == run_folder(there)
    task = build.build_task(here)
    there.llm.dtype = here.llm.dtype = "bfloat16"
    local, spread = build.build_llm(here, task), build.build_llm(there, task)
    assert isinstance(spread, RayLLM)
    assert (local.identity, local.decoding) == (spread.identity, spread.decoding)


def test_refusals_say_what_to_do(monkeypatch):
    """Before any work: an unknown engine, an endpoint, several processes, a missing package, a client's address."""
    task, broken = build.build_task(config()), config()
    broken.feedback.engine = "spark"
    with pytest.raises(Refused, match="local or ray"):
        build.build_llm(broken, task)
    served = config()
    served.llm.kind = "endpoint"
    with pytest.raises(Refused, match="more servers"):
        build.build_llm(served, task)
    with pytest.raises(ValueError, match="node of the cluster"):
        build.build_llm(config(address="ray://host:10001"), task)
    with pytest.raises(ValueError, match="at least 1"):
        build.build_llm(config(actors=0), task)
    for shares in ({"cpus": float("nan")}, {"cpus": float("inf")}, {"gpus": -2.0}, {"cpus": 0.0}):
        with pytest.raises(ValueError, match="share of CPUs or GPUs"):
            build.build_llm(config(**shares), task)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(Refused, match="one process"):
        build.build_llm(config(), task)
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.setattr(ray_actors.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'ropg\[ray\]'"):
        build.build_llm(config(), task)


def test_more_actors_than_this_machine_holds_are_refused(llama, monkeypatch):
    """A million actors would be asked for until Ray dies of it; a cluster that grows may be asked for more."""
    node = {"Alive": True, "Resources": {"CPU": 4.0}}
    monkeypatch.setattr("ray.nodes", lambda: [node])
    build_one = partial(load_llm, "causal", model=str(llama))
    with pytest.raises(ValueError, match=r"feedback\.ray\.actors is 5, and this machine has room for 2"):
        RayLLM(build_one, actors=5, cpus=2.0)._room(0.0)
    assert RayLLM(build_one, actors=2, cpus=2.0)._room(0.0) == 2
    assert RayLLM(build_one, actors=5, cpus=2.0, address="auto")._room(0.0) == 5
