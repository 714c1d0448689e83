"""Run folders: named after the configuration, locked while in use, found again when finished."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from ropg import processes
from ropg.configuration import Config, DataConfig, EncoderConfig, LlmConfig
from ropg.console import say
from ropg.differences import differences
from ropg.files import write_text

# what decides the result of training; where it is written, tracked or evaluated does not
DECIDES = ("task", "data", "llm", "encoder", "candidates", "feedback", "method", "optim", "seed")
DECIDES_SELECTOR = (*DECIDES, "selector", "retrieval", "retrievers")
SAME_SETTING = ("task", "data", "llm")
EVALUATION = (
    "task",
    "data",
    "llm",
    "encoder",
    "retrieval",
    "retrievers",
    "evaluation.split",
    "selector.pool",
)
_DECIDES_NOTHING = (
    "cache_dir",
    "batch_tokens",
    "max_batch_size",
    "recompute",
    "attention",
    "gradient_checkpointing",
    "compile",
    "device",
    "checkpoint_seconds",
    "engine",
    "ray",
)
# keys that came later: left out where they are at their default, so that runs of before keep their folders
_DECIDES_IF_SET: dict[str, Any] = {
    "provenance": None,
    "patience": None,
    "choose_by": "expected_reward",
    "train_eval": None,
    "proposers": ["initial"],
    "negatives": 0,
    "refresh": None,
}
# of llm.options: where a served LLM is and how it is asked
_ADDRESS = (
    "url",
    "key_variable",
    "concurrency",
    "timeout",
    "connect_timeout",
    "retries",
    "max_failures",
    "patience",
)


class RunError(ValueError):
    """A run folder that cannot be used as asked; the message says what to do."""


class RunBusy(RunError):
    """A run folder that another process is at work on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder}: another process is at work on this run; wait for it, or name another run.dir"
        )
        self.folder = folder


def decides(config: Config) -> tuple[str, ...]:
    """The parts of a configuration that decide what is trained, a retriever or a selector."""
    return DECIDES if config.method.reads is None else DECIDES_SELECTOR


def decisive(config: Config, parts: tuple[str, ...] = DECIDES) -> dict[str, Any]:
    """The part of a configuration that decides what is trained, as plain JSON values."""
    found: dict[str, Any] = {}
    for part in parts:
        value = attrgetter(part)(config)
        if isinstance(value, DataConfig):  # one place, however it is written
            value = dataclasses.replace(value, root=_absolute(value.root), path=_absolute(value.path))
        if isinstance(value, LlmConfig):
            options = {k: v for k, v in value.options.items() if k not in _ADDRESS}
            value = dataclasses.replace(value, options=options)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {k: v for k, v in dataclasses.asdict(value).items() if k not in _DECIDES_NOTHING}
            value = {k: v for k, v in value.items() if k not in _DECIDES_IF_SET or v != _DECIDES_IF_SET[k]}
        if part == "candidates" and "proposers" in value:
            value["proposer_options"] = retriever_options(value["proposers"], config)
        if part == "retrievers":
            asked = retriever_options(config.selector.pool, config)  # other restricted ones decide nothing
            value = {k: v for k, v in value.items() if "of" not in (v or {}) or k in asked}
        if part == "encoder":
            ways = ("train", "lora")
            value = {k: v for k, v in value.items() if k not in ways} | way_of_training(config.encoder)
        found[part] = value
    return found


def way_of_training(encoder: EncoderConfig) -> dict[str, Any]:
    """The keys that say what of the encoder is trained; none for all of it, so that runs of before keep their folders.

    >>> way_of_training(EncoderConfig()), way_of_training(EncoderConfig(train="query"))
    ({}, {'train': 'query'})
    """
    found: dict[str, Any] = {} if encoder.train == "full" else {"train": encoder.train}
    return found | ({"lora": dataclasses.asdict(encoder.lora)} if encoder.train == "lora" else {})


def retriever_options(names: Iterable[str], config: Config) -> dict[str, Any]:
    """The options of these retrievers, of what they restrict, and of the BM25 that rrf fuses, where there are any."""
    found: dict[str, Any] = {}
    left = list(names)
    while left:
        name = left.pop()
        if name == "rrf":
            left.append("bm25")
        if name in config.retrievers and name not in found:
            found[name] = config.retrievers[name]
            left.append((config.retrievers[name] or {}).get("of", name))
    return found


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).resolve())


