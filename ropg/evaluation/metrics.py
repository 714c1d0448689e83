"""Metrics of a whole test set, the ones of the tables: accuracy, F1, MAE, RMSE, ROUGE, METEOR.

A metric works in three steps, so that values, intervals and tests come from the same numbers:

* ``cases``: parsed predictions and golds -> what each example contributes, an array of length n.
* ``value``: cases of any subset or resample -> the metric. RMSE and F1 are no means of per-example values;
  a bootstrap recomputes them from the resampled cases.
* ``compared``: cases -> (n,) values that a paired test compares. Two-tailed paired t-test for ROUGE, METEOR,
  MAE and RMSE (on squared errors, whose mean RMSE orders by), McNemar on right and wrong for accuracy and F1, as in
  the paper's section 6.1.

Names that are not listed here are metrics of :mod:`ropg.tasks.metrics` (or ``package.module:function``) and
are averaged. Legend: n examples, L labels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ropg.evaluation.significance import mcnemar, paired_t_test

Test = Literal["paired t-test", "McNemar"]
_RIGHT_OR_WRONG = ("accuracy", "exact_match")

#: How tables write the names of metrics.
TITLES = {
    "accuracy": "Accuracy",
    "f1": "F1",
    "mae": "MAE",
    "rmse": "RMSE",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "meteor": "METEOR",
    "meteor_synonyms": "METEOR (synonyms)",
    "exact_match": "Exact match",
    "token_f1": "Token F1",
    "normalized_mae": "Normalized MAE",
}


def metric_title(name: str) -> str:
    """How tables write a metric's name.

    >>> metric_title("rougeL"), metric_title("my_code:style")
    ('ROUGE-L', 'my_code:style')
    """
    return TITLES.get(name, name)


def metric_test(name: str) -> Test:
    """The paired test that the paper uses for a metric.

    >>> metric_test("f1"), metric_test("rmse")
    ('McNemar', 'paired t-test')
    """
    return "McNemar" if name in (*_RIGHT_OR_WRONG, "f1") else "paired t-test"


def _mean(cases: np.ndarray) -> float:
    return float(cases.mean())


def _itself(cases: np.ndarray) -> np.ndarray:
    return cases


@dataclass(frozen=True, slots=True)
class CorpusMetric:
    """One metric of the tables; the module's docstring explains the three functions."""

    name: str
    cases: Callable[[Sequence[str], Sequence[str]], np.ndarray]
    value: Callable[[np.ndarray], float] = _mean
    compared: Callable[[np.ndarray], np.ndarray] = _itself
    higher_is_better: bool = True

    def __call__(self, predictions: Sequence[str], golds: Sequence[str]) -> float:
        """The metric of parsed predictions; ValueError for none, and for unequal lengths."""
        if len(predictions) != len(golds) or not golds:
            raise ValueError(
                f"{self.name}: {len(predictions)} predictions for {len(golds)} golds; it needs one each"
            )
        return self.value(self.cases(predictions, golds))

    def p_value(self, a: np.ndarray, b: np.ndarray) -> float | None:
        """Two-tailed p of two systems' cases on the same examples, or None if not testable."""
        test = mcnemar if metric_test(self.name) == "McNemar" else paired_t_test
        return test(self.compared(a), self.compared(b))


