"""Tasks on reviews of a user-item graph."""

from __future__ import annotations

import pytest

from ropg.examples import Document
from ropg.tasks import get_task

OWN = Document("o", "So quiet.", title="Lovely", score="5", author="u", item="i2")
OTHER = Document(
    "n", "Too loud.", title="Never again", score="1", provenance="neighbor", author="v", item="i1"
)
SECOND = Document("p", "Clean.", title="Fine", score="4", author="u", item="i3")


def test_paper_template_has_two_blocks() -> None:
    """If this fails, the LLM cannot tell the user's reviews from those of others."""
    x = "Generate a title for the following review: Nice pool."
    task = get_task("pgraphrag_title")
    assert task.query(x) == "Nice pool."
    assert task.prompt(x, []) == x
    assert task.prompt(x, [OTHER, OWN, SECOND]) == (
        "Here are reviews that show how the user writes and what others say about the same item.\n\n"
        "Reviews by the same user:\n\nreview: So quiet.\ntitle: Lovely\n\nreview: Clean.\ntitle: Fine\n\n"
        "Reviews of the same item by other users:\n\nreview: Too loud.\ntitle: Never again\n\n" + x
    )
    only = task.build_prompt(x, [OTHER])
    assert "same user" not in only.text
    assert only.kept_ids == ("n",)
    assert task.build_prompt(x, [OTHER, OWN]).kept_ids == ("n", "o")


def test_bare_input_is_asked_about() -> None:
    """If this fails, an LLM that follows instructions gets a review and no instruction."""
    task = get_task("pgraphrag_title")
    assert task.query("Nice pool.") == "Nice pool."
    asked = "Generate a title for the following review: Nice pool."
    assert task.prompt("Nice pool.", []) == asked
    assert task.prompt("Nice pool.", [OWN]).endswith("\n\n" + asked)


def test_patterns() -> None:
    """If this fails, a small base model sees no pattern to continue."""
    title, text, rating = (get_task(f"pgraphrag_{name}", "pattern") for name in ("title", "text", "rating"))
    assert title.prompt("Nice pool.", [OWN, OTHER]) == (
        "review: Too loud.\ntitle: Never again\n\nreview: So quiet.\ntitle: Lovely\n\nreview: Nice pool.\ntitle:"
    )
    assert text.prompt("Nice", [OWN]) == "title: Lovely\nreview: So quiet.\n\ntitle: Nice\nreview:"
    assert rating.prompt("Nice\nWe swam.", [OWN]) == (
        "review: Lovely\nSo quiet.\nrating: 5\n\nreview: Nice\nWe swam.\nrating:"
    )
    assert title.stop == ("\n",)
    assert title.document_text(OWN) == "Lovely So quiet."


def test_portuguese() -> None:
    """If this fails, Portuguese reviews are asked about in English."""
    task = get_task("pgraphrag_title", "pattern", "pt")
    assert (
        task.prompt("Adorei.", [OWN]) == "avaliação: So quiet.\ntítulo: Lovely\n\navaliação: Adorei.\ntítulo:"
    )
    paper = get_task("pgraphrag_rating", language="pt")
    asked = paper.prompt("Adorei.", [])
    assert asked.startswith("Qual é a nota")
    assert paper.query(asked) == "Adorei."
    with pytest.raises(ValueError, match="en, pt"):
        get_task("pgraphrag_title", language="fr")


def test_rating_is_scored_as_lamp_3() -> None:
    """If this fails, ratings of reviews are not scored by Eq. 8."""
    task = get_task("pgraphrag_rating")
    assert task.labels == ("1", "2", "3", "4", "5")
    assert task.metrics == ("mae", "rmse")
    assert task.score("4 stars", "2") == pytest.approx(1 / 3)
    assert task.score("no idea", "2") == 0.0
