"""LaMP-2: which of fifteen tags does this user give to the movie?"""

from __future__ import annotations

from ropg.examples import Document
from ropg.sources.lamp_format import MOVIE_TAGS
from ropg.tasks import register_task
from ropg.tasks.base import TaskDefinition
from ropg.tasks.parsing import LabelParser
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
    required,
)
from ropg.tasks.wording import english_only, labelled_block, query_after, text_only

LABELS = MOVIE_TAGS

_QUESTION = (
    "Which tag does this movie relate to among the following tags? "
    "Just answer with the tag name without further explanation. tags:"
)
_split = input_splitter(rf"{phrase(_QUESTION)}\s*\[[^\]]*\]\s*{phrase('description:')}")


def _paper_entry(document: Document) -> tuple[Piece, ...]:
    return (
        Piece('the tag for the movie: "'),
        Piece(document.text, BODY),
        Piece('" is "'),
        required(document, "tag"),
        Piece('"'),
    )


@register_task("lamp_2")
def lamp_2(language: str = "en") -> TaskDefinition:
    """LaMP-2, personalized movie tagging."""
    english_only("LaMP-2", language)
    return TaskDefinition(
        name="LaMP-2",
        query=query_after(_split),
        templates={
            "paper": Template(paper_question(_split), _paper_entry, in_rank_order(", and ")),
            "pattern": pattern(
                pattern_question(_split, "description", "tag"), labelled_block("description", "tag", "tag")
            ),
        },
        document_text=text_only,
        metric="accuracy",
        metrics=("accuracy", "f1"),
        labels=LABELS,
        parser=LabelParser(LABELS),
    )
