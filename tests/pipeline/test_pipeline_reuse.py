"""What was generated once is never generated again, finished runs stay as they are, and folders are not shared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pipeline_files as files
import pytest

from ropg import build
from ropg.cli import Refused, compose
from ropg.comparison import evaluate
from ropg.pipeline import train
from ropg.runs import RunError
from ropg.tasks import get_task

ROOT = Path(__file__).parents[2]
SIZES = {"train": 6, "dev": 3, "test": 4}


@pytest.fixture
def llms(monkeypatch):
    """Every LLM that the pipeline builds, in order."""
    built = []
    plain = build.build_llm

    def keep(config, task):
        built.append(plain(config, task))
        return built[-1]

    monkeypatch.setattr(build, "build_llm", keep)
    return built


@pytest.fixture
def data(tmp_path):
    return f"data.root={files.write_lamp(tmp_path / 'lamp', 4, SIZES)}"


@pytest.fixture
def settings(overrides, data):
    def build_settings(*more: str, **options) -> list[str]:
        return overrides("experiment=lamp_4_llama", "data.setting=null", data, *more, **options)

    return build_settings


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_nothing_is_generated_twice(tmp_path, settings, llms, capsys):
    """LLM calls are the cost of this method; a repetition, another method, seed or metric must cost none."""
    first = train(compose(*settings()))
    calls = summary(first)["llm_calls"]
    assert calls > 0
    assert llms[-1].loaded
    tables = state(tmp_path / "stores" / "tables")
    assert len(tables) == 6  # candidates and feedback of three splits

    other_folder = train(compose(*settings(f"run.dir={tmp_path / 'again'}")))
    other_method = train(compose(*settings("method=ropg_rl")))
    other_seed = train(compose(*settings("seed=1")))
    for folder in (other_folder, other_method, other_seed):
        assert summary(folder)["llm_calls"] == 0
    assert not any(llm.loaded for llm in llms[1:])
    assert state(tmp_path / "stores" / "tables") == tables  # read, not made again
    same, again = (folder / "model" / "model.safetensors" for folder in (first, other_folder))
    assert same.read_bytes() == again.read_bytes()

    other_metric = train(compose(*settings("task.metric=token_f1")))
    assert summary(other_metric)["llm_calls"] == 0
    assert not llms[-1].loaded
    assert len(state(tmp_path / "stores" / "tables")) == 9  # the candidates are the same, Eval is another
    assert len({first, other_folder, other_method, other_seed, other_metric}) == 5

    capsys.readouterr()
    likelihood = train(compose(*settings("feedback.eval=likelihood")))
    assert llms[-1].loaded
    assert summary(likelihood)["llm_calls"] > 0
    assert 0 < summary(likelihood)["heldout"]["oracle"]["first_reward"] < 1


def test_evaluation_uses_what_feedback_generated_and_its_own(settings, llms, capsys):
    """evaluate.py after a change of a table costs no LLM call, and one document per prompt was feedback's."""
    for method in ("ropg_kd", "ropg_rl"):
        train(compose(*settings(f"method={method}")))
    evaluate(compose(*settings("retrieval.k=1", "evaluation.systems=[initial]")))
    assert "initial: 0 LLM calls" in capsys.readouterr().out  # its first document is a candidate of rank 1
    assert not llms[-1].loaded

    where = evaluate(compose(*settings()))
    assert llms[-1].loaded
    before = {path.name: path.read_bytes() for path in (where / "predictions").iterdir()}
    assert set(before) == {
        f"{name}.json"
        for name in ["none", "random", "recency", "bm25", "initial", "rrf", "ropg_rl", "ropg_kd"]
    }
    results = (where / "results.json").read_bytes()
    assert evaluate(compose(*settings("seed=0"))) == where
    assert not llms[-1].loaded
    assert {path.name: path.read_bytes() for path in (where / "predictions").iterdir()} == before
    assert (where / "results.json").read_bytes() == results


def test_the_newest_run_is_compared_unless_one_is_named(settings, tmp_path, capsys):
    """A table over the wrong run is a wrong table: what was compared is printed, and models.<system> decides."""
    old, new = (train(compose(*settings(f"seed={seed}"))) for seed in (0, 1))
    systems = "evaluation.systems=[initial,ropg_kd,ropg_rl]"
    capsys.readouterr()
    evaluate(compose(*settings(systems)))
    printed = capsys.readouterr().out
    assert f"ropg_kd: {new}" in printed
    assert "ropg_rl: left out" in printed
    assert "method=ropg_rl" in printed  # how to make one
    where = evaluate(compose(*settings(systems, f"models.ropg_kd={old}", f"run.dir={tmp_path / 'named'}")))
    assert str(old) in (where / "report.html").read_text()
    assert str(new) not in (where / "report.html").read_text().split("Trained retrievers, every seed")[0]
    other = compose(*settings(systems, "llm.max_new_tokens=3"))  # another LLM setting: other runs
    evaluate(other)
    assert "ropg_kd: left out" in capsys.readouterr().out


