"""The store's commands: what they say, what they remove, and that they leave everything else as it is."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from feedback_fakes import FakeLLM
from store_files import MARKERS, MarkedLLM, keys_of, made, raw, texts

from ropg.feedback import GenerationRecord, GenerationStore, StoreError, generate_missing, likelihoods_missing
from ropg.feedback.owners import owner_digest
from ropg.store.__main__ import main
from ropg.store.forgetting import forget
from ropg.store.inspection import inspect, text_of
from ropg.store.merging import merge
from ropg.store.pruning import prune
from ropg.store.verification import verify

OTHER = MarkedLLM(identity={"kind": "fake", "model": "other"})


def owned(store, key: str) -> set[str]:
    with GenerationStore(store / "generations") as opened:
        return {owner for _, owner in opened._owned([key])}


def old(path) -> None:
    """Turn a file into one of format 1."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in (
            "DROP TABLE owned",
            "DROP TABLE owners",
            "ALTER TABLE generations DROP COLUMN checksum",
            "ALTER TABLE likelihoods DROP COLUMN checksum",
            "PRAGMA user_version = 1",
        ):
            connection.execute(statement)
        connection.commit()


# -- owners ---------------------------------------------------------------------------------------


def test_all_users_of_a_prompt_are_recorded_whoever_asked_first(tmp_path):
    """A generation found in the store concerns the second user too."""
    llm, store = FakeLLM(), tmp_path / "generations"
    with GenerationStore(store) as opened:
        first = generate_missing(llm, ["p", "q", "p"], opened, owners=["a", "b", "c"], progress=False)
        likelihoods = likelihoods_missing(llm, [("p", "t")], opened, owners=["a"], progress=False)
    assert owned(tmp_path, first.keys[0]) == {owner_digest("a"), owner_digest("c")}
    assert owned(tmp_path, likelihoods[0][0]) == {owner_digest("a")}
    with GenerationStore(store, "second") as opened:
        generate_missing(llm, ["p"], opened, owners=["d"], progress=False)
        likelihoods_missing(llm, [("p", "t")], opened, owners=["d"], progress=False)
    assert owned(tmp_path, first.keys[0]) == {owner_digest(u) for u in "acd"}
    assert owned(tmp_path, likelihoods[0][0]) == {owner_digest(u) for u in "ad"}
    with GenerationStore(store, "third") as opened:
        generate_missing(llm, ["p", "q"], opened, owners=["d", "b"], progress=False)
        assert opened.path is None, "nothing new, nothing written"
    assert b'"a"' not in raw(tmp_path)
    with GenerationStore(store) as opened, pytest.raises(ValueError, match=r"shorter|longer"):
        generate_missing(llm, ["p"], opened, owners=["a", "b"], progress=False)


def test_files_of_the_older_format_are_read_and_brought_up_to_date(tmp_path):
    """Stores that cost weeks of LLM work must stay of use."""
    made(tmp_path)
    before = texts(tmp_path, keys_of(0))
    path = tmp_path / "generations" / "main.sqlite"
    old(path)
    data = path.read_bytes()
    assert texts(tmp_path, keys_of(0)) == before
    assert owned(tmp_path, keys_of(0)[0]) == set()
    assert not verify(tmp_path).findings
    assert forget(tmp_path, "u0").unowned == 16
    assert path.read_bytes() == data, "reading changes nothing"
    made(tmp_path, llm=MarkedLLM(fail_at=1))  # the same run again: no LLM call, owners recorded
    assert owned(tmp_path, keys_of(0)[0]) == {owner_digest("u0")}
    assert forget(tmp_path, "u0").unowned == 0


# -- inspect --------------------------------------------------------------------------------------


