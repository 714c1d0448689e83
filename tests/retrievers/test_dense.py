"""Dense retrieval: the formula, what is encoded how often, ties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from retriever_helpers import CountingEncoder

from ropg.examples import Document
from ropg.retrievers import Dense, Request, load_encoder, load_retriever

TEXTS = ["tea mug", "a very long neighbour text repeated many times", "", "red pot", "tea mug", "blue"]


def profile(*texts: str) -> list[Document]:
    return [Document(f"d{i}", text) for i, text in enumerate(texts)]


def ids(ranking: list) -> list[str]:
    return [document.id for document, _ in ranking]


def test_scores_are_the_written_out_formula_in_any_batch(tiny_bert: Path) -> None:
    """score(x, d) = mean of the query's states · mean of the document's states, whoever else is ranked."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(tiny_bert), AutoModel.from_pretrained(tiny_bert).eval()

    def vector(text: str) -> np.ndarray:
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state
        return states[0].mean(dim=0).numpy().astype(np.float64)

    documents = profile(*TEXTS)
    expected = {d.id: float(vector("red tea") @ vector(d.text)) for d in documents}
    retriever = load_retriever("dense", encoder=str(tiny_bert), device="cpu")
    alone = retriever.rank("red tea", documents)
    others = [Request("pot", profile("old chair", "new", "tea mug")), Request("short", profile(*TEXTS[:2]))]
    together = retriever.rank_many([others[0], Request("red tea", documents), others[1]])[1]
    for ranking in (alone, together):
        assert {d.id: s for d, s in ranking} == pytest.approx(expected, abs=1e-5)
        assert ids(ranking) == sorted(expected, key=expected.__getitem__, reverse=True)


def test_each_text_is_encoded_once_over_the_call() -> None:
    """Neighbours' documents come back in many profiles; encoding dominates the time of ranking."""
    encoder = CountingEncoder()
    retriever = Dense(encoder)
    retriever.chunk_documents = 2  # several chunks, so the cache between them counts
    requests = [
        Request("tea", profile("tea", "pot", "mug")),
        Request("pot", profile("mug", "tea", "chair")),
        Request("unneeded", []),
        Request("tea", profile("chair", "pot")),
    ]
    together = retriever.rank_many(requests)
    assert sorted(encoder.seen) == ["chair", "mug", "pot", "tea"]
    assert together == [retriever.rank(r.query, r.documents) for r in requests]


def test_nothing_is_remembered_from_one_call_to_the_next() -> None:
    """Ranking after a training step with vectors from before it would evaluate the wrong model."""
    encoder = CountingEncoder()
    retriever = Dense(encoder)
    before = retriever.rank("a", profile("a", "e"))
    encoder.of = lambda text: [1.0, -float(text == "a")]
    after = retriever.rank("a", profile("a", "e"))
    assert ids(before) == ["d0", "d1"]
    assert [score for _, score in after] == [2.0, 1.0]


def test_a_small_cache_changes_nothing_but_time() -> None:
    """Bounded memory must not mean wrong or missing vectors."""
    requests = [Request("aei"[i % 3], profile(*("aeiou" * i)[: i + 2])) for i in range(9)]
    small = Dense(CountingEncoder(), cache_size=1)
    small.chunk_documents = 3
    assert small.rank_many(requests) == Dense(CountingEncoder()).rank_many(requests)


def test_documents_of_the_same_text_tie_exactly() -> None:
    """Rounding inside a matrix product must not decide between equal documents."""
    rng = np.random.default_rng(0)
    table = {text: rng.standard_normal(77) for text in ["q", "x", *map(str, range(40))]}
    documents = profile(*[t for i in range(40) for t in (str(i), "x")])
    ranking = Dense(CountingEncoder(table.__getitem__)).rank("q", documents)
    equal = [(d.id, s) for d, s in ranking if d.text == "x"]
    assert len({score for _, score in equal}) == 1
    assert [name for name, _ in equal] == [f"d{i}" for i in range(1, 80, 2)]


def test_the_text_option_and_options_of_the_encoder(tiny_bert: Path) -> None:
    """A task's document text (with the date) is what the encoder must read; options must not get lost."""
    encoder = CountingEncoder()
    Dense(encoder, text=lambda d: f"{d.text} date: {d.date}").rank("q", [Document("a", "tea", date="2001")])
    assert encoder.seen == ["q", "tea date: 2001"]
    by_default = CountingEncoder()
    Dense(by_default).rank("q", [Document("a", "tea", title="Mug")])
    assert by_default.seen == ["q", "Mug tea"]
    dense = load_retriever("dense", encoder=str(tiny_bert), max_length=12, device="cpu", label="initial")
    assert (dense.encoder.max_length, dense.name) == (12, "initial")
    with pytest.raises(TypeError, match="max_length"):
        load_retriever("dense", encoder=load_encoder(str(tiny_bert), device="cpu"), max_length=12)


def test_any_object_that_encodes_will_do() -> None:
    """A SentenceTransformer, or a user's own encoder, knows nothing of this project's progress bar."""

    class Plain:
        def encode(self, texts: list[str]) -> np.ndarray:
            return np.array([[len(text), 1.0] for text in texts])

    assert ids(Dense(Plain()).rank("q", profile("a", "abc", "ab"))) == ["d1", "d2", "d0"]
