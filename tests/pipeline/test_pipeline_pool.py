"""Which runs a selector's pool is made of, that a resumed selector keeps them, and pools that are refused."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pipeline_files import POOL, write_lamp

from ropg.cli import Refused
from ropg.runs import RunError
from rspg.comparison import evaluate
from rspg.members import pinned_pool, pool_runs
from rspg.pipeline import train
from rspg.selector import load_selector

pytestmark = pytest.mark.usefixtures("no_plots")

UNTRAINED = "selector.pool=[none,recency,bm25,initial]"


def change_weights(run: Path) -> None:
    """What another training would leave: the same files with other numbers in them."""
    from safetensors.torch import load_file, save_file

    path = run / "model" / "model.safetensors"
    save_file({name: 1.1 * values for name, values in load_file(path).items()}, path, {"format": "pt"})


def newer_run(run: Path, name: str) -> Path:
    """A finished run of the same method and seed beside ``run``, with other weights, finished later."""
    other = run.with_name(name)
    shutil.copytree(run, other)
    change_weights(other)
    later = (run / "summary.json").stat().st_mtime + 1000
    os.utime(other / "summary.json", (later, later))
    return other


def state(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture
def begun(house, tmp_path):
    """Copied runs and a selector whose pool stage is over: (runs, settings, folder of the selector)."""
    runs = house.copy(tmp_path)
    shutil.rmtree(runs["rspg_post"])

    def settings(*more: str) -> Any:
        return house.settings("method=rspg_post", f"run.dir={runs['rspg_post']}", *more, folder=tmp_path)

    folder = train(settings("stage=feedback"))
    assert folder == runs["rspg_post"]
    assert not (folder / "model").exists()
    return runs, settings, folder


def test_a_resumed_selector_keeps_its_pool(house, tmp_path, begun, asked):
    """A retriever that is trained meanwhile must not become half of a pool, whose other half is the old one's."""
    runs, settings, folder = begun
    before = (folder / "pool.json").read_bytes()
    newer = newer_run(runs["ropg_rl"], "newer")
    assert pool_runs(settings(), ["ropg_rl"]) == ({"ropg_rl": newer}, [])  # a fresh one would take it
    assert train(settings()) == folder
    assert not asked
    assert (folder / "pool.json").read_bytes() == before
    assert Path(json.loads(before)["trained"]["ropg_rl"]["run"]) == runs["ropg_rl"].resolve()
    undisturbed = house.runs["rspg_post"]
    assert state(folder / "model") == state(undisturbed / "model")
    assert (folder / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()
    fresh = train(settings(f"run.dir={tmp_path / 'fresh'}", "stage=feedback"))
    assert Path(json.loads((fresh / "pool.json").read_text())["trained"]["ropg_rl"]["run"]) == newer.resolve()


def test_pinned_runs_that_are_gone_or_other_ones(begun):
    """Two readings of one pool with different members would be trained on as if they were one."""
    runs, settings, folder = begun
    rl = runs["ropg_rl"]
    newer = newer_run(rl, "newer")
    for named, message in (
        (
            newer,
            rf"was begun with ropg_rl from .*{rl.name}, and models\.ropg_rl is .*newer; name another run\.dir",
        ),
        (rl.parent / "nowhere", "models.ropg_rl is .*nowhere"),
    ):
        with pytest.raises((RunError, Refused), match=message) as refused:
            train(settings(f"models.ropg_rl={named}"))
        assert str(folder) in str(refused.value)
    change_weights(rl)
    with pytest.raises(
        RunError, match=rf"pool\.json: ropg_rl in .*{rl.name} has been trained again"
    ) as refused:
        train(settings())
    assert f"delete {folder} and train the selector again" in str(refused.value)
    shutil.rmtree(rl / "model")
    with pytest.raises(
        RunError, match=rf"pool\.json: ropg_rl was trained in .*{rl.name}, and there is no model"
    ):
        train(settings())
    shutil.rmtree(rl)
    with pytest.raises(RunError, match="ropg_rl was trained in"):
        train(settings())
    assert not (folder / "model").exists()


def test_the_named_run_goes_on(begun):
    """models.X that names the pinned run, however it is written, is no contradiction."""
    runs, settings, folder = begun
    same = runs["ropg_rl"].parent / ".." / "runs" / runs["ropg_rl"].name
    assert train(settings(f"models.ropg_rl={same}")) == folder
    assert (folder / "model").is_dir()


def test_a_finished_selector_whose_member_is_gone(begun, tmp_path):
    """Its figures stay; to choose with it the member is needed, and named."""
    runs, settings, folder = begun
    train(settings())
    shutil.rmtree(runs["ropg_kd"])
    assert train(settings()) == folder
    with pytest.raises(RunError, match=r"pool\.json: ropg_kd was trained in .*there is no model now"):
        load_selector(folder)


def test_a_finished_selector_of_another_pool_is_not_passed_off(begun):
    """models.X is no part of the folder's name: the answer to another X must not be the old X's figures."""
    runs, settings, _ = begun
    train(settings())
    newer = newer_run(runs["ropg_rl"], "newer")
    with pytest.raises((RunError, Refused), match=r"models\.ropg_rl"):
        train(settings(f"models.ropg_rl={newer}"))


def test_the_run_of_this_seed_is_taken(house, tmp_path):
    """Seeds are compared with each other's retrievers: seed 1 of a selector belongs to seed 1 of its members."""
    runs = house.copy(tmp_path)
    other = newer_run(runs["ropg_kd"], "other-seed")
    path = other / "summary.json"
    times = path.stat().st_mtime
    path.write_text(json.dumps({**json.loads(path.read_text()), "seed": 1}))
    os.utime(path, (times, times))
    assert pool_runs(house.settings(folder=tmp_path), ["ropg_kd"]) == ({"ropg_kd": runs["ropg_kd"]}, [])
    assert pool_runs(house.settings("seed=1", folder=tmp_path), ["ropg_kd"]) == ({"ropg_kd": other}, [])
    assert pool_runs(house.settings("seed=2", folder=tmp_path), ["ropg_kd"]) == (
        {"ropg_kd": other},
        [],
    )  # newest
    named = house.settings(f"models.ropg_kd={runs['ropg_kd']}", "seed=1", folder=tmp_path)
    assert pool_runs(named, ["ropg_kd", "bm25"]) == ({"ropg_kd": runs["ropg_kd"]}, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"selector\.pool has ropg_rl, .*`python train\.py method=ropg_rl …`.*selector\.pool=\[none,"),
        (["selector.pool=[none,ropg_kd]"], r"python train\.py method=ropg_kd.*selector\.pool=\[none\]"),
        (["selector.pool=[]"], r"selector\.pool=\[\]: it names retrievers, at least one"),
        (["selector.pool=[none,none]"], r"selector\.pool=\['none', 'none'\]: .*each once"),
        (["selector.pool=[none,bm52]"], "unknown retriever 'bm52'; did you mean bm25"),
        (["selector.pool=[none,no.mod:Thing]"], "no.mod:Thing"),
        (["method.reads=both", UNTRAINED], "method.reads=both: it is pre or post"),
        (["retrieval.k=0", UNTRAINED], "retrieval.k=0"),
        (["feedback.eval=metrics", UNTRAINED], "metric or likelihood"),
        (["models.ropg_rl=nowhere"], "models.ropg_rl=nowhere: there is no trained model"),
        (["optim.epochs=0", UNTRAINED], "epochs=0"),
    ],
)
def test_pools_that_are_refused_before_the_llm_works(house, tmp_path, asked, arguments, message):
    """The pool is the expensive stage: what cannot end well must not begin."""
    with pytest.raises((Refused, ValueError), match=message):
        train(house.settings("method=rspg_pre", *arguments, folder=tmp_path))
    assert not asked


