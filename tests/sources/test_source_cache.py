import json
import os
import signal
import subprocess
import sys
import time

import pytest

from ropg.sources import arrow_store, json_files, lamp, load_examples


def _load(root, **options):
    return load_examples("lamp", task="LaMP-7", root=root, split="test", **options)


@pytest.fixture
def root(tmp_path):
    questions = [
        {
            "id": n,
            "input": f"question {n}",
            "profile": [{"id": f"{n}-{m}", "text": f"text {n} {m}"} for m in range(n % 5)],
        }
        for n in range(600)
    ]
    (tmp_path / "test_questions.json").write_text(json.dumps(questions), encoding="utf-8")
    return tmp_path


def test_second_opening_parses_nothing(root, cache, monkeypatch):
    """Gigabytes of JSON must be read once, not at every start of a sweep."""
    first = [(e, list(e.profile)) for e in _load(root)]
    monkeypatch.setattr(lamp, "read_records", lambda *a, **k: pytest.fail("parsed again"))
    monkeypatch.setattr(arrow_store, "inspect", lambda *a: pytest.fail("checked again"))
    again = _load(root, on_problem={"empty_profile": "skip"})
    assert len(again) == 480
    assert [(e, list(e.profile)) for e in _load(root)] == first
    assert len(list(cache.glob("*.arrow"))) == 1


def test_the_file_is_memory_mapped(root, cache):
    _load(root)
    (file,) = cache.glob("*.arrow")
    before = arrow_store.pa.total_allocated_bytes()
    rows = arrow_store.ArrowRows(file)
    assert len(rows) == 600
    assert arrow_store.pa.total_allocated_bytes() - before < file.stat().st_size / 10
    assert rows.size(599) == 4  # the third batch


def test_a_changed_file_is_read_again_and_replaces_the_old_one(root, cache):
    _load(root)
    (root / "test_questions.json").write_text(
        '[{"id": "new", "input": "q", "profile": []}]', encoding="utf-8"
    )
    assert [e.id for e in _load(root)] == ["new"]
    assert len(list(cache.glob("*.arrow"))) == 1


def test_cache_dir_option_wins(root, cache, tmp_path):
    _load(root, cache_dir=str(tmp_path / "other"))
    assert list((tmp_path / "other").glob("*.arrow"))
    assert not cache.exists()


def test_an_error_while_converting_leaves_nothing(root, cache):
    (root / "test_questions.json").write_text(
        '[{"id": "1", "input": "q", "profile": []}, {"id', encoding="utf-8"
    )
    with pytest.raises(json_files.MalformedFile):
        _load(root)
    assert list(cache.iterdir()) == []


def test_a_damaged_cache_file_is_made_again(root, cache):
    _load(root)
    (file,) = cache.glob("*.arrow")
    file.write_bytes(file.read_bytes()[:1000])
    assert len(_load(root)) == 600


_CONVERT_SLOWLY = """
import sys, time
from ropg.sources import arrow_store, load_examples
batches = arrow_store._batches
def slowly(*arguments):
    for batch in batches(*arguments):
        yield batch
        print("written", flush=True)
        time.sleep(60)
arrow_store._batches = slowly
load_examples("lamp", task="LaMP-7", root=sys.argv[1], split="test")
"""


def test_a_kill_while_converting_leaves_nothing_broken(root, cache):
    """After SIGKILL the next run converts anew and old leftovers go away."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CONVERT_SLOWLY, str(root)], stdout=subprocess.PIPE, env={**os.environ}
    )
    try:
        assert process.stdout.readline() == b"written\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    (left,) = cache.iterdir()
    assert left.suffix == ".tmp"
    yesterday = time.time() - 2 * 24 * 3600
    os.utime(left, (yesterday, yesterday))
    assert len(_load(root)) == 600
    assert [path.suffix for path in cache.iterdir()] == [".arrow"]


def test_an_unusable_cache_folder_names_the_remedy(root, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="ROPG_CACHE"):
        _load(root, cache_dir=str(tmp_path / "file"))


def test_batches_bound_memory(root, monkeypatch):
    """Converting holds some hundred examples, however many the file has, and fewer where profiles are long."""
    records = lamp._records(lamp.lamp_task("LaMP-7"), root / "test_questions.json", None, {})
    sizes = [batch.num_rows for batch in arrow_store._batches(records, lamp.lamp_task("LaMP-7").rules)]
    assert sizes == [256, 256, 88]
    monkeypatch.setattr(arrow_store, "BATCH_DOCUMENTS", 200)
    records = lamp._records(lamp.lamp_task("LaMP-7"), root / "test_questions.json", None, {})
    assert [batch.num_rows for batch in arrow_store._batches(records, lamp.lamp_task("LaMP-7").rules)] == [
        100
    ] * 6
