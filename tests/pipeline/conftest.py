"""Tiny models on disk, data that the tests write, and the overrides that point a run at both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pipeline_files as files
import pytest


@dataclass(frozen=True)
class Models:
    """Folders of tiny models, laid out as a hub model is."""

    t5: Path
    llama: Path
    bert: Path


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A T5, a LLaMA and a BERT with random weights."""
    root = tmp_path_factory.mktemp("models")
    found = Models(root / "t5", root / "llama", root / "bert")
    for folder, build in (
        (found.t5, files.build_t5),
        (found.llama, files.build_llama),
        (found.bert, files.build_bert),
    ):
        build(folder)
    return found


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Converted files must not lie in the home folder of whoever runs the tests."""
    monkeypatch.setenv("ROPG_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def overrides(models: Models, tmp_path: Path) -> Callable[..., list[str]]:
    """Overrides for a run of moments; ``llm`` is llama or t5, and what is given comes last."""

    def build(*more: str, llm: str = "llama", folder: Path = tmp_path) -> list[str]:
        beams = {"llama": 1, "t5": 2}[llm]
        kind = {"llama": "causal", "t5": "seq2seq"}[llm]
        return [
            f"llm.kind={kind}",
            f"llm.model={getattr(models, llm)}",
            f"llm.num_beams={beams}",
            "llm.max_new_tokens=4",
            f"encoder.model={models.bert}",
            "encoder.max_length=48",
            f"selector.encoder={models.bert}",
            "selector.attention_window=16",
            "selector.max_length=128",
            "candidates.l=3",
            "optim.epochs=1",
            "optim.batch_size=2",
            "optim.accumulation=2",
            "evaluation.resamples=20",
            f"store.dir={folder / 'stores'}",
            f"run.root={folder / 'runs'}",
            *more,
        ]

    return build
