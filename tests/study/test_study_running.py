"""A study runs what is not finished, goes on after failures, and writes a page from what there is."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
from finished_runs import STUDY, rewards, study_file, write_config, write_run

from ropg.cli import compose
from ropg.runs import RunError
from ropg.study import study as conducting
from ropg.study.page import write_page
from ropg.study.plan import load_study
from ropg.study.running import Workshop


class Recorder:
    """Stands for train.py and evaluate.py: notes the commands, and makes finished runs unless told to fail."""

    def __init__(self, fail: str = "nothing") -> None:
        self.commands: list[list[str]] = []
        self.fail = fail
        self.lock = threading.Lock()

    def __call__(self, command, log: Path) -> int:
        script, overrides = Path(command[0]).name, list(command[1:])
        with self.lock:
            self.commands.append([script, *overrides])
            config = compose(*overrides)
        run = Path(config.run.dir)
        if self.fail in run.name:
            return 1
        run.mkdir(parents=True, exist_ok=True)
        if script == "evaluate.py":
            records = [
                {"system": name, "metric": "rouge1", "value": 0.2, "ci_low": 0.1, "ci_high": 0.3}
                for name in config.evaluation.systems
            ]
            (run / "results.json").write_text(json.dumps(records))
        elif config.stage == "feedback":
            (run / "feedback.json").write_text('{"llm_calls": 1234}')
        else:
            gain = {"ropg_kd": 0.2, "ropg_rl": 0.02}[config.method.name]
            with self.lock:
                write_config(run, overrides)
            size = config.data.limit_train or 100
            write_run(run, rewards(gain, seed=config.seed), n_train=size, dev=0.2 + gain)
        return 0

    def names(self) -> list[str]:
        return [
            next(o for o in command if o.startswith("run.dir=")).rsplit("/", 1)[1].strip('"')
            for command in self.commands
        ]


@pytest.fixture
def conduct(tmp_path, monkeypatch):
    def run(recorder: Recorder, **options):
        monkeypatch.setattr("ropg.study.running.run_command", recorder)
        return conducting.conduct(
            study_file(tmp_path), runs=tmp_path / "runs", stores=tmp_path / "stores", **options
        )

    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study that was run from nothing: its folder, and the commands that it took."""
    folder, recorder = tmp_path_factory.mktemp("whole"), Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ropg.study.running.run_command", recorder)
        failed = conducting.conduct(study_file(folder), runs=folder / "runs", stores=folder / "stores")
    assert failed == {}
    return folder, recorder.commands


@pytest.fixture
def done(whole, tmp_path):
    """A copy of it for a test to change."""
    shutil.copytree(whole[0] / "runs", tmp_path / "runs")
    return tmp_path / "runs"


def test_from_nothing_to_the_page(whole):
    """Feedback first, then every variant, the curve, the finalist's other seed, the end metric; and their figures."""
    folder, (feedback, *rest) = whole
    assert "stage=feedback" in feedback
    assert sorted(Path(o[9:-1]).name for c in rest for o in c if o.startswith("run.dir=")) == [
        "end",
        "good-first50-seed0",
        "good-seed0",
        "good-seed1",
        "poor-seed0",
    ]
    page = (folder / "runs" / "study.md").read_text()
    assert "1,234" in page  # LLM calls of the shared feedback
    assert "KD \\| sharp" in page  # a label is text
    assert "+0.100" in page  # 0.2 on half of the queries
    assert "20%" in page
    assert "± 0.001" in page  # two seeds, 0.001 apart
    for picture in ("differences", "queries", "end", "training-small"):
        assert f"(study/{picture}.svg)" in page
        assert (folder / "runs" / "study" / f"{picture}.svg").read_text().startswith("<?xml")


def test_what_is_finished_is_not_run_again(done, conduct):
    """The second call trains nothing and writes the same page."""
    page = (done / "study.md").read_bytes()
    again = Recorder()
    assert conduct(again) == {}
    assert again.commands == []
    assert (done / "study.md").read_bytes() == page


