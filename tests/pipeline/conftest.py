"""Tiny models on disk, data that the tests write, and the overrides that point a run at both."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pipeline_files as files
import pytest
from pipeline_files import POOL, SELECTORS

from ropg.cli import compose
from ropg.configuration import Config


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
        return files.overrides(models, folder, *more, llm=llm)

    return build


@dataclass
class House:
    """Two retrievers, two selectors of the whole pool and their evaluation, made once for all who read them.

    calls: LLM prompts that each command asked, in their order. printed: what the evaluation said.
    Nobody writes below ``folder``: :meth:`copy` gives runs that may be damaged.
    """

    models: Models
    folder: Path
    runs: dict[str, Path] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    printed: str = ""

    def settings(self, *more: str, folder: Path | None = None) -> Config:
        """The configuration of the house, its runs and stores below ``folder``; what is given comes last."""
        return compose(
            *files.overrides(
                self.models,
                folder or self.folder,
                "experiment=lamp_4_llama",
                "data.setting=null",
                f"data.root={self.folder / 'lamp'}",
                "retrieval.k=2",
                "optim.lr=1e-2",
                "optim.epochs=3",
                f"evaluation.systems=[{','.join((*POOL, *SELECTORS))}]",
                *more,
            )
        )

    def copy(self, folder: Path) -> dict[str, Path]:
        """Runs and stores copied below ``folder``: system -> its run there."""
        for part in ("runs", "stores"):
            shutil.copytree(self.folder / part, folder / part)
        return {name: folder / run.relative_to(self.folder) for name, run in self.runs.items()}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every prompt that an LLM is asked in this test, in order."""
    from ropg.llms.local import LocalLLM

    prompts: list[str] = []
    plain = LocalLLM.generate_batch

    def generate_batch(self, batch):
        prompts.extend(batch)
        return plain(self, batch)

    monkeypatch.setattr(LocalLLM, "generate_batch", generate_batch)
    return prompts


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations without the sections of report.html, whose plots take most of their time here."""
    import ropg.outputs
    import rspg.comparison

    monkeypatch.setattr(ropg.outputs, "evaluation_sections", lambda *_, **__: [])
    monkeypatch.setattr(rspg.comparison, "selection_sections", lambda *_, **__: [])


@pytest.fixture(scope="session")
def house(models: Models, tmp_path_factory: pytest.TempPathFactory) -> House:
    """Everything trained and evaluated once."""
    from ropg.llms.local import LocalLLM
    from rspg.comparison import evaluate
    from rspg.pipeline import train

    made = House(models, tmp_path_factory.mktemp("house"))
    files.write_lamp(made.folder / "lamp", 4, {"train": 10, "dev": 4, "test": 6}, documents=(5, 7))
    plain, current = LocalLLM.generate_batch, ""

    def generate_batch(self, batch):
        made.calls[current] += len(batch)
        return plain(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROPG_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr(LocalLLM, "generate_batch", generate_batch)
        for current in ("ropg_kd", "ropg_rl", *SELECTORS):
            made.calls[current] = 0
            made.runs[current] = train(made.settings(f"method={current}"))
        current, said = "evaluation", io.StringIO()
        made.calls[current] = 0
        with redirect_stdout(said):
            made.runs[current] = evaluate(made.settings())
        made.printed = said.getvalue()
    return made