def test_inspect_says_what_is_there(tmp_path, capsys):
    """An owner cannot decide about a store that does not say what it holds."""
    made(tmp_path)
    made(tmp_path, n=2, writer="second", llm=OTHER, eval="likelihood")
    told = inspect(tmp_path)
    assert told["distinct_generations"] == 16
    assert sorted((h["generations"], h["likelihoods"]) for h in told["holdings"]) == [(0, 8), (16, 0)]
    assert [f["file"] for f in told["files"]] == ["main.sqlite", "second.sqlite"]
    assert sorted((t["kind"], t["rows"], t["state"]) for t in told["tables"]) == [
        (kind, rows, "ok") for kind in ("candidates", "feedback") for rows in (8, 16)
    ]
    with GenerationStore(tmp_path / "generations", "busy") as busy:
        busy.claim_writer()
        assert main(["inspect", "--store", str(tmp_path)]) == 0
        printed = capsys.readouterr().out
        assert "busy.sqlite" in printed
        assert "being written" in printed
    assert "model=m" in printed
    assert "num_beams=1" in printed
    assert main(["inspect", "--json", "--store", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["distinct_generations"] == 16


def test_a_text_is_shown_with_its_control_characters_escaped(tmp_path, capsys):
    """What an LLM wrote must not command the terminal of who looks at it."""
    with GenerationStore(tmp_path / "generations") as store:
        store.put_many([GenerationRecord("ab" * 32, "a\x1b[31m\u202eb", "stop", 1, 1)])
    assert main(["inspect", "abab", "--store", str(tmp_path)]) == 0
    assert "text: a\\x1b[31m\\u202eb\n" in capsys.readouterr().out
    assert text_of(tmp_path, "ab" * 32)["text"] == "a\x1b[31m\u202eb"
    for key in ("cd", "../x", ""):
        with pytest.raises(StoreError):
            text_of(tmp_path, key)


def test_a_folder_that_is_no_store_is_refused(tmp_path, capsys):
    """A mistyped --store must not pass for an empty store."""
    for command in (["inspect"], ["verify"], ["merge"], ["prune", "--unused"], ["forget", "u"]):
        assert main([*command, "--store", str(tmp_path)]) == 1
        assert "is not a store" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["-1", "nan", "inf"])
def test_an_age_that_is_none_is_refused(tmp_path, capsys, days):
    """A minus sign would make every generation old enough to be deleted."""
    (tmp_path / "generations").mkdir()
    assert main(["prune", "--older-than", days, "--yes", "--store", str(tmp_path)]) == 1
    assert f"error: --older-than is {days}; it is a number of days" in capsys.readouterr().err


def test_a_merge_from_a_folder_that_is_no_store_makes_none(tmp_path, capsys):
    """A mistyped source would leave an empty store behind, which the next command takes for one."""
    assert main(["merge", str(tmp_path / "nothing"), "--into", str(tmp_path / "new")]) == 1
    assert "nothing is not a store" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    (tmp_path / "source" / "generations").mkdir(parents=True)
    assert main(["merge", str(tmp_path / "source"), "--into", str(tmp_path / "file")]) == 1
    assert "file is a file; name the folder" in capsys.readouterr().err


# -- merge ----------------------------------------------------------------------------------------


def test_the_files_of_one_store_become_one(tmp_path):
    """Readers find the same texts before and after, owners and settings included."""
    made(tmp_path)
    made(tmp_path, n=2, writer="a", llm=OTHER)
    with GenerationStore(tmp_path / "generations", "z") as other:
        other.put_many([GenerationRecord(keys_of(0)[0], "differs", "stop", 1, 1)])
    keys = keys_of(0) + keys_of(0, OTHER)
    before, users = texts(tmp_path, keys), owned(tmp_path, keys[0])
    with GenerationStore(tmp_path / "generations") as reader:
        assert len(reader.get_many(keys)) == 8
        done = merge(tmp_path)
        assert {k: r.text for k, r in reader.get_many(keys).items()} == before, "an open reader goes on"
    assert done.differing == 1
    assert [p.name for p in (tmp_path / "generations").glob("*.sqlite")] == ["a.sqlite"]
    assert texts(tmp_path, keys) == before
    assert owned(tmp_path, keys[0]) == users == {owner_digest("u0")}
    assert len(inspect(tmp_path)["holdings"]) == 2
    assert not verify(tmp_path).findings


WRITER = """
import sys
sys.path[:0] = [sys.argv[1]]
from store_files import *
class Slow(MarkedLLM):
    def generate_batch(self, prompts):
        if len(self.batches) == 2:
            print("two", flush=True)
            sys.stdin.readline()
        return super().generate_batch(prompts)
made(Path(sys.argv[2]), start=int(sys.argv[3]), llm=Slow())
"""


def test_stores_of_killed_writers_merge(tmp_path):
    """After a cluster run, whose workers may have died, all that was committed is in one store."""
    here = os.path.dirname(__file__)
    for name, start in (("one", 0), ("two", 1)):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, here, str(tmp_path / name), str(start)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout.readline() == "two\n"
        if name == "one":
            with pytest.raises(StoreError, match=r"writer 'main' .* is at work"):
                merge(tmp_path / "all", [tmp_path / "one"])
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        child.stdin.close()
    keys = [key for user in range(4) for key in keys_of(user)]
    first, second = texts(tmp_path / "one", keys), texts(tmp_path / "two", keys)
    assert len(first) == len(second) == 8
    done = merge(tmp_path / "all", [tmp_path / "one", tmp_path / "two"])
    assert texts(tmp_path / "all", keys) == second | first
    assert done.generations == len(second | first)
    assert texts(tmp_path / "one", keys) == first, "sources stay unless asked"
    assert merge(tmp_path / "all", [tmp_path / "one"]).generations == 0


def test_tables_are_copied_where_the_target_has_none(tmp_path):
    """A merged store serves training without ranking again."""
    made(tmp_path / "one")
    merge(tmp_path / "all", [tmp_path / "one"])
    for path in (tmp_path / "one" / "tables").rglob("*.parquet"):
        assert (tmp_path / "all" / path.relative_to(tmp_path / "one")).read_bytes() == path.read_bytes()
    old(tmp_path / "one" / "generations" / "main.sqlite")
    assert merge(tmp_path / "older", [tmp_path / "one"]).generations == 16
    with pytest.raises(StoreError, match="lies in the target"):
        merge(tmp_path / "all", [tmp_path / "all"])


# -- prune ----------------------------------------------------------------------------------------


def test_prune_removes_what_meets_all_conditions_and_only_with_yes(tmp_path):
    """A dry run that deletes, or a condition that is ignored, would cost weeks."""
    made(tmp_path)
    made(tmp_path, n=2, llm=OTHER)
    llm = next(h["llm"] for h in inspect(tmp_path)["holdings"] if h["generations"] == 8)
    before = raw(tmp_path)
    assert prune(tmp_path, llm=[llm[:8]]).generations == 8
    assert raw(tmp_path) == before
    assert prune(tmp_path, llm=[llm], older_than=1.0).generations == 0
    assert prune(tmp_path, older_than=0.0).generations == 24
    gone = prune(tmp_path, llm=[llm[:8]], yes=True)
    assert [p.name.partition("-")[0] for p in gone.tables] == ["feedback"]
    assert texts(tmp_path, keys_of(0, OTHER)) == {}
    assert len(texts(tmp_path, keys_of(3))) == 4
    assert len(inspect(tmp_path)["holdings"]) == 1
    assert not verify(tmp_path).findings
    with pytest.raises(StoreError, match="fits no LLM"):
        prune(tmp_path, llm=[llm])
    with pytest.raises(StoreError, match="name what to prune"):
        prune(tmp_path)


def test_unused_and_unowned_rows(tmp_path):
    """What no table refers to, and what belongs to nobody, are told apart."""
    made(tmp_path)
    with GenerationStore(tmp_path / "generations") as store:
        generate_missing(FakeLLM(), ["mine"], store, owners=["u0"], progress=False)
        nobody = generate_missing(FakeLLM(), ["nobody's"], store, progress=False).keys
    assert prune(tmp_path, unused=True).generations == 2
    assert prune(tmp_path, unowned=True).keys == set(nobody)
    with GenerationStore(tmp_path / "generations") as store:
        store.claim_writer()
        with pytest.raises(StoreError, match="writer 'main'"):
            prune(tmp_path, unused=True, yes=True)
    prune(tmp_path, unused=True, yes=True)
    assert inspect(tmp_path)["distinct_generations"] == 16
    assert not verify(tmp_path).findings
    table = next((tmp_path / "tables").rglob("feedback*"))
    table.write_bytes(table.read_bytes()[:-9])
    with pytest.raises(StoreError, match="damaged"):
        prune(tmp_path, unused=True)


# -- verify ---------------------------------------------------------------------------------------


def findings(store) -> list[str]:
    return [f"{f.file.name}: {f.what}" for f in verify(store).findings]


def flipped(path, marker: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(marker)] ^= 1
    path.write_bytes(bytes(data))


def test_verify_is_content_with_a_good_store(tmp_path, capsys):
    """A check that cries at nothing is ignored."""
    made(tmp_path)
    made(tmp_path, writer="b", eval="likelihood")
    assert main(["verify", "--store", str(tmp_path)]) == 0
    assert "32 rows and 3 tables looked at: 0 findings" in capsys.readouterr().out


def test_verify_finds_what_is_wrong_and_names_file_and_remedy(tmp_path, capsys):
    """Each would otherwise become another reward, or an error weeks later."""
    made(tmp_path)
    path = tmp_path / "generations" / "main.sqlite"
    flipped(path, b"marker1word")
    assert [f for f in findings(tmp_path) if "do not fit their checksum" in f]
    assert main(["verify", "--store", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert str(path) in printed
    assert "prune --llm" in printed

    made(tmp_path / "b")
    with closing(sqlite3.connect(tmp_path / "b" / "generations" / "main.sqlite")) as connection:
        connection.execute("DELETE FROM generations WHERE key = ?", keys_of(2)[:1])
        connection.execute("UPDATE identities SET json = replace(json, 'fake', 'real')")
        connection.execute("INSERT INTO likelihoods (key, value) VALUES ('short', 9e999)")
        connection.commit()
    found = "\n".join(findings(tmp_path / "b"))
    assert "1 of its 16 prompt keys are not in the store" in found
    assert "have another hash" in found
    assert "1 keys that are not 64 hexadecimal digits, such as 'short'" in found
    assert "1 values that are not finite" in found

    made(tmp_path / "c")
    table = next((tmp_path / "c" / "tables").rglob("candidates*"))
    data = bytearray(table.read_bytes())
    data[100] ^= 1
    table.write_bytes(bytes(data))
    (tmp_path / "c" / "generations" / "torn.sqlite").write_bytes(path.read_bytes()[:9000])
    found = "\n".join(findings(tmp_path / "c"))
    assert f"{table.name}: damaged" in found
    assert "torn.sqlite: " in found


# -- forget ---------------------------------------------------------------------------------------


def test_nothing_of_a_forgotten_user_is_left_in_the_files(tmp_path, capsys):
    """Deleting rows alone would leave their text in free pages."""
    made(tmp_path)
    made(tmp_path, writer="second", llm=OTHER)
    others = [key for user in (0, 2, 3) for llm in (None, OTHER) for key in keys_of(user, llm)]
    kept, before = texts(tmp_path, others), raw(tmp_path)
    assert MARKERS["u1"].encode() in before
    assert main(["forget", "u1", "--store", str(tmp_path)]) == 0
    assert "would remove 8 generations" in capsys.readouterr().out
    assert raw(tmp_path) == before, "a dry run changes nothing"
    assert main(["forget", "u1", "--yes", "--store", str(tmp_path)]) == 0
    after = raw(tmp_path)
    for gone in (MARKERS["u1"], *keys_of(1), owner_digest("u1")):
        assert gone.encode() not in after
    assert texts(tmp_path, others) == kept
    assert all(MARKERS[user].encode() in after for user in ("u0", "u2", "u3"))
    assert not list((tmp_path / "tables").rglob("*.parquet")), "tables with rows of the user"
    assert not verify(tmp_path).findings
    again = MarkedLLM()
    made(tmp_path, llm=again)
    assert sum(map(len, again.batches)) == 4, "only the user's own are generated again"


def test_a_shared_prompt_goes_with_one_of_its_users_and_is_said(tmp_path, capsys):
    """The text is as much the forgotten user's; for the other it can be generated again."""
    llm = FakeLLM()
    with GenerationStore(tmp_path / "generations") as store:
        keys = generate_missing(llm, ["p", "q", "p"], store, owners=["a", "b", "b"], progress=False).keys
    assert main(["forget", "a", "--yes", "--store", str(tmp_path)]) == 0
    assert "1 of them answer another user's prompt too" in capsys.readouterr().out
    assert set(texts(tmp_path, keys)) == {keys[1]}
    assert owned(tmp_path, keys[0]) == set()
    with GenerationStore(tmp_path / "generations") as store:
        assert generate_missing(llm, ["p"], store, owners=["b"], progress=False).n_generated == 1


def test_candidates_without_feedback_are_found_by_their_owners(tmp_path):
    """A run that stopped after ranking has written ids of the user and no prompt."""
    made(tmp_path)
    for path in (tmp_path / "tables").rglob("feedback*"):
        path.unlink()
    (candidates,) = (tmp_path / "tables").rglob("candidates*")
    prune(tmp_path, older_than=0.0, yes=True)
    assert forget(tmp_path, "u2").tables == [candidates]
    assert forget(tmp_path, "u9").tables == []
    forget(tmp_path, "u2", yes=True)
    assert not candidates.exists()


def test_forgetting_twice_and_nobody_is_no_error_and_a_writer_is_not_disturbed(tmp_path):
    """Deleting is repeated by scripts; a run at work would write back what is deleted."""
    made(tmp_path)
    assert len(forget(tmp_path, "u1", yes=True).keys) == 4
    assert len(forget(tmp_path, "u1", yes=True).keys) == 0
    with GenerationStore(tmp_path / "generations", "worker") as store:
        store.claim_writer()
        with pytest.raises(StoreError, match="writer 'worker'"):
            forget(tmp_path, "u2", yes=True)
    assert len(texts(tmp_path, keys_of(2))) == 4


def test_predictions_and_reports_of_runs_go_and_models_are_named(tmp_path, monkeypatch):
    """An answer to the user's question lies in run folders as well."""
    from omegaconf import OmegaConf

    from ropg.configuration import Config
    from ropg.evaluation.predictions import read_predictions, write_predictions

    monkeypatch.setenv("ROPG_CACHE", str(tmp_path / "cache"))
    rows = [
        {"id": f"x{i}", "user": f"u{i % 2}", "input": "i", "target": "t", "profile": [], "split": s}
        for i, s in enumerate(["train", "train", "dev", "dev", "test", "test"])
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = Config()
    config.data.source, config.data.path = "records", str(data)
    run = tmp_path / "runs" / "evaluation"
    (run / "model").mkdir(parents=True)
    OmegaConf.save(OmegaConf.structured(config), run / "config.yaml")
    write_predictions(run / "predictions", "bm25", "LaMP-4", {"x4": "gone", "x5": "stays"})
    (run / "report.html").write_text("x4")
    (run / "candidates-round-1.parquet").write_bytes(b"")
    made(tmp_path / "store", n=1)
    found = forget(tmp_path / "store", "u0", runs=tmp_path / "runs")
    assert [t.predictions for t in found.runs] == [{run / "predictions" / "bm25.json": 1}]
    assert any("model" in line and "was trained" in line for line in found.unreachable)
    assert any("1 table(s) of refreshed candidates" in line for line in found.unreachable)
    assert any(".arrow" in line for line in found.unreachable)
    assert (run / "report.html").exists()
    forget(tmp_path / "store", "u0", runs=tmp_path / "runs", yes=True)
    assert read_predictions(run / "predictions" / "bm25.json")[1] == {"x5": "stays"}
    assert not (run / "report.html").exists()
    data.unlink()
    found = forget(tmp_path / "store", "u1", runs=tmp_path / "runs", examples=["x5"])
    assert [sum(t.predictions.values()) for t in found.runs] == [1]
    assert any("cannot be read" in line for line in found.unreachable)
