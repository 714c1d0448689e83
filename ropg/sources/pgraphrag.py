"""PGraphRAG's reviews: profiles built from a graph of users and items.

Each user of a split file, or of a table of reviews, is asked for one review, the target. The user's own
documents are the reviews of other items, the neighbours' documents are other users' reviews, by default of
the target's item. Reviews stand once, in one graph, however many profiles hold them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ropg.examples import Document, Example
from ropg.sources import SOURCES
from ropg.sources.example_set import ExampleSet, Header
from ropg.sources.report import Report, did_you_mean, resolve_policies
from ropg.sources.splits import (
    DEFAULT_FRACTIONS,
    SPLITS,
    check_fractions,
    check_split,
    seeded_key,
    users_of_split,
)
from ropg.sources.validation import Finding, Rules, inspect

if TYPE_CHECKING:
    import numpy as np

    from ropg.graph.interactions import InteractionGraph
    from ropg.graph.profiles import Community, GraphProfileSource, Mode, ProfileEdges, Scope
    from ropg.graph.reading_report import BadRecords, ReadGraph

#: Kind of task -> (input, target) of a review.
TASKS: Mapping[str, Callable[[Document], tuple[str, str]]] = {
    "title": lambda review: (review.text, review.title),
    "text": lambda review: (review.title, review.text),
    "rating": lambda review: (f"{review.title}\n{review.text}", review.score or ""),
}

#: Reason for which a neighbour is left out of a profile -> how the report says it.
_LEFT_OUT = {
    "user_degree": "neighbour documents by users above max_user_degree",
    "community": "neighbour documents from outside the community",
    "same_text": "neighbour documents with the target's text (leak_filter)",
    "same_title": "neighbour documents with the target's title (leak_filter)",
    "bound": "further documents beyond the bound",
}


@SOURCES.register("pgraphrag")
def load(
    *,
    path: str | Path,
    task: str,
    split: str | None = None,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    split_by: Literal["users", "items"] = "users",
    mode: Mode = "both",
    neighbor_scope: Scope = "target_item",
    hops: int = 1,
    community: Community | None = None,
    bound: int = 64,
    max_user_degree: int | None = None,
    leak_filter: str | Sequence[str] = (),
    max_documents: int | None = None,
    fields: Mapping[str, str] | None = None,
    bad_records: BadRecords = "error",
    limit: int | None = None,
    seed: int = 0,
    on_problem: Mapping[str, str] | None = None,
    cache_dir: str | None = None,
) -> ExampleSet:
    """Load one example per user from a graph of reviews.

    Parameters
    ----------
    path: a released split file, a JSON list (or JSON lines) of ``{"id": user, "profile": [{"rating", "title",
        "text", "pid"}]}`` whose first review is the target; or reviews one a record, CSV, TSV or JSON, with
        ``user``, ``item``, ``text`` and perhaps ``title``, ``rating`` and ``date``; or a saved graph.
    task: "title" (input: the review's text), "text" (input: its title), or "rating" (input: title, line
        break, text).
    split: train, dev or test of a seeded split of users by ``fractions``; None for all users.
    split_by: "users": users are drawn one by one, and neighbours come from the whole file. "items": users
        who share an item go together where possible, and neighbours come from inside the split only.
    mode, neighbor_scope, hops, community, bound, max_user_degree, leak_filter: see
        :class:`ropg.graph.profiles.GraphProfileSource`.
    max_documents: at most so many documents per profile: the user's own first, then neighbours drawn by
        ``seed``; the order of the file is kept.
    fields: of a table, this project's name -> the file's name, such as ``{"user": "reviewer"}``.
    bad_records: "error", or "skip" to leave broken records out and count them.
    limit, on_problem: see ``load_examples``.
    cache_dir: where the graph of a table is kept; split files are read every time.

    Where the file names no targets, each user's is drawn by ``seed`` among the reviews whose item another
    user reviewed too; users without such a review are no examples, but neighbours of others, and counted.
    In profiles of the task "rating" a review without a rating is a finding ``missing_field``: an error, or with
    ``on_problem={"missing_field": "skip"}`` left out and counted.
    Documents have ids ``<user>#<number of the review>``, provenance own or neighbor, author, item, and the
    rating as score. ``meta["item"]`` is the target's item.

    Raises FileNotFoundError, MalformedFile, RecordError or ValidationError, each with the file's name.
    """
    if task not in TASKS:
        raise ValueError(f"pgraphrag: unknown task {task!r}{did_you_mean(task, TASKS)}")
    if max_documents is not None and max_documents < 1:
        raise ValueError(f"pgraphrag: max_documents={max_documents}; at least 1, or None for all")
    if split_by not in ("users", "items"):
        hint = did_you_mean(str(split_by), ("users", "items"))
        raise ValueError(f"pgraphrag: unknown split_by {split_by!r}{hint}")
    check_split(split, "pgraphrag")
    check_fractions(fractions)
    policies = resolve_policies(on_problem)
    from ropg.graph.cache import cached_graph
    from ropg.graph.profiles import GraphProfileSource, check_cap

    check_cap(max_user_degree)
    file = Path(path).expanduser()
    read = cached_graph(file, fields, bad_records, cache_dir)
    graph, targets = read.graph, _targets(read, max_user_degree, seed)
    among = None
    if split is not None and split_by == "items":
        among = _users_by_items(graph, targets, split, fractions, seed)
        if read.targets is None:
            targets = _with_neighbors_inside(graph, targets, among, max_user_degree, seed)
    source = GraphProfileSource(
        graph, mode, neighbor_scope, hops, community, bound, max_user_degree, leak_filter, among, seed
    )
    made = (task, mode, neighbor_scope, hops, community, bound, max_user_degree, str(leak_filter))
    rows = GraphRows(
        source, targets, task, max_documents, seed, repr((*made, split if among is not None else None))
    )
    wanted: Sequence[int] = range(len(rows))
    if among is not None:
        wanted = [row for row in wanted if among[rows.users[row]]]
    elif split is not None:
        users = users_of_split(map(rows.user, wanted), split, fractions, seed)
        wanted = [row for row in wanted if rows.user(row) in users]
    report = Report(f"pgraphrag {file.stem} {task} {split or 'all'}", str(file), policies)
    examples = ExampleSet(rows, report, wanted=wanted, limit=limit, problems=_problems(read, file))
    counts = Counter(
        {
            "records that were skipped": read.report.skipped,
            "users without a target that has a neighbour": graph.n_users - len(rows),
            "users above max_user_degree": source.capped_users,
        }
    )
    if hops > 1 or community or max_user_degree or leak_filter:
        for example in examples:
            for reason, count in rows.left_out(example.user).items():
                counts[_LEFT_OUT[reason]] += count
    report.notes |= +counts
    return examples


class GraphRows:
    """One example per user with a target: a ``Rows`` of the example set.

    targets: (n_users,) int64, the review each user is asked for, -1 for none.
    users: (rows,) the number of each row's user.
    """

    def __init__(
        self,
        source: GraphProfileSource,
        targets: np.ndarray,
        task: str,
        max_documents: int | None = None,
        seed: int = 0,
        settings: str = "",
    ) -> None:
        self.users: list[int] = (targets >= 0).nonzero()[0].tolist()
        self._source = source
        self._graph = source.graph
        self._targets = targets
        self._parts = TASKS[task]
        self._rules = Rules(labels=("1", "2", "3", "4", "5") if task == "rating" else None)
        self._scored = task == "rating"
        self._most = max_documents
        self._seed = seed
        self._settings = repr((settings, max_documents, seed))
        self._edges = lru_cache(1024)(self._find_edges)

    def __len__(self) -> int:
        return len(self.users)

    def digest(self) -> str:
        """What identifies the reviews and what is made of them."""
        content = f"{self._graph.fingerprint} {self._settings} ".encode() + self._targets.tobytes()
        return hashlib.sha256(content).hexdigest()

    def header(self, row: int) -> Header:
        """The example of ``row`` without its profile."""
        target = self._graph.document(self._targets[self.users[row]])
        text, answer = self._parts(target)
        meta = {"item": target.item, **({"date": target.date} if target.date is not None else {})}
        user = self.user(row)
        return Header(user, user, text, answer, meta)

    def user(self, row: int) -> str:
        """The user of ``row``."""
        return self._graph.user_name(self.users[row])

    def size(self, row: int) -> int:
        """Number of documents of ``row``."""
        edges = self._edges(row)
        return len(edges.own) + len(edges.neighbors)

    def documents(self, row: int) -> list[Document]:
        """The user's own documents, then the neighbours', each in the order of the file."""
        from ropg.graph.profiles import GraphProfile

        return list(GraphProfile(self._graph, self._edges(row)))

    def document_id(self, row: int, place: int) -> str:
        """The id of one document."""
        edges = self._edges(row)
        n_own = len(edges.own)
        return self._graph.document_id(edges.own[place] if place < n_own else edges.neighbors[place - n_own])

    def findings(self, row: int) -> list[Finding]:
        """What the validator finds in ``row``."""
        head = self.header(row)
        example = Example(head.id, head.user, head.input, head.target, self.documents(row), head.meta)
        found = list(inspect(example, self._rules))
        if self._scored:  # a rating's prompt shows the rating of each document
            unrated = [place for place, document in enumerate(example.profile) if document.score is None]
            found += [Finding("missing_field", place) for place in unrated]
        return found

    def select(self, row: int, places: Sequence[int]) -> Sequence[int]:
        """At most ``max_documents``: own ones first, then neighbours in an order drawn by the seed."""
        if self._most is None or len(places) <= self._most:
            return places
        n_own = len(self._edges(row).own)
        user = self.user(row)

        def order(place: int) -> tuple[bool, str]:
            return place >= n_own, seeded_key(self._seed, user, self.document_id(row, place))

        return sorted(sorted(places, key=order)[: self._most])

    def left_out(self, user: str) -> Mapping[str, int]:
        """How many neighbours the profile of ``user`` lacks, by reason (see ``GraphProfile``)."""
        number = self._graph.user_number(user)
        return self._source.edges(number, int(self._graph.edge_item[self._targets[number]])).left_out

    def _find_edges(self, row: int) -> ProfileEdges:
        user = self.users[row]
        return self._source.edges(user, int(self._graph.edge_item[self._targets[user]]))


def _targets(read: ReadGraph, max_user_degree: int | None, seed: int) -> np.ndarray:
    """The targets that the file names, else drawn ones that have a neighbour below the cap."""
    if read.targets is not None:
        return read.targets
    from ropg.graph.targets import choose_targets

    serves = None if max_user_degree is None else read.graph.user_degrees <= max_user_degree
    return choose_targets(read.graph, seed, serves)


def _users_by_items(
    graph: InteractionGraph, targets: np.ndarray, split: str, fractions: Sequence[float], seed: int
) -> np.ndarray:
    """Which users belong to a split that keeps users of one item together: (n_users,) bool."""
    try:
        from ropg.graph.split import assign_splits
    except ImportError as error:
        raise ValueError("pgraphrag: split_by=items is not in this version; use split_by=users") from error
    assigned: np.ndarray = assign_splits(graph.edge_user, graph.edge_item, targets, fractions, seed)
    return assigned == SPLITS.index(split)


def _with_neighbors_inside(
    graph: InteractionGraph, targets: np.ndarray, among: np.ndarray, max_user_degree: int | None, seed: int
) -> np.ndarray:
    """Drawn targets of one split: one that has no neighbour inside gives way to another review of its user."""
    from ropg.graph.targets import choose_targets, has_neighbor

    serves = among if max_user_degree is None else among & (graph.user_degrees <= max_user_degree)
    stays = (targets >= 0) & has_neighbor(graph, serves)[targets] | ~among
    found = targets.copy()
    found[~stays] = choose_targets(graph, seed, serves)[~stays]
    return found


def _problems(read: ReadGraph, file: Path) -> list[tuple[str, str]]:
    report = read.report
    mixed = [
        f"{file.name}: {kind}s, {report.number_ids[kind]:,} numbers, {report.text_ids[kind]:,} texts"
        for kind in report.mixed
    ]
    found = [("mixed_id_types", record) for record in mixed]
    return found + [("duplicate_id", user) for user in report.repeated_users]
