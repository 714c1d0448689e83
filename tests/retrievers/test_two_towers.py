"""Two towers: queries trained, documents as they were, in every place that ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from ropg.examples import Document
from ropg.retrievers import Dense, Request, load_encoder, load_retriever
from ropg.retrievers.two_towers import TwoTowerEncoder, freeze_documents

TEXTS = ["tea mug", "a very long neighbour text repeated many times", "red pot", "blue chair"]


@pytest.fixture
def towers(tiny_bert: Path) -> TwoTowerEncoder:
    """A query tower that has moved away from the initial encoder."""
    found = freeze_documents(load_encoder(str(tiny_bert), device="cpu"), str(tiny_bert))
    move(found)
    return found


def move(towers: TwoTowerEncoder) -> None:
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in towers.module.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=draw)


def by_hand(queries: list[str], documents: list[str], towers: TwoTowerEncoder, initial: Path) -> np.ndarray:
    """Products of the trained vectors of queries and the initial ones of documents: (queries, documents)."""
    of_documents = load_encoder(str(initial), device="cpu").encode(documents)
    return towers.queries.encode(queries) @ of_documents.T


def test_documents_keep_the_initial_vectors(towers: TwoTowerEncoder, tiny_bert: Path) -> None:
    """An index of them stays good; the query tower has moved all the same."""
    initial = load_encoder(str(tiny_bert), device="cpu").encode(TEXTS)
    np.testing.assert_array_equal(towers.encode_documents(TEXTS), initial)
    assert np.abs(towers.encode_queries(TEXTS) - initial).max() > 0.1
    assert not any(p.requires_grad for p in towers.documents.module.parameters())
    assert all(p.requires_grad for p in towers.module.parameters())


def test_dense_asks_each_tower_for_its_texts(towers: TwoTowerEncoder, tiny_bert: Path) -> None:
    """A text that is a query and a document has two vectors, which must not be mistaken for each other."""
    documents = [Document(f"d{i}", text) for i, text in enumerate([*TEXTS, "tea mug"])]
    requests = [Request("tea mug", documents), Request("red pot", documents[:2]), Request("chair", [])]
    products = by_hand(["tea mug", "red pot"], [d.text for d in documents], towers, tiny_bert)
    for chunk in (1, 8192):
        retriever = Dense(towers)
        retriever.chunk_documents = chunk
        rankings = retriever.rank_many(requests)
        for ranking, row, n in zip(rankings, products, (5, 2), strict=False):
            assert {d.id: s for d, s in ranking} == pytest.approx(
                {f"d{i}": row[i] for i in range(n)}, abs=1e-4
            )
            assert [d.id for d, _ in ranking] == [
                f"d{i}" for i in sorted(range(n), key=lambda i: (-row[i], i))
            ]
        assert rankings[2] == []


def test_a_saved_query_tower_comes_back_with_its_documents(
    tmp_path: Path, towers: TwoTowerEncoder, tiny_bert: Path
) -> None:
    """From the folder alone: by name in a retriever, and trained further and saved again."""
    towers.save(tmp_path / "model")
    loaded = load_encoder(str(tmp_path / "model"), device="cpu")
    assert isinstance(loaded, TwoTowerEncoder)
    np.testing.assert_array_equal(loaded.encode_queries(TEXTS), towers.encode_queries(TEXTS))
    np.testing.assert_array_equal(loaded.encode_documents(TEXTS), towers.encode_documents(TEXTS))

    retriever = load_retriever("dense", encoder=str(tmp_path / "model"), device="cpu")
    documents = [Document(f"d{i}", text) for i, text in enumerate(TEXTS)]
    row = by_hand(["red tea"], TEXTS, towers, tiny_bert)[0]
    assert {d.id: s for d, s in retriever.rank("red tea", documents)} == pytest.approx(
        {f"d{i}": row[i] for i in range(4)}, abs=1e-4
    )

    move(loaded)
    loaded.save(tmp_path / "further")
    again = load_encoder(str(tmp_path / "further"), device="cpu")
    np.testing.assert_array_equal(again.encode_documents(TEXTS), towers.encode_documents(TEXTS))
    np.testing.assert_array_equal(again.encode_queries(TEXTS), loaded.encode_queries(TEXTS))


def test_other_libraries_load_the_query_tower(tmp_path: Path, towers: TwoTowerEncoder) -> None:
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel

    towers.save(tmp_path / "model")
    AutoModel.from_pretrained(tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, towers.encode_queries(TEXTS), atol=1e-5)


def test_a_relative_name_is_found_from_anywhere(tmp_path: Path, tiny_bert: Path, monkeypatch) -> None:
    """`encoder.model=models/bert` is said from one folder and the run evaluated from another."""
    shutil.copytree(tiny_bert, tmp_path / "here" / "bert")
    monkeypatch.chdir(tmp_path / "here")
    freeze_documents(load_encoder("bert", device="cpu"), "bert").save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    assert isinstance(load_encoder(str(tmp_path / "model"), device="cpu"), TwoTowerEncoder)


def test_documents_of_another_encoder_are_refused(tmp_path: Path, tiny_bert: Path) -> None:
    """Queries trained for other vectors would rank at random, and nobody would notice."""
    initial = tmp_path / "initial"
    shutil.copytree(tiny_bert, initial)
    encoder = load_encoder(str(initial), device="cpu")
    freeze_documents(encoder, str(initial)).save(tmp_path / "model")
    with torch.no_grad():
        next(encoder.module.parameters()).add_(1)
    encoder.save(initial)
    with pytest.raises(
        ValueError, match=r"ropg\.json: .* whose weights have changed since; put that model back"
    ):
        load_encoder(str(tmp_path / "model"), device="cpu")
    shutil.rmtree(initial)
    with pytest.raises(
        FileNotFoundError, match=r"document vectors of .*initial, which cannot be loaded; put that"
    ):
        load_encoder(str(tmp_path / "model"), device="cpu")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"documents": "x"}', '{"documents": {"model": "x"}}'])
def test_a_damaged_file_is_named(tmp_path: Path, towers: TwoTowerEncoder, text: str) -> None:
    towers.save(tmp_path / "model")
    content = json.loads((tmp_path / "model" / "ropg.json").read_text())
    assert set(content["documents"]) == {"model", "fingerprint"}
    (tmp_path / "model" / "ropg.json").write_text(text)
    with pytest.raises(ValueError, match=r"ropg\.json is damaged .*train again"):
        load_encoder(str(tmp_path / "model"), device="cpu")


def test_towers_of_different_width_are_refused(towers: TwoTowerEncoder) -> None:
    class Wider:
        dimension = 17

    with pytest.raises(ValueError, match="16 dimensions for queries cannot be compared with 17"):
        TwoTowerEncoder(towers.queries, Wider(), "wider")  # type: ignore[arg-type]
