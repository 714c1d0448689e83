"""One validator for all sources: what is wrong with an example and its profile.

:func:`inspect` looks at one example and knows no policy, so that its findings can be kept beside
converted files; :class:`ropg.sources.example_set.ExampleSet` applies the policies of
:mod:`ropg.sources.report`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ropg.examples import Document, Example
from ropg.sources.dates import ParsedDate, is_after, parse_date
from ropg.sources.report import KINDS, Report, ValidationError, resolve_policies

__all__ = [
    "KINDS",
    "Finding",
    "Report",
    "Rules",
    "ValidationError",
    "inspect",
    "normalise",
    "resolve_policies",
]

#: A query or an answer inside a longer text counts only from this many words on: short ones ("Great!",
#: a rating) stand in many texts by chance. A text that equals them counts at any length.
MIN_WORDS_INSIDE = 5

_FILE_NAME = re.compile(r"[\w.\-/\\]*\d[\w.\-/\\]*\Z")


class Finding(NamedTuple):
    """A kind of finding, and the document's place in the profile (-1: the example as a whole)."""

    kind: str
    place: int = -1


def _whole_input(text: str) -> tuple[str, ...]:
    return (text,)


_WHOLE = re.compile(r"(?<=\d)\.0+$")  # a rating written by a table program: 5.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What a source knows about its examples.

    labels: the gold outputs that exist, None where any text may be one.
    query_texts: the texts of the input that would be a leak in a profile, without the task's template.
    file_names: whether texts may be file names by mistake (LaMP-6).
    """

    labels: tuple[str, ...] | None = None
    query_texts: Callable[[str], tuple[str, ...]] = _whole_input
    file_names: bool = False


class _OnlyWords(dict[int, str]):
    """Translation table, filled as characters are met: punctuation, symbols and spaces become spaces."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = character if unicodedata.category(character)[0] in "LMN" else " "
        return self[code]


_ONLY_WORDS = _OnlyWords()


@lru_cache(maxsize=32768)
def normalise(text: str) -> str:
    """Text as leaks are matched: NFKC, case folded, punctuation and white space collapsed.

    >>> normalise("  Cats  sleep a LOT! ")
    'cats sleep a lot'
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.translate(_ONLY_WORDS).split())


def inspect(example: Example, rules: Rules) -> Iterator[Finding]:
    """Yield everything that is wrong with one example, the example as a whole first."""
    queries = tuple(filter(None, map(normalise, rules.query_texts(example.input))))
    if not example.input.strip():
        yield Finding("empty_input")
    if example.target is not None:
        yield from _inspect_target(example.target, rules)
    if len(example.profile) == 0:
        yield Finding("empty_profile")
    if rules.file_names and _holds_file_names(example, rules):
        yield Finding("file_names")
    answer = normalise(example.target or "")
    now = parse_date(str(example.meta.get("date") or ""))
    ids: set[str] = set()
    contents: set[tuple[str, ...]] = set()
    for place, document in enumerate(example.profile):
        if document.id in ids:
            yield Finding("duplicate_document_id", place)
        ids.add(document.id)
        content = _content(document)
        if content in contents:
            yield Finding("duplicate_text", place)
        contents.add(content)
        if kind := _leak(document, queries, answer):
            yield Finding(kind, place)
        if document.date is not None:
            yield from _inspect_date(document.date, now, place)


def _inspect_target(target: str, rules: Rules) -> Iterator[Finding]:
    if not target.strip():
        yield Finding("empty_target")
    elif rules.labels is not None and _WHOLE.sub("", target.strip().casefold()) not in rules.labels:
        yield Finding("unknown_gold")


def _inspect_date(date: str, now: ParsedDate | None, place: int) -> Iterator[Finding]:
    parsed = parse_date(date)
    if parsed is None:
        yield Finding("unparsable_date", place)
    elif now is not None and is_after(parsed, now):
        yield Finding("date_after_query", place)


def _content(document: Document) -> tuple[str, ...]:
    """What makes two documents of a profile the same; two authors may well write the same words."""
    words = normalise(document.title), normalise(document.text)
    if not any(words):  # only punctuation or emoji: compare what stands there
        words = document.title, document.text
    about = document.score, document.tag, document.author, document.item
    return (*words, *(part or "" for part in about))


def _leak(document: Document, queries: tuple[str, ...], answer: str) -> str | None:
    title, text = normalise(document.title), normalise(document.text)
    both = f"{title} {text}"
    query_stands = any(
        query in (title, text, both) or (query.count(" ") >= MIN_WORDS_INSIDE - 1 and _stands_in(query, text))
        for query in queries
    )
    if not answer:
        return "query_in_profile" if query_stands else None
    answer_stands = answer in (title, text) or (
        answer.count(" ") >= MIN_WORDS_INSIDE - 1 and _stands_in(answer, text)
    )
    if not query_stands:
        return "answer_in_profile" if answer_stands else None
    # labels stand in every profile; they are a leak only beside the query itself
    labels = (normalise(document.score or ""), normalise(document.tag or ""))
    return "leak" if answer_stands or answer in labels else "query_in_profile"


def _stands_in(words: str, text: str) -> bool:
    return words in text and f" {words} " in f" {text} "


def _holds_file_names(example: Example, rules: Rules) -> bool:
    texts = [*rules.query_texts(example.input), *(document.text for document in example.profile)]
    texts = [text.strip() for text in texts if text.strip()]
    if not texts:
        return False
    return sum(_FILE_NAME.match(text) is not None for text in texts) * 2 > len(texts)
