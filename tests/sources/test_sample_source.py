import subprocess
import sys

import pytest

from ropg.sources import ValidationError, load_examples, sample, sample_generator


@pytest.fixture
def generated(monkeypatch, tmp_path):
    """As in a package without the files, and with few users."""
    monkeypatch.setattr(sample, "SHIPPED", tmp_path / "none")
    monkeypatch.setattr(sample_generator, "USERS", {"train": 6, "dev": 3, "test": 3})


def test_generated_when_not_shipped(generated, cache):
    train = load_examples("sample", split="train")
    assert len(train) == 6
    assert "synthetic" in train.name
    example = train[0]
    assert example.user == f"user-{example.id}"
    assert example.meta["date"]
    assert all(d.date and d.title and d.text for d in example.profile)
    assert not [path for path in cache.iterdir() if path.name.startswith(".sample")]
    assert [e.id for e in load_examples("sample", split="train", limit=2)] == [e.id for e in train][:2]


def test_sample_has_no_findings(generated):
    """Claims about the sample rest on profiles that do not hold the answer."""
    for split in ("train", "dev", "test"):
        try:
            report = load_examples("sample", split=split, on_problem={"leak": "error"}).report
        except ValidationError as error:  # pragma: no cover
            pytest.fail(str(error))
        assert not report.counts


def test_split_is_needed():
    with pytest.raises(ValueError, match="known: train, dev, test"):
        load_examples("sample")


def test_importing_sources_is_light():
    """A refused configuration must answer at once, not after loading torch."""
    code = "import sys, ropg.sources; print([m for m in ('torch', 'transformers', 'pyarrow', 'pandas') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_unknown_sources_and_options():
    with pytest.raises(ValueError, match="did you mean lamp"):
        load_examples("lampp")
    with pytest.raises(ValueError, match="did you mean 'split'"):
        load_examples("sample", splt="dev")
    with pytest.raises(ValueError, match="missing a required argument: 'root'"):
        load_examples("lamp", task="LaMP-4")
