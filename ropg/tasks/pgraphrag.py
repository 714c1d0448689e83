"""Reviews of a user-item graph: title from text, text from title, rating from both.

Documents are reviews: the user's own of other items, and those of others on the same item (``provenance``
"own" or "neighbor"). The template ``paper`` says so in an introduction and shows the two kinds in two
blocks; ``pattern`` is a plain pattern in which both look the same.

The input is what the source gives, usually the bare review or title. φ_q leaves out the instruction where x
has one; ``paper`` puts it before x where x has none, since an LLM that follows instructions needs one, with
documents or without. So φ_p(x, []) = x for an x that brings its instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ropg.examples import Document
from ropg.tasks import register_task
from ropg.tasks.base import RATINGS, TaskDefinition
from ropg.tasks.parsing import RatingParser
from ropg.tasks.templates import (
    BODY,
    TITLE,
    Piece,
    Question,
    Template,
    input_splitter,
    pattern,
    pattern_question,
    phrase,
    required,
)
from ropg.tasks.wording import block, query_after, title_and_text

Entry = Callable[[Document], tuple[Piece, ...]]


@dataclass(frozen=True)
class Wording:
    """What the templates say in one language."""

    review: str
    title: str
    rating: str
    intro: str
    own: str
    others: str
    ask_title: str
    ask_text: str
    ask_rating: str


WORDINGS = {
    "en": Wording(
        review="review",
        title="title",
        rating="rating",
        intro="Here are reviews that show how the user writes and what others say about the same item.",
        own="Reviews by the same user:",
        others="Reviews of the same item by other users:",
        ask_title="Generate a title for the following review:",
        ask_text="Write the review that has the following title:",
        ask_rating="What is the rating of the following review on a scale of 1 to 5? "
        "Just answer with 1, 2, 3, 4, or 5 without further explanation. review:",
    ),
    "pt": Wording(
        review="avaliação",
        title="título",
        rating="nota",
        intro="Aqui estão avaliações que mostram como o usuário escreve e o que outros dizem do mesmo item.",
        own="Avaliações do mesmo usuário:",
        others="Avaliações do mesmo item por outros usuários:",
        ask_title="Gere um título para a seguinte avaliação:",
        ask_text="Escreva a avaliação que tem o seguinte título:",
        ask_rating="Qual é a nota da seguinte avaliação em uma escala de 1 a 5? "
        "Responda apenas com 1, 2, 3, 4 ou 5, sem mais explicações. avaliação:",
    ),
}


def _text_block(words: Wording) -> Entry:
    """A block with the title as the input and the text as the answer."""
    return lambda document: (
        Piece(f"{words.title}: "),
        Piece(document.title, TITLE),
        Piece(f"\n{words.review}: "),
        Piece(document.text, BODY),
    )


def _rating_block(words: Wording) -> Entry:
    def entry(document: Document) -> tuple[Piece, ...]:
        join = "\n" if document.title and document.text else ""  # as the source joins them in the input
        return (
            Piece(f"{words.review}: "),
            Piece(document.title, TITLE),
            Piece(join),
            Piece(document.text, BODY),
            Piece(f"\n{words.rating}: "),
            required(document, "score"),
        )

    return entry


def _two_blocks(words: Wording) -> Callable[[Sequence[str], Sequence[Document]], str]:
    """Introduction, the user's own reviews, those of others; each kind in rank order, if there are any."""

    def join(entries: Sequence[str], documents: Sequence[Document]) -> str:
        pairs = list(zip(entries, documents, strict=True))
        own = [text for text, document in pairs if document.provenance == "own"]
        others = [text for text, document in pairs if document.provenance != "own"]
        parts = [words.intro]
        for heading, texts in ((words.own, own), (words.others, others)):
            if texts:
                parts += [heading, *texts]
        return "\n\n".join(parts)

    return join


def _asking(instruction: str) -> Callable[[str], Question]:
    split = input_splitter(phrase(instruction))

    def question(text: str) -> Question:
        head, body = split(text)
        return Question(after=(Piece(head or f"{instruction} "), Piece(body, BODY)), trail="\n\n")

    return question


def _templates(
    words: Wording, instruction: str, label: str, answer: str, entry: Entry
) -> dict[str, Template]:
    split = input_splitter(phrase(instruction))
    return {
        "paper": Template(_asking(instruction), entry, _two_blocks(words)),
        "pattern": pattern(pattern_question(split, label, answer), entry),
    }


def _wording(name: str, language: str) -> Wording:
    if language not in WORDINGS:
        raise ValueError(f"{name} has no wording in {language!r}; it has {', '.join(WORDINGS)}")
    return WORDINGS[language]


@register_task("pgraphrag_title")
def pgraphrag_title(language: str = "en") -> TaskDefinition:
    """The title of a review from its text."""
    words = _wording("pgraphrag_title", language)
    entry = block(words.review, words.title)
    return TaskDefinition(
        name="pgraphrag_title",
        query=query_after(input_splitter(phrase(words.ask_title))),
        templates=_templates(words, words.ask_title, words.review, words.title, entry),
        document_text=title_and_text,
    )


@register_task("pgraphrag_text")
def pgraphrag_text(language: str = "en") -> TaskDefinition:
    """The text of a review from its title."""
    words = _wording("pgraphrag_text", language)
    return TaskDefinition(
        name="pgraphrag_text",
        query=query_after(input_splitter(phrase(words.ask_text))),
        templates=_templates(words, words.ask_text, words.title, words.review, _text_block(words)),
        document_text=title_and_text,
    )


@register_task("pgraphrag_rating")
def pgraphrag_rating(language: str = "en") -> TaskDefinition:
    """The rating of a review from its title and text; Eval is Eq. 8, as for LaMP-3."""
    words = _wording("pgraphrag_rating", language)
    return TaskDefinition(
        name="pgraphrag_rating",
        query=query_after(input_splitter(phrase(words.ask_rating))),
        templates=_templates(words, words.ask_rating, words.review, words.rating, _rating_block(words)),
        document_text=title_and_text,
        metric="normalized_mae",
        metrics=("mae", "rmse"),
        labels=RATINGS,
        parser=RatingParser(RATINGS),
    )
