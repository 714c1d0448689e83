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
    assert task.build_prompt(x, [OTHER, OWN]).kept_ids == ("n", "o")


def test_the_introduction_fits_the_blocks() -> None:
    """If this fails, the prompt announces reviews that it does not show, which says which mode it is not."""
    x = "Generate a title for the following review: Nice pool."
    task = get_task("pgraphrag_title")
    assert task.prompt(x, [OTHER]) == (
        "Here are reviews that show what others say about the same item.\n\n"
        "Reviews of the same item by other users:\n\nreview: Too loud.\ntitle: Never again\n\n" + x
    )
    assert task.prompt(x, [OWN]) == (
        "Here are reviews that show how the user writes.\n\n"
        "Reviews by the same user:\n\nreview: So quiet.\ntitle: Lovely\n\n" + x
    )
    pt = get_task("pgraphrag_title", language="pt")
    assert pt.prompt("Bom.", [OWN]).startswith("Aqui estão avaliações que mostram como o usuário escreve.\n")
    assert "outros" not in pt.prompt("Bom.", [OWN])
    assert "mesmo usuário" not in pt.prompt("Bom.", [OTHER])
    # a budget that drops all of one kind drops its announcement too
    cut = task.build_prompt(x, [OTHER, OWN], lambda text: len(text.split()), 38)
    assert cut.kept_ids == ("n",)
    assert cut.text.startswith("Here are reviews that show what others say about the same item.\n\n")
    assert "same user" not in cut.text


def test_reviews_of_several_items_are_not_called_the_same_item() -> None:
    """If this fails, the LLM is told that reviews of other items are about the target's."""
    elsewhere = Document("q", "Cold.", title="No", score="2", provenance="neighbor", author="w", item="i9")
    task = get_task("pgraphrag_title")
    assert task.prompt("Nice pool.", [OTHER, OWN, elsewhere]).startswith(
        "Here are reviews that show how the user writes and what others say.\n\nReviews by the same user:"
    )
    both = task.prompt("Nice pool.", [OTHER, elsewhere])
    assert "Reviews by other users:\n\nreview: Too loud." in both
    assert "same item" not in both
    pt = get_task("pgraphrag_title", language="pt").prompt("Bom.", [OTHER, elsewhere])
    assert "mesmo item" not in pt
    assert "Avaliações por outros usuários:" in pt


def test_bare_input_is_asked_about() -> None:
    """If this fails, an LLM that follows instructions gets a review and no instruction."""
    task = get_task("pgraphrag_title")
    assert task.query("Nice pool.") == "Nice pool."
    asked = "Generate a title of at most 5 words for the following review: Nice pool."
    assert task.prompt("Nice pool.", []) == asked
    assert task.prompt("Nice pool.", [OWN]).endswith("\n\n" + asked)


def test_limit_of_words() -> None:
    """If this fails, short texts are asked for without the paper's limit, or with another than configured."""
    bare = "Generate a title for the following review: Nice pool."
    assert get_task("pgraphrag_title", max_words=None).prompt("Nice pool.", []) == bare
    ten = get_task("pgraphrag_title", max_words=10)
    asked = ten.prompt("Nice pool.", [])
    assert asked == "Generate a title of at most 10 words for the following review: Nice pool."
    one = get_task("pgraphrag_title", max_words=1).prompt("Nice pool.", [])
    assert one == "Generate a title of one word for the following review: Nice pool."
    for text in (bare, asked, one):  # an instruction that x brings is none of the query, whatever its limit
        assert ten.query(text) == "Nice pool."
        assert ten.prompt(text, []) == text
    pt = get_task("pgraphrag_title", language="pt").prompt("Bom.", [])
    assert pt == "Gere um título de no máximo 5 palavras para a seguinte avaliação: Bom."
    assert "Gere um título para" in get_task("pgraphrag_title", language="pt", max_words=None).prompt("a", [])
    # what the LLM makes of it is its own: nothing is cut
    assert ten.parse(" one two three four five six seven eight nine ten eleven ") == (
        "one two three four five six seven eight nine ten eleven"
    )
    for wrong in (0, -1, 2.5, "five", True):
        with pytest.raises(ValueError, match="max_words"):
            get_task("pgraphrag_title", max_words=wrong)
    with pytest.raises(ValueError, match="pgraphrag_text takes no option 'max_words'"):
        get_task("pgraphrag_text", max_words=5)
    with pytest.raises(ValueError, match="LaMP-4 takes no option"):
        get_task("LaMP-4", max_words=5)


def test_tables_report_the_papers_metrics() -> None:
    """If this fails, METEOR is missing from the tables of generated text."""
    for name in ("title", "text"):
        task = get_task(f"pgraphrag_{name}")
        assert (task.metric, task.metrics) == ("rouge1", ("rouge1", "rougeL", "meteor"))


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
    title = get_task("pgraphrag_title", language="pt")
    assert title.query(title.prompt("Adorei.", [])) == "Adorei."
    both = get_task("pgraphrag_text", language="pt").prompt("Bom", [OWN, OTHER])
    assert both == (
        "Aqui estão avaliações que mostram como o usuário escreve e o que outros dizem do mesmo item.\n\n"
        "Avaliações do mesmo usuário:\n\ntítulo: Lovely\navaliação: So quiet.\n\n"
        "Avaliações do mesmo item por outros usuários:\n\ntítulo: Never again\navaliação: Too loud.\n\n"
        "Escreva a avaliação que tem o seguinte título: Bom"
    )
    with pytest.raises(ValueError, match="en, pt"):
        get_task("pgraphrag_title", language="fr")


def test_rating_is_scored_as_lamp_3() -> None:
    """If this fails, ratings of reviews are not scored by Eq. 8."""
    task = get_task("pgraphrag_rating")
    assert task.labels == ("1", "2", "3", "4", "5")
    assert task.metrics == ("mae", "rmse")
    assert task.score("4 stars", "2") == pytest.approx(1 / 3)
    assert task.score("no idea", "2") == 0.0