@pytest.mark.parametrize("pool", ["[]", "[none,none]", "[none,bm52]"])
def test_a_refused_pool_does_not_bind_the_corrected_one(house, tmp_path, pool):
    """A typo must not make the corrected command fail because of the folder it left."""
    where = f"run.dir={tmp_path / 'mine'}"
    with pytest.raises((Refused, ValueError)):
        train(house.settings("method=rspg_pre", where, f"selector.pool={pool}", folder=tmp_path))
    train(house.settings("method=rspg_pre", where, UNTRAINED, "stage=feedback", folder=tmp_path))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("selector.encoder=/no/such/encoder", "/no/such/encoder"),
        ("selector.attention_window=7", "attention_window"),
        ("selector.max_length=2", "max_length"),
        ("selector.batch_tokens=0", "batch_tokens"),
        ("selector.layers=9", "layers"),
    ],
)
def test_a_selector_that_cannot_be_built_is_refused_before_the_llm_works(
    house, tmp_path, asked, option, message
):
    """Hours of generations before a misspelt encoder is noticed are hours lost."""
    with pytest.raises((Refused, ValueError, OSError), match=message):
        train(house.settings("method=rspg_pre", UNTRAINED, option, folder=tmp_path))
    assert not asked


def test_the_rank_stage_asks_no_llm(house, tmp_path, asked, capsys):
    """stage=rank says what the pool will cost before any LLM is asked."""
    train(house.settings("method=rspg_pre", UNTRAINED, "stage=rank", folder=tmp_path))
    assert not asked
    said = capsys.readouterr().out
    for split in ("train", "dev", "heldout"):
        assert re.search(rf"\[rank\] {split}: \d+ distinct prompts, \d+ examples", said)


