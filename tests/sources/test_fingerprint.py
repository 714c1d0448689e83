"""The fingerprint of a set of examples decides whether tables made from it are used again."""

import json
import shutil

import pytest

from ropg.sources import load_examples


def write(folder, text="a quiet street"):
    folder.mkdir(parents=True, exist_ok=True)
    profile = [{"id": "1", "title": "Street", "text": text}, {"id": "2", "title": "Noise", "text": "loud"}]
    questions = [{"id": str(i), "input": f"x {i}", "profile": profile} for i in range(4)]
    golds = [{"id": str(i), "output": f"y {i}"} for i in range(4)]
    (folder / "dev_questions.json").write_text(json.dumps(questions))
    (folder / "dev_outputs.json").write_text(json.dumps({"task": "LaMP_4", "golds": golds}))
    return folder


def load(folder, cache, **options):
    return load_examples(
        "lamp", task="LaMP-4", root=str(folder), split="dev", cache_dir=str(cache), **options
    )


def test_same_content_elsewhere_has_the_same_fingerprint(tmp_path):
    """A moved data folder would cost all ranking again if its place counted."""
    first = load(write(tmp_path / "a"), tmp_path / "c1").fingerprint
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert load(tmp_path / "b", tmp_path / "c2").fingerprint == first


@pytest.mark.parametrize("change", ["text", "limit"])
def test_other_content_has_another_fingerprint(tmp_path, change):
    """Rewards of old texts must never be used for new ones."""
    first = load(write(tmp_path / "a"), tmp_path / "c").fingerprint
    if change == "text":
        other = load(write(tmp_path / "b", "a noisy street"), tmp_path / "c").fingerprint
    else:
        other = load(tmp_path / "a", tmp_path / "c", limit=2).fingerprint
    assert other != first