def corpus_metric(name: str, task: Any) -> CorpusMetric:
    """The metric of a name for a task (its labels, its ROUGE tokenizer).

    Raises ValueError where the task lacks the labels or the numeric scale that the metric needs, UnknownName
    with the nearest names.

    >>> from ropg.tasks import get_task
    >>> corpus_metric("rmse", get_task("LaMP-3"))(["5", "no idea", "3"], ["5", "2", "4"])  # errors 0, 3, 1
    1.8257...
    >>> corpus_metric("f1", get_task("LaMP-1"))(["[1]", "[1]", "[2]"], ["[1]", "[2]", "[2]"])
    0.6666...
    """
    if name in ("mae", "rmse"):
        scale = _scale(name, task)
        errors = functools.partial(_errors, scale=scale)
        if name == "mae":
            return CorpusMetric(name, errors, higher_is_better=False)
        return CorpusMetric(name, errors, value=root_mean_square, compared=np.square, higher_is_better=False)
    if name == "f1":
        labels = _labels(name, task)
        return CorpusMetric(
            name,
            functools.partial(_label_codes, labels=labels),
            value=functools.partial(macro_f1, n_labels=len(labels)),
            compared=lambda cases: (cases[:, 0] == cases[:, 1]).astype(np.float64),
        )
    from ropg.tasks.metrics import get_metric

    function = get_metric(name, tokenizer=_rouge_tokenizer(task), labels=task.labels, language=task.language)
    return CorpusMetric(name, functools.partial(_each, function=functools.cache(function.__call__)))


def _each(
    predictions: Sequence[str], golds: Sequence[str], *, function: Callable[[str, str], float]
) -> np.ndarray:
    return np.array([function(p, g) for p, g in zip(predictions, golds, strict=True)], dtype=np.float64)


def root_mean_square(cases: np.ndarray) -> float:
    """(n,) errors -> √(mean of squares).

    >>> root_mean_square(np.array([3.0, 4.0, 0.0, 0.0]))
    2.5
    """
    return float(np.sqrt(np.square(cases).mean()))


def macro_f1(cases: np.ndarray, n_labels: int) -> float:
    """Mean of the L labels' F1; cases (n, 2): the codes of gold and prediction, −1 an unread prediction.

    The mean goes over all labels of the task, as in LaMP's own evaluation. A label that stands neither in
    the golds nor in the predictions has F1 0 (scikit-learn's ``zero_division=0``), so on a small test set
    the value is low for every system alike.

    >>> macro_f1(np.array([[0, 0], [0, 1], [1, 1], [1, -1]]), n_labels=2)  # (2/3 + 2/4) / 2
    0.5833333333333333
    """
    gold, predicted = cases[:, 0], cases[:, 1]
    right = np.bincount(gold[gold == predicted], minlength=n_labels)
    wanted = np.bincount(gold, minlength=n_labels)
    given = np.bincount(predicted[predicted >= 0], minlength=n_labels)
    return float((2 * right / np.maximum(wanted + given, 1)).mean())


def _label_codes(predictions: Sequence[str], golds: Sequence[str], *, labels: Sequence[str]) -> np.ndarray:
    codes = {label: i for i, label in enumerate(labels)}
    pairs = [(codes[g], codes.get(p, -1)) for p, g in zip(predictions, golds, strict=True)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _errors(predictions: Sequence[str], golds: Sequence[str], *, scale: dict[str, float]) -> np.ndarray:
    """|y − ŷ|; a prediction that is none of the labels is as wrong as one can be for that gold."""
    low, high = min(scale.values()), max(scale.values())
    errors = []
    for prediction, gold in zip(predictions, golds, strict=True):
        y = scale[gold]
        worst = max(abs(low - y), abs(high - y))
        errors.append(abs(scale[prediction] - y) if prediction in scale else worst)
    return np.array(errors, dtype=np.float64)


def _labels(name: str, task: Any) -> Sequence[str]:
    if not task.labels:
        raise ValueError(f"the metric {name!r} needs a closed set of labels, and {task.name} has none")
    return task.labels


def _scale(name: str, task: Any) -> dict[str, float]:
    labels = _labels(name, task)
    try:
        return {label: float(label) for label in labels}
    except ValueError:
        raise ValueError(
            f"the metric {name!r} needs labels that are numbers; {task.name} has {', '.join(labels)}"
        ) from None


def _rouge_tokenizer(task: Any) -> Literal["ascii", "unicode"]:
    """The tokenizer of the task's own ROUGE Eval; where Eval is no ROUGE, the language's default."""
    if "tokenizer=" in task.eval_identity:
        return "unicode" if "tokenizer=unicode" in task.eval_identity else "ascii"
    return "ascii" if task.language == "en" else "unicode"
