"""Tasks of one's own, without code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ropg.examples import Document
from ropg.tasks import get_task

DEFINITION = r"""
instruction: "Name this recipe:"
document: "{title} {text} ({cuisine})"
fields: [cuisine]
templates:
  paper:
    entry: '"{title}" ({cuisine}) names "{text}"'
    join: ", and "
    context: "{documents}. "
  pattern:
    entry: "recipe: {text}\nname: {title}"
    context: "{documents}\n\n"
    question: "recipe: {query}\nname:"
    order: best_last
    stop: ["\n"]
metric: rouge2
"""
A = Document("a", "boil {title} it", title="Soup", fields={"cuisine": "thai"}, date="2020")
B = Document("b", "bake it", title="Cake", fields={})


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "recipe.yaml"
    file.write_text(DEFINITION, encoding="utf-8")
    return str(file)


def test_task_from_a_file(path: str) -> None:
    """If this fails, own data need code."""
    x = "name this recipe: fry {text} it"
    task = get_task("recipes", definition=path)
    assert (task.name, task.metric, task.metrics, task.labels) == (
        "recipes",
        "rouge2",
        ("rouge1", "rougeL"),
        None,
    )
    assert task.query(x) == "fry {text} it"
    assert task.document_text(A) == "Soup boil {title} it (thai) date: 2020"
    assert task.prompt(x, []) == x
    assert task.prompt(x, [A, B]) == (
        '"Soup" (thai) names "boil {title} it", and "Cake" () names "bake it". name this recipe: fry {text} it'
    )
    pattern = get_task("recipes", "pattern", definition=path, metric="exact_match")
    assert pattern.prompt(x, [A, B]) == (
        "recipe: bake it\nname: Cake\n\nrecipe: boil {title} it\nname: Soup\n\nrecipe: fry {text} it\nname:"
    )
    assert pattern.prompt(x, []) == "recipe: fry {text} it\nname:"
    assert pattern.parse("\nStir fry\nrecipe: x") == "Stir fry"
    assert pattern.score("stir fry", "Stir fry") == 1.0


def test_budget_of_a_defined_task(path: str) -> None:
    """If this fails, own tasks exceed the LLM's input or cut what must stay."""
    long = Document("c", "w " * 100, title="Stew", fields={"cuisine": "thai"})
    prompt = get_task("recipes", definition=path).build_prompt(
        "Name this recipe: x", [long], lambda text: len(text.split()), 15
    )
    assert prompt.text == '"Stew" (thai) names "' + "w " * 7 + 'w". Name this recipe: x'


def labelled(**changes: Any) -> dict[str, Any]:
    return {"templates": {"paper": {"entry": "{text}: {tag}"}}, "labels": ["[1]", "[2]"], **changes}


def test_labels() -> None:
    """If this fails, a closed set of answers needs code."""
    task = get_task("t", definition=labelled())
    assert task.labels == ("[1]", "[2]")
    assert (task.metric, task.metrics) == ("accuracy", ("accuracy", "f1"))
    assert task.score("it is [2].", "[2]") == 1.0
    assert not task.is_parsed("[12]")
    stars = get_task("t", definition=labelled(labels=[0, 10], parser="rating"))
    assert (stars.metric, stars.score("10", "0"), stars.score("0", "0")) == ("normalized_mae", 0.0, 1.0)
    halves = get_task("t", definition=labelled(labels=["1", "1.5", "2"], parser="rating"))
    assert [halves.parse(o) for o in ("1.5 stars", "2.0")] == ["1.5", "2"]
    numbers = get_task("t", definition=labelled(labels=["1", "2"]))
    assert [numbers.is_parsed(o) for o in ("2", "-2", "2.5", "12", "is 1.")] == [
        True,
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({}, "at least one template"),
        ({"templates": {"paper": {"entri": "x"}}}, "did you mean 'entry'"),
        ({"template": {}}, "did you mean 'templates'"),
        ({"templates": {"paper": {"entry": "{titel}"}}}, "did you mean 'title'"),
        ({"templates": {"paper": {"entry": "${title}"}}}, r"without the \$"),
        ({"templates": {"paper": {"entry": "{text}", "question": "hello"}}}, "must show {input} or {query}"),
        ({"templates": {"paper": {"entry": "{text}", "context": "hello"}}}, "{documents} once"),
        ({"templates": {"paper": {"entry": "{text}", "order": "best"}}}, "order 'best' is unknown"),
        ({"templates": {"paper": {"entry": "{text}", "stop": "x"}}}, "`stop` must be a list"),
        (labelled(labels=[[1], [2]]), "quote it"),
        (labelled(labels=[True, False]), "quote it"),
        (labelled(labels=["a", "b"], parser="rating"), "cannot read the labels"),
        (labelled(labels=["05", "2"], parser="rating"), "does not read the label '05'"),
        (labelled(parser="lable"), "did you mean 'label'"),
        (labelled(labels=None, parser="label"), "needs `labels`"),
        (labelled(cut=["body"]), "cut 'body' is unknown"),
    ],
)
def test_mistakes_are_named(definition: dict[str, Any], message: str) -> None:
    """If this fails, a slip in a definition shows only in odd prompts."""
    with pytest.raises(ValueError, match=message):
        get_task("own", definition=definition)


def test_missing_file_and_template(path: str, tmp_path: Path) -> None:
    """If this fails, a wrong path or template name gives an error that does not say so."""
    with pytest.raises(ValueError, match=r"gone\.yaml"):
        get_task("own", definition=str(tmp_path / "gone.yaml"))
    with pytest.raises(ValueError, match="it has paper, pattern"):
        get_task("own", "plain", definition=path)
