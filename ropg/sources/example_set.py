"""The lazy sequence of examples that every source returns.

A source brings :class:`Rows`: all examples of a file, with all their documents, in any storage.
:class:`ExampleSet` adds the policies for what the validator found: which examples and documents stay,
and what the report says. Nothing is copied; a document is built when it is looked at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, overload

from ropg.examples import Document, Example, LazyDocuments
from ropg.sources.report import Policy, Report
from ropg.sources.validation import Finding


class Header(NamedTuple):
    """An example without its profile."""

    id: str
    user: str
    input: str
    target: str | None
    meta: dict[str, Any]


class Rows(Protocol):
    """Stored examples, as a file holds them; documents are addressed by row and place."""

    def __len__(self) -> int: ...

    def header(self, row: int) -> Header:
        """The example of ``row`` without its profile."""
        ...

    def user(self, row: int) -> str:
        """The user of ``row``."""
        ...

    def size(self, row: int) -> int:
        """Number of documents of ``row``."""
        ...

    def documents(self, row: int) -> Sequence[Document]:
        """All documents of ``row``."""
        ...

    def document_id(self, row: int, place: int) -> str:
        """The id of one document, for messages."""
        ...

    def findings(self, row: int) -> Sequence[Finding]:
        """What the validator found in ``row``."""
        ...

    def select(self, row: int, places: Sequence[int]) -> Sequence[int]:
        """A last choice among the documents that stay (a cap); all of them in most sources."""
        ...

    def digest(self) -> str:
        """What identifies all the stored content, wherever the file lies."""
        ...


class Profile(LazyDocuments):
    """The documents of one example, built at the first look and then kept.

    The length is known without building anything.
    """

    __slots__ = ("_built", "_names", "_places", "_row", "_rows")

    def __init__(self, rows: Rows, row: int, places: Sequence[int], names: dict[int, str]) -> None:
        self._rows = rows
        self._row = row
        self._places = places
        self._names = names
        self._built: tuple[Document, ...] | None = None

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | Sequence[Document]:
        return self._documents()[index]

    def __iter__(self) -> Iterator[Document]:
        return iter(self._documents())

    def __repr__(self) -> str:
        return f"Profile({len(self)} documents)"

    def _documents(self) -> tuple[Document, ...]:
        if self._built is None:
            everything = self._rows.documents(self._row)
            self._built = tuple(self._named(everything[place], place) for place in self._places)
        return self._built

    def _named(self, document: Document, place: int) -> Document:
        if place not in self._names:
            return document
        parts = {name: getattr(document, name) for name in document.__slots__}
        return Document(**{**parts, "id": self._names[place]})


class ExampleSet(Sequence[Example]):
    """Examples in the order of the file, built when they are looked at.

    Parameters
    ----------
    rows: the stored examples.
    report: takes the counts; its policies decide.
    wanted: the rows to consider (a split), None for all.
    limit: stop after the examples of this many users, None for all. Users of whom nothing stays do not
        count, and what comes after is not looked at.
    problems: findings about no row in particular, as (kind, record id).

    Raises ValidationError for findings whose policy is ``error``, all in one message.
    """

    def __init__(
        self,
        rows: Rows,
        report: Report,
        *,
        wanted: Sequence[int] | None = None,
        limit: int | None = None,
        problems: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.report = report
        self.name = report.where
        self.path = report.path
        self._rows = rows
        self._kept: list[int] = []
        self._places: dict[int, list[int]] = {}  # only rows that lose documents
        self._names: dict[int, dict[int, str]] = {}  # only rows with re-keyed documents
        for kind, record in problems:
            report.add(kind, record)
        self._admit_all(range(len(rows)) if wanted is None else wanted, limit)
        report.raise_errors()
        report.n_examples = len(self._kept)
        report.n_documents = sum(len(self._chosen(row)) for row in self._kept)
        staying = sum(len(self._staying(row)) for row in self._kept)
        report.notes["documents left out by the cap"] = staying - report.n_documents

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> ExampleSet: ...
    def __getitem__(self, index: int | slice) -> Example | ExampleSet:
        if isinstance(index, slice):
            part = object.__new__(ExampleSet)
            part.__dict__.update(self.__dict__)
            part._kept = self._kept[index]
            return part
        row = self._kept[index]
        head = self._rows.header(row)
        profile = Profile(self._rows, row, self._chosen(row), self._names.get(row, {}))
        return Example(head.id, head.user, head.input, head.target, profile, head.meta)

    def __iter__(self) -> Iterator[Example]:
        return (self[index] for index in range(len(self._kept)))

    def __repr__(self) -> str:
        return f"ExampleSet({self.name}, {len(self)} examples)"

    @property
    def fingerprint(self) -> str:
        """Identify the examples by content and choice (32 hex digits)."""
        seen = (self._rows.digest(), self._kept, sorted(self._places.items()), sorted(self._names.items()))
        return hashlib.sha256(repr(seen).encode()).hexdigest()[:32]

    def _staying(self, row: int) -> Sequence[int]:
        return self._places[row] if row in self._places else range(self._rows.size(row))

    def _chosen(self, row: int) -> Sequence[int]:
        return self._rows.select(row, self._staying(row))

    def _admit_all(self, wanted: Sequence[int], limit: int | None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"{self.name}: limit={limit}; at least one user is needed, or None for all")
        users: set[str] = set()
        for row in wanted:
            user = self._rows.user(row)
            if limit is not None and len(users) == limit and user not in users:
                continue
            if self._admit(row, self.report.policies):
                users.add(user)

    def _admit(self, row: int, policies: Mapping[str, Policy]) -> bool:
        """Apply the policies to one row; whether it stays."""
        findings = self._rows.findings(row)
        stays = True
        dropped: set[int] = set()
        again: list[int] = []
        if findings:
            record = self._rows.header(row).id
            for kind, place in findings:
                where = record if place < 0 else f"{record}/{self._rows.document_id(row, place)}"
                self.report.add(kind, where)
                if policies[kind] == "skip":
                    stays = stays and place >= 0
                    dropped.update([place] if place >= 0 else [])
                elif kind == "duplicate_document_id":
                    again.append(place)
            if dropped and len(dropped) == self._rows.size(row):
                self.report.add("empty_profile", record)
                stays = stays and policies["empty_profile"] != "skip"
        if not stays:
            return False
        self._kept.append(row)
        if dropped:
            self._places[row] = [place for place in range(self._rows.size(row)) if place not in dropped]
        renamed = [place for place in again if place not in dropped]
        if renamed:
            self._names[row] = self._new_names(row, renamed)
        return True

    def _new_names(self, row: int, places: list[int]) -> dict[int, str]:
        """New ids for repeated ones: the place in the file's profile is added, until no other has the id."""
        taken = {self._rows.document_id(row, place) for place in range(self._rows.size(row))}
        names = {}
        for place in places:
            name = f"{self._rows.document_id(row, place)}#{place}"
            while name in taken:
                name += "+"
            taken.add(name)
            names[place] = name
        return names