def short_hash(value: Any) -> str:
    """Eight hex digits that stand for a JSON value.

    >>> short_hash({"a": 1}) == short_hash({"a": 1}) != short_hash({"a": 2})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def run_folder(config: Config) -> Path:
    """``run.dir``, or a folder below ``run.root`` that the same configuration always gets."""
    if config.run.dir:
        return Path(config.run.dir)
    name = f"{config.task.name}-{config.method.name}-seed{config.seed}-{short_hash(decisive(config, decides(config)))}"
    return Path(config.run.root) / slug(name)


def evaluation_folder(config: Config) -> Path:
    """``run.dir``, or a folder below ``run.root`` for the evaluation of one setting."""
    if config.run.dir:
        return Path(config.run.dir)
    name = f"evaluation-{config.task.name}-{short_hash(decisive(config, EVALUATION))}"
    return Path(config.run.root) / slug(name)


def slug(name: str) -> str:
    """A name that is a good folder name everywhere.

    >>> slug("LaMP-4 mine:Task=1")
    'lamp-4-mine-task-1'
    """
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower())


@contextmanager
def open_run(config: Config, folder: Path, parts: tuple[str, ...] | None = None) -> Iterator[Path]:
    """Lock a run folder for this process and keep its ``config.yaml``; ``parts`` of it must stay as they were.

    By default those are the parts that decide what is trained. Of several processes the main one holds the lock
    for all.

    Raises RunError where another process holds it, or where it belongs to another configuration.
    """
    from omegaconf import OmegaConf

    if not processes.is_main():
        processes.wait()
        yield folder
        return
    parts = parts or decides(config)
    if folder.exists() and not folder.is_dir():
        raise RunError(f"run.dir={folder} is a file; name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunBusy(folder) from None
        kept = folder / "config.yaml"
        before = set(os.listdir(folder))
        if kept.exists():
            differing = changes(decisive(load_config(folder), parts), decisive(config, parts))
            if differing:
                raise RunError(
                    f"{folder} belongs to a run with other settings ({'; '.join(differing)}); name another run.dir, or "
                    "delete the folder"
                )
        else:
            write_text(kept, OmegaConf.to_yaml(OmegaConf.structured(config)))
        try:
            processes.wait()
            yield folder
        except BaseException:
            # a first try that made nothing (a mistyped path, say) does not bind the corrected one
            if kept.name not in before and set(os.listdir(folder)) == {*before, kept.name}:
                kept.unlink()
            raise


def load_config(folder: Path) -> Config:
    """The configuration that a run folder was made with. Raises RunError where there is none."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    path = Path(folder) / "config.yaml"
    try:
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.load(path)))
    except FileNotFoundError:
        raise RunError(f"{folder} is not a run folder: it has no config.yaml") from None
    except (OmegaConfBaseException, YAMLError, OSError, TypeError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    assert isinstance(config, Config)
    return config


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Where two configurations differ, one line each."""
    return [f"{name}: {before!r} before, {now!r} now" for name, before, now in differences(old, new)]


def finished_runs(config: Config) -> list[tuple[Path, dict[str, Any]]]:
    """Finished runs of the same task, data and LLM below ``run.root``, newest first, with their summaries."""
    wanted = _setting(config)
    found = []
    for summary in Path(config.run.root).rglob("summary.json"):
        try:
            values = read_json(summary, "delete the folder or train again")
            same = _setting(load_config(summary.parent)) == wanted
        except RunError as error:
            say("runs", f"skipped: {error}")
            continue
        if same:
            found.append((summary.stat().st_mtime, summary.parent, values))
    return [(folder, values) for _, folder, values in sorted(found, key=lambda f: (-f[0], str(f[1])))]


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """An object of one of a run's own files. Raises RunError, with the file and the remedy, for a damaged one."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged ({error}); {remedy}") from error
    needed = {"method", "seed", "heldout", "p_values", "n_heldout"} if path.name == "summary.json" else set()
    whole = isinstance(values, dict) and needed <= values.keys()
    if whole and needed:
        whole = isinstance(values["heldout"], dict) and isinstance(values["p_values"], dict)
    if whole and needed and "selector" in values["heldout"]:  # a selector's
        whole = {"pool", "qpp", "dev_rewards"} <= values.keys() and {"success_rate", "reward"} <= values[
            "p_values"
        ].keys()
    if not whole:
        raise RunError(f"{path} is damaged (it lacks what belongs there); {remedy}")
    return dict(values)


def _setting(config: Config) -> dict[str, Any]:
    """Task, data and LLM; how many held-out users are looked at is not part of them."""
    found = decisive(config, SAME_SETTING)
    found["data"].pop("limit_test")
    return found
