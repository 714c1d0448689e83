"""The twelve experiments of the PGraphRAG paper: composed, and their data found below one folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ropg.build import build_examples, build_task, source_options
from ropg.cli import Refused, compose
from ropg.configuration import DataConfig
from ropg.outputs import data_note

FILES = ("amazon", "hotel", "gap", "b2w")
KINDS = ("text", "title", "rating")
TWELVE = {4 * k + f + 1: (file, kind) for k, kind in enumerate(KINDS) for f, file in enumerate(FILES)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up files of the four names: in each, ten users review one item and another one of their own."""
    folder = tmp_path_factory.mktemp("reviews")
    for file in FILES:
        users = [
            {
                "id": f"{file} {u}",
                "profile": [
                    {
                        "pid": "shared",
                        "rating": 1 + u % 5,
                        "title": f"{file} title {u}",
                        "text": f"{file} text {u}",
                    },
                    {"pid": f"own {u}", "rating": 3, "title": "Another", "text": f"thing of {u}"},
                ],
            }
            for u in range(10)
        ]
        (folder / f"{file}_dev.json").write_text(json.dumps(users), encoding="utf-8")
    return folder


@pytest.mark.parametrize("number", TWELVE)
def test_composes_and_finds_its_file(number: int, root: Path) -> None:
    """If this fails, one of the twelve reads another dataset or asks another question than its number says."""
    file, kind = TWELVE[number]
    config = compose(f"experiment=pgraphrag_{number}", f"data.root={root}")
    task = build_task(config)
    assert task.name == f"pgraphrag_{kind}"
    assert task.language == ("pt" if file == "b2w" else "en")
    assert (task.template, config.retrieval.k) == ("paper", 4)
    assert (config.llm.model, config.llm.chat_template) == ("meta-llama/Llama-3.1-8B-Instruct", True)
    assert (config.llm.num_beams, config.llm.max_new_tokens) == (1, 512)
    assert config.encoder.model == "facebook/contriever"
    parts = {split: build_examples(config, split, None) for split in ("train", "dev", "test")}
    assert [len(part) for part in parts.values()] == [6, 1, 3]
    example = parts["dev"][0]
    user = example.user.removeprefix(f"{file} ")
    expected = {
        "text": (f"{file} title {user}", f"{file} text {user}"),
        "title": (f"{file} text {user}", f"{file} title {user}"),
        "rating": (f"{file} title {user}\n{file} text {user}", str(1 + int(user) % 5)),
    }
    assert (example.input, example.target) == expected[kind]
    assert sorted({d.provenance for d in example.profile}) == ["neighbor", "own"]
    asked = task.prompt(example.input, list(example.profile)[:3])
    assert ("Aqui estão avaliações" if file == "b2w" else "Here are reviews") in asked
    assert (("no máximo 5 palavras" in asked) or ("at most 5 words" in asked)) == (kind == "title")
    assert task.metrics == (("mae", "rmse") if kind == "rating" else ("rouge1", "rougeL", "meteor"))


def test_a_small_llm_brings_its_own_settings(root: Path) -> None:
    """If this fails, trying a preset on two cores generates 512 tokens an answer."""
    config = compose(
        "experiment=pgraphrag_6", f"data.root={root}", "llm=smollm2", "encoder=minilm", "selector=minilm"
    )
    assert (config.llm.max_new_tokens, config.llm.chat_template, config.llm.template) == (
        16,
        False,
        "pattern",
    )
    assert config.data.file == "hotel_dev.json"


def test_data_path_goes_before_root_and_file(tmp_path: Path) -> None:
    """If this fails, a file named outright is not the one that is read, or a missing folder goes unsaid."""
    named = DataConfig(source="pgraphrag", path="/x/mine.json", root="/y", file="hotel_dev.json")
    assert source_options(named, "pgraphrag_title")["path"] == "/x/mine.json"
    found = source_options(DataConfig(source="pgraphrag", root="/y", file="h.json"), "pgraphrag_title")
    assert found["path"] == Path("/y/h.json")
    with pytest.raises(Refused, match=r"data\.root=DIR"):
        source_options(DataConfig(source="pgraphrag", file="h.json"), "pgraphrag_title")
    with pytest.raises(Refused, match=r"data\.path=FILE"):
        source_options(DataConfig(source="pgraphrag", root="/y"), "pgraphrag_title")
    config = compose("experiment=pgraphrag_2", f"data.root={tmp_path}")
    with pytest.raises(FileNotFoundError, match=r"hotel_dev\.json"):
        build_examples(config, "dev", None)
    assert f"{tmp_path}, hotel_dev.json" in data_note(config)


def test_limit_of_words_by_configuration(root: Path) -> None:
    """If this fails, task.max_words is a dead key, or is taken where no instruction can state it."""

    def prompt(*settings: str) -> str:
        config = compose("experiment=pgraphrag_6", f"data.root={root}", *settings)
        return build_task(config).prompt("Nice pool.", [])

    assert prompt() == "Generate a title of at most 5 words for the following review: Nice pool."
    assert (
        prompt("task.max_words=3")
        == "Generate a title of at most 3 words for the following review: Nice pool."
    )
    assert prompt("task.max_words=null") == "Generate a title for the following review: Nice pool."
    with pytest.raises(Refused, match=r"task\.template=paper"):
        prompt("llm=smollm2", "task.max_words=3")
    assert prompt("llm=smollm2") == "review: Nice pool.\ntitle:"
    with pytest.raises(ValueError, match="pgraphrag_text takes no option"):
        build_task(compose("experiment=pgraphrag_2", f"data.root={root}", "task.max_words=3"))
    with pytest.raises(ValueError, match="max_words='many'"):
        prompt("task.max_words=many")
