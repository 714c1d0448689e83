"""Eval by hand."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropg.registry import UnknownName
from ropg.tasks import get_task, register_metric
from ropg.tasks.metrics import exact_match, get_metric, token_f1
from ropg.tasks.unicode_tokens import unicode_tokens


def shout(prediction: str, target: str) -> float:
    """A user's metric, named below as module:function."""
    return float(prediction.isupper())


def test_rouge_by_hand() -> None:
    """If this fails, rewards of the generation tasks are not ROUGE F."""
    prediction, target = "the cat sat on the mat", "the cat lay on a mat today"
    # unigrams in common: the, cat, on, mat = 4 of 6 and of 7; bigrams: "the cat" of 5 and of 6; LCS: 4
    assert get_metric("rouge1")(prediction, target) == pytest.approx(2 * 4 / (6 + 7))
    assert get_metric("rouge2")(prediction, target) == pytest.approx(2 * 1 / (5 + 6))
    assert get_metric("rougeL")("mat on the cat", "the cat on mat") == pytest.approx(2 * 2 / 8)
    assert get_metric("rouge1")("cats", "cat") == 0.0  # stemming is off


@pytest.mark.parametrize("kind", ["rouge1", "rougeL"])
def test_trouble_c06(kind: str) -> None:
    """If this fails, users who write another script than a-z are never rewarded, or by halves of words."""
    plain, unicode = get_metric(kind), get_metric(kind, tokenizer="unicode")
    assert unicode("机器学习", "机器学习") == 1.0
    assert unicode("Coração de maçã", "Coração de maçã") == 1.0
    assert unicode("maçã não", "mação na") == 0.0
    assert plain("maçã não", "mação na") == pytest.approx(2 / 3, abs=0.01)
    for metric in (plain, unicode):
        with pytest.warns(UserWarning, match="no token"):
            assert metric("!!!", "!!!") == 0.0
    with pytest.warns(UserWarning, match="rouge_tokenizer='unicode'"):
        assert plain("机器学习", "机器学习") == 0.0
    assert plain.identity != unicode.identity


def test_unicode_tokens() -> None:
    """If this fails, marks or accents split words, or the same word counts as two."""
    assert unicode_tokens("cafe\u0301 CAFÉ") == ["café", "café"]
    assert unicode_tokens("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert unicode_tokens("กิน") == ["กิ", "น"]
    assert unicode_tokens("snake_case, it's 3.5") == ["snake", "case", "it", "s", "3", "5"]
    assert get_metric("rouge1", tokenizer="unicode")("机器翻译", "机器学习") == 0.5


def test_exact_match_and_token_f1() -> None:
    """If this fails, question-answering style tasks are scored wrongly."""
    assert exact_match("The cat.", "the CAT") == 1.0
    assert exact_match("cat", "the cat") == 0.0
    assert token_f1("the cat sat", "a cat") == pytest.approx(2 * 1 / (2 + 1))
    assert token_f1("the", "the") == 1.0
    with pytest.warns(UserWarning, match="no token"):
        assert exact_match("?!", "?! ") == 1.0
    with pytest.warns(UserWarning, match="no token"):
        assert token_f1("?!", "?!") == 0.0


def test_metric_of_ones_own() -> None:
    """If this fails, a metric needs an edit of the library, or its identity does not follow its code."""
    task = get_task("LaMP-4", metric=f"{__name__}:shout")
    assert (task.score("LOUD", "x"), task.score("quiet", "x")) == (1.0, 0.0)
    assert "code=" in task.eval_identity
    assert "unknown" not in task.eval_identity

    @register_metric("test_out_of_range")
    def wrong(prediction: str, target: str) -> float:
        return 7.0

    with pytest.raises(ValueError, match="lies in"):
        get_task("LaMP-4", metric="test_out_of_range").score("a", "b")
    with pytest.raises(UnknownName, match="rouge1"):
        get_task("LaMP-4", metric="rogue1")


def test_likelihood_needs_the_llm() -> None:
    """If this fails, a task with the LLM's likelihood as Eval cannot be built, or scores nonsense."""
    task = get_task("LaMP-4", metric="likelihood")
    assert task.metric == "likelihood"
    with pytest.raises(ValueError, match="LLM"):
        task.score("a", "a")
    assert get_task("LaMP-1", metric="likelihood").parse("1") == "[1]"


def test_eval_identity_tells_values_apart() -> None:
    """If this fails, values of another metric, tokenizer or reading are taken from a table that holds others."""
    identities = {
        get_task("LaMP-4").eval_identity,
        get_task("LaMP-4", rouge_tokenizer="unicode").eval_identity,
        get_task("LaMP-4", "pattern").eval_identity,
        get_task("LaMP-4", metric="rougeL").eval_identity,
        get_task("LaMP-3").eval_identity,
        get_task("LaMP-3", metric="accuracy").eval_identity,
    }
    assert len(identities) == 6
    assert "rouge_score=" in get_task("LaMP-4").eval_identity
    assert get_task("LaMP-4").eval_identity == get_task("lamp_4").eval_identity


def test_portuguese_reads_unicode_by_default() -> None:
    """If this fails, accents cut Portuguese words into pieces unless an option is known."""
    assert "tokenizer=unicode" in get_task("pgraphrag_title", language="pt").eval_identity
    assert "tokenizer=ascii" in get_task("pgraphrag_title").eval_identity
    explicit = get_task("pgraphrag_title", language="pt", rouge_tokenizer="ascii")
    assert "tokenizer=ascii" in explicit.eval_identity


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["rouge1", "rouge2", "rougeL", "exact_match", "token_f1"]),
    tokenizer=st.sampled_from(["ascii", "unicode"]),
    a=st.text(max_size=30),
    b=st.text(max_size=30),
)
def test_values_are_in_the_unit_interval(name: str, tokenizer: str, a: str, b: str) -> None:
    """If this fails, some pair of texts gives a reward outside [0, 1]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric = get_metric(name, tokenizer="unicode" if tokenizer == "unicode" else "ascii")
        assert 0.0 <= metric(a, b) <= 1.0
        words = unicode_tokens(a)
        if len(words) > 1 and tokenizer == "unicode":
            assert metric(a, a) == 1.0
