"""PGraphRAG's review files: profiles built from a graph of users and items.

A file lists users with their reviews; the first review is the target. A user's own documents are the
reviews of other items, the neighbours' documents are other users' reviews of the target's item. Reviews
stand once, in one table, however many profiles hold them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg.examples import Document, Example
from ropg.sources import SOURCES
from ropg.sources.arrow_store import build_document
from ropg.sources.conversion import progress
from ropg.sources.example_set import ExampleSet, Header
from ropg.sources.json_files import read_records
from ropg.sources.normalised import Layout, RecordError, normalise_document, text_of_number
from ropg.sources.report import Report, did_you_mean, resolve_policies
from ropg.sources.splits import DEFAULT_FRACTIONS, check_split, seeded_key, users_of_split
from ropg.sources.validation import Finding, Rules, inspect

_REVIEW = Layout(
    question={},
    document={
        "text": ("text",),
        "title": ("title",),
        "score": ("rating",),
        "item": ("pid",),
        "date": ("date",),
    },
    required=("text", "title", "score", "item"),
    needs_document_ids=False,
)

#: Kind of task -> (input, target) of a review.
TASKS: Mapping[str, Callable[[Document], tuple[str, str]]] = {
    "title": lambda review: (review.text, review.title),
    "text": lambda review: (review.title, review.text),
    "rating": lambda review: (f"{review.title}\n{review.text}", review.score or ""),
}


@SOURCES.register("pgraphrag")
def load(
    *,
    path: str | Path,
    task: str,
    split: str | None = None,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    max_documents: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_problem: Mapping[str, str] | None = None,
    cache_dir: str | None = None,
) -> ExampleSet:
    """Load one example per user from a review file of PGraphRAG.

    Parameters
    ----------
    path: a JSON list (or JSON lines) of ``{"id": user, "profile": [{"rating", "title", "text", "pid"}]}``.
    task: "title" (input: the review's text), "text" (input: its title), or "rating" (input: title, line
        break, text).
    split: train, dev or test of a seeded split of users by ``fractions``; None for all users. Neighbours
        come from the whole file.
    max_documents: at most so many documents per profile: the user's own first, then neighbours drawn by
        ``seed``; the order of the file is kept.
    limit, on_problem: see ``load_examples``.
    cache_dir: taken for the sake of one signature; these files are read into memory.

    Documents have ids ``<user>#<number of the review>``, provenance own or neighbor, author, item, and the
    rating as score. ``meta["item"]`` is the target's item.

    Raises FileNotFoundError, MalformedFile, RecordError or ValidationError, each with the file's name.
    """
    if task not in TASKS:
        raise ValueError(f"pgraphrag: unknown task {task!r}{did_you_mean(task, TASKS)}")
    if max_documents is not None and max_documents < 1:
        raise ValueError(f"pgraphrag: max_documents={max_documents}; at least 1, or None for all")
    check_split(split, "pgraphrag")
    policies = resolve_policies(on_problem)
    file = Path(path).expanduser()
    rows = ReviewRows(file, task, max_documents, seed)
    wanted: Sequence[int] = range(len(rows))
    if split is not None:
        users = users_of_split(map(rows.user, wanted), split, fractions, seed)
        wanted = [row for row in wanted if rows.user(row) in users]
    report = Report(f"pgraphrag {file.stem} {task} {split or 'all'}", str(file), policies)
    return ExampleSet(rows, report, wanted=wanted, limit=limit, problems=rows.problems)


class ReviewRows:
    """All users of a review file, over one table of reviews: a ``Rows`` of the example set."""

    def __init__(self, path: Path, task: str, max_documents: int | None = None, seed: int = 0) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"pgraphrag: no such file: {path}")
        self.problems: list[tuple[str, str]] = []
        self._parts = TASKS[task]
        self._rules = Rules(labels=("1", "2", "3", "4", "5") if task == "rating" else None)
        self._most = max_documents
        self._seed = seed
        self._digest = hashlib.sha256(repr((task, max_documents, seed)).encode())
        with path.open("rb") as stream:
            self._digest.update(hashlib.file_digest(stream, "sha256").digest())
        self._users: list[str] = []
        self._starts: list[int] = []  # per user the first review, the target
        self._reviews: list[Document] = []  # as a neighbour sees them
        self._of_item: dict[str, list[int]] = {}
        self._read(path)
        self._starts.append(len(self._reviews))
        self._repeated = _repeated(self._users)

    def __len__(self) -> int:
        return len(self._users)

    def digest(self) -> str:
        """What identifies the reviews and what is made of them."""
        return self._digest.hexdigest()

    def header(self, row: int) -> Header:
        """The example of ``row`` without its profile."""
        target = self._reviews[self._starts[row]]
        text, answer = self._parts(target)
        meta = {"item": target.item, **({"date": target.date} if target.date is not None else {})}
        return Header(self._users[row], self._users[row], text, answer, meta)

    def user(self, row: int) -> str:
        """The user of ``row``."""
        return self._users[row]

    def size(self, row: int) -> int:
        """Number of documents of ``row``."""
        return sum(map(len, self._numbers(row)))

    def documents(self, row: int) -> list[Document]:
        """The user's own documents, then the neighbours', each in the order of the file."""
        own, neighbors = self._numbers(row)
        return [_as_own(self._reviews[number]) for number in own] + [self._reviews[n] for n in neighbors]

    def document_id(self, row: int, place: int) -> str:
        """The id of one document."""
        own, neighbors = self._numbers(row)
        return self._reviews[(own + neighbors)[place]].id

    def findings(self, row: int) -> list[Finding]:
        """What the validator finds in ``row``."""
        head = self.header(row)
        example = Example(head.id, head.user, head.input, head.target, self.documents(row), head.meta)
        repeated = [Finding("duplicate_id")] if row in self._repeated else []
        return repeated + list(inspect(example, self._rules))

    def select(self, row: int, places: Sequence[int]) -> Sequence[int]:
        """At most ``max_documents``: own ones first, then neighbours in an order drawn by the seed."""
        if self._most is None or len(places) <= self._most:
            return places
        own, neighbors = self._numbers(row)
        numbers = own + neighbors

        def order(place: int) -> tuple[bool, str]:
            return place >= len(own), seeded_key(
                self._seed, self._users[row], self._reviews[numbers[place]].id
            )

        return sorted(sorted(places, key=order)[: self._most])

    def _numbers(self, row: int) -> tuple[list[int], list[int]]:
        """Reviews in the profile: own ones of other items, others' ones of the target's item."""
        start, end = self._starts[row], self._starts[row + 1]
        item = self._reviews[start].item or ""
        own = [number for number in range(start + 1, end) if self._reviews[number].item != item]
        user = self._users[row]
        neighbors = [number for number in self._of_item[item] if self._reviews[number].author != user]
        return own, neighbors

    def _read(self, path: Path) -> None:
        types = set()
        with progress(path) as count:
            for position, raw in enumerate(read_records(path, on_bytes=count), start=1):
                user, reviews = _user(raw, f"{path}, record {position}", path)
                types.add(isinstance(raw["id"], str))
                self._users.append(user)
                self._starts.append(len(self._reviews))
                for review in reviews:
                    self._of_item.setdefault(review.item or "", []).append(len(self._reviews))
                    self._reviews.append(review)
        if len(types) > 1:
            self.problems.append(("mixed_id_types", path.name))


def _user(raw: Any, where: str, path: Path) -> tuple[str, list[Document]]:
    if not isinstance(raw, Mapping) or raw.get("id") is None:
        raise RecordError(f"{where}: an object with an 'id' is expected")
    user = text_of_number(raw["id"], "id", where)
    where = f"{path}, user {user!r}"
    profile = raw.get("profile")
    if not isinstance(profile, list) or not profile:
        raise RecordError(f"{where}: 'profile' must be a list of reviews, the first of them the target")
    reviews = []
    for place, item in enumerate(profile):
        parts, complete = normalise_document(item, _REVIEW, place, where)
        if not complete:
            lacking = [_REVIEW.document[part][0] for part in _REVIEW.required if parts[part] is None]
            raise RecordError(f"{where}, review {place + 1}: missing or null: {', '.join(lacking)}")
        reviews.append(
            build_document({**parts, "id": f"{user}#{place}", "author": user, "provenance": "neighbor"})
        )
    return user, reviews


def _as_own(review: Document) -> Document:
    return Document(
        review.id,
        review.text,
        review.title,
        review.score,
        review.date,
        review.tag,
        "own",
        review.author,
        review.item,
        review.fields,
    )


def _repeated(users: Sequence[str]) -> set[int]:
    seen: set[str] = set()
    rows = set()
    for row, user in enumerate(users):
        if user in seen:
            rows.add(row)
        seen.add(user)
    return rows