def test_a_finished_run_is_left_alone(settings, llms, capsys):
    """The same command again must neither train again nor touch a byte of what was reported."""
    folder = train(compose(*settings()))
    before = state(folder)
    before.pop(".lock")
    built = len(llms)
    assert train(compose(*settings())) == folder
    after = state(folder)
    after.pop(".lock")
    assert after == before
    assert len(llms) == built
    assert "is finished already" in capsys.readouterr().out


def test_an_interruption_before_the_summary_costs_no_training(settings, llms, monkeypatch):
    """What fails after training (a full disk at the summary) is made up for with the trained model."""
    import ropg.evaluation

    with monkeypatch.context() as patch:

        def fail(*_, **__):
            raise OSError("No space left on device")

        patch.setattr(ropg.evaluation, "heldout_summary", fail)
        with pytest.raises(OSError, match="No space"):
            train(compose(*settings()))
    folder = next(path for path in Path(compose(*settings()).run.root).iterdir())
    model, metrics = (
        (folder / "model" / "model.safetensors").read_bytes(),
        (folder / "metrics.jsonl").read_bytes(),
    )
    calls = json.loads((folder / "feedback.json").read_text())["llm_calls"]
    assert train(compose(*settings())) == folder
    assert not llms[-1].loaded
    assert summary(folder)["llm_calls"] == calls > 0  # of all tries
    assert (folder / "model" / "model.safetensors").read_bytes() == model
    assert (folder / "metrics.jsonl").read_bytes() == metrics


def test_stages_one_after_the_other(settings, llms, tmp_path):
    """A cluster runs the offline stages apart; together they are the run in one piece."""
    folder = train(compose(*settings("stage=rank")))
    assert not llms[-1].loaded
    assert sorted(p.name for p in (tmp_path / "stores" / "tables").rglob("candidates-*")) == [
        "candidates-dev.parquet",
        "candidates-heldout.parquet",
        "candidates-train.parquet",
    ]
    assert train(compose(*settings("stage=feedback"))) == folder
    assert not (folder / "model").exists()
    assert llms[-1].loaded
    assert train(compose(*settings())) == folder
    assert not llms[-1].loaded
    assert summary(folder)["llm_calls"] > 0
    whole = train(
        compose(*settings(f"run.dir={tmp_path / 'whole'}", f"store.dir={tmp_path / 'whole_store'}"))
    )
    assert summary(whole)["llm_calls"] == summary(folder)["llm_calls"]
    weights = [(path / "model" / "model.safetensors").read_bytes() for path in (folder, whole)]
    assert weights[0] == weights[1]


def test_another_configuration_in_the_same_folder_is_refused(settings, tmp_path):
    """Two settings in one folder would resume one from the other's checkpoints and report a mixture."""
    where = f"run.dir={tmp_path / 'mine'}"
    folder = train(compose(*settings(where)))
    before = state(folder)
    with pytest.raises(RunError, match=r"optim\.lr: 1e-05 before, 0\.01 now.* another run\.dir") as refused:
        train(compose(*settings(where, "optim.lr=0.01")))
    assert str(folder) in str(refused.value)
    with pytest.raises(RunError, match=r"optim\.lr: .*method\.|method\..*optim\.lr: "):
        train(compose(*settings(where, "optim.lr=0.01", "method=ropg_rl")))
    before.pop(".lock")
    after = state(folder)
    after.pop(".lock")
    assert after == before
    shown = [f"run.dir={tmp_path / 'shown'}", "evaluation.systems=[none]"]
    evaluate(compose(*settings(*shown)))
    with pytest.raises(RunError, match=r"other settings \(retrieval\.k: 4 before, 2 now\)"):
        evaluate(compose(*settings(*shown, "retrieval.k=2")))


def test_a_first_try_that_made_nothing_does_not_bind(settings, data, tmp_path):
    """A mistyped path must not make the corrected command fail because of the folder it left."""
    where = f"run.dir={tmp_path / 'mine'}"
    with pytest.raises(FileNotFoundError, match="Remedy: set root"):
        train(compose(*settings(where, f"data.root={tmp_path / 'nowhere'}")))
    assert (train(compose(*settings(where, data))) / "summary.json").exists()


HOLD = """
import sys, time
from ropg.cli import Refused, compose
from ropg.runs import open_run, run_folder
config = compose(*sys.argv[1:])
with open_run(config, run_folder(config)):
    print("held", flush=True)
    time.sleep(600)
"""


def test_two_processes_on_one_run(settings, llms):
    """Two writers of one checkpoint folder destroy both runs: the second is refused, and told why."""
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, *settings()], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another process is at work"):
            train(compose(*settings()))
        command = [sys.executable, "train.py", *settings()]
        second = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert second.returncode == 1
        assert "another process is at work on this run; wait for it, or name another run.dir" in second.stderr
        assert "Traceback" not in second.stderr
    finally:
        first.kill()
        first.communicate()
    assert (train(compose(*settings())) / "summary.json").exists()  # the lock went with its process


