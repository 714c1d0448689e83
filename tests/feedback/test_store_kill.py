"""A store command that is killed at any instant: nothing but what should go is lost, and the same command finishes it."""

from __future__ import annotations

import pytest
from store_files import MarkedLLM, copy, keys_of, killed, made, raw, texts

from ropg.store.__main__ import main
from ropg.store.inspection import inspect
from ropg.store.verification import verify

OTHER = {"kind": "fake", "model": "other"}


def instants(steps: int, n: int) -> list[int]:
    """n steps from the first to the last."""
    return sorted({1 + round(i * (steps - 1) / (n - 1)) for i in range(n)})


def ended(store) -> dict:
    """What a finished command leaves, as readers and auditors see it."""
    files = {p.name: p.read_bytes() for p in sorted((store / "tables").rglob("*.parquet"))}
    everything = [
        key for user in range(4) for llm in (None, MarkedLLM(identity=OTHER)) for key in keys_of(user, llm)
    ]
    return {
        "texts": texts(store, everything),
        "tables": files,
        "files": sorted(p.name for p in store.rglob("*.sqlite")),
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Two writers, two LLMs, four users."""
    store = tmp_path_factory.mktemp("whole") / "store"
    made(store)
    made(store, writer="second", llm=MarkedLLM(identity=OTHER))
    return store


@pytest.mark.parametrize("mode", ["call", "inside"])
@pytest.mark.parametrize("command", ["merge", "prune", "forget"])
def test_killed_and_run_again_equals_undisturbed(tmp_path, whole, command, mode):
    """Hours of LLM work lie in these files; and a half-forgotten user would stay in them for good."""
    arguments = {
        "merge": ["merge"],
        "prune": [],
        "forget": ["forget", "u1", "--yes"],
    }[command]
    if command == "prune":
        arguments = ["prune", "--llm", max(h["llm"] for h in inspect(whole)["holdings"])[:12], "--yes"]
    undisturbed, broken = copy(whole, tmp_path / "undisturbed"), tmp_path / "broken"
    died, steps = killed(mode, 0, *arguments, "--store", undisturbed)
    assert not died
    expected = ended(undisturbed)
    before = ended(whole)
    deaths = 0
    for n in instants(steps, 4):
        copy(whole, broken)
        died, _ = killed(mode, n, *arguments, "--store", broken)
        deaths += died
        halfway = texts(broken, before["texts"])  # readers go on
        assert expected["texts"].items() <= halfway.items() <= before["texts"].items()
        assert main([*arguments, "--store", str(broken)]) == 0
        assert ended(broken) == expected, n
        assert not list(broken.rglob("*-journal"))
        assert not verify(broken).findings
        if command == "forget":
            assert b"marker1word" not in raw(broken)
    assert deaths >= 3


def test_sources_outlive_a_merge_that_is_killed(tmp_path, whole):
    """Deleting what is not yet in the target would lose it."""
    target = made(tmp_path / "first", n=1)
    died, steps = killed(
        "call",
        0,
        "merge",
        copy(whole, tmp_path / "o"),
        "--into",
        copy(target, tmp_path / "t"),
        "--delete-sources",
    )
    expected = ended(tmp_path / "t")
    assert not died
    left = {p.name for p in (tmp_path / "o").rglob("*") if p.is_file() and p.suffix != ".lock"}
    assert left <= {".claims"}  # empty, as the locks are
    for n in instants(steps, 4):
        source, into = copy(whole, tmp_path / "o"), copy(target, tmp_path / "t")
        killed("call", n, "merge", source, "--into", into, "--delete-sources")
        assert texts(source, expected["texts"]) | texts(into, expected["texts"]) == expected["texts"]
        assert main(["merge", str(source), "--into", str(into), "--delete-sources"]) == 0
        assert ended(into) == expected
