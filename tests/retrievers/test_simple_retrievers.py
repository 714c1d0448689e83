"""None, random, recency, and what all retrievers share: requests, ties, names, errors."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retriever_helpers import CountingEncoder

from ropg.examples import Document, Example
from ropg.registry import UnknownName
from ropg.retrievers import (
    BM25,
    CannotRank,
    Dense,
    NoRetrieval,
    Random,
    Recency,
    ReciprocalRankFusion,
    Request,
    document_text,
    load_retriever,
)


def dated(*dates: str | None) -> list[Document]:
    return [Document(f"d{i}", "text", date=date) for i, date in enumerate(dates)]


def example(name: str) -> Example:
    return Example(name, name, "x", None, ())


def ids(ranking: list) -> list[str]:
    return [document.id for document, _ in ranking]


def retrievers() -> list:
    bases = [NoRetrieval(), Random(3), Recency(), BM25(), BM25("lucene"), Dense(CountingEncoder())]
    return [*bases, ReciprocalRankFusion(bases[2:])]


@given(
    texts=st.lists(st.text("aeio ", max_size=6), min_size=1, max_size=8),
    years=st.lists(st.sampled_from(["2001", "2002", None]), min_size=8, max_size=8),
    query=st.text("aeio ", max_size=6),
)
def test_every_ranking_is_a_stable_permutation(texts: list[str], years: list[str | None], query: str) -> None:
    """A lost or doubled document, or a tie broken by chance, would make runs irreproducible."""
    documents = [Document(f"d{i}", t, date=y) for i, (t, y) in enumerate(zip(texts, years, strict=False))]
    documents[0] = Document("d0", texts[0], date="2000")  # recency needs one date
    place = {document.id: i for i, document in enumerate(documents)}
    for retriever in retrievers():
        ranking = retriever.rank(query, documents, example=example("q"))
        assert sorted(ids(ranking)) == sorted(place)
        for (d, s), (e, t) in itertools.pairwise(ranking):
            assert s > t or (s == t and place[d.id] < place[e.id])
        assert retriever.rank_many([Request(query, documents, example("q"))] * 2) == [ranking, ranking]
        assert retriever.rank(query, [], example=example("q")) == []


def test_identical_documents_are_returned_once_and_clashing_ids_are_refused() -> None:
    """The same document twice in one prompt wastes half of it; two texts under one id mix up rewards."""
    one, other = Document("a", "tea"), Document("b", "pot")
    for retriever in (NoRetrieval(), Random(), BM25(), Dense(CountingEncoder())):
        assert sorted(ids(retriever.rank("tea", [one, other, Document("a", "tea")]))) == ["a", "b"]
        with pytest.raises(ValueError, match=r"example 'q7'.*'a'"):
            retriever.rank("tea", [one, Document("a", "another")], example=example("q7"))


def test_profiles_may_be_lazy() -> None:
    """Profiles are read from disk on demand; a retriever that wants a list would read them all."""

    class Lazy:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> Document:
            if i >= 2:
                raise IndexError(i)
            return Document(f"d{i}", "tea" if i else "pot", date=f"200{i}")

    for retriever in (NoRetrieval(), Random(), Recency(), BM25("lucene"), Dense(CountingEncoder())):
        assert len(retriever.rank("tea", Lazy())) == 2


def test_streams_hold_few_requests_at_once() -> None:
    """A stream of profiles larger than memory would otherwise be read to its end before the first result."""
    read = []

    def requests():
        for i in range(100):
            read.append(i)
            yield Request("a", [Document(f"{i}-{j}", "tea") for j in range(10)])

    dense = Dense(CountingEncoder())
    dense.chunk_documents = 20
    for retriever in (BM25(), dense):
        read.clear()
        stream = retriever.rank_stream(requests())
        assert len(next(stream)) == 10
        assert len(read) <= 2


def test_no_retrieval_scores_zero_and_fills_no_prompt() -> None:
    """The un-personalised baseline must see no document, and query prediction must see zeros."""
    documents = dated("2001", "2003")
    assert NoRetrieval().rank("x", documents) == [(documents[0], 0.0), (documents[1], 0.0)]
    assert not NoRetrieval().fills_prompt
    assert Recency().fills_prompt


def test_random_depends_on_seed_example_and_documents_only() -> None:
    """A random baseline that moves with the order of files or of calls cannot be reproduced."""
    documents = dated(*[None] * 20)
    ranking = ids(Random(1).rank("x", documents, example=example("q")))
    assert ids(Random(1).rank("another", documents[::-1], example=example("q"))) == ranking
    assert ids(Random(2).rank("x", documents, example=example("q"))) != ranking
    assert ids(Random(1).rank("x", documents, example=example("r"))) != ranking
    without = [document for document in documents if document.id != "d3"]
    kept = [name for name in ranking if name != "d3"]
    assert ids(Random(1).rank("x", without, example=example("q"))) == kept


def test_random_is_uniform_over_first_places() -> None:
    """A biased baseline would flatter or hurt every comparison with it (chi-square far below its limit)."""
    documents = dated(*[None] * 4)
    counts = dict.fromkeys(ids([(d, 0) for d in documents]), 0)
    for i in range(2000):
        counts[Random(0).rank("x", documents, example=example(f"q{i}"))[0].document.id] += 1
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 16.3  # p = 0.001 at 3 degrees


def test_recency_by_hand() -> None:
    """Newest first, equal dates in profile order, undated and unreadable ones last, scores 1/rank."""
    documents = dated("2001-05-03", None, "2010", "2009-12-31", "whenever", "2010", "2009-12-31 23:59:59")
    ranking = Recency().rank("x", documents)
    assert ids(ranking) == ["d2", "d5", "d6", "d3", "d0", "d1", "d4"]
    assert [score for _, score in ranking] == [1 / rank for rank in range(1, 8)]


def test_recency_refuses_profiles_without_dates() -> None:
    """Recency over undated documents would silently be the order of the file."""
    with pytest.raises(CannotRank, match=r"example 'q9'.*2 documents.*date"):
        Recency().rank("x", dated(None, "whenever"), example=example("q9"))
    assert issubclass(CannotRank, ValueError)
    assert Recency().rank("x", []) == []


def test_scores_that_are_not_finite_name_the_example() -> None:
    """A diverged encoder would rank by NaN, in whatever order the sort leaves."""
    retriever = Dense(CountingEncoder(lambda text: [float("nan") if text == "bad" else 1.0]))
    documents = [Document("a", "good"), Document("b", "bad")]
    with pytest.raises(ValueError, match=r"example 'q5'.*'b'.*nan"):
        retriever.rank_many([Request("x", documents[:1]), Request("x", documents, example("q5"))])


def test_names_and_options() -> None:
    """Configuration names retrievers; a misspelt one must be told the right one, at once."""
    for name in ("none", "random", "recency", "bm25"):
        assert load_retriever(name, text=document_text).name == name
    assert load_retriever("random", seed=5).seed == 5
    with pytest.raises(UnknownName, match="did you mean bm25"):
        load_retriever("bm52")


def test_import_loads_neither_torch_nor_the_search_libraries() -> None:
    """`--help` and refused configurations must answer in under two seconds."""
    code = (
        "import sys\nfrom ropg.registry import UnknownName\nfrom ropg.retrievers import load_retriever\n"
        "try: load_retriever('bm52')\nexcept UnknownName: pass\n"
        "print(*sorted({'torch', 'transformers', 'scipy', 'sentence_transformers'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
