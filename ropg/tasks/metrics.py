"""Eval: functions (prediction, target) -> a number in [0, 1], higher is better.

ROUGE comes from rouge_score with stemming off, as in LaMP's own evaluation. Its tokenizer keeps a-z and 0-9
only (``ascii``, for comparison with published numbers); ``unicode`` reads every script. A target without
any token scores 0 against everything, as in rouge_score, with a warning. METEOR (:mod:`ropg.tasks.meteor`)
reads the same tokens.

A further metric is a function registered here with :func:`register_metric`, or any importable function
named by ``package.module:function``.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import inspect
import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ropg.registry import Registry
from ropg.tasks import meteor as _meteor
from ropg.tasks.unicode_tokens import UnicodeTokenizer, unicode_tokens

RougeTokenizer = Literal["ascii", "unicode"]
MetricFunction = Callable[[str, str], float]

#: The Eval that only the LLM can compute: exp of the mean token log-probability of the target.
LIKELIHOOD = "likelihood"

_METRICS = Registry("ropg.tasks.metrics", "metric")
register_metric = _METRICS.register
_ROUGE = ("rouge1", "rouge2", "rougeL")
_ARTICLES = frozenset({"a", "an", "the"})


@dataclass(frozen=True, slots=True)
class Metric:
    """A named metric. ``identity`` says all that its values depend on: tokenizer, versions, code."""

    name: str
    identity: str
    function: MetricFunction

    def __call__(self, prediction: str, target: str) -> float:
        """The value; ValueError unless it is a number in [0, 1]."""
        value = float(self.function(prediction, target))
        if not 0.0 <= value <= 1.0:  # also refuses nan
            raise ValueError(
                f"metric {self.name!r} gave {value} for prediction {prediction[:80]!r} and target "
                f"{target[:80]!r}; an Eval lies in [0, 1], higher is better"
            )
        return value


def get_metric(
    name: str,
    *,
    tokenizer: RougeTokenizer = "ascii",
    labels: Sequence[str] | None = None,
    language: str = "en",
) -> Metric:
    """The metric of a name.

    ``tokenizer`` matters to ROUGE and METEOR only; ``language`` to METEOR, which stems English words;
    ``labels`` give ``normalized_mae`` the ends of its scale. Raises UnknownName with the nearest names.

    >>> get_metric("rouge1").identity
    'rouge1|tokenizer=ascii|stemming=off|rouge_score=...'
    """
    if tokenizer not in ("ascii", "unicode"):
        raise ValueError(f"rouge_tokenizer {tokenizer!r} is neither 'ascii' nor 'unicode'")
    if name == LIKELIHOOD:
        return Metric(name, "likelihood|exp-mean-token-log-probability", _needs_llm)
    function = _METRICS.get(name)
    if name in _ROUGE:
        version = importlib.metadata.version("rouge_score")
        identity = f"{name}|tokenizer={tokenizer}|stemming=off|rouge_score={version}"
        return Metric(name, identity, functools.partial(function, tokenizer=tokenizer))
    if name in _meteor.NAMES:
        stages = _meteor.stages_of(name, language)
        identity = _meteor.meteor_identity(name, stages, tokenizer)
        return Metric(name, identity, functools.partial(function, tokenizer=tokenizer, stages=stages))
    if name == "normalized_mae":
        ends = sorted(float(label) for label in labels or ("1", "5"))
        low, high = ends[0], ends[-1]
        return Metric(name, f"{name}|scale={low:g}-{high:g}", functools.partial(function, low=low, high=high))
    return Metric(name, f"{name}|code={_code(function)}", function)


def _code(function: Any) -> str:
    """A short hash of a function's source, so that values of an edited metric are not taken for its own."""
    try:
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:12]
    except (OSError, TypeError):
        return "unknown"


def _needs_llm(prediction: str, target: str) -> float:
    raise ValueError(
        "the metric 'likelihood' is the LLM's probability of the target given the prompt and cannot be "
        "computed from a prediction; score candidates with eval='likelihood', or choose another metric"
    )


