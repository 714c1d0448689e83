"""Accuracy, F1, MAE, RMSE and ROUGE of whole test sets."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from sklearn.metrics import f1_score

from ropg.evaluation.metrics import corpus_metric, metric_test, metric_title
from ropg.tasks import get_task


def test_accuracy_counts_unread_answers_as_wrong():
    """Three readable answers, two right; "[1] or [2]" must not earn anything."""
    metric = corpus_metric("accuracy", get_task("LaMP-1"))
    assert metric(["[1]", "[2]", "[1]", "[1] or [2]"], ["[1]", "[2]", "[2]", "[1]"]) == 0.5
    assert metric.higher_is_better


def test_mae_and_rmse_by_hand():
    """Errors 0, 1 and, for an unread answer to gold 2, the worst case 3 (trouble C09)."""
    task = get_task("LaMP-3")
    predictions, golds = ["5", "3", "no idea"], ["5", "4", "2"]
    assert corpus_metric("mae", task)(predictions, golds) == pytest.approx(4 / 3)
    assert corpus_metric("rmse", task)(predictions, golds) == pytest.approx(math.sqrt(10 / 3))
    assert not corpus_metric("mae", task).higher_is_better


@pytest.mark.parametrize("answer", ["nan", "inf", "100", "-3", "2.5", ""])
def test_ratings_off_the_scale_are_the_worst_case(answer):
    """An LLM that writes "100" must not come out nearer than one that writes 5."""
    assert corpus_metric("mae", get_task("LaMP-3"))([answer], ["4"]) == 3.0


def test_mae_and_normalized_mae_agree():
    """Table and training reward come from one scale: Eval = 1 − MAE / worst case."""
    task = get_task("LaMP-3")
    for gold in "12345":
        worst = max(abs(1 - int(gold)), abs(5 - int(gold)))
        for answer in ["1", "2", "3", "4", "5", "so-so"]:
            error = corpus_metric("mae", task)([task.parse(answer)], [gold])
            assert task.score(answer, gold) == pytest.approx(1 - error / worst)


def test_macro_f1_is_scikit_learns_over_all_labels():
    """LaMP averages over all fifteen tags, present or not; another average is no comparison with it."""
    task = get_task("LaMP-2")
    rng = np.random.default_rng(0)
    golds = [str(label) for label in rng.choice(task.labels[:9], 60)]
    predictions = [gold if rng.random() < 0.5 else str(rng.choice(task.labels)) for gold in golds]
    predictions[:5] = ["no idea"] * 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = f1_score(golds, predictions, labels=list(task.labels), average="macro", zero_division=0)
    assert corpus_metric("f1", task)(predictions, golds) == pytest.approx(expected)


def test_f1_is_tested_on_right_and_wrong():
    """The paper tests F1 by McNemar: two systems' cases are compared by whether they are right."""
    metric = corpus_metric("f1", get_task("LaMP-1"))
    a = metric.cases(["[1]"] * 6, ["[1]"] * 6)
    b = metric.cases(["[2]"] * 5 + ["?"], ["[1]"] * 6)
    assert metric.compared(b).tolist() == [0.0] * 6
    assert metric.p_value(a, b) == pytest.approx(2 / 2**6)


def test_rouge_is_the_mean_of_the_tasks_eval():
    """Table values and rewards must not come from two implementations of ROUGE."""
    task = get_task("LaMP-4")
    predictions, golds = ["sleepy cats", "dogs bark"], ["cats sleep", "loud dogs bark"]
    expected = np.mean([task.score(p, g) for p, g in zip(predictions, golds, strict=True)])
    assert corpus_metric("rouge1", task)(predictions, golds) == pytest.approx(expected)
    assert corpus_metric("rouge1", task)(["a b c"], ["a b"]) == pytest.approx(0.8)
    assert corpus_metric("rougeL", task)(["b a"], ["a b"]) == pytest.approx(0.5)


def test_rouge_reads_scripts_as_the_task_does():
    """With the Unicode tokenizer chosen, Chinese titles must not score 0 in the table (trouble C06)."""
    assert (
        corpus_metric("rougeL", get_task("LaMP-4", rouge_tokenizer="unicode"))(["机器学习"], ["机器学习"])
        == 1.0
    )
    with pytest.warns(UserWarning, match="token"):
        assert corpus_metric("rougeL", get_task("LaMP-4"))(["机器学习"], ["机器学习"]) == 0.0


def test_a_users_function_is_a_metric():
    """An own metric needs no code here; it is averaged and compared by the t-test."""
    metric = corpus_metric("ropg.tasks.metrics:exact_match", get_task("LaMP-4"))
    assert metric(["A b", "c"], ["a b", "d"]) == 0.5
    assert metric_test(metric.name) == "paired t-test"


def test_metrics_that_do_not_fit_the_task_are_refused():
    """A misconfigured task definition is told at the first evaluation, by name."""
    with pytest.raises(ValueError, match="LaMP-4"):
        corpus_metric("f1", get_task("LaMP-4"))
    with pytest.raises(ValueError, match="numbers"):
        corpus_metric("mae", get_task("LaMP-1"))
    with pytest.raises(ValueError, match="unknown metric"):
        corpus_metric("rouge11", get_task("LaMP-4"))
    with pytest.raises(ValueError, match="one each"):
        corpus_metric("rouge1", get_task("LaMP-4"))([], [])


def test_titles_and_tests():
    """Tables write metrics as the paper does and name the paper's tests."""
    assert [metric_title(m) for m in ("accuracy", "rouge1", "mae")] == ["Accuracy", "ROUGE-1", "MAE"]
    assert [metric_test(m) for m in ("accuracy", "f1", "mae", "rmse", "rougeL")] == [
        "McNemar",
        "McNemar",
        "paired t-test",
        "paired t-test",
        "paired t-test",
    ]
