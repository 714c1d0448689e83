"""Checkpoints: tensors in safetensors, everything else in JSON, whole or absent.

    checkpoints/
        step-000123/            written under another name, synced to disk, then renamed
            model.safetensors   the module's state, without frozen parameters
            optimizer.safetensors
            state.json          progress, the run's fingerprint, size and SHA-256 of the other two
        best/model.safetensors  weights of the best evaluation so far, replaced in one rename

A process killed at any instant leaves complete checkpoints, and at most a temporary folder that the next
save removes. A parameter that is not trained (``requires_grad`` False: under LoRA, the encoder's own) is not written:
the resumed run's module has it, and the run's fingerprint says that it is the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from ropg.differences import differences
from ropg.files import sync, write_text

log = logging.getLogger(__name__)

_NAME = re.compile(r"step-(\d+)")
_TENSOR_FILES = ("model.safetensors", "optimizer.safetensors")
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, SafetensorError)


class ResumeMismatch(ValueError):
    """The folder holds checkpoints of another run; the message says what differs."""


def save_checkpoint(
    folder: Path, step: int, module: nn.Module, optimizer: Optimizer, state: Mapping[str, Any], keep: int
) -> Path:
    """Write ``step-<step>`` into ``folder`` and remove all but the newest ``keep``; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".tmp-*"):
        shutil.rmtree(leftover)
    temporary = folder / f".tmp-step-{step:06d}"
    temporary.mkdir()
    save_module(module, temporary / "model.safetensors")
    _save_tensors(_optimizer_tensors(module, optimizer), temporary / "optimizer.safetensors")
    files = {name: _describe_file(temporary / name) for name in _TENSOR_FILES}
    text = json.dumps({**state, "step": step, "files": files}, indent=1, allow_nan=False)
    write_text(temporary / "state.json", text)
    final = folder / f"step-{step:06d}"
    if final.exists():  # a broken one, or this step would not have run again
        shutil.rmtree(final)
    os.replace(temporary, final)
    sync(folder)
    _prune(folder, step, keep)
    return final


def newest_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Path and state of the newest complete checkpoint, None without one.

    Incomplete and damaged ones are passed over with a warning.
    """
    found = sorted(_steps(folder).items(), reverse=True)
    for _, path in found:
        try:
            state = json.loads((path / "state.json").read_text(encoding="utf-8"))
            damaged = [n for n in _TENSOR_FILES if state["files"][n] != _describe_file(path / n)]
        except _UNREADABLE as error:
            log.warning("checkpoint %s is incomplete (%s): the one before it is used", path, error)
            continue
        if damaged:
            log.warning("checkpoint %s is damaged (%s): the one before it is used", path, ", ".join(damaged))
            continue
        return path, state
    if found:
        log.warning("no checkpoint in %s is complete: training starts from the beginning", folder)
    return None


def load_checkpoint(path: Path, module: nn.Module, optimizer: Optimizer) -> None:
    """Put the tensors of a checkpoint back into the module and the optimizer."""
    load_module(module, path / "model.safetensors")
    with safe_open(path / "optimizer.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    names = {id(p): name for name, p in module.named_parameters()}
    layout = optimizer.state_dict()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, parameter in enumerate(parameters):
        prefix = names[id(parameter)] + "/"
        own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        if own:
            layout["state"][index] = own
    optimizer.load_state_dict(layout)


def save_module(module: nn.Module, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a module's state to ``path`` in one rename: parameters that are trained, and all buffers.

    Tensors that are shared under several names are written once.
    """
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    frozen = _frozen(module)
    for name, tensor in module.state_dict().items():
        if name in frozen:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"the module's state {name!r} is a {type(tensor).__name__}, not a tensor")
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and key in seen:
            aliases[name] = seen[key]
        else:
            seen[key] = name
            tensors[name] = tensor
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    _save_tensors(tensors, temporary, {**(metadata or {}), "aliases": json.dumps(aliases)})
    os.replace(temporary, path)
    sync(path.parent)


def load_module(module: nn.Module, path: Path) -> dict[str, str]:
    """Put back what :func:`save_module` wrote; return the metadata.

    Raises RuntimeError where the module has other tensors, but for frozen parameters that were not written.
    """
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata())
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    for name, kept in json.loads(metadata.pop("aliases")).items():
        tensors[name] = tensors[kept]
    state = module.state_dict()
    module.load_state_dict({name: state[name] for name in _frozen(module) if name in state} | tensors)
    return metadata


def read_metadata(path: Path) -> dict[str, str] | None:
    """Metadata of a file that :func:`save_module` wrote; None where the file is missing or broken."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata())
    except _UNREADABLE:
        return None


def require_same(old: Mapping[str, Any], new: Mapping[str, Any], folder: Path) -> None:
    """Raise ResumeMismatch, saying what differs, unless two fingerprints (JSON values) are equal."""
    differing = [f"{name} was {before!r}, is now {now!r}" for name, before, now in differences(old, new)]
    if differing:
        raise ResumeMismatch(
            f"{folder} holds checkpoints of a run with other settings or data: {'; '.join(differing)}. "
            "Use another run folder, or remove this one's checkpoints to train anew"
        )


def _frozen(module: nn.Module) -> set[str]:
    """Names of the parameters that are not trained."""
    return {name for name, p in module.named_parameters(remove_duplicate=False) if not p.requires_grad}


def _optimizer_tensors(module: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    names = {id(p): name for name, p in module.named_parameters()}
    return {
        f"{names[id(parameter)]}/{key}": value
        for parameter, values in optimizer.state.items()
        for key, value in values.items()
    }


def _save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    whole = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    save_file(whole, path, metadata)
    sync(path)


def _steps(folder: Path) -> dict[int, Path]:
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.glob("step-*"))
    return {int(match[1]): path for match, path in matches if match}


def _prune(folder: Path, step: int, keep: int) -> None:
    """Keep the newest ``keep`` up to ``step``; later ones are broken, or the run would not be here."""
    steps = _steps(folder)
    kept = sorted(s for s in steps if s <= step)[-keep:]
    for number, path in steps.items():
        if number not in kept:
            shutil.rmtree(path)


def _describe_file(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
