"""Files in LaMP's format, written by the tests; the cache of converted files lies in a temporary folder."""

import json

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("ROPG_CACHE", str(folder))
    return folder


@pytest.fixture
def write_lamp(tmp_path):
    """Write questions and golds below ``folder`` (as JSON); golds None writes no outputs file."""

    def write(questions, golds, *, folder="data", split="dev", task="LaMP_4"):
        root = tmp_path / folder
        root.mkdir(parents=True, exist_ok=True)
        (root / f"{split}_questions.json").write_text(json.dumps(questions), encoding="utf-8")
        if golds is not None:
            outputs = {"task": task, "golds": [{"id": key, "output": value} for key, value in golds]}
            (root / f"{split}_outputs.json").write_text(json.dumps(outputs), encoding="utf-8")
        return root

    return write
