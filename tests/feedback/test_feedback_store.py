"""The generation store: nothing written is lost, changed or mixed up, whoever writes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropg.feedback import GenerationRecord, GenerationStore, StoreError
from ropg.feedback.database import open_writer


def record(key: str, text: str = "text") -> GenerationRecord:
    return GenerationRecord(key, text, "stop", 3, 2, 1.5)


def test_a_batch_comes_back_as_it_went_in(tmp_path):
    """If this fails, rewards are computed from other texts than the LLM wrote."""
    made = [record("a", "x"), GenerationRecord("b", "", "length", 0, 7, 2.0)]
    with GenerationStore(tmp_path) as store:
        store.put_many(made, {"identity": {"m": 1}, "decoding": {}})
    with GenerationStore(tmp_path, writer="reader") as store:
        assert store.get_many(["b", "a", "c", "a"]) == {r.key: r for r in made}
        assert store.path is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["main.lock", "main.sqlite"], (
        "a reader leaves no trace"
    )


@given(st.lists(st.text(st.characters(), max_size=20), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_every_text_survives_exactly(texts):
    """NUL, lone surrogates, emoji and line ends: changed text would change the reward."""
    with tempfile.TemporaryDirectory() as folder, GenerationStore(folder) as store:
        store.put_many(record(str(i), text) for i, text in enumerate(texts))
        assert [store.get_many([str(i)])[str(i)].text for i in range(len(texts))] == texts


@pytest.mark.parametrize("text", ["a\0b", "\0", "\ud83d", "\ud83d\ude00", "\U0001f600", "a\r\nb\u2028", " "])
def test_awkward_texts_survive_exactly(tmp_path, text):
    """The cases that hypothesis may not draw."""
    with GenerationStore(tmp_path) as store:
        store.put_many([record("k", text)])
    with GenerationStore(tmp_path) as store:
        assert store.get_many(["k"])["k"].text == text


def test_a_store_is_shared_by_its_files(tmp_path):
    """Readers see files that appear and rows that are added after they opened; the first file name wins."""
    with (
        GenerationStore(tmp_path, "b") as b,
        GenerationStore(tmp_path, "a") as a,
        GenerationStore(tmp_path) as reader,
    ):
        assert reader.get_many(["k"]) == {}
        b.put_many([record("k", "from b")])
        assert reader.get_many(["k"])["k"].text == "from b"
        a.put_many([record("k", "from a"), record("l", "new")])
        assert reader.get_many(["k", "l"])["k"].text == "from a"
        b.put_many([record("m", "later")])
        assert set(reader.get_many("klmn")) == {"k", "l", "m"}
        a.close()
        (tmp_path / "a.sqlite").unlink()
        assert reader.get_many(["k"])["k"].text == "from b"


def test_one_writer_name_is_held_by_one_store(tmp_path):
    """Two runs that are started alike must not write into one file; the name is free again afterwards."""
    with GenerationStore(tmp_path) as first, GenerationStore(tmp_path) as second:
        first.put_many([record("a")])
        second.put_many([record("b")])
        third = GenerationStore(tmp_path)
        assert third.claim_writer().name == "main-2.sqlite"
        third.close()
        assert [first.path.name, second.path.name] == ["main.sqlite", "main-1.sqlite"]
        assert set(first.get_many("ab")) == {"a", "b"}
    with GenerationStore(tmp_path) as again:
        assert again.claim_writer().name == "main.sqlite"


WRITER = """
import sys
from ropg.feedback.store import GenerationRecord, GenerationStore
folder, name, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
with GenerationStore(folder) as store:
    store.claim_writer()
    print("ready", flush=True)
    sys.stdin.readline()
    for i in range(n):
        store.put_many([GenerationRecord(f"{name}-{i}-{j}", f"{name} {i} {j}", "stop", 1, 1) for j in range(4)])
        assert len(store.get_many([f"{name}-{i}-0", "other"])) == 1
    print(store.path.name)
