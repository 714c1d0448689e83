"""A handful of users through the whole pipeline with the two real models, SmolLM2 and MiniLM."""

import json

import pytest

from ropg.cli import compose
from ropg.comparison import evaluate
from ropg.examples import Document, Example
from ropg.personalize import personalizer
from ropg.pipeline import train


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    root = tmp_path_factory.mktemp("real")
    return [
        "data.limit_train=4",
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
    assert summary["n_train"] == 4
    assert summary["n_heldout"] == 3
    assert summary["llm_calls"] > 0
    rewards = summary["heldout"]
    assert rewards["oracle"]["first_reward"] >= rewards["random"]["first_reward"] > 0  # SmolLM2 copies habits
    assert rewards["oracle"]["first_reward"] >= rewards["trained"]["first_reward"]

    compared = evaluate(compose(*settings))
    results = json.loads((compared / "results.json").read_text())
    assert {row["system"] for row in results} == {
        "none", "random", "recency", "bm25", "initial", "rrf", "ropg_kd"
    }  # fmt: skip
    assert (compared / "report.html").stat().st_size > 10_000

    other = train(compose(*settings, "method=ropg_rl"))
    assert json.loads((other / "summary.json").read_text())["llm_calls"] == 0

    answer = personalizer(folder)(
        Example(
            "q", "u", "Generate a headline for the following article: We got the kettle and it was lovely.", None,
            (Document("d", "We got the pan and it was lovely.", title="Warm praise: pan", date="2024-01-01"),),
        )
    )  # fmt: skip
    assert answer.text.startswith("Warm praise")
    assert [d.id for d in answer.documents] == ["d"]
