"""METEOR by hand."""

from __future__ import annotations

import importlib.util

import pytest

from ropg.evaluation.metrics import corpus_metric, metric_test, metric_title
from ropg.registry import UnknownName
from ropg.tasks import get_task
from ropg.tasks.meteor import meteor, stages_of
from ropg.tasks.metrics import get_metric


def wordnet_is_here() -> bool:
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError:
        return False
    return True


def test_whole_matches() -> None:
    """If this fails, n equal words do not give 1 − 0.5 / n³: one chunk of n matches, P = R = 1."""
    metric = get_metric("meteor")
    assert metric("Lovely", "lovely!") == pytest.approx(0.5)
    assert metric("a quiet room", "a quiet room") == pytest.approx(1 - 0.5 / 27)
    long = " ".join(f"w{i}" for i in range(40))
    assert metric(long, long) == pytest.approx(1 - 0.5 / 40**3)


def test_reordered_words_are_penalised() -> None:
    """If this fails, the penalty for broken runs is missing or counts the runs wrongly."""
    # "room quiet a" of "a quiet room": 3 matches in 3 chunks, P = R = 1, penalty 0.5
    assert meteor("room quiet a", "a quiet room") == pytest.approx(0.5)
    # two chunks of two: 1 - 0.5 * (2 / 4)^3
    assert meteor("very clean the room", "the room very clean") == pytest.approx(1 - 0.5 / 8)
    # nothing but one chunk more: the same four words
    assert meteor("the room very clean", "the room very clean") == pytest.approx(1 - 0.5 / 64)


def test_recall_weighs_nine_times_precision() -> None:
    """If this fails, α is not 0.9: a short prediction and a long one would be worth the same."""
    # 2 of 4 words right, target of 2: P = 1/2, R = 1, F = 0.5 / (0.9 * 0.5 + 0.1 * 1); one chunk of 2
    assert meteor("good stay you know", "good stay") == pytest.approx((1 - 0.5 / 8) * 0.5 / 0.55)
    # 2 of 2 words, target of 4: P = 1, R = 1/2
    assert meteor("good stay", "good stay you know") == pytest.approx((1 - 0.5 / 8) * 0.5 / 0.95)


def test_no_match_and_empty_texts() -> None:
    """If this fails, an empty prediction ends a run or earns a reward."""
    assert meteor("awful", "lovely") == 0.0
    assert meteor("", "lovely") == 0.0
    assert meteor("?!", "lovely") == 0.0
    with pytest.warns(UserWarning, match="meteor: a target has no token"):
        assert meteor("lovely", "?!") == 0.0


def test_stems_are_english() -> None:
    """If this fails, inflected English words do not match, or an English stemmer cuts Portuguese ones."""
    assert meteor("rooms", "room") == pytest.approx(0.5)
    assert meteor("rooms", "room", stages=("exact",)) == 0.0
    english, portuguese = (get_metric("meteor", language=language) for language in ("en", "pt"))
    assert english("nations", "nation") == 0.5
    assert portuguese("casas", "casa") == 0.0
    task = get_task("pgraphrag_title", language="pt", metric="meteor")
    assert task.score("maçã boa", "maçã boa") == pytest.approx(1 - 0.5 / 8)
    assert task.score("mação bom", "maçã boa") == 0.0  # the ascii tokenizer would match the half "ma"


def test_identity_says_what_values_depend_on() -> None:
    """If this fails, values of other stages, tokenizers or versions are taken for the same metric."""
    english, unicode, portuguese = (
        get_metric("meteor", tokenizer=tokenizer, language=language).identity
        for tokenizer, language in (("ascii", "en"), ("unicode", "en"), ("unicode", "pt"))
    )
    assert "|tokenizer=ascii|stages=exact,stem|alpha=0.9|beta=3|gamma=0.5|nltk=" in english
    assert "|stages=exact|" in portuguese
    assert len({english, unicode, portuguese}) == 3
    assert "synonym" not in english


def test_synonyms_are_a_metric_of_their_own() -> None:
    """If this fails, the same name gives other values where WordNet happens to be installed."""
    assert stages_of("meteor_synonyms", "en") == ("exact", "stem", "synonym")
    with pytest.raises(ValueError, match="English synonyms only"):
        get_metric("meteor_synonyms", language="pt")
    if wordnet_is_here():
        metric = get_metric("meteor_synonyms")
        assert "stages=exact,stem,synonym" in metric.identity
        assert "wordnet=" in metric.identity
        assert metric("car", "automobile") == pytest.approx(0.5)
    else:
        with pytest.raises(ValueError, match=r"nltk.downloader wordnet.*metric 'meteor'"):
            get_metric("meteor_synonyms")
    assert meteor("car", "automobile") == 0.0  # with or without WordNet here


def test_as_nltk_computes_it() -> None:
    """If this fails, the value is not nltk's own for the same words and stages."""
    from nltk.translate.meteor_score import single_meteor_score

    class NoSynonyms:
        def synsets(self, word: str) -> list[str]:
            return []

    target = "it is a guide to action that ensures that the military will forever heed party commands"
    prediction = "it is a guide to action which ensures the military always obeys the commands of the party"
    expected = single_meteor_score(target.split(), prediction.split(), wordnet=NoSynonyms())
    assert 0.5 < expected < 0.8
    assert meteor(prediction, target) == pytest.approx(expected)


def test_meteor_in_tables() -> None:
    """If this fails, tables leave METEOR unlabelled, rank by it the wrong way, or name no near metric."""
    metric = corpus_metric("meteor", get_task("pgraphrag_title"))
    assert metric(["lovely", "awful"], ["lovely", "lovely"]) == pytest.approx(0.25)
    assert metric.higher_is_better
    assert (metric_title("meteor"), metric_test("meteor")) == ("METEOR", "paired t-test")
    assert corpus_metric("meteor", get_task("pgraphrag_title", language="pt"))(["casas"], ["casa"]) == 0.0
    with pytest.raises(UnknownName, match="meteor"):
        get_metric("metoer")


def test_importing_tasks_imports_no_nltk() -> None:
    """If this fails, every --help waits a second for nltk."""
    assert importlib.util.find_spec("nltk") is not None
    import subprocess
    import sys

    code = "import sys, ropg.tasks.metrics; sys.exit('nltk' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
