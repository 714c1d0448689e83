"""Small pieces that several tasks share."""

from __future__ import annotations

from collections.abc import Callable

from ropg.examples import Document
from ropg.tasks.templates import BODY, TITLE, Piece, required


def english_only(name: str, language: str) -> None:
    """ValueError unless the language is English."""
    if language != "en":
        raise ValueError(f"{name} is worded in English only, not in {language!r}; leave language='en'")


def title_and_text(document: Document) -> str:
    """What a retriever sees where documents have titles: title, space, text.

    >>> title_and_text(Document("1", "they sleep", title="Cats"))
    'Cats they sleep'
    """
    return f"{document.title} {document.text}".strip()


def text_only(document: Document) -> str:
    """What a retriever sees where documents are a text."""
    return document.text


def query_after(split: Callable[[str], tuple[str, str]]) -> Callable[[str], str]:
    """φ_q: the input without its instruction."""
    return lambda text: split(text)[1].strip()


def quoted_title_for_text(document: Document) -> tuple[Piece, ...]:
    """Table 2 for LaMP-4, 5 and 6: ``"<title>" is the title for "<text>"``."""
    return (
        Piece('"'),
        Piece(document.title, TITLE),
        Piece('" is the title for "'),
        Piece(document.text, BODY),
        Piece('"'),
    )


def block(label: str, answer: str) -> Callable[[Document], tuple[Piece, ...]]:
    r"""A pattern's block for a document: ``label: <text>``, newline, ``answer: <title>``."""
    return lambda document: (
        Piece(f"{label}: "),
        Piece(document.text, BODY),
        Piece(f"\n{answer}: "),
        Piece(document.title, TITLE),
    )


def labelled_block(label: str, answer: str, attribute: str) -> Callable[[Document], tuple[Piece, ...]]:
    r"""The same with the document's tag or score as the answer."""
    return lambda document: (
        Piece(f"{label}: "),
        Piece(document.text, BODY),
        Piece(f"\n{answer}: "),
        required(document, attribute),
    )
