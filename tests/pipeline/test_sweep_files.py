"""`python -m ropg.sweep` on files that a disk, a hand or an editor has spoilt: a message that names the file."""

from __future__ import annotations

import json

import pytest
from omegaconf import OmegaConf

from ropg.cli import compose
from ropg.sweep import main

RUN = {"method": "ropg_kd", "seed": 0, "n_heldout": 2, "p_values": {}, "seconds": 1.0, "llm_calls": 3}
EVALUATION = {"event": "evaluation", "step": 1, "expected_reward": 0.5, "first_reward": 0.25}


def write_run(folder, summary=None, evaluation=None):
    """A finished run: its configuration, its summary and one evaluation."""
    folder.mkdir(parents=True)
    OmegaConf.save(OmegaConf.structured(compose("method=ropg_kd")), folder / "config.yaml")
    heldout = {"trained": {"first_reward": 0.5, "expected_reward": 0.25}}
    (folder / "summary.json").write_text(json.dumps({**RUN, "heldout": heldout, **(summary or {})}))
    (folder / "metrics.jsonl").write_text(json.dumps({**EVALUATION, **(evaluation or {})}) + "\n")
    return folder


def test_a_finished_run_is_a_row_and_one_in_progress_is_none(tmp_path, capsys):
    """A table in the middle of a sweep shows what there is."""
    write_run(tmp_path / "done")
    (write_run(tmp_path / "busy") / "summary.json").unlink()
    assert main([str(tmp_path)]) == 0
    (row,) = json.loads((tmp_path / "sweep.json").read_text())["runs"]
    assert row["values"]["dev_expected"] == 0.5
    assert row["values"]["heldout_first"] == 0.5


@pytest.mark.parametrize(
    "job",
    [
        "{",
        "[]",
        '{"overrides": ["a=1"], "run": null}',
        '{"overrides": 1, "run": null, "status": "", "message": ""}',
    ],
)
def test_a_damaged_job_is_named(tmp_path, capsys, job):
    """ "Expecting value: line 1" does not say which of a hundred files to delete."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "0f.json").write_text(job)
    assert main([str(tmp_path)]) == 1
    assert f"error: {tmp_path / 'jobs' / '0f.json'} is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("summary", "evaluation", "message"),
    [
        ({"heldout": {}}, {}, "summary.json is damaged"),
        ({"heldout": {"trained": 3}}, {}, "summary.json is damaged"),
        ({"heldout": None}, {}, "summary.json is damaged"),
        ({"heldout": {"trained": {"first_reward": float("nan")}}}, {}, "Held-out first is nan"),
        ({"seconds": "long"}, {}, "Seconds is 'long'"),
        ({}, {"expected_reward": float("nan")}, "Dev expected is nan"),
    ],
)
def test_a_damaged_run_is_named(tmp_path, capsys, summary, evaluation, message):
    """A traceback names no file; and a table that holds NaN cannot be sorted."""
    run = write_run(tmp_path / "run", summary, evaluation)
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr().err
    assert str(run) in printed
    assert message in printed
    assert not (tmp_path / "sweep.json").exists()


@pytest.mark.parametrize("line", ["[]", "3", '{"event": "evaluation"}', "{"])
def test_a_damaged_line_of_metrics_is_named(tmp_path, capsys, line):
    """Its number is what a person needs to mend a file of thousands of lines."""
    run = write_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text(f"{line}\n{json.dumps(EVALUATION)}\n")
    assert main([str(tmp_path)]) == 1
    assert f"{run / 'metrics.jsonl'}, line 1 " in capsys.readouterr().err
