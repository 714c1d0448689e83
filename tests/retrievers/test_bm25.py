"""BM25 in both variants, against the libraries, the formula by hand, and the hard profiles."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from ropg.examples import Document, Example
from ropg.retrievers import BM25, Request, _terms, load_retriever


def profile(*texts: str) -> list[Document]:
    return [Document(f"d{i}", text) for i, text in enumerate(texts)]


def ids(ranking: list) -> list[str]:
    return [document.id for document, _ in ranking]


def scores(ranking: list) -> dict[str, float]:
    return {document.id: score for document, score in ranking}


WORDS = st.lists(st.sampled_from(["tea", "mug", "red", "pot", "blue"]), max_size=6).map(" ".join)


@given(query=WORDS, texts=st.lists(WORDS, max_size=7))
def test_okapi_is_rank_bm25(query: str, texts: list[str]) -> None:
    """The paper's baseline would not be the paper's if a score differed from the library's by one bit."""
    documents = profile(*texts)
    ranking = BM25().rank(query, documents)
    if any(text.split() for text in texts):
        expected = BM25Okapi([text.split() for text in texts]).get_scores(query.split())
    else:
        expected = [0.0] * len(texts)  # where the library itself divides by zero
    assert scores(ranking) == dict(zip([d.id for d in documents], expected, strict=True))
    assert ids(ranking) == [documents[i].id for i in sorted(range(len(texts)), key=lambda i: -expected[i])]


@given(query=WORDS, texts=st.lists(WORDS, max_size=7))
def test_lucene_is_its_formula(query: str, texts: list[str]) -> None:
    """Scores by the definition, in double precision: single precision would break ties by rounding."""
    tokens = [text.split() for text in texts]
    mean = sum(map(len, tokens)) / max(1, len(tokens))

    def score(own: list[str]) -> float:
        total = 0.0
        for word in query.split():
            n = sum(word in other for other in tokens)
            idf = math.log(1 + (len(tokens) - n + 0.5) / (n + 0.5))
            tf = Counter(own)[word]
            total += idf * tf / (tf + 1.5 * (1 - 0.75 + 0.75 * len(own) / mean)) if tf else 0.0
        return total

    ranking = BM25("lucene").rank(query, profile(*texts))
    assert scores(ranking) == pytest.approx({f"d{i}": score(own) for i, own in enumerate(tokens)}, rel=1e-12)
    assert all(score >= 0 for _, score in ranking)


def test_lucene_by_hand() -> None:
    """Two documents of two words: N=2, n=1, so idf = ln 2, and tf part 1 / (1 + 1.5) = 0.4."""
    ranking = BM25("lucene").rank("red", profile("blue pot", "red pot"))
    assert ids(ranking) == ["d1", "d0"]
    assert [score for _, score in ranking] == pytest.approx([0.4 * math.log(2), 0.0], rel=1e-15)


def test_okapi_floor_and_lucene_on_a_small_profile() -> None:
    """Trouble C01: the variants order small profiles differently, and each must keep to its own order."""
    documents = profile("tea mug", "tea mug", "mug")
    okapi, lucene = BM25().rank("tea", documents), BM25("lucene").rank("tea", documents)
    assert ids(okapi) == ["d2", "d0", "d1"]
    assert [round(score, 2) for _, score in okapi] == [0.0, -0.28, -0.28]
    assert ids(lucene) == ["d0", "d1", "d2"]


@pytest.mark.parametrize("variant", ["okapi", "lucene"])
def test_lone_document_always_comes_back(variant: str) -> None:
    """Trouble C01: a user with one document would lose it if anything filtered by score."""
    lone = [Document("only", "red tea pot")]
    assert ids(BM25(variant).rank("tea", lone)) == ["only"]
    assert ids(BM25(variant).rank("unknown", lone)) == ["only"]


@pytest.mark.parametrize("variant", ["okapi", "lucene"])
def test_empty_profiles_and_documents_do_not_stop_the_run(variant: str) -> None:
    """Trouble C03: one user without text would stop the ranking of all others."""
    requests = [
        Request("x", [], Example("q1", "q1", "x", None, [])),
        Request("x", [Document("p", ""), Document("r", "   ")]),
        Request("", profile("red pot", "tea")),
        Request("tea", [Document("e", ""), Document("t", "tea"), Document("u", "pot")]),
    ]
    first, second, third, fourth = BM25(variant).rank_many(requests)
    assert first == []
    assert second == [(Document("p", ""), 0.0), (Document("r", "   "), 0.0)]
    assert [score for _, score in third] == [0.0, 0.0]
    assert ids(third) == ["d0", "d1"]
    assert ids(fourth) == ["t", "e", "u"]


@pytest.mark.parametrize("variant", ["okapi", "lucene"])
def test_repeated_profiles_are_tokenised_once(variant: str) -> None:
    """Many requests of one user would cost a pass over the profile each."""
    calls: list[str] = []

    def tokenize(text: str) -> list[str]:
        calls.append(text)
        return text.split()

    documents = profile("red pot", "tea mug", "tea pot")
    queries = ["tea", "red", "mug tea", "pot"]
    retriever = BM25(variant, tokenize)
    together = retriever.rank_many([Request(query, documents) for query in queries])
    assert len(calls) == len(documents) + len(queries)
    assert together == [retriever.rank(query, documents) for query in queries]


def test_tokenizer_and_text_are_options() -> None:
    """A task decides what of a document is searched; a language decides what a word is."""
    documents = [Document("a", "x", title="Tea"), Document("b", "y", title="pot"), Document("c", "z")]
    retriever = load_retriever(
        "bm25", variant="lucene", tokenize=lambda t: t.lower().split(), text=lambda d: d.title
    )
    assert ids(retriever.rank("tea", documents))[0] == "a"
    # an empty token is a token like any other
    assert ids(BM25("lucene", lambda t: t.split(" ")).rank("", profile("a b", "a  b", "c")))[0] == "d1"
    with pytest.raises(ValueError, match=r"bm42.*okapi, lucene"):
        BM25("bm42")


def test_large_profiles_and_long_streams_score_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of counting depends on the size, and the memory of a stream has an end; neither shows in a score."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices("abcdefghij", k=draw.randint(0, 9))) for _ in range(60)]
    requests = [
        Request(" ".join(draw.choices("abcxyz", k=4)), profile(*draw.sample(texts, 12))) for _ in range(20)
    ]
    expected = list(BM25("lucene").rank_stream(requests))
    monkeypatch.setattr(_terms, "DENSE", 0)
    assert list(BM25("lucene").rank_stream(requests)) == expected
    monkeypatch.setattr(_terms, "CACHE", 30)  # forgets several times
    assert list(BM25("lucene").rank_stream(requests)) == expected
