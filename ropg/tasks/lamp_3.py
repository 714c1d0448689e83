"""LaMP-3: how many stars does this user give?"""

from __future__ import annotations

from ropg.examples import Document
from ropg.tasks import register_task
from ropg.tasks.base import RATINGS, TaskDefinition
from ropg.tasks.parsing import RatingParser
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

_split = input_splitter(
    phrase(
        "What is the score of the following review on a scale of 1 to 5? "
        "just answer with 1, 2, 3, 4, or 5 without further explanation. review:"
    )
)


def _paper_entry(document: Document) -> tuple[Piece, ...]:
    return (
        required(document, "score"),
        Piece(' is the score for "'),
        Piece(document.text, BODY),
        Piece('"'),
    )


@register_task("lamp_3")
def lamp_3(language: str = "en") -> TaskDefinition:
    """LaMP-3, personalized product rating."""
    english_only("LaMP-3", language)
    return TaskDefinition(
        name="LaMP-3",
        query=query_after(_split),
        templates={
            "paper": Template(paper_question(_split), _paper_entry, in_rank_order(", and ")),
            "pattern": pattern(
                pattern_question(_split, "review", "score"), labelled_block("review", "score", "score")
            ),
        },
        document_text=text_only,
        metric="normalized_mae",
        metrics=("mae", "rmse"),
        labels=RATINGS,
        parser=RatingParser(RATINGS),
    )
