"""Prompts as pieces of text: what is fixed, what may be cut, and in which order.

A template (φ_p) turns the input x into a :class:`Question`, every document into an entry, and says how
entries are joined. All of them are made of :class:`Piece` objects, so that the token budget
(:mod:`ropg.tasks.budget`) can shorten any prompt of any task without knowing the task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ropg.examples import Document

BODY = 0  # cut first: running text
TITLE = 1  # cut when no body is left: titles; LaMP-1's references within x


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt. ``cut`` None: never cut (wording, tags, scores); lower numbers are cut first."""

    text: str
    cut: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """The input x as a prompt shows it, and where the documents go.

    The prompt is ``before``, then, if there are documents, ``lead`` + documents + ``trail``, then ``after``.
    """

    after: tuple[Piece, ...]
    before: tuple[Piece, ...] = ()
    lead: str = ""
    trail: str = ""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces in order of appearance."""
        return self.before + self.after

    def with_texts(self, texts: Sequence[str]) -> Question:
        """The same question with the pieces' texts replaced, in order."""
        new = tuple(Piece(text, piece.cut) for text, piece in zip(texts, self.pieces, strict=True))
        return Question(new[len(self.before) :], new[: len(self.before)], self.lead, self.trail)


def in_rank_order(separator: str) -> Callable[[Sequence[str], Sequence[Document]], str]:
    """Join entries best first, as Table 2's concat does."""
    return lambda entries, documents: separator.join(entries)


def best_last(separator: str) -> Callable[[Sequence[str], Sequence[Document]], str]:
    """Join entries so that the best-ranked one stands last, next to the query."""
    return lambda entries, documents: separator.join(reversed(entries))


@dataclass(frozen=True, slots=True)
class Template:
    """φ_p of one task for one family of LLMs.

    question: input x -> Question. entry: document -> its pieces. join: (entry texts in rank order, their
    documents) -> one string. stop: strings at which generation may end.
    """

    question: Callable[[str], Question]
    entry: Callable[[Document], tuple[Piece, ...]]
    join: Callable[[Sequence[str], Sequence[Document]], str]
    stop: tuple[str, ...] = ()

    def render(self, question: Question, entries: Sequence[str], documents: Sequence[Document]) -> str:
        """The whole prompt; ``entries`` are the texts of ``documents``, in rank order."""
        before = "".join(piece.text for piece in question.before)
        after = "".join(piece.text for piece in question.after)
        if not documents:
            return before + after
        return before + question.lead + self.join(entries, documents) + question.trail + after


def phrase(text: str) -> str:
    r"""A regular expression for a fixed wording that forgives spacing (match it with IGNORECASE).

    >>> bool(re.fullmatch(phrase("tags: [1]"), "Tags :  [1]", re.IGNORECASE))
    True
    """
    words = (re.findall(r"\w+|[^\w\s]", word) for word in text.split())
    return r"\s+".join(r"\s*".join(re.escape(part) for part in word) for word in words)


def input_splitter(pattern: str) -> Callable[[str], tuple[str, str]]:
    """A function x -> (instruction, body), both verbatim; the instruction is "" where x has another form.

    >>> input_splitter(phrase("Generate a headline for the following article:"))(
    ...     "generate a headline for the following article:  Cats sleep")
    ('generate a headline for the following article:  ', 'Cats sleep')
    """
    anchored = re.compile(rf"\s*{pattern}\s*", re.IGNORECASE)

    def split(text: str) -> tuple[str, str]:
        match = anchored.match(text)
        end = match.end() if match else 0
        return text[:end], text[end:]

    return split


def paper_question(split: Callable[[str], tuple[str, str]], trail: str = ". ") -> Callable[[str], Question]:
    """Documents, then ``trail``, then the whole input x (Table 2); without documents exactly x."""

    def question(text: str) -> Question:
        head, body = split(text)
        return Question(after=(Piece(head), Piece(body, BODY)), trail=trail)

    return question


def pattern_question(
    split: Callable[[str], tuple[str, str]], label: str, answer: str
) -> Callable[[str], Question]:
    r"""The query block of a plain pattern: ``label: <body of x>``, newline, ``answer:``.

    Without documents this block stands alone: the pattern's analogue of φ_p(x, []) = x.
    """

    def question(text: str) -> Question:
        body = split(text)[1].strip()
        return Question(
            after=(Piece(f"{label}: "), Piece(body, BODY), Piece(f"\n{answer}:")),
            trail="\n\n",
        )

    return question


def pattern(question: Callable[[str], Question], entry: Callable[[Document], tuple[Piece, ...]]) -> Template:
    """A plain input/output pattern: a block per document, the best nearest to the query, one-line answer."""
    return Template(question, entry, best_last("\n\n"), stop=("\n",))


def required(document: Document, attribute: str) -> Piece:
    """The tag or score of a document, never cut; ValueError where the document has none."""
    value = getattr(document, attribute)
    if value is None:
        raise ValueError(
            f"document {document.id!r} has no {attribute}, which the prompt shows; "
            f"give every document of this task a {attribute} or leave the document out"
        )
    return Piece(str(value))
