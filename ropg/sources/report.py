"""What the validator found: kinds of findings, what may be done about each, and the printable report."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Policy = Literal["error", "skip", "keep"]
_SHOWN = 2  # records named per kind in the printed report
_SHOWN_IN_ERROR = 20
_WIDTH = 60  # characters shown of a record id


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding.

    ``default`` is the policy without configuration, ``allowed`` the policies that make sense, ``meaning``
    what was found, ``remedy`` what a user can do, ``skipped`` and ``kept`` what these policies did.
    """

    default: Policy
    meaning: str
    remedy: str
    skipped: str = "documents left out"
    kept: str = "kept"
    allowed: tuple[Policy, ...] = ("error", "skip", "keep")


_DROPPED = "examples left out"

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "missing_gold": Kind(
            "error",
            "ids of questions without a gold output",
            "complete the outputs file",
            _DROPPED,
            "target None",
        ),
        "extra_gold": Kind(
            "error",
            "ids of gold outputs without a question",
            "questions and outputs must belong to one split",
            "outputs left out",
            allowed=("error", "skip"),
        ),
        "duplicate_id": Kind(
            "error",
            "ids that stand more than once among the questions",
            "make the ids unique",
            "later examples left out",
            allowed=("error", "skip"),
        ),
        "duplicate_gold": Kind(
            "error",
            "ids that stand more than once among the gold outputs",
            "make the ids unique",
            "later outputs left out",
            allowed=("error", "skip"),
        ),
        "mixed_id_types": Kind(
            "keep",
            "ids are numbers in some places and strings in others",
            "write all ids as strings",
            kept="joined as strings",
            allowed=("error", "keep"),
        ),
        "empty_input": Kind("skip", "nothing is asked: the input is empty", "fill the input in", _DROPPED),
        "empty_target": Kind("skip", "the gold output is empty", "fill the gold output in", _DROPPED),
        "unknown_gold": Kind(
            "error",
            "the gold output is none of the task's labels",
            "check the task and the outputs file",
            _DROPPED,
        ),
        "empty_profile": Kind("keep", "the profile holds no document", "give the user documents", _DROPPED),
        "missing_field": Kind(
            "error",
            "a document lacks a field that the task needs",
            "check the task, or map the field",
            kept="empty text in its place",
        ),
        "duplicate_document_id": Kind(
            "keep", "a document id stands twice in one profile", "make the ids unique", kept="given a new id"
        ),
        "duplicate_text": Kind("skip", "the same document stands twice in one profile", "remove the copies"),
        "leak": Kind(
            "skip",
            "the query and the answer stand together in one document",
            "remove the target's own document from the profile",
        ),
        "query_in_profile": Kind("keep", "the query stands in a document", "remove the document"),
        "answer_in_profile": Kind("keep", "the answer stands in a document", "remove the document"),
        "file_names": Kind(
            "error",
            "file names stand where the e-mails' text should be",
            "join the files with the Avocado collection by LaMP's own script first",
            _DROPPED,
        ),
        "unparsable_date": Kind("keep", "a document's date cannot be read", "write it as YYYY-MM-DD"),
        "date_after_query": Kind(
            "keep", "a document is newer than the query", "use the time-based split, or remove it"
        ),
    }
)


class ValidationError(ValueError):
    """Findings whose policy is ``error``, all of them in one message."""


def resolve_policies(on_problem: Mapping[str, str] | None) -> dict[str, Policy]:
    """Complete a configuration of policies with the defaults.

    Raises ValueError with the nearest name for an unknown kind or policy, and for a policy that a kind
    does not allow.

    >>> resolve_policies({"leak": "error"})["leak"]
    'error'
    >>> resolve_policies({"leek": "error"})
    Traceback (most recent call last):
        ...
    ValueError: on_problem: unknown kind of finding 'leek'; did you mean 'leak'? Known: answer_in_profile, ...
    """
    policies: dict[str, Policy] = {name: kind.default for name, kind in KINDS.items()}
    for name, policy in (on_problem or {}).items():
        if name not in KINDS:
            raise ValueError(f"on_problem: unknown kind of finding {name!r}{did_you_mean(name, KINDS)}")
        if policy not in KINDS[name].allowed:
            hint = did_you_mean(str(policy), KINDS[name].allowed)
            raise ValueError(f"on_problem.{name}: unknown policy {policy!r}{hint}")
        policies[name] = policy
    return policies


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The tail of an error message about an unknown name.

    >>> did_you_mean("skp", ["skip", "keep"])
    "; did you mean 'skip'? Known: keep, skip."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}? " if near else ". "
    return f"{hint}Known: {', '.join(names)}."


@dataclass
class Report:
    """Counts per kind of finding, with a few record ids each.

    ``where`` names the data ("lamp LaMP-4 dev") and ``path`` its file. A record id reads
    ``example/document`` where a document is meant.
    """

    where: str
    path: str
    policies: Mapping[str, Policy]
    n_examples: int = 0
    n_documents: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    records: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, record: str) -> None:
        """Count one finding of ``kind``; the first few record ids are remembered."""
        self.counts[kind] += 1
        shown = self.records.setdefault(kind, [])
        if len(shown) < _SHOWN_IN_ERROR:
            shown.append(record)

    def raise_errors(self) -> None:
        """Raise one ValidationError that lists every finding whose policy is ``error``."""
        bad = [kind for kind in self.counts if self.policies[kind] == "error"]
        if not bad:
            return
        lines = [f"{self.where}: {self.path}"]
        for kind in bad:
            facts = KINDS[kind]
            allowed = " or ".join(policy for policy in facts.allowed if policy != "error")
            lines.append(
                f"  {kind}: {facts.meaning}: {self._named(kind, _SHOWN_IN_ERROR)}. "
                f"Remedy: {facts.remedy}, or set on_problem.{kind}={allowed}."
            )
        raise ValidationError("\n".join(lines))

    def lines(self) -> list[str]:
        """One line for the data and one per kind that was found, ready to print."""
        lines = [
            f"{self.where}: {self.n_examples:,} examples, {self.n_documents:,} documents in their profiles"
        ]
        for kind, count in self.counts.items():
            facts = KINDS[kind]
            done = facts.skipped if self.policies[kind] == "skip" else facts.kept
            lines.append(f"  {kind}: {count:,} {done} ({facts.meaning}: {self._named(kind, _SHOWN)})")
        lines += [f"  {note}: {count:,}" for note, count in self.notes.items() if count]
        return lines

    def _named(self, kind: str, most: int) -> str:
        names = [name if len(name) <= _WIDTH else f"{name[:_WIDTH]}…" for name in self.records[kind][:most]]
        rest = self.counts[kind] - len(names)
        return ", ".join(names) + (f" and {rest:,} more" if rest else "")