def test_a_selector_in_the_pool(house, tmp_path, asked):
    """A selector retrieves nothing; as a member its Longformer would be taken for a bi-encoder."""
    house.copy(tmp_path)
    with pytest.raises(Refused, match="rspg_pre, which is a selector itself; leave it out"):
        train(house.settings("method=rspg_post", "selector.pool=[none,rspg_pre]", folder=tmp_path))
    assert not asked


def test_a_selector_in_the_pool_before_it_is_trained(house, tmp_path):
    """Who follows the advice must not be sent back after a training."""
    with pytest.raises(Refused, match=r"selector\.pool has rspg_pre") as refused:
        train(house.settings("method=rspg_post", "selector.pool=[none,rspg_pre]", folder=tmp_path))
    assert "method=rspg_pre" not in str(refused.value)


def test_a_selector_in_the_pool_of_an_evaluation(house, tmp_path):
    """The same in evaluate.py, which ranks with the selector's Longformer as if it were a bi-encoder."""
    house.copy(tmp_path)
    with pytest.raises(Refused, match="rspg_pre, which is a selector itself; leave it out"):
        evaluate(house.settings("selector.pool=[none,bm25,rspg_pre]", folder=tmp_path))


DAMAGED_POOLS = [
    "",
    "{",
    "[]",
    "{}",
    '{"trained": []}',
    '{"trained": {"ropg_rl": {}}}',
    '{"trained": {"ropg_rl": 3}}',
]


def test_a_damaged_pool_file_is_named(begun):
    """Half a file after a full disk: which one it is, and what to do."""
    _, settings, folder = begun
    for text in DAMAGED_POOLS:
        (folder / "pool.json").write_text(text)
        with pytest.raises(RunError) as refused:
            train(settings())
        assert f"{folder / 'pool.json'}" in str(refused.value)
        assert f"delete {folder} and train the selector again" in str(refused.value)


def test_a_pool_file_without_a_member_is_named(begun):
    """It reads well and lacks a run: the message must not be about an option that was given right."""
    _, settings, folder = begun
    (folder / "pool.json").write_text('{"pool": ["none", "ropg_rl"], "trained": {}}')
    with pytest.raises((RunError, Refused)) as refused:
        train(settings())
    assert f"{folder / 'pool.json'}" in str(refused.value)


def test_damaged_files_of_finished_selectors_are_named(house, tmp_path, capsys):
    """Both commands say which file; the evaluation goes on with the others."""
    runs = house.copy(tmp_path)
    for text in ("", "[1]", "{}"):
        (runs["rspg_pre"] / "summary.json").write_text(text)
        with pytest.raises(RunError, match=r"summary\.json is damaged .*delete this file"):
            train(house.settings("method=rspg_pre", folder=tmp_path))
    (runs["rspg_post"] / "pool.json").write_text("{}")  # an evaluation needs it for a remark alone
    with pytest.raises(RunError, match=r"pool\.json is damaged .*train the selector again"):
        load_selector(runs["rspg_post"])
    where = evaluate(house.settings(folder=tmp_path))
    said = capsys.readouterr().out
    assert f"rspg_post: {runs['rspg_post'] / 'pool.json'} is damaged" in said
    assert f"skipped: {runs['rspg_pre'] / 'summary.json'} is damaged" in said
    assert "rspg_pre: left out" in said
    rows = json.loads((where / "results.json").read_text())
    assert {row["system"] for row in rows} == {*POOL, "rspg_post"}
    (runs["rspg_pre"] / "summary.json").unlink()
    found = train(house.settings("method=rspg_pre", folder=tmp_path))  # made up for, without a training
    again, first = (json.loads((run / "summary.json").read_text()) for run in (found, house.runs["rspg_pre"]))
    measured = {"seconds": 0, "peak_memory_mib": 0}  # of this process; the training's time is that of its own
    assert again | measured == first | measured


