"""The command line: quick help, refusals that say what to write instead, quoted values that arrive unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pipeline_files as files
import pytest

from ropg import cli
from ropg.cli import Refused, compose, with_default_experiment
from ropg.comparison import evaluate
from ropg.pipeline import train

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "sklearn", "scipy", "pandas", "matplotlib", "datasets", "pyarrow")
# runs an entry point and tells which heavy modules it imported
PROBE = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
    status = 0
except SystemExit as leaving:
    status = leaving.code or 0
print("imported:", *[name for name in {heavy} if name in sys.modules])
sys.exit(status)
"""


def probe(*arguments: str) -> subprocess.CompletedProcess[str]:
    """An entry point in a process of its own."""
    program = PROBE.replace("{heavy}", repr(HEAVY))
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=120,
    )


@pytest.mark.parametrize("entry", ["train.py", "evaluate.py"])
def test_help(entry):
    """Help that takes ten seconds, or hides the choices, is not read."""
    done = probe(entry, "--help")
    assert done.returncode == 0
    for group in ("task", "data", "llm", "encoder", "selector", "method", "experiment"):
        assert f"\n{group}: " in done.stdout
    for option in (
        "lamp_4",
        "records",
        "flan_t5_xxl",
        "contriever",
        "ropg_kd",
        "ropg_rl",
        "rspg_pre",
        "rspg_post",
    ):
        assert option in done.stdout
    for key in ("candidates", "optim", "selector", "evaluation", "store", "run", "seed"):
        assert key in done.stdout
    assert "'data.path=" in done.stdout  # the quoted form
    assert done.stdout.splitlines()[-1].strip() == "imported:"


def test_a_refusal_imports_nothing_heavy():
    """A misspelt key must be answered at once, on standard error, without a traceback."""
    done = probe("train.py", "optim.lrr=1e-4")
    assert done.returncode == 2
    assert done.stdout.strip() == "imported:"
    assert "Did you mean optim.lr?" in done.stderr
    assert "Traceback" not in done.stderr


def refused(capsys, *arguments: str) -> tuple[int, str]:
    """Exit status and message of a command whose configuration is refused."""

    def must_not_run(config) -> None:
        raise AssertionError(f"{arguments} was accepted: {config}")

    before = sys.argv
    try:
        with pytest.raises(SystemExit) as left:
            cli.run(must_not_run, arguments)
    finally:
        sys.argv = before
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "Error executing job" not in captured.err
    return left.value.code, captured.err


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("optim.lrr=1", ["optim.lrr", "Did you mean optim.lr?"]),
        ("optm.lr=1", ["optm", "optim"]),
        ("optim.learning_rate=1", ["optim holds lr, epochs,"]),
        ("+optim.learning_rate=1", ["no key optim.learning_rate", "optim holds lr, epochs,"]),
        ("++optimm.lr=1", ["optimm", "optim"]),
        ("seeds=1", ["Did you mean seed"]),
        ("metod=ropg_kd", ["Did you mean method"]),
        ("method=ropg_kl", ["method=ropg_kl", "Did you mean", "ropg_kd", "Options: ropg_kd, ropg_rl"]),
        ("task=lamp4", ["Did you mean lamp_4", "pgraphrag_title"]),
        ("llm=flan_xxl", ["flan_t5_xxl"]),
        ("experiment=lamp4_llama", ["lamp_4_llama"]),
        ("retriever=[bm25,rff]", ["retriever=rff", "Did you mean rrf"]),
        ("method.options.target_temprature=1", ["+method.options.target_temprature="]),
        ("data.fields.input=question", ["'+data.fields.input=…'"]),
        ("optim.lr=fast", ["optim.lr", "'fast'", "Float"]),
        ("optim.epochs=1.5", ["optim.epochs", "'1.5'", "Integer"]),
        ("tracking.wandb=perhaps", ["tracking.wandb", "perhaps", "bool"]),
        ("evaluation.systems=bm25", ["evaluation.systems is a list", "'evaluation.systems=[…]'"]),
    ],
)  # fmt: skip
def test_misspelt_and_mistyped(capsys, override, parts):
    """A key that is silently ignored costs a sweep; the message names the nearest key, option or type."""
    status, message = refused(capsys, override)
    assert status == 2
    for part in parts:
        assert part in message
    known = {"optim.lr=fast", "optim.epochs=1.5", "tracking.wandb=perhaps"}
    assert ("Did you mean" not in message) or override not in known


