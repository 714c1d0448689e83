"""A study's file: what it names becomes command lines, and what is wrong in it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from finished_runs import STUDY, study_file

from ropg.cli import compose
from ropg.pipeline import check
from ropg.runs import decides, decisive, short_hash
from ropg.study.plan import load_study, overrides_of


@pytest.mark.parametrize("name", ["full", "quick"])
def test_every_run_of_a_shipped_study_is_a_configuration_of_its_own(name):
    """A mistyped option would show after hours of other runs; equal variants would be corrected for twice.

    Variants are the same on every data set, so all of them are looked at on one, and one of them on the others.
    """
    study = load_study(name)
    first, *others = study.datasets
    jobs = [*study.screening(first), *study.curve_jobs(first), *(study.screening(d)[0] for d in others)]
    seen = []
    for job in jobs:
        config = compose(*overrides_of(job, study, Path("/data"), Path("runs"), Path("stores")))
        check(config)
        assert config.run.dir == f"runs/{job.name}"
        seen.append(short_hash(decisive(config, decides(config))))
    assert len(set(seen)) == len(seen)


def test_a_folder_with_odd_characters_reaches_the_configuration_as_it_is(tmp_path):
    """Spaces, commas and equals signs mean something in overrides."""
    study = load_study("full")
    odd = tmp_path / "a, b=c (d)"
    job = study.screening(study.datasets[0])[0]
    config = compose(*overrides_of(job, study, odd, odd, odd))
    assert config.data.root == str(odd)
    assert config.store.dir == str(odd / study.datasets[0].name)
    assert config.run.dir == str(odd / job.name)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("finalists: 1", "finalist: 1", "did you mean 'finalists'"),
        ("finalists: 1", "finalists: none", "whole number from 1"),
        ("seeds: [0, 1]", "seeds: [0, 0]", "distinct"),
        ("seeds: [0, 1]", "seeds: []", "distinct"),
        ("overrides: [optim.epochs=1]", "overrides: [1]", "texts such as"),
        ("group: Distillation", "grup: Distillation", "did you mean 'group'"),
        ("variant: good", "variant: better", "none of the variants"),
        ("limits: [50]", "limits: [0]", "whole numbers from 1"),
        ("label: RL,", "label: RL, datasets: [smal],", "did you mean 'small'"),
        ("title: A study", "title: {a", "no YAML"),
    ],
)
def test_mistakes_in_a_study_are_named(tmp_path, old, new, message):
    """The message has the file, the key and the nearest name."""
    assert old in STUDY
    with pytest.raises(ValueError, match=message) as error:
        load_study(study_file(tmp_path, STUDY.replace(old, new)))
    assert "mine.yaml" in str(error.value)


def test_a_study_that_is_not_there():
    """The shipped ones are offered."""
    with pytest.raises(FileNotFoundError, match="full, quick"):
        load_study("ful")