def test_a_trained_encoder_reads_as_much_as_in_training(settings, monkeypatch):
    """An evaluation with other encoder settings must not cut the texts that the trained one was made for."""
    folder = train(compose(*settings("encoder.max_length=40")))
    built = {}
    plain = build.build_encoder

    def keep(config, model=None):
        built[model] = plain(config, model)
        return built[model]

    monkeypatch.setattr(build, "build_encoder", keep)
    evaluate(compose(*settings("encoder.max_length=12", "evaluation.systems=[initial,ropg_kd]")))
    assert {model: encoder.max_length for model, encoder in built.items()} == {None: 12, folder / "model": 40}


def test_whole_profiles_as_candidates(settings, tmp_path):
    """candidates.l=all trains on every document, with the exact gradient and either baseline."""
    from ropg.feedback.candidates import CandidateTable

    exact = ["method=ropg_rl", "method.options.estimator=exact", "method.options.baseline=expected"]
    folder = train(compose(*settings("candidates.l=all", *exact)))
    assert (folder / "summary.json").exists()
    tables = (tmp_path / "stores" / "tables").rglob("candidates-*.parquet")
    sizes = {path.stem: len(CandidateTable.read(path)) for path in tables}
    documents = {
        f"candidates-{name}": sum(
            len(question["profile"])
            for question in json.loads(files.lamp_files(tmp_path / "lamp", 4, split)[0].read_text())
        )
        for name, split in (("train", "train"), ("dev", "dev"), ("heldout", "test"))
    }
    assert sizes == documents


def test_a_finished_run_knows_its_data(tmp_path, settings, llms):
    """Golds corrected in place must not be answered with the figures of the old ones."""
    train(compose(*settings()))
    root = next(tmp_path.rglob("train_outputs.json"))
    root.write_text(root.read_text().replace('"output": "', '"output": "corrected ', 1))
    with pytest.raises(Refused, match="the data or the task has changed"):
        train(compose(*settings()))


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\x00"])
def test_a_damaged_summary_is_named(settings, llms, text, capsys):
    """Half a file after a full disk: both commands must say which one it is."""
    folder = train(compose(*settings()))
    (folder / "summary.json").write_text(text)
    with pytest.raises(RunError, match=r"summary\.json is damaged"):
        train(compose(*settings()))
    with pytest.raises(Refused, match="no system is left"):
        evaluate(compose(*settings("evaluation.systems=[ropg_kd]")))
    assert "summary.json is damaged" in capsys.readouterr().out


def test_a_model_of_another_setting_is_said(settings, llms, capsys):
    """A table over models of another LLM or wording must not look like an ordinary one."""
    folder = train(compose(*settings()))
    evaluate(
        compose(*settings(f"models.ropg_kd={folder}", "llm.max_new_tokens=5", "evaluation.systems=[ropg_kd]"))
    )
    assert "was trained with another llm.max_new_tokens" in capsys.readouterr().out


def test_an_evaluation_needs_the_held_out_split_alone(tmp_path, settings, llms, capsys):
    """Hours of answers must not end in an error about files that only Table 1 looks at."""
    train(compose(*settings()))
    for path in tmp_path.rglob("train_*.json"):
        path.unlink()
    folder = evaluate(compose(*settings()))
    printed = capsys.readouterr().out
    assert "train is left out of Table 1" in printed
    assert "[data] test: lamp LaMP-4 test: 4 examples" in printed  # what the validator found is said here too
    assert "#test" in (folder / "tables.md").read_text()


def test_other_labels_are_another_task():
    """Rewards of the old labels would train on answers that the new ones call wrong."""
    template = {"paper": {"entry": "{text}"}}
    tasks = [
        get_task("mine", definition={"templates": template, "labels": labels})
        for labels in (["a", "b"], ["a"])
    ]
    assert tasks[0].eval_identity != tasks[1].eval_identity


def test_dropout_is_off_unless_asked_for(tmp_path, settings, llms):
    """The equalities that others rely on assume training without it; who wants it must get it."""
    weights = [
        (
            train(compose(*settings(f"run.dir={tmp_path / name}", *more))) / "model" / "model.safetensors"
        ).read_bytes()
        for name, more in (
            ("off", []),
            ("on", ["encoder.dropout=true"]),
            ("on-again", ["encoder.dropout=true"]),
        )
    ]
    assert weights[0] != weights[1] == weights[2]


def test_a_method_of_ones_own_is_compared_like_the_papers(tmp_path, settings, llms, monkeypatch):
    """A new objective is one file; evaluation must not need to be told of it."""
    (tmp_path / "mine.py").write_text("from ropg.training.objectives.ropg_kd import RopgKd as Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    train(compose(*settings("method.name=mine:Mine")))
    folder = evaluate(compose(*settings("evaluation.systems=[none,'mine:Mine']")))
    rows = json.loads((folder / "results.json").read_text())
    assert {row["system"] for row in rows} == {"none", "mine:Mine"}