"""


def test_two_processes_write_at_the_same_time(tmp_path):
    """Two runs started into one folder: all of both is kept, and each reads what the other writes."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    children = [
        subprocess.Popen([*command, name, "25"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("p", "q")
    ]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    outputs = [child.communicate("go\n", timeout=60)[0].strip() for child in children]
    assert sorted(outputs) == ["main-1.sqlite", "main.sqlite"]
    assert all(child.returncode == 0 for child in children)
    keys = [f"{name}-{i}-{j}" for name in "pq" for i in range(25) for j in range(4)]
    with GenerationStore(tmp_path) as store:
        found = store.get_many(keys)
    assert [found[key].text for key in keys] == [key.replace("-", " ") for key in keys]


def test_a_hundred_thousand_keys(tmp_path):
    """A LaMP task has more keys than one SQLite query may name."""
    keys = [f"{i:064d}" for i in range(100_000)]
    with GenerationStore(tmp_path) as store:
        store.put_many(record(key, "t") for key in keys[::2])
        found = store.get_many(keys)
    assert len(found) == 50_000
    assert list(found) == keys[::2]


def test_a_batch_is_whole_or_absent(tmp_path):
    """A batch whose third record is bad must not leave its first two behind."""
    bad = GenerationRecord("c", "text", None, 1, 1)  # the table wants a finish reason
    with GenerationStore(tmp_path) as store:
        store.put_many([record("z")])
        with pytest.raises(StoreError, match=r"main\.sqlite"):
            store.put_many([record("a"), record("b"), bad])
        assert set(store.get_many("abcz")) == {"z"}
        store.put_many([record("a")])
        assert set(store.get_many("abcz")) == {"a", "z"}


def test_likelihoods_have_their_own_table_and_are_finite(tmp_path):
    """Trouble C29: no NaN is ever written; SQLite would turn it into an empty value."""
    with GenerationStore(tmp_path) as store:
        store.put_likelihoods({"a": -0.25, "b": -1e-300}, {"identity": {"m": 1}})
        for bad in (float("nan"), float("-inf"), float("inf")):
            with pytest.raises(ValueError, match="only finite"):
                store.put_likelihoods({"c": -1.0, "d": bad})
        assert store.get_likelihoods("abcd") == {"a": -0.25, "b": -1e-300}
        assert store.get_many("ab") == {}


def test_the_store_says_what_made_it(tmp_path):
    """Without the settings nobody could tell which rows of an old store are still of use."""
    with GenerationStore(tmp_path) as store:
        store.put_many([record("a"), record("b")], {"identity": {"m": 1}, "decoding": {"beams": 4}})
        store.put_many([record("c")], {"decoding": {"beams": 4}, "identity": {"m": 1}})
        store.put_likelihoods({"a": -1.0}, {"identity": {"m": 1}})
        assert store.contents() == {
            '{"decoding":{"beams":4},"identity":{"m":1}}': {"generations": 3, "likelihoods": 0},
            '{"identity":{"m":1}}': {"generations": 0, "likelihoods": 1},
        }


def damaged(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "torn":
        path.write_bytes(data[: len(data) // 2 // 4096 * 4096 + 100])
    elif how == "overwritten":
        path.write_bytes(b'{"qid":"1","pid":"10","r":0.5}\n{"qid":"1","pid":"1' * 400)
    else:
        path.write_bytes(data[:4096] + bytes(len(data) - 4096))


@pytest.mark.parametrize("how", ["torn", "overwritten", "zeroed"])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path, how):
    """A damaged file must not pass for one that merely holds less, nor end in a bare SQLite message."""
    keys = [str(i) for i in range(500)]
    with GenerationStore(tmp_path) as store:
        store.put_many(record(key, "text " * 20) for key in keys)
    damaged(tmp_path / "main.sqlite", how)
    with (
        GenerationStore(tmp_path, "other") as store,
        pytest.raises(StoreError, match=r"main\.sqlite.*Move it out"),
    ):
        store.get_many(keys)


def test_files_of_another_kind_are_refused(tmp_path):
    """Someone else's database, or a store of a later program, is never read as ours nor written to."""
    path = tmp_path / "main.sqlite"
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE mine (x)")
    foreign.close()
    with GenerationStore(tmp_path) as store:
        with pytest.raises(StoreError, match=r"main\.sqlite.*not one of a generation store"):
            store.get_many(["a"])
        with pytest.raises(StoreError, match=r"main\.sqlite.*not one of a generation store"):
            store.put_many([record("a")])
    path.unlink()
    later = open_writer(path)
    later.execute("PRAGMA user_version = 99")
    later.close()
    with GenerationStore(tmp_path) as store, pytest.raises(StoreError, match="format 99"):
        store.get_many(["a"])


def test_a_file_killed_before_its_tables_reads_as_empty(tmp_path):
    """A run that is killed right at its start must not block the next one."""
    (tmp_path / "main.sqlite").touch()
    with GenerationStore(tmp_path) as store:
        assert store.get_many(["a"]) == {}
        store.put_many([record("a")])
        assert set(store.get_many(["a"])) == {"a"}


@pytest.mark.parametrize("opened_before", [False, True])
def test_a_writer_that_died_inside_a_commit_is_rolled_back_by_the_reader(tmp_path, opened_before):
    """A kill between two disk writes leaves a journal; the last whole batch is what everyone then reads."""
    source, folder = tmp_path / "source", tmp_path / "folder"
    source.mkdir()
    folder.mkdir()
    writer = open_writer(source / "main.sqlite")
    row = "INSERT INTO generations (key, text, finish_reason, prompt_tokens, new_tokens, created) VALUES (?,?,'s',1,1,0)"
    writer.execute("BEGIN")
    writer.executemany(row, [(f"old{i}", "x" * 500) for i in range(200)])
    writer.execute("COMMIT")
    reader = GenerationStore(folder)
    if opened_before:
        shutil.copy(source / "main.sqlite", folder)
        assert len(reader.get_many(["old1", "new1"])) == 1
    writer.execute("PRAGMA cache_size = 5")
    writer.execute("BEGIN IMMEDIATE")
    writer.executemany(row, [(f"new{i}", "y" * 500) for i in range(2000)])  # spills into the file uncommitted
    for name in ("main.sqlite-journal", "main.sqlite"):
        with open(folder / name, "r+b" if (folder / name).exists() else "wb") as stream:
            stream.write((source / name).read_bytes())
    writer.close()
    keys = [f"{age}{i}" for age in ("old", "new") for i in range(200)]
    with reader:
        assert set(reader.get_many(keys)) == {f"old{i}" for i in range(200)}
    assert not (folder / "main.sqlite-journal").exists()


def test_a_fork_must_open_its_own_store(tmp_path):
    """SQLite connections and locks that a fork inherits corrupt files; the message says what to do."""
    with GenerationStore(tmp_path) as store:
        store.put_many([record("a")])
        store._process = os.getpid() + 1
        with pytest.raises(StoreError, match="of its own in every process"):
            store.put_many([record("b")])
        with pytest.raises(StoreError, match="of its own in every process"):
            store.get_many(["a"])


def test_bad_places_and_names_are_refused_early(tmp_path):
    """A writer name must not leave the folder, and a folder that cannot be made is named before any LLM work."""
    for name in ("", "../x", "a/b", ".hidden"):
        with pytest.raises(ValueError, match="writer name"):
            GenerationStore(tmp_path, name)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/store.*store\.dir"):
        GenerationStore(tmp_path / "file" / "store").claim_writer()
