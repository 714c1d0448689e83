"""Reviews of a user-item graph: title from text, text from title, rating from both.

Documents are reviews: the user's own of other items, and those of others on the same item (``provenance``
"own" or "neighbor"). The template ``paper`` shows the two kinds in two blocks, under an introduction that
fits the blocks which are there; ``pattern`` is a plain pattern in which both look the same.

The input is what the source gives, usually the bare review or title. φ_q leaves out the instruction where x
has one; ``paper`` puts it before x where x has none, since an LLM that follows instructions needs one, with
documents or without. So φ_p(x, []) = x for an x that brings its instruction.

The instruction for a title states a limit of words (``max_words``; 5 in appendix A.9 of the PGraphRAG
paper). It asks the LLM and no more: a longer title is stored and scored as it came, since cutting it would
hide from the metrics which systems keep to the limit, and would end titles in the middle of a phrase.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
Splitter = Callable[[str], tuple[str, str]]  # x -> (instruction, body)

#: What the tables report of generated titles and texts.
GENERATED = ("rouge1", "rougeL", "meteor")


@dataclass(frozen=True)
class Wording:
    """What the templates say in one language.

    intro_own, intro_others, intro_both: the introduction where the documents are the user's own, those of
    others, or both. own, others: the headings of the blocks. same: what "{same}" stands for in introductions
    and in ``others`` where all of the others' reviews are of one item; nothing where they are of several.
    limit: "{n}" is the number of words, or the word for one; ask_title: "{limit}" is the limit or nothing.
    """

    review: str
    title: str
    rating: str
    intro_own: str
    intro_others: str
    intro_both: str
    own: str
    others: str
    same: tuple[str, str]
    limit: tuple[str, str]
    ask_title: str
    ask_text: str
    ask_rating: str

    def asking_title(self, max_words: int | None) -> str:
        """The instruction for a title of at most so many words; None: of any length.

        >>> WORDINGS["en"].asking_title(5)
        'Generate a title of at most 5 words for the following review:'
        >>> WORDINGS["pt"].asking_title(None)
        'Gere um título para a seguinte avaliação:'
        """
        if max_words is None:
            return self.ask_title.format(limit="")
        return self.ask_title.format(limit=self.limit[max_words != 1].format(n=max_words))


WORDINGS = {
    "en": Wording(
        review="review",
        title="title",
        rating="rating",
        intro_own="Here are reviews that show how the user writes.",
        intro_others="Here are reviews that show what others say{same}.",
        intro_both="Here are reviews that show how the user writes and what others say{same}.",
        own="Reviews by the same user:",
        others="Reviews{same} by other users:",
        same=(" about the same item", " of the same item"),
        limit=(" of one word", " of at most {n} words"),
        ask_title="Generate a title{limit} for the following review:",
        ask_text="Write the review that has the following title:",
        ask_rating="What is the rating of the following review on a scale of 1 to 5? "
        "Just answer with 1, 2, 3, 4, or 5 without further explanation. review:",
    ),
    "pt": Wording(
        review="avaliação",
        title="título",
        rating="nota",
        intro_own="Aqui estão avaliações que mostram como o usuário escreve.",
        intro_others="Aqui estão avaliações que mostram o que outros dizem{same}.",
        intro_both="Aqui estão avaliações que mostram como o usuário escreve e o que outros dizem{same}.",
        own="Avaliações do mesmo usuário:",
        others="Avaliações{same} por outros usuários:",
        same=(" do mesmo item", " do mesmo item"),
        limit=(" de uma palavra", " de no máximo {n} palavras"),
        ask_title="Gere um título{limit} para a seguinte avaliação:",
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
        # profiles over all items of a user, or several hops away, hold reviews of other items than the target's
        items = {document.item for document in documents if document.provenance != "own"}
        about, of = words.same if len(items) <= 1 else ("", "")
        introductions = {(True, False): words.intro_own, (False, True): words.intro_others}
        parts = [introductions.get((bool(own), bool(others)), words.intro_both).format(same=about)]
        for heading, texts in ((words.own, own), (words.others.format(same=of), others)):
            if texts:
                parts += [heading, *texts]
        return "\n\n".join(parts)

    return join


def _asking(instruction: str, split: Splitter) -> Callable[[str], Question]:
    def question(text: str) -> Question:
        head, body = split(text)
        return Question(after=(Piece(head or f"{instruction} "), Piece(body, BODY)), trail="\n\n")

    return question


def _templates(
    words: Wording, instruction: str, split: Splitter, label: str, answer: str, entry: Entry
) -> dict[str, Template]:
    return {
        "paper": Template(_asking(instruction, split), entry, _two_blocks(words)),
        "pattern": pattern(pattern_question(split, label, answer), entry),
    }


def _wording(name: str, language: str) -> Wording:
    if language not in WORDINGS:
        raise ValueError(f"{name} has no wording in {language!r}; it has {', '.join(WORDINGS)}")
    return WORDINGS[language]


def _any_limit_splitter(words: Wording) -> Splitter:
    """Splits after the instruction for a title, whatever limit of words it states, if any."""
    forms = [phrase(words.asking_title(n)) for n in (None, 1, 99)]
    return input_splitter(f"(?:{'|'.join(forms)})".replace("99", "[0-9]+"))


def _check_limit(name: str, max_words: Any) -> None:
    if max_words is not None and (
        isinstance(max_words, bool) or not isinstance(max_words, int) or max_words < 1
    ):
        raise ValueError(f"{name}: max_words={max_words!r}; a whole number from 1, or None for no limit")


@register_task("pgraphrag_title")
def pgraphrag_title(language: str = "en", max_words: int | None = 5) -> TaskDefinition:
    """The title of a review from its text.

    ``max_words``: the limit that the instruction states, None for none. A pattern has no instruction, so
    the template ``pattern`` states no limit. An x that brings an instruction keeps it as it is.
    """
    words = _wording("pgraphrag_title", language)
    _check_limit("pgraphrag_title", max_words)
    entry = block(words.review, words.title)
    split = _any_limit_splitter(words)
    return TaskDefinition(
        name="pgraphrag_title",
        query=query_after(split),
        templates=_templates(words, words.asking_title(max_words), split, words.review, words.title, entry),
        document_text=title_and_text,
        metrics=GENERATED,
    )


@register_task("pgraphrag_text")
def pgraphrag_text(language: str = "en") -> TaskDefinition:
    """The text of a review from its title."""
    words = _wording("pgraphrag_text", language)
    split = input_splitter(phrase(words.ask_text))
    return TaskDefinition(
        name="pgraphrag_text",
        query=query_after(split),
        templates=_templates(words, words.ask_text, split, words.title, words.review, _text_block(words)),
        document_text=title_and_text,
        metrics=GENERATED,
    )


@register_task("pgraphrag_rating")
def pgraphrag_rating(language: str = "en") -> TaskDefinition:
    """The rating of a review from its title and text; Eval is Eq. 8, as for LaMP-3."""
    words = _wording("pgraphrag_rating", language)
    split = input_splitter(phrase(words.ask_rating))
    return TaskDefinition(
        name="pgraphrag_rating",
        query=query_after(split),
        templates=_templates(
            words, words.ask_rating, split, words.review, words.rating, _rating_block(words)
        ),
        document_text=title_and_text,
        metric="normalized_mae",
        metrics=("mae", "rmse"),
        labels=RATINGS,
        parser=RatingParser(RATINGS),
    )
