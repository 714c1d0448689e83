"""Own data and an own task without code, and one user answered from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pipeline_files as files
import pytest

from ropg.cli import compose
from ropg.comparison import evaluate
from ropg.examples import Document, Example
from ropg.personalize import personalize, personalizer
from ropg.pipeline import train
from ropg.retrievers import NoRetrieval
from ropg.runs import RunError

SIZES = {"train": 6, "dev": 3, "test": 4}
DEFINITION = """
name: recipe names
instruction: "Name this recipe:"
document: "{title} {text} {cuisine}"
fields: [cuisine]
templates:
  paper:
    entry: '"{title}" ({cuisine}) names "{text}"'
    join: ", and "
    context: "{documents}. "
    question: "{input}"
  pattern:
    entry: "recipe: {text}\\nname: {title}"
    question: "recipe: {query}\\nname:"
    order: best_last
    stop: ["\\n"]
metric: rouge1
metrics: [rouge1, rougeL]
"""


def with_metric(prediction: str, target: str) -> float:
    """A metric of one's own: the share of the target's words that the prediction holds."""
    words = target.split()
    return sum(word in prediction.split() for word in words) / len(words)


@pytest.fixture
def settings(tmp_path, overrides):
    """A task wholly in YAML and data in JSON lines; folder and file names need quotes in overrides."""
    folder = tmp_path / "own data, rougé=1"
    folder.mkdir()
    (folder / "task.yaml").write_text(DEFINITION, encoding="utf-8")
    files.write_records(folder / "recipes.jsonl", SIZES, empty=("te2",))

    def build(*more: str) -> list[str]:
        return overrides(
            "task=custom",
            f'task.definition="{folder / "task.yaml"}"',
            "data=records",
            f'data.path="{folder / "recipes.jsonl"}"',
            "+data.fields.input=question",
            "evaluation.systems=[none,random,bm25,initial,ropg_kd,ropg_rl]",
            *more,
        )

    return build


def test_own_records_and_a_task_in_yaml(settings, capsys):
    """Own data without code is what engineers come for; the quoted form of odd paths must work throughout."""
    config = compose(*settings())
    assert config.optim.lr == 1e-5  # the paper's settings, not the sample's
    assert config.optim.epochs == 1
    folder = train(config)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["task"], summary["n_train"], summary["n_heldout"]) == ("recipe names", 6, 3)
    rows = json.loads((evaluate(config) / "results.json").read_text())
    systems = {"none", "random", "bm25", "initial", "ropg_kd"}
    assert {(row["system"], row["metric"]) for row in rows} == {
        (s, m) for s in systems for m in ("rouge1", "rougeL")
    }
    assert all(row["n"] == 4 for row in rows)
    assert "ropg_rl: left out" in capsys.readouterr().out


def test_a_metric_of_ones_own(settings, monkeypatch):
    """Eval may be anybody's function; it must reach the rewards."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    folder = train(compose(*settings("task.metric=test_pipeline_custom:with_metric")))
    assert json.loads((folder / "summary.json").read_text())["heldout"]["oracle"]["first_reward"] >= 0


def test_csv_with_one_row_per_document(tmp_path, settings):
    """A table from a spreadsheet is as good as JSON lines."""
    lines = ["id,question,target,profile.text,profile.title,profile.cuisine"]
    for user in range(12):
        lines += [
            f'u{user},Name this recipe: old bread,Song Road,"river stone, {d}",Night Road {d},thai'
            for d in range(3)
        ]
    path = tmp_path / "recipes.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    folder = train(compose(*settings(f"data.path={path}", "data.seed=3")))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["n_train"] == 7  # users drawn into the splits by data.seed
    assert summary["n_heldout"] == 4


@pytest.fixture
def trained(settings):
    return train(compose(*settings()))


def test_one_user_in_three_lines(trained):
    """The trained retriever in a service: the answer, and which documents it rests on."""
    answer = personalizer(trained)
    documents = tuple(
        Document(str(i), f"harbour letter {word}", title="Song Road", fields={"cuisine": "thai"})
        for i, word in enumerate(files.WORDS[:9])
    )
    example = Example("me", "me", "Name this recipe: winter garden", None, documents)
    first = answer(example)
    assert len(first.documents) == 4
    assert {document.id for document in first.documents} <= {str(i) for i in range(9)}
    assert first.prompt.endswith("recipe: winter garden\nname:")
    assert all(document.text in first.prompt for document in first.documents)
    assert first.text == first.text.strip() != ""
    assert answer(example) == first  # nothing is sampled
    assert len(personalizer(trained, k=1)(example).documents) == 1


def test_a_user_without_documents(trained):
    """A new user has an empty profile; the answer is the one without personalization."""
    answer = personalizer(trained)
    alone = answer(Example("new", "new", "Name this recipe: winter garden", None, ()))
    assert alone.documents == ()
    assert alone.prompt == "recipe: winter garden\nname:"
    same = answer(Example("0", "0", "Name this recipe: winter garden", None, ()))
    assert same == alone


def test_retrievers_that_fill_no_prompt(trained):
    """The unpersonalized system by hand: its documents stay out of the prompt."""
    from ropg import build
    from ropg.runs import load_config

    config = load_config(trained)
    task = build.build_task(config)
    example = Example(
        "0",
        "0",
        "Name this recipe: winter garden",
        None,
        (Document("a", "river stone"), Document("b", "old harbour")),
    )
    none = personalize(example, task, NoRetrieval(), build.build_llm(config, task))
    assert none.documents == ()
    assert none.prompt == task.prompt(example.input, [])


def test_folders_that_are_no_run(tmp_path, trained):
    """The message says which folder and what to do."""
    with pytest.raises(RunError, match=r"is not a run folder: it has no config\.yaml"):
        personalizer(tmp_path / "nothing")
    half = tmp_path / "half"
    half.mkdir()
    (half / "config.yaml").write_bytes((trained / "config.yaml").read_bytes())
    with pytest.raises(RunError, match=r"holds no trained model yet; run train\.py"):
        personalizer(half)
    (half / "config.yaml").write_text("optim: [1", encoding="utf-8")
    with pytest.raises(RunError, match="cannot be read"):
        personalizer(half)
