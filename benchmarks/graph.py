"""Profiles from a graph of 1,000,000 reviews: opened as memory-mapped arrays, against a dict of lists."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Outcome, Promise, in_own_process, peak_mib
from benchmarks.texts import CLOTHES, Reviews

EDGES = 1_000_000
USERS, ITEMS = 400_000, 60_000
ASKED = 500  # profiles
SEVERAL = 2000  # texts are drawn from that many; each starts at another word


def ends(edges: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """User and item of each edge: both have a few that are very frequent, as in released review corpora."""
    draw = np.random.default_rng(seed)

    def skewed(count: int, exponent: float) -> np.ndarray:
        weights = np.arange(1, count + 1) ** -exponent
        return draw.choice(count, size=edges, p=weights / weights.sum())

    return skewed(USERS * edges // EDGES, 0.5), skewed(ITEMS * edges // EDGES, 0.6)


def write_reviews(path: Path, edges: int) -> None:
    """Write reviews as JSON lines."""
    reviews = Reviews(0, CLOTHES)
    texts = [reviews.text().split() for _ in range(SEVERAL)]
    titles = [reviews.title() for _ in range(SEVERAL)]
    users, items = ends(edges)
    with path.open("w") as stream:
        for number, (user, item) in enumerate(zip(users.tolist(), items.tolist(), strict=True)):
            words = texts[number % SEVERAL]
            cut = number // SEVERAL % len(words)
            text = " ".join(words[cut:] + words[:cut])
            stream.write(
                f'{{"user": "user {user}", "item": "B{item:09d}", "text": "{text} {number}", '
                f'"title": "{titles[number % SEVERAL]}", "rating": {number % 5 + 1}}}\n'
            )


def asked(edges: int, profiles: int) -> list[tuple[str, str]]:
    """User and item of some reviews: items are asked about as often as they are reviewed."""
    users, items = ends(edges)
    chosen = np.random.default_rng(1).choice(edges, size=profiles, replace=False)
    return [(f"user {users[edge]}", f"B{items[edge]:09d}") for edge in chosen.tolist()]


def build(path: str, folder: str) -> tuple[float, float]:
    """Read the file into a graph: (seconds, the process's peak memory in MiB). Then save it."""
    from ropg.graph import from_reviews_file

    started = time.perf_counter()
    graph = from_reviews_file(path).graph
    taken, peak = time.perf_counter() - started, peak_mib()
    graph.save(folder)
    return taken, peak


def by_lists(path: str, pairs: list[tuple[str, str]]) -> tuple[list[list[str]], float, float]:
    """The straightforward way: (texts of each profile, seconds, the process's peak memory in MiB)."""
    started = time.perf_counter()
    of_user: dict[str, list[dict[str, Any]]] = defaultdict(list)
    of_item: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with Path(path).open() as stream:
        for line in stream:
            review = json.loads(line)
            of_user[review["user"]].append(review)
            of_item[review["item"]].append(review)
    found = []
    for user, item in pairs:
        own = [review["text"] for review in of_user[user] if review["item"] != item]
        found.append(own + [review["text"] for review in of_item[item] if review["user"] != user])
    return found, time.perf_counter() - started, peak_mib()


def by_graph(
    folder: str, pairs: list[tuple[str, str]]
) -> tuple[list[list[str]], float, float, list[float], list[float]]:
    """As :func:`by_lists` from the saved graph, importing it included, and the seconds of each profile, alone and
    with all its documents built."""
    started = time.perf_counter()
    from ropg.graph import GraphProfileSource, InteractionGraph

    source = GraphProfileSource(InteractionGraph.open(folder))
    found, alone, whole = [], [], []
    for user, item in pairs:
        begun = time.perf_counter()
        profile = source.profile(user, item)
        alone.append(time.perf_counter() - begun)
        found.append([document.text for document in profile])
        whole.append(time.perf_counter() - begun)
    return found, time.perf_counter() - started, peak_mib(), alone, whole


def run(pairs: int = 3, edges: int = EDGES) -> Outcome:
    """Compare each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path, saved = str(Path(folder) / "reviews.jsonl"), str(Path(folder) / "graph")
        write_reviews(Path(path), edges)
        questions = asked(edges, ASKED)
        (build_seconds, build_peak), _, _ = in_own_process(build, path, saved)
        slow, fast, peaks = [], [], []
        for _ in range(pairs):
            (wanted, taken, list_peak), _, _ = in_own_process(by_lists, path, questions)
            slow.append(taken)
            (got, taken, graph_peak, alone, whole), _, _ = in_own_process(by_graph, saved, questions)
            fast.append(taken)
            assert got == wanted, "the graph gives other profiles than the lists"
            peaks.append((list_peak, graph_peak))
        sizes = [len(profile) for profile in wanted]
        reading = in_own_process(read_texts, saved, questions)[0]
    return Outcome(
        "graph",
        f"{ASKED} profiles ({statistics.median(sizes):.0f} documents in the median, {max(sizes):,} at most) of a saved "
        f"graph of {edges:,} reviews, against parsing the reviews into a dict of lists",
        tuple(slow),
        tuple(fast),
        at_least=5,
        checked="all texts of all profiles equal",
        limit=f"reading the texts of these profiles one by one from Arrow takes {reading:.2f} s of the "
        f"{min(fast):.2f} s; imports and documents are the rest",
        notes={"ideal_seconds": reading, "peaks": peaks, "mean_documents": statistics.mean(sizes)},
        more=(
            Promise("building it from JSON lines", build_seconds, 60, "s"),
            Promise("its peak memory", build_peak, 2048, "MiB"),
            Promise("a profile, median", statistics.median(alone) * 1000, 5, "ms"),
            Promise("with all its documents", statistics.median(whole) * 1000, 5, "ms"),
            Promise(
                "peak memory of opening it for the profiles", max(peak for _, peak in peaks), 1024, "MiB"
            ),
        ),
    )


def read_texts(folder: str, pairs: list[tuple[str, str]]) -> float:
    """Seconds that reading the texts of the profiles takes, once it is known which."""
    from ropg.graph import GraphProfileSource, InteractionGraph

    graph = InteractionGraph.open(folder)
    source = GraphProfileSource(graph)
    profiles = [source.profile(*pair) for pair in pairs]
    edges = [
        edge for profile in profiles for part in (profile.own, profile.neighbors) for edge in part.tolist()
    ]
    started = time.perf_counter()
    for edge in edges:
        graph.texts.text(edge)
    return time.perf_counter() - started
