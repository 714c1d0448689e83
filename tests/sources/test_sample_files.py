"""The shipped synthetic sample."""

import json
from importlib import resources

from ropg.sources import load_examples, sample_generator


def test_shipped_files_are_what_the_seeded_script_writes(tmp_path):
    """Else nobody could check where the sample's sentences come from."""
    sample_generator.write(tmp_path)
    shipped = resources.files("ropg.sources").joinpath("sample_files")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 6
    for name in names:
        assert shipped.joinpath(name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_splits_share_no_user_and_no_finding_is_hidden():
    """Users of the test split must be unseen, and a leak would make the sample teach the answer."""
    sets = {name: load_examples("sample", split=name) for name in ("train", "dev", "test")}
    users = [example.user for examples in sets.values() for example in examples]
    assert len(users) == len(set(users)) >= 200 + 150
    for examples in sets.values():
        assert not examples.report.counts
        assert all(len(e.profile) >= 8 and all(d.date for d in e.profile) for e in examples)


def test_files_are_in_lamp_format():
    """The sample is read by the same code as LaMP-4."""
    shipped = resources.files("ropg.sources").joinpath("sample_files")
    golds = json.loads(shipped.joinpath("dev_outputs.json").read_text())
    assert golds["task"] == "LaMP_4"
    assert set(golds["golds"][0]) == {"id", "output"}
