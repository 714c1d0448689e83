"""LaMP-1: which of two references would this author cite?"""

from __future__ import annotations

import re

from ropg.examples import Document
from ropg.tasks import register_task
from ropg.tasks.base import TaskDefinition
from ropg.tasks.parsing import ReferenceParser
from ropg.tasks.templates import BODY, TITLE, Piece, Question, Template, in_rank_order, pattern, phrase
from ropg.tasks.wording import english_only, title_and_text

LABELS = ("[1]", "[2]")

# Titles may hold quotes and markers of their own, so the fixed phrases and the last `[2]:` are the anchors.
_INPUT = re.compile(
    rf"\s*{phrase('For an author who has written the paper with the title')}\s*\"(?P<title>.*?)\"\s*"
    rf"{phrase(', which reference is related? Just answer with [1] or [2] without explanation.')}\s*"
    rf"{phrase('[1]:')}\s*\"(?P<first>.*)\"\s*{phrase('[2]:')}\s*\"(?P<second>.*)\"\s*",
    re.IGNORECASE | re.DOTALL,
)


def parse_input(text: str) -> tuple[str, str, str] | None:
    """The paper's own title and both references of a LaMP-1 input, or None where it has another form.

    >>> parse_input('For an author who has written the paper with the title "On "Lazy" Agents", which '
    ...     'reference is related? Just answer with [1] or [2] without explanation. [1]: "A "b" [2] c" '
    ...     '[2]: "D"')
    ('On "Lazy" Agents', 'A "b" [2] c', 'D')
    """
    match = _INPUT.fullmatch(text)
    return (match["title"], match["first"], match["second"]) if match else None


def query(text: str) -> str:
    """φ_q: both references, joined by a space."""
    parts = parse_input(text)
    return f"{parts[1]} {parts[2]}" if parts else text


def _paper_question(text: str) -> Question:
    match = _INPUT.fullmatch(text)
    if match is None:
        return Question(after=(Piece(text, BODY),), trail=". ")
    title, first, second = (match.span(group) for group in ("title", "first", "second"))
    quote = title[1] + 1  # Table 2 adds the profile's titles after the closing quote of the paper's own
    return Question(
        before=(
            Piece(text[: title[0]]),
            Piece(text[slice(*title)], BODY),
            Piece(text[title[1] : quote]),
        ),
        after=(
            Piece(text[quote : first[0]]),
            Piece(text[slice(*first)], TITLE),  # the references are cut last
            Piece(text[first[1] : second[0]]),
            Piece(text[slice(*second)], TITLE),
            Piece(text[second[1] :]),
        ),
        lead=", and ",
    )


def _paper_entry(document: Document) -> tuple[Piece, ...]:
    return Piece('"'), Piece(document.title, TITLE), Piece('"')


def _pattern_question(text: str) -> Question:
    parts = parse_input(text)
    if parts is None:
        return Question(after=(Piece(text, BODY), Piece("\nrelated reference:")), trail="\n\n")
    title, first, second = parts
    return Question(
        after=(
            Piece("paper: "),
            Piece(title, BODY),
            Piece("\nreference [1]: "),
            Piece(first, TITLE),
            Piece("\nreference [2]: "),
            Piece(second, TITLE),
            Piece("\nrelated reference:"),
        ),
        trail="\n\n",
    )


def _pattern_entry(document: Document) -> tuple[Piece, ...]:
    return Piece("paper: "), Piece(document.title, TITLE)


@register_task("lamp_1")
def lamp_1(language: str = "en") -> TaskDefinition:
    """LaMP-1, personalized citation identification."""
    english_only("LaMP-1", language)
    return TaskDefinition(
        name="LaMP-1",
        query=query,
        templates={
            "paper": Template(_paper_question, _paper_entry, in_rank_order(", and ")),
            "pattern": pattern(_pattern_question, _pattern_entry),
        },
        document_text=title_and_text,
        metric="accuracy",
        metrics=("accuracy",),
        labels=LABELS,
        parser=ReferenceParser(LABELS),
    )