# trouble C31: what a user types, and the form that the message must give
UNQUOTED = [
    ("models.ropg_kd=run/epoch=3-step=90.pt", """'models.ropg_kd="run/epoch=3-step=90.pt"'"""),
    ("task.name=a,b", """'task.name="a,b"'"""),
    ("evaluation.systems=none,bm25", "'evaluation.systems=[none,bm25]'"),
    ("llm.stop=[[1],[2]]", """'llm.stop=["[1]","[2]"]'"""),
    ("llm.stop=[1_2,x]", """'llm.stop=["1_2","x"]'"""),
    ("data.root=1_2", """'data.root="1_2"'"""),
    ("data.root=12e3", """'data.root="12e3"'"""),
    ("data.root=1.10", """'data.root="1.10"'"""),
    ("data.root=true", """'data.root="true"'"""),
    ("models.ropg_kd=1_2", """'models.ropg_kd="1_2"'"""),
    ("+data.fields.input=1_2", """'+data.fields.input="1_2"'"""),
    ("task.definition=${title}", r"\${"),
    ("data.root=rougé", """'data.root="rougé"'"""),
    ("data.root=a#b", """'data.root="a#b"'"""),
    ("data.root=f(x)", """'data.root="f(x)"'"""),
    ("ckpt=run/epoch=3-step=90.pt", """'ckpt="run/epoch=3-step=90.pt"'"""),
]


@pytest.mark.parametrize(("override", "form"), UNQUOTED)
def test_special_characters_are_refused_with_the_quoted_form(capsys, override, form):
    """Trouble C31: a value that changes its type on the way in picks the wrong file, user or label."""
    status, message = refused(capsys, override)
    assert status in (1, 2)
    assert form in message


@pytest.mark.parametrize(
    ("override", "arrives"),
    [
        ('models.ropg_kd="run/epoch=3-step=90.pt"', ("models", "ropg_kd", "run/epoch=3-step=90.pt")),
        ('task.name="a,b"', ("task", "name", "a,b")),
        ("evaluation.systems=[none,bm25]", ("evaluation", "systems", ["none", "bm25"])),
        ('llm.stop=["[1]","[2]"]', ("llm", "stop", ["[1]", "[2]"])),
        ('llm.stop=["1_2","x"]', ("llm", "stop", ["1_2", "x"])),
        ('data.root="1_2"', ("data", "root", "1_2")),
        ('data.root="12e3"', ("data", "root", "12e3")),
        ("data.root=nan", ("data", "root", "nan")),
        ("data.root=2024-05-01", ("data", "root", "2024-05-01")),
        ('+data.fields.input="1_2"', ("data", "fields", {"input": "1_2"})),
        (r"task.definition=\${title}", ("task", "definition", "${title}")),
        ("task.definition='{title}'", ("task", "definition", "{title}")),
        ('data.root="rougé"', ("data", "root", "rougé")),
        ('data.root="a#b (x)"', ("data", "root", "a#b (x)")),
        ("data.root=null", ("data", "root", None)),
        ("data.limit_train=12", ("data", "limit_train", 12)),
        ("candidates.l=all", ("candidates", "l", "all")),
        ("method.options.target_temperature=0.5", ("method", "options", {"target_temperature": 0.5, "loss": "forward_kl"})),
    ],
)  # fmt: skip
def test_quoted_values_arrive_unchanged(override, arrives):
    """Trouble C31: what the messages advise works, and nothing changes its type."""
    part, name, value = arrives
    found = getattr(compose(override), part)
    found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def test_the_sweep_is_left_to_multirun(capsys):
    """seed=0,1 without --multirun would be one odd seed."""
    _, message = refused(capsys, "seed=0,1")
    assert "--multirun" in message


