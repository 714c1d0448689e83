"""LaMP-4 to LaMP-7: headlines, titles of papers, subjects of e-mails, paraphrased tweets."""

from __future__ import annotations

from ropg.examples import Document
from ropg.tasks import register_task
from ropg.tasks.base import TaskDefinition
from ropg.tasks.templates import (
    BODY,
    Piece,
    Template,
    in_rank_order,
    input_splitter,
    paper_question,
    pattern,
    pattern_question,
    phrase,
)
from ropg.tasks.wording import (
    block,
    english_only,
    query_after,
    quoted_title_for_text,
    text_only,
    title_and_text,
)


def titles_task(
    name: str, language: str, instruction: str, label: str, answer: str, trail: str = ". "
) -> TaskDefinition:
    """A task whose documents are texts with the titles that the user gave them."""
    english_only(name, language)
    split = input_splitter(phrase(instruction))
    return TaskDefinition(
        name=name,
        query=query_after(split),
        templates={
            "paper": Template(paper_question(split, trail), quoted_title_for_text, in_rank_order(", and ")),
            "pattern": pattern(pattern_question(split, label, answer), block(label, answer)),
        },
        document_text=title_and_text,
    )


@register_task("lamp_4")
def lamp_4(language: str = "en") -> TaskDefinition:
    """LaMP-4, personalized news headline generation."""
    instruction = "Generate a headline for the following article:"
    return titles_task("LaMP-4", language, instruction, "article", "headline")


@register_task("lamp_5")
def lamp_5(language: str = "en") -> TaskDefinition:
    """LaMP-5, personalized scholarly title generation."""
    instruction = "Generate a title for the following abstract of a paper:"
    trail = ". Following the given patterns "
    return titles_task("LaMP-5", language, instruction, "abstract", "title", trail)


@register_task("lamp_6")
def lamp_6(language: str = "en") -> TaskDefinition:
    """LaMP-6, personalized e-mail subject generation."""
    instruction = "Generate a subject for the following email:"
    return titles_task("LaMP-6", language, instruction, "email", "subject")


def _quoted_text(document: Document) -> tuple[Piece, ...]:
    return Piece('"'), Piece(document.text, BODY), Piece('"')


def _tweet_block(document: Document) -> tuple[Piece, ...]:
    return Piece("tweet: "), Piece(document.text, BODY)


@register_task("lamp_7")
def lamp_7(language: str = "en") -> TaskDefinition:
    """LaMP-7, personalized tweet paraphrasing. Its documents are answers without inputs."""
    english_only("LaMP-7", language)
    split = input_splitter(
        phrase("Paraphrase the following tweet without any explanation before or after it:")
    )
    trail = " are written by a person. Following the given patterns "
    return TaskDefinition(
        name="LaMP-7",
        query=query_after(split),
        templates={
            "paper": Template(paper_question(split, trail), _quoted_text, in_rank_order(", and ")),
            "pattern": pattern(pattern_question(split, "text", "tweet"), _tweet_block),
        },
        document_text=text_only,
    )