@functools.cache
def _scorer(kind: str, tokenizer: RougeTokenizer) -> Any:
    from rouge_score import rouge_scorer  # imports nltk: a second, spent only when ROUGE is used

    chosen = UnicodeTokenizer() if tokenizer == "unicode" else None
    return rouge_scorer.RougeScorer([kind], use_stemmer=False, tokenizer=chosen)


def rouge(prediction: str, target: str, *, kind: str, tokenizer: RougeTokenizer = "ascii") -> float:
    """The F-measure of ROUGE ``kind`` (rouge1, rouge2, rougeL).

    >>> round(rouge("sleepy cats", "cats sleep", kind="rouge1"), 3)
    0.5
    """
    scorer = _scorer(kind, tokenizer)
    if not scorer._tokenizer.tokenize(target):
        _warn_no_token(kind, tokenizer)
        return 0.0
    return float(scorer.score(target, prediction)[kind].fmeasure)


def _warn_no_token(metric: str, tokenizer: str, consequence: str = "scores 0") -> None:
    hint = "" if tokenizer == "unicode" else "; rouge_tokenizer='unicode' reads every script"
    warnings.warn(
        f"{metric}: a target has no token for the {tokenizer} tokenizer and {consequence}{hint} (said once)",
        stacklevel=3,
    )


for _kind in _ROUGE:
    register_metric(_kind)(functools.partial(rouge, kind=_kind))
register_metric(*_meteor.NAMES)(_meteor.meteor)


@register_metric("accuracy")
def accuracy(prediction: str, target: str) -> float:
    """1 where the parsed prediction is the label of the target, else 0.

    >>> accuracy("[1]", "[1]"), accuracy("[2]", "[1]")
    (1.0, 0.0)
    """
    return float(prediction == target)


@register_metric("normalized_mae")
def normalized_mae(prediction: str, target: str, *, low: float = 1.0, high: float = 5.0) -> float:
    """Eq. 8: (worst − |y − ŷ|) / worst with worst = max(|low − y|, |high − y|).

    A prediction that is no number, or off the scale, is the worst case. ValueError for such a target.

    >>> normalized_mae("2", "2"), round(normalized_mae("4", "2"), 4), normalized_mae("nan", "2")
    (1.0, 0.3333, 0.0)
    """
    gold = _on_scale(target, low, high)
    if gold is None:
        raise ValueError(f"target {target!r} is no number from {low:g} to {high:g}")
    worst = max(abs(low - gold), abs(high - gold))
    rating = _on_scale(prediction, low, high)
    return 0.0 if rating is None else (worst - abs(gold - rating)) / worst


def _on_scale(text: str, low: float, high: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and low <= value <= high else None


@register_metric("exact_match")
def exact_match(prediction: str, target: str) -> float:
    """1 where both have the same words, whatever case, spacing and punctuation, else 0.

    Texts without any word are compared as they stand.

    >>> exact_match("Sleepy  cats!", "sleepy cats"), exact_match("sleepy cat", "sleepy cats")
    (1.0, 0.0)
    """
    words = unicode_tokens(target)
    if not words:
        _warn_no_token("exact_match", "unicode", "is compared as it stands")
        return float(prediction.strip() == target.strip())
    return float(unicode_tokens(prediction) == words)


@register_metric("token_f1")
def token_f1(prediction: str, target: str) -> float:
    """F1 of the bags of words, in any script, without the articles a, an, the (SQuAD's token F1).

    >>> token_f1("the sleepy cats", "Sleepy cats"), round(token_f1("cats sleep", "cats"), 4)
    (1.0, 0.6667)
    """
    gold, guess = (Counter(_content_words(text)) for text in (target, prediction))
    if not gold:
        _warn_no_token("token_f1", "unicode")
        return 0.0
    common = (gold & guess).total()
    return 2 * common / (gold.total() + guess.total())


def _content_words(text: str) -> list[str]:
    words = unicode_tokens(text)
    return [word for word in words if word not in _ARTICLES] or words
