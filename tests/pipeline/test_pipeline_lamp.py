"""All seven LaMP tasks through every stage, with a tiny T5 and a tiny LLaMA, and what the two commands leave."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pipeline_files as files
import pytest

from ropg.cli import compose
from ropg.comparison import evaluate
from ropg.pipeline import train

SIZES = {"train": 6, "dev": 3, "test": 3}
BASELINES = ["none", "random", "recency", "bm25", "initial", "rrf"]
METRICS = {1: ["accuracy"], 2: ["accuracy", "f1"], 3: ["mae", "rmse"]}
SETTING = {1: "time", 2: "time", 3: "time", 4: "user", 5: "time", 6: "user", 7: "null"}


def no_nan(value: Any) -> None:
    """Strict JSON has no NaN; this reads what was written as numbers."""
    if isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, dict):
        for inner in value.values():
            no_nan(inner)
    elif isinstance(value, list):
        for inner in value:
            no_nan(inner)


def read_strictly(path: Path) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{path} holds {constant}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def check_summary(folder: Path, method: str, task: str) -> None:
    """summary.json, key for key."""
    summary = read_strictly(folder / "summary.json")
    no_nan(summary)
    assert set(summary) == {
        "method", "task", "seed", "n_train", "n_heldout", "heldout", "p_values", "llm_calls", "seconds",
        *files.COSTS,
    }  # fmt: skip
    assert (summary["method"], summary["task"], summary["seed"]) == (method, task, 0)
    assert (summary["n_train"], summary["n_heldout"]) == (SIZES["train"], SIZES["test"])
    both, first = {"first_reward", "expected_reward"}, {"first_reward"}
    assert {name: set(values) for name, values in summary["heldout"].items()} == {
        "initial": both, "trained": both, "bm25": first, "random": first, "oracle": first,
    }  # fmt: skip
    values = [number for system in summary["heldout"].values() for number in system.values()]
    assert all(isinstance(number, float) and 0 <= number <= 1 for number in values)
    oracle = summary["heldout"]["oracle"]["first_reward"]
    assert all(number <= oracle + 1e-12 for number in values)
    assert set(summary["p_values"]) == {"initial", "bm25"}
    assert all(p is None or 0 < p <= 1 for p in summary["p_values"].values())
    assert isinstance(summary["llm_calls"], int)
    assert 0 < summary["llm_calls"] <= 3 * sum(SIZES.values())
    assert summary["seconds"] > 0


def check_run(folder: Path) -> None:
    """What a run folder holds besides: metrics, configuration, checkpoints, no temporary files."""
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.yaml", "data.json", "feedback.json", "heldout.json", "metrics.jsonl", "checkpoints",
        "model", "summary.json",
    }  # fmt: skip
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {record["event"] for record in records} == {"step", "evaluation"}
    no_nan(records)
    assert not [path for path in folder.rglob("*") if "=" in path.name]  # trouble C31: no "=" in names


def check_model(folder: Path) -> None:
    """The exported model gives other libraries the vectors that training computed with."""
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer

    from ropg.retrievers.encoder import load_encoder

    texts = ["old harbour quiet", "a winter garden and a stone river " * 12, "unseen words"]
    ours = load_encoder(str(folder / "model"), max_length=48).encode(texts)
    theirs = SentenceTransformer(str(folder / "model"), device="cpu").encode(texts)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModel.from_pretrained(folder / "model").eval()
    for text, vector in zip(texts, ours, strict=True):
        inputs = tokenizer(text, truncation=True, max_length=48, return_tensors="pt")
        hidden = model(**inputs).last_hidden_state[0].mean(dim=0).detach().numpy()
        np.testing.assert_allclose(hidden, vector, atol=1e-5)


def check_evaluation(folder: Path, task: int, systems: list[str], ids: list[str]) -> None:
    """results.json, predictions, tables.md and report.html."""
    rows = read_strictly(folder / "results.json")
    no_nan(rows)
    metrics = METRICS.get(task, ["rouge1", "rougeL"])
    assert {(row["system"], row["metric"]) for row in rows} == {(s, m) for s in systems for m in metrics}
    for row in rows:
        assert set(row) == {
            "task", "system", "metric", "value", "n", "ci_low", "ci_high", "higher_is_better", "p_values",
        }  # fmt: skip
        assert row["task"] == f"LaMP-{task}"
        assert row["n"] == len(ids)
        assert row["ci_low"] <= row["ci_high"]
        assert row["higher_is_better"] is (row["metric"] not in ("mae", "rmse"))
        assert set(row["p_values"]) == set(systems) - {row["system"]}
        assert all(p is None or 0 <= p <= 1 for p in row["p_values"].values())
    for system in systems:
        predictions = read_strictly(folder / "predictions" / f"{system}.json")
        assert predictions["task"] == f"LaMP_{task}"
        assert [entry["id"] for entry in predictions["golds"]] == ids
        assert all(set(entry) == {"id", "output"} for entry in predictions["golds"])
    assert {path.stem for path in (folder / "predictions").iterdir()} == set(systems)
    tables = (folder / "tables.md").read_text(encoding="utf-8")
    assert f"LaMP-{task}" in tables
    assert "nan" not in tables.lower().split()
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "<img" in report or "<svg" in report
    assert 'src="http' not in report


@pytest.mark.parametrize("llm", ["t5", "llama"])
@pytest.mark.parametrize("task", files.LAMP)
def test_every_task_with_both_families(tmp_path, overrides, task, llm, capsys):
    """A task, a layout of the download or an LLM family that one stage cannot read stops a user there."""
    root = files.write_lamp(tmp_path / "lamp", task, SIZES)
    method = "ropg_kd" if (task + (llm == "llama")) % 2 else "ropg_rl"
    experiment = f"lamp_{task}" if llm == "t5" else f"lamp_{task}_llama"
    setting = f"data.setting={SETTING[task]}"
    config = compose(
        *overrides(f"experiment={experiment}", f"method={method}", f"data.root={root}", setting, llm=llm)
    )
    assert (config.task.name, config.retrieval.k) == (f"LaMP-{task}", 4)
    folder = train(config)
    check_summary(folder, method, f"LaMP-{task}")
    check_run(folder)
    where = evaluate(config)
    check_evaluation(where, task, [*BASELINES, method], [f"te{i}" for i in range(SIZES["test"])])
    if task in (1, 6):
        check_model(folder)
    printed = capsys.readouterr().out
    assert f"{folder}" in printed
    assert f"{where}" in printed
