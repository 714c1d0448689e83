"""A graph on disk: a folder of arrays that appears, and is replaced, as a whole.

``graph.json`` names the data files, whose names carry the graph's fingerprint. They are written first, and
replacing ``graph.json`` is what makes them the graph: a process that is killed before leaves the earlier
graph in place, and whoever has that one open keeps it. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ropg.files import replaced_file, write_json
from ropg.graph.building import Csr
from ropg.graph.columns import NAMES, TEXTS, Names, Texts

if TYPE_CHECKING:
    from ropg.graph.interactions import InteractionGraph

MANIFEST = "graph.json"
_FORMAT = "ropg interaction graph"
_VERSION = 1
_STALE = 24 * 3600  # seconds after which a temporary file of a save that was killed is removed
#: name -> (type, length as a function of users, items and edges)
_ARRAYS: dict[str, tuple[Any, Callable[[int, int, int], int]]] = {
    "edge_user": (np.int32, lambda u, i, e: e),
    "edge_item": (np.int32, lambda u, i, e: e),
    "rating": (np.float64, lambda u, i, e: e),
    "user_offsets": (np.int64, lambda u, i, e: u + 1),
    "user_edges": (np.int32, lambda u, i, e: e),
    "item_offsets": (np.int64, lambda u, i, e: i + 1),
    "item_edges": (np.int32, lambda u, i, e: e),
    "user_order": (np.int32, lambda u, i, e: u),
    "item_order": (np.int32, lambda u, i, e: i),
}


class DamagedGraph(ValueError):
    """A folder that holds no graph, or one that is damaged; the message names the file and the remedy."""


def save_graph(graph: InteractionGraph, folder: Path) -> Path:
    """Write ``graph`` into ``folder`` (see the module's description); return the folder."""
    arrays = {
        "edge_user": graph.edge_user,
        "edge_item": graph.edge_item,
        "rating": graph.rating,
        "user_offsets": graph.by_user.offsets,
        "user_edges": graph.by_user.edges,
        "item_offsets": graph.by_item.offsets,
        "item_edges": graph.by_item.edges,
        "user_order": graph.users.order,
        "item_order": graph.items.order,
    }
    tables = {
        "users": (NAMES, [pa.RecordBatch.from_arrays([graph.users.values], schema=NAMES)]),
        "items": (NAMES, [pa.RecordBatch.from_arrays([graph.items.values], schema=NAMES)]),
        "texts": (TEXTS, graph.texts.batches),
    }
    mark = graph.fingerprint[:16]
    files = {}
    for name, array in arrays.items():
        with replaced_file(folder / f"{name}-{mark}.npy") as stream:
            np.save(stream, array, allow_pickle=False)
        files[name] = f"{name}-{mark}.npy"
    for name, (schema, batches) in tables.items():
        with (
            replaced_file(folder / f"{name}-{mark}.arrow") as stream,
            pa.ipc.new_file(stream, schema) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
        files[name] = f"{name}-{mark}.arrow"
    write_json(
        folder / MANIFEST,
        {
            "format": _FORMAT,
            "version": _VERSION,
            "fingerprint": graph.fingerprint,
            "users": graph.n_users,
            "items": graph.n_items,
            "edges": graph.n_edges,
            "files": {name: [file, (folder / file).stat().st_size] for name, file in files.items()},
            "notes": graph.notes,
        },
    )
    _remove_others(folder, set(files.values()))
    return folder


def open_graph(folder: Path, verify: bool = False) -> InteractionGraph:
    """Open a saved graph; see :meth:`InteractionGraph.open`."""
    from ropg.graph.interactions import InteractionGraph, content_digest

    manifest = _manifest(folder)
    sizes = manifest["users"], manifest["items"], manifest["edges"]
    paths = {name: _whole_file(folder, *manifest["files"][name]) for name in manifest["files"]}
    arrays = {name: _array(paths[name], kind, length(*sizes)) for name, (kind, length) in _ARRAYS.items()}
    users, items = (_names(paths[f"{kind}s"], arrays[f"{kind}_order"]) for kind in ("user", "item"))
    texts = Texts(_batches(paths["texts"], TEXTS))
    if len(texts) != sizes[2]:
        raise _damaged(paths["texts"], f"holds {len(texts):,} reviews instead of {sizes[2]:,}")
    for name, count in (("edge_user", sizes[0]), ("edge_item", sizes[1])):
        if len(arrays[name]) and not (arrays[name].min() >= 0 and arrays[name].max() < count):
            raise _damaged(paths[name], "holds numbers of nodes that do not exist")
    for kind, count in (("user", sizes[0]), ("item", sizes[1])):
        index = Csr(arrays[f"{kind}_offsets"], arrays[f"{kind}_edges"])
        if not _indexes(index, arrays[f"edge_{kind}"]):
            raise _damaged(paths[f"{kind}_edges"], f"lists other edges than those of the {kind}s")
        order = arrays[f"{kind}_order"]
        if len(order) and not (order.min() >= 0 and order.max() < count):
            raise _damaged(paths[f"{kind}_order"], "holds numbers of names that do not exist")
    graph = InteractionGraph(
        arrays["edge_user"],
        arrays["edge_item"],
        arrays["rating"],
        users,
        items,
        texts,
        Csr(arrays["user_offsets"], arrays["user_edges"]),
        Csr(arrays["item_offsets"], arrays["item_edges"]),
        manifest["fingerprint"],
        manifest["notes"],
    )
    if verify and content_digest(graph) != manifest["fingerprint"]:
        raise _damaged(folder, "does not hold what was saved there (the fingerprints differ)")
    return graph


def _indexes(index: Csr, nodes: np.ndarray) -> bool:
    """Whether an index lists edges under their own nodes: nobody may be given another's reviews."""
    offsets, edges = index
    degrees = np.diff(offsets)
    if offsets[0] != 0 or offsets[-1] != len(nodes) or (degrees < 0).any():
        return False
    if len(edges) and not (edges.min() >= 0 and edges.max() < len(nodes)):
        return False
    return np.array_equal(nodes[edges], np.repeat(np.arange(len(degrees), dtype=nodes.dtype), degrees))


def is_graph(folder: Path) -> bool:
    """Whether ``folder`` is a saved graph."""
    return (folder / MANIFEST).is_file()


def _damaged(path: Path, what: str) -> DamagedGraph:
    return DamagedGraph(
        f"{path}: {what}. Remedy: build the graph again and save it, or copy the whole folder again"
    )


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: no saved graph is there (no {MANIFEST})")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, f"is no JSON ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise _damaged(path, "describes no interaction graph")
    if manifest.get("version") != _VERSION:
        raise _damaged(
            path, f"has version {manifest.get('version')!r} of the format, this program reads {_VERSION}"
        )
    lacking = {*_ARRAYS, "users", "items", "texts"} - set(manifest.get("files", ()))
    lacking |= {"users", "items", "edges", "fingerprint", "notes"} - set(manifest)
    if lacking:
        raise _damaged(path, f"lacks {', '.join(sorted(lacking))}")
    return manifest


def _whole_file(folder: Path, name: str, size: int) -> Path:
    path = folder / Path(name).name  # a manifest from elsewhere cannot point out of its folder
    if not path.is_file():
        raise _damaged(path, f"is missing, and {MANIFEST} names it")
    if path.stat().st_size != size:
        raise _damaged(path, f"has {path.stat().st_size:,} bytes instead of {size:,}")
    return path


def _array(path: Path, kind: Any, length: int) -> np.ndarray:
    try:
        # a file without rows cannot be mapped on every system
        array = np.asarray(np.load(path, mmap_mode="r" if length else None, allow_pickle=False))
    except (ValueError, OSError) as error:
        raise _damaged(path, f"is no array ({error})") from error
    if array.dtype != kind or array.shape != (length,):
        raise _damaged(path, f"holds {array.dtype} {array.shape} instead of {np.dtype(kind)} ({length},)")
    return array


def _batches(path: Path, schema: pa.Schema) -> list[pa.RecordBatch]:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, f"is no Arrow file ({error})") from error
    if reader.schema != schema:
        raise _damaged(path, f"has other columns than {', '.join(schema.names)}")
    return batches


def _names(path: Path, order: np.ndarray) -> Names:
    (batch,) = _batches(path, NAMES)
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise _damaged(path, f"holds broken names ({error})") from error
    if batch.num_rows != len(order):
        raise _damaged(path, f"holds {batch.num_rows:,} names instead of {len(order):,}")
    return Names(batch.column(0), order)


def _remove_others(folder: Path, kept: set[str]) -> None:
    """Remove the data files of graphs that this one replaces, and of saves that were killed."""
    for name in [*_ARRAYS, "users", "items", "texts"]:
        for old in folder.glob(f"{name}-{'[0-9a-f]' * 16}.*"):
            if old.name not in kept:
                old.unlink(missing_ok=True)
    for left in folder.glob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if left.stat().st_mtime < time.time() - _STALE:
                left.unlink()