def test_errors_of_a_run_are_one_message(tmp_path, capsys):
    """A missing file is the user's to mend: its name and the remedy, status 1, no traceback and no echo."""

    def command(config) -> None:
        train(config)

    before = sys.argv
    arguments = ["task=lamp_4", "data=lamp", f"data.root={tmp_path}", f"run.root={tmp_path / 'runs'}"]
    try:
        with pytest.raises(SystemExit) as left:
            cli.run(command, arguments)
    finally:
        sys.argv = before
    message = capsys.readouterr().err
    assert left.value.code == 1
    assert message.startswith("error: LaMP-4 train: no questions file. Tried:")
    assert f"{tmp_path / 'LaMP_4' / 'train_questions.json'}" in message
    assert "Remedy" in message
    assert "ROPG_DEBUG=1" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data=lamp", "task=lamp_4"], r"data=lamp needs data\.root=DIR"),
        (["data=records"], r"data=records needs data\.path=FILE"),
        (["data=pgraphrag", "task=pgraphrag_title"], r"data=pgraphrag needs data\.path=FILE"),
        (["data=pgraphrag", "data.path=x.json", "task=lamp_4"], "add task=pgraphrag_title"),
        (["task=custom", "data=records", "data.path=x.jsonl"], r"task\.definition=FILE"),
        (["task=custom", "task.definition=no.yaml", "data=records", "data.path=x"], r"no\.yaml"),
        (["data=records", "data.path=no.jsonl"], r"no\.jsonl"),
        (["data.source=recrods"], "did you mean records"),
        (["candidates.l=1"], "candidates.l=1: it is a number from 2, or all"),
        (["candidates.l=some"], "candidates.l=some"),
        (["stage=trian"], "rank, feedback, train, all"),
        (["feedback.eval=metrics"], "metric or likelihood"),
        (["method.name=ropg_kk"], "did you mean ropg_kd"),
        (["+method.options.temprature=2"], "temprature.*did you mean temperature"),
        (["method=ropg_rl", "method.options.estimator=exakt"], "sample or exact"),
        (["method=ropg_rl", "method.options.samples=0"], "samples must be a whole number"),
        (["method.options.loss=reverse"], "did you mean reverse_kl"),
        (["optim.epochs=0"], "epochs=0"),
        (["optim.mixed_precision=fp16"], "mixed_precision"),
        (["task.metric=rogue1"], "did you mean rouge1"),
        (["task.template=papper"], "paper, pattern"),
        (["llm.kind=casual"], "did you mean causal"),
        (["llm.model=/no/such/llm"], "/no/such/llm"),
        (["encoder.model=/no/such/encoder"], "/no/such/encoder"),
        (["encoder.train=loro"], r"encoder\.train=loro: it is full .* lora .* or query"),
        (["data.limit_train=0"], "at least one user"),
        (["+data.on_problem.leek=skip"], "did you mean 'leak'"),
    ],
)
def test_bad_input_is_refused_before_the_llm_works(tmp_path, overrides, monkeypatch, arguments, message):
    """Hours of feedback before a misspelt objective is noticed are hours lost."""
    from ropg.llms.local import LocalLLM

    monkeypatch.setattr(LocalLLM, "generate_batch", lambda *_: pytest.fail("the LLM was asked"))
    with pytest.raises((Refused, ValueError, OSError), match=message):
        train(compose(*overrides(*arguments)))
    assert not list((tmp_path / "runs").rglob("config.yaml"))  # nothing binds the corrected command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluation.systems=[none,bm52]"], "unknown retriever 'bm52'; did you mean bm25"),
        (["models.ropg_kd=nowhere"], "models.ropg_kd=nowhere: there is no trained model in that folder"),
        (["evaluation.split=train"], "heldout, test or dev"),
        (["evaluation.systems=[none,none]"], "must be distinct"),
        (["retrieval.k=0"], "k=0"),
        (["retrievers.bm25.variant=plus"], "okapi|lucene"),
        (["+retrievers.bm25.b=0.5"], r"retrievers\.bm25: .*'b'"),
    ],
)
def test_bad_evaluations_are_refused_before_the_llm_works(
    tmp_path, overrides, monkeypatch, arguments, message
):
    """A comparison of systems that are not there must not run for an hour first."""
    from ropg.llms.local import LocalLLM

    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 2, "dev": 2, "test": 2})
    monkeypatch.setattr(LocalLLM, "generate_batch", lambda *_: pytest.fail("the LLM was asked"))
    with pytest.raises((Refused, ValueError), match=message):
        evaluate(compose(*overrides("task=lamp_4", "data=lamp", f"data.root={root}", *arguments)))


def test_the_two_commands_from_another_folder(tmp_path, overrides):
    """What a user types, as typed: a sweep over methods, then the table; nothing is left outside runs/ and stores/."""
    root = files.write_lamp(tmp_path / "lamp", 4, {"train": 4, "dev": 2, "test": 3})
    here = tmp_path / "here"
    here.mkdir()
    arguments = overrides("experiment=lamp_4", f"data.root={root}", "data.setting=null", llm="t5")
    arguments = [a for a in arguments if not a.startswith(("run.root", "store.dir"))]

    def run(entry: str, *more: str) -> str:
        command = [sys.executable, str(ROOT / entry), *arguments, *more]
        done = subprocess.run(command, capture_output=True, text=True, cwd=here, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    printed = run("train.py", "--multirun", "method=ropg_kd,ropg_rl", "seed=0,1")
    runs = [line.split()[-1] for line in printed.splitlines() if line.startswith("[done]")]
    assert len(set(runs)) == 4
    calls = [json.loads((here / run / "summary.json").read_text())["llm_calls"] for run in runs]
    assert calls[0] > 0
    assert calls[1:] == [0, 0, 0]  # one feedback table for all
    table = run("evaluate.py")
    for system in (
        "No personalization",
        "Random",
        "Recency",
        "BM25",
        "Initial encoder",
        "RRF",
        "ROPG-RL",
        "ROPG-KD",
    ):
        assert system in table
    assert {path.name for path in here.iterdir()} == {"runs", "stores"}


@pytest.mark.parametrize("flags", [["--cfg", "job"], ["--multirun"]])
@pytest.mark.parametrize("last", [False, True])
def test_options_of_hydra_stand_anywhere(flags, last):
    """Own data gets experiment=paper by itself, which must not stand between an option and the overrides."""
    overrides = ["data=records", "data.path=x.jsonl", "seed=0"]
    arguments = [*overrides, *flags] if last else [*flags, *overrides]
    shown = with_default_experiment(arguments)
    assert shown.index("experiment=paper") + 1 == shown.index("data=records")
    assert [a for a in shown if a != "experiment=paper"] == arguments