def test_a_run_without_its_last_file_is_run_again(done, conduct):
    """A kill between the last two files leaves a run that its own command finishes."""
    (done / "small" / "poor-seed0" / "summary.json").unlink()
    again = Recorder()
    conduct(again)
    assert [c for c in again.commands if "method=ropg_rl" in c and "stage=feedback" not in c]
    assert not [c for c in again.commands if "method=ropg_kd" in c and "stage=feedback" not in c]


def test_a_run_that_fails_leaves_the_others_alone(tmp_path, conduct):
    """It is named with its log, and the page has the rest."""
    failed = conduct(Recorder(fail="poor-seed0"), jobs=2)
    assert list(failed) == ["small/poor-seed0"]
    page = (tmp_path / "runs" / "study.md").read_text()
    assert "- small/poor-seed0" in page
    assert "KD \\| sharp" in page


def test_an_interruption_starts_nothing_more(tmp_path, conduct):
    """Ctrl-C reaches the run in progress; those that wait must not begin."""
    begun = []

    def interrupted(command, log):
        if "stage=feedback" in command:
            return 0
        begun.append(command)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conduct(interrupted)
    assert len(begun) == 1


def test_without_feedback_nothing_is_trained(tmp_path, conduct):
    """Every run would fail for the same reason, one after the other."""
    recorder = Recorder(fail="feedback")
    assert list(conduct(recorder)) == ["small/feedback"]
    assert len(recorder.commands) == 1


def test_a_run_with_other_settings_is_refused(tmp_path, done):
    """Its figures would stand under a name that says something else."""
    changed = STUDY.replace("optim.epochs=1", "optim.epochs=2")
    with pytest.raises(RunError, match=r"other settings.*epochs"):
        conducting.conduct(study_file(tmp_path, changed), runs=done, stores=tmp_path / "stores")


def test_damaged_figures_are_named(done, conduct):
    """A half-written file is no zero."""
    (done / "small" / "good-seed0" / "heldout.json").write_text('{"example_ids": [')
    with pytest.raises(RunError, match=r"heldout\.json is damaged"):
        conduct(Recorder(), train=False)


def test_what_a_person_wrote_around_the_tables_stays(tmp_path):
    """Blocks are replaced between their marks, and only those that the page has."""
    page = tmp_path / "page.md"
    page.write_text("# Mine\n\nMy words.\n<!-- study: data -->\nold\n<!-- end -->\nMore words \\1.\n")
    write_page(page, "title", {"data": ("Data", "new \\g<0> | table"), "other": ("Other", "text")})
    assert page.read_text() == (
        "# Mine\n\nMy words.\n<!-- study: data -->\nnew \\g<0> | table\n<!-- end -->\nMore words \\1.\n"
    )


def test_a_page_without_marks_is_left_alone(tmp_path):
    """It is some other file."""
    page = tmp_path / "page.md"
    page.write_text("# Something else\n")
    with pytest.raises(ValueError, match="no block of a study"):
        write_page(page, "title", {"data": ("Data", "new")})
    assert page.read_text() == "# Something else\n"


def test_data_that_is_not_there_is_said_before_anything_runs(tmp_path):
    """A folder that was mistyped would cost nothing but the wait."""
    with pytest.raises(ValueError, match="need --data DIR"):
        conducting.conduct("full", runs=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"gap_dev\.json"):
        conducting.conduct("full", data=tmp_path, runs=tmp_path)
    with pytest.raises(ValueError, match="the study has"):
        conducting.conduct("full", only=["gab"], runs=tmp_path)


def test_runs_share_the_cores(monkeypatch):
    """Two runs with all cores each are slower than one after the other."""
    from ropg.study.running import share_threads

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    share_threads(4)
    import os

    assert os.environ["OMP_NUM_THREADS"] == "2"
    share_threads(1)  # what somebody has said stays
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_a_command_leaves_what_it_printed(tmp_path):
    """The log is where a failed run says why."""
    from ropg.study.running import run_command

    script = tmp_path / "fails.py"
    script.write_text("print('because'); raise SystemExit(3)")
    assert run_command([str(script)], tmp_path / "logs" / "x.log") == 3
    assert "because" in (tmp_path / "logs" / "x.log").read_text()


def test_the_workshop_runs_commands_by_default():
    """Tests put their own in its place, people do not."""
    from ropg.study.running import run_command

    assert Workshop(load_study("quick"), None, Path(), Path()).run is run_command
