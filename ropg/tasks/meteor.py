"""METEOR (Banerjee and Lavie 2005; α = 0.9, β = 3, γ = 0.5), computed by nltk.

Words are aligned in stages: equal words, then words of an equal stem, then synonyms. With m matches that
form c runs of adjacent words in both texts, P = m / words of the prediction, R = m / words of the target:

    METEOR = (1 − γ (c / m)^β) · P R / (α P + (1 − α) R)

The penalty counts for whole matches too: n equal words give 1 − 0.5 / n³, so one equal word gives 0.5.

Two metrics, so that which stages were used never depends on what happens to be installed:

* ``meteor``: exact and, for English, Porter stems.
* ``meteor_synonyms``: these and WordNet's synonyms, English only; an error where nltk has no WordNet data.

Words are those of the ROUGE tokenizer. Published values often count punctuation marks as words (nltk's
``word_tokenize``), which lifts or lowers them a little.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from typing import Any, Literal

from ropg.tasks.unicode_tokens import unicode_tokens

NAMES = ("meteor", "meteor_synonyms")
ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5

Stage = Literal["exact", "stem", "synonym"]


def stages_of(name: str, language: str) -> tuple[Stage, ...]:
    """The stages of alignment that a metric uses for a language.

    Raises ValueError for synonyms of a language other than English.

    >>> stages_of("meteor", "en"), stages_of("meteor", "pt")
    (('exact', 'stem'), ('exact',))
    """
    if name == "meteor_synonyms":
        if language != "en":
            raise ValueError(
                f"metric 'meteor_synonyms' knows English synonyms only, and the language is {language!r}; "
                "take metric 'meteor'"
            )
        return ("exact", "stem", "synonym")
    return ("exact", "stem") if language == "en" else ("exact",)


def meteor_identity(name: str, stages: tuple[Stage, ...], tokenizer: str) -> str:
    """All that values depend on: stages, weights, tokenizer, versions of nltk and of WordNet where it is used.

    Raises ValueError where the synonym stage is asked for and WordNet is not installed.
    """
    weights = f"alpha={ALPHA:g}|beta={BETA:g}|gamma={GAMMA:g}"
    versions = f"nltk={importlib.metadata.version('nltk')}"
    if "synonym" in stages:
        versions += f"|wordnet={_wordnet().get_version()}"
    return f"{name}|tokenizer={tokenizer}|stages={','.join(stages)}|{weights}|{versions}"


def meteor(
    prediction: str,
    target: str,
    *,
    tokenizer: Literal["ascii", "unicode"] = "ascii",
    stages: tuple[Stage, ...] = ("exact", "stem"),
) -> float:
    """METEOR of a prediction against one target, in [0, 1]; 0 where no word matches.

    Raises ValueError where the synonym stage is asked for and WordNet is not installed.

    >>> round(meteor("the cat sat", "the cat sat"), 4)  # one chunk of three words: 1 - 0.5 / 27
    0.9815
    >>> meteor("dogs", "cats")
    0.0
    """
    from nltk.translate.meteor_score import single_meteor_score  # a second, spent only when it is used

    words = _tokenizer(tokenizer)
    gold = words(target)
    if not gold:
        from ropg.tasks.metrics import _warn_no_token

        _warn_no_token("meteor", tokenizer)
        return 0.0
    return float(
        single_meteor_score(
            gold,
            words(prediction),
            preprocess=str,  # both tokenizers fold case
            stemmer=_porter() if "stem" in stages else _NoStems(),
            wordnet=_wordnet() if "synonym" in stages else _NoSynonyms(),
            alpha=ALPHA,
            beta=BETA,
            gamma=GAMMA,
        )
    )


class _NoStems:
    """A stemmer that leaves words as they are: the stem stage then finds nothing new."""

    def stem(self, word: str) -> str:
        return word


class _NoSynonyms:
    """A WordNet in which no word stands: the synonym stage then finds nothing new."""

    def synsets(self, word: str) -> list[Any]:
        return []


class _CachedStems:
    """Porter's stems, each word stemmed once: stemming is most of METEOR's time."""

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self.stem = functools.lru_cache(maxsize=1 << 16)(PorterStemmer().stem)


@functools.cache
def _porter() -> _CachedStems:
    return _CachedStems()


@functools.cache
def _wordnet() -> Any:
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError as error:
        raise ValueError(
            "metric 'meteor_synonyms' needs nltk's WordNet, which is not installed: run "
            "`python -m nltk.downloader wordnet`, or take metric 'meteor', which does without synonyms"
        ) from error
    return wordnet


@functools.cache
def _tokenizer(name: str) -> Callable[[str], list[str]]:
    if name == "unicode":
        return unicode_tokens
    from rouge_score.tokenizers import DefaultTokenizer

    tokenize: Callable[[str], list[str]] = DefaultTokenizer(use_stemmer=False).tokenize
    return tokenize