def test_a_summary_that_lacks_what_selectors_write(house, tmp_path, capsys):
    """A KeyError after all the answers were generated, and no table."""
    runs = house.copy(tmp_path)
    path = runs["rspg_pre"] / "summary.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "qpp"}))
    evaluate(house.settings("evaluation.systems=[none,bm25,rspg_pre,rspg_post]", folder=tmp_path))
    said = capsys.readouterr().out
    assert f"skipped: {path} is damaged" in said
    assert "rspg_pre: left out" in said
    assert "rspg_post: left out" not in said


def test_runs_that_were_moved_together_still_find_each_other(house, tmp_path):
    """A selector is trained on one machine and used on another: its members' runs come along, under another path."""
    runs = house.copy(tmp_path)
    names, found = pinned_pool(runs["rspg_pre"])
    assert names == list(POOL)
    assert found == {name: runs[name].resolve() for name in ("ropg_rl", "ropg_kd")}


def damaged(config: dict, rspg: dict | None) -> dict:
    return {k: v for k, v in config.items() if k != "rspg"} | ({} if rspg is None else {"rspg": rspg})


def refusal(command) -> str:
    with pytest.raises((RunError, ValueError, OSError)) as refused:
        command()
    return str(refused.value)


def test_a_model_folder_that_is_no_selector(house, tmp_path):
    """A model that lost how it reads must not choose by reading something else."""
    model = house.copy(tmp_path)["rspg_pre"] / "model"
    path = model / "config.json"
    for rspg in ({}, {"reads": "pre"}, None):
        path.write_text(json.dumps(damaged(json.loads(path.read_text()), rspg)))
        message = refusal(lambda: load_selector(model.parent))
        assert str(model) in message
        assert "give the folder that Scorer.save wrote: model/ of a run of method=rspg_pre" in message
    assert refusal(lambda: evaluate(house.settings(folder=tmp_path))) == message


@pytest.mark.parametrize("change", [{"reads": "both"}, {"max_length": "128"}])
def test_a_model_folder_that_reads_in_no_known_way(house, tmp_path, change):
    """The folder is named, and a text in a number's place is no TypeError."""
    model = house.copy(tmp_path)["rspg_pre"] / "model"
    values = {"reads": "pre", "max_length": 128, "with_names": False} | change
    path = model / "config.json"
    path.write_text(json.dumps(damaged(json.loads(path.read_text()), values)))
    assert str(model) in refusal(lambda: load_selector(model.parent))


def test_runs_that_are_no_selectors(house, tmp_path):
    """load_selector says which folder and what to do."""
    with pytest.raises(RunError, match=r"is not a run folder: it has no config\.yaml"):
        load_selector(tmp_path / "nothing")
    with pytest.raises(RunError, match="trained a retriever, ropg_kd; name the run of a selector"):
        load_selector(house.runs["ropg_kd"])
    half = tmp_path / "half"
    half.mkdir()
    shutil.copy(house.runs["rspg_pre"] / "config.yaml", half)
    with pytest.raises(RunError, match=r"holds no trained model yet; run train\.py with run\.dir="):
        load_selector(half)


def test_dates_in_one_split_alone(house, tmp_path, capsys):
    """A member that ranks the training users and no dev user: counted there, instead of an error after hours."""
    root = write_lamp(tmp_path / "lamp", 4, {"train": 4, "dev": 2, "test": 2})
    write_lamp(root, 4, {"dev": 2}, dated=False)
    pool = "selector.pool=[none,recency,bm25]"
    train(house.settings("method=rspg_pre", pool, f"data.root={root}", "optim.epochs=1", folder=tmp_path))
    said = re.search(r"\[pool\] dev: .*", capsys.readouterr().out)
    assert "2 empty rankings" in said[0]
