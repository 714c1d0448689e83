"""A handful of users through the whole pipeline with the two real models, SmolLM2 and MiniLM."""

import json

import pytest

from ropg.cli import compose
from ropg.examples import Document, Example
from ropg.personalize import personalizer
from rspg.comparison import evaluate
from rspg.pipeline import train
from rspg.selector import load_selector


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    root = tmp_path_factory.mktemp("real")
    return [
        "data.limit_train=8",
        "data.limit_dev=2",
        "data.limit_test=3",
        "candidates.l=3",
        "optim.epochs=1",
        "retrieval.k=1",
        f"store.dir={root}/stores",
        f"run.root={root}/runs",
        "evaluation.resamples=50",
    ]


def test_rank_feedback_train_evaluate(settings):
    """What a newcomer's first command does; if this fails, nothing works."""
    folder = train(compose(*settings))
    summary = json.loads((folder / "summary.json").read_text())
    assert 0 < summary["n_train"] < 8  # the other users are reserved for selectors
    assert summary["n_heldout"] == 3
    assert summary["llm_calls"] > 0
    rewards = summary["heldout"]
    assert rewards["oracle"]["first_reward"] >= rewards["random"]["first_reward"] > 0  # SmolLM2 copies habits
    assert rewards["oracle"]["first_reward"] >= rewards["trained"]["first_reward"]

    pool = "selector.pool=[none,bm25,initial,ropg_kd]"
    selector = train(compose(*settings, "method=rspg_post", pool))
    chosen = json.loads((selector / "summary.json").read_text())
    assert chosen["n_train"] == 8 - summary["n_train"]
    bounds = chosen["heldout"]
    assert bounds["lower"]["reward"] <= bounds["selector"]["reward"] <= bounds["upper"]["reward"]

    compared = evaluate(compose(*settings, pool))
    results = json.loads((compared / "results.json").read_text())
    assert {row["system"] for row in results} == {
        "none", "random", "recency", "bm25", "initial", "rrf", "ropg_kd", "rspg_post"
    }  # fmt: skip
    assert (compared / "report.html").stat().st_size > 10_000

    other = train(compose(*settings, "method=ropg_rl"))
    assert json.loads((other / "summary.json").read_text())["llm_calls"] == 0

    example = Example(
        "q", "u", "Generate a headline for the following article: We got the kettle and it was lovely.", None,
        (Document("d", "We got the pan and it was lovely.", title="Warm praise: pan", date="2024-01-01"),),
    )  # fmt: skip
    choice = load_selector(selector).select(example)
    assert choice.retriever in choice.probabilities
    assert choice.text.startswith("Warm praise") == (choice.retriever != "none")

    answer = personalizer(folder)(example)
    assert answer.text.startswith("Warm praise")
    assert [d.id for d in answer.documents] == ["d"]
