"""A saved graph is there whole or not at all, and a damaged one is named."""

import json
import multiprocessing
import os
import shutil
import signal

import numpy as np
import pytest

from ropg.graph import DamagedGraph, InteractionGraph, Review
from ropg.graph import files as graph_files

OLD = [Review("ann", "pan", "Fries well", "Lovely"), Review("bob", "pan", "Heavy", "No")]
NEW = [*OLD, Review("cleo", "pot", "Boils", "Yes")]


@pytest.fixture
def folder(tmp_path):
    return InteractionGraph.from_reviews(OLD).save(tmp_path / "graph")


def _save_and_die(folder, number):
    """Save NEW, killed by the system right before the ``number``-th file would appear."""
    calls = iter(range(number))
    replace = os.replace

    def replace_or_die(*arguments):
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*arguments)

    os.replace = replace_or_die
    InteractionGraph.from_reviews(NEW).save(folder)


N_FILES = 13  # nine arrays, three tables, and graph.json, which is written last


@pytest.mark.parametrize("number", [0, 1, N_FILES // 2, N_FILES - 1, N_FILES])
def test_killed_while_saving(folder, number):
    """Over an earlier graph that one stays until the last file is in place; else there is no graph."""
    fresh = folder.parent / "fresh"
    for target in (folder, fresh):
        process = multiprocessing.get_context("fork").Process(target=_save_and_die, args=(target, number))
        process.start()
        process.join()
        assert process.exitcode == (0 if number == N_FILES else -signal.SIGKILL)
    if number == N_FILES:
        assert InteractionGraph.open(folder, verify=True).n_edges == len(NEW)
        assert InteractionGraph.open(fresh, verify=True).n_edges == len(NEW)
        return
    assert InteractionGraph.open(folder, verify=True).n_edges == len(OLD)
    with pytest.raises(FileNotFoundError, match=r"no saved graph is there"):
        InteractionGraph.open(fresh)


def test_replacing_a_graph_that_is_open(folder):
    """Whoever has the earlier graph open goes on reading it; its files do not stay in the folder."""
    old = InteractionGraph.open(folder)
    old.add(NEW[2:]).save(folder)
    assert old.document(1).text == "Heavy"
    assert InteractionGraph.open(folder).fingerprint == InteractionGraph.from_reviews(NEW).fingerprint
    assert len(list(folder.iterdir())) == N_FILES


def _data_file(folder, name):
    return next(folder.glob(f"{name}-*"))


@pytest.mark.parametrize("name", ["edge_user", "user_order", "users", "texts", "rating"])
def test_truncated_missing_and_foreign_files_are_named(folder, name):
    path = _data_file(folder, name)
    whole = path.read_bytes()
    for damage, message in (
        (whole[:-1], "bytes instead of"),
        (b"x" * len(whole), "is no"),
        (None, "is missing"),
    ):
        path.write_bytes(damage) if damage is not None else path.unlink()
        with pytest.raises(DamagedGraph, match=rf"{name}-.*{message}.*Remedy: build the graph again"):
            InteractionGraph.open(folder)


def _put(folder, name, array):
    """Replace an array with a valid file of another content, and its size in graph.json with the new one."""
    path = _data_file(folder, name)
    np.save(path, array, allow_pickle=False)
    manifest = json.loads((folder / "graph.json").read_text())
    manifest["files"][name][1] = path.stat().st_size
    (folder / "graph.json").write_text(json.dumps(manifest))


def test_arrays_of_another_graph_are_named(folder):
    _put(folder, "edge_user", np.zeros(5, np.int32))
    with pytest.raises(DamagedGraph, match=r"edge_user-.*holds int32 \(5,\) instead of int32 \(2,\)"):
        InteractionGraph.open(folder)
    _put(folder, "edge_user", np.array([0, 7], np.int32))
    with pytest.raises(DamagedGraph, match=r"edge_user-.*nodes that do not exist"):
        InteractionGraph.open(folder)


def test_another_content_of_the_same_shape_is_found_on_request(folder):
    _put(folder, "rating", np.array([1.0, 2.0]))
    InteractionGraph.open(folder)
    with pytest.raises(DamagedGraph, match="fingerprints differ"):
        InteractionGraph.open(folder, verify=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.clear(), "describes no interaction graph"),
        (lambda m: m.update(version=9), "has version 9"),
        (lambda m: m["files"].pop("texts"), "lacks texts"),
        (lambda m: m.pop("edges"), "lacks edges"),
    ],
)
def test_a_wrong_manifest_is_named(folder, change, message):
    manifest = json.loads((folder / "graph.json").read_text())
    change(manifest)
    (folder / "graph.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedGraph, match=rf"graph\.json.*{message}"):
        InteractionGraph.open(folder)
    (folder / "graph.json").write_text("{")
    with pytest.raises(DamagedGraph, match="is no JSON"):
        InteractionGraph.open(folder)


def test_a_manifest_cannot_point_outside_of_its_folder(folder, tmp_path):
    outside = shutil.copy(_data_file(folder, "rating"), tmp_path / "rating.npy")
    manifest = json.loads((folder / "graph.json").read_text())
    manifest["files"]["rating"][0] = f"../{outside.name}"
    (folder / "graph.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedGraph, match=r"graph/rating\.npy: is missing"):
        InteractionGraph.open(folder)


def test_nothing_is_pickled(folder):
    """A pickled array in place of a plain one is refused before anything of it runs."""
    path = _data_file(folder, "rating")
    np.save(path, np.array([{}, {}], object), allow_pickle=True)
    manifest = json.loads((folder / "graph.json").read_text())
    manifest["files"]["rating"][1] = path.stat().st_size
    (folder / "graph.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedGraph, match="is no array"):
        InteractionGraph.open(folder)
    assert graph_files.is_graph(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "user_edges",
            [1, 0],
            "lists other edges than those of the users",
        ),  # the other's review as one's own
        ("user_edges", [0, 9], "lists other edges than those of the users"),
        ("item_edges", [0, -1], "lists other edges than those of the items"),
        ("user_offsets", [0, 9, 2], "lists other edges than those of the users"),
        ("user_offsets", [0, 0, 2], "lists other edges than those of the users"),
        ("user_order", [0, 7], "holds numbers of names that do not exist"),
    ],
)
def test_an_index_that_does_not_fit_the_edges_is_named(folder, name, value, message):
    """Whatever happens to a file, nobody's text becomes another's own."""
    (path,) = folder.glob(f"{name}-*")
    np.save(path, np.array(value, np.load(path).dtype))
    with pytest.raises(DamagedGraph, match=message):
        InteractionGraph.open(folder)


def test_names_that_are_no_text_are_named(folder):
    (path,) = folder.glob("users-*")
    path.write_bytes(path.read_bytes().replace(b"annbob", b"ann\xff\xfe\xff"))
    with pytest.raises(DamagedGraph, match=r"users-.*holds broken names"):
        InteractionGraph.open(folder)
