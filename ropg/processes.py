"""The processes of one command, as ``accelerate launch --num_processes N`` starts them.

Every process runs the same program. Where only one may act (building a table, writing a file) the main one does
and the others wait; where work is shared out (prompts for the LLM, rows of a training step) each does its part.
Without a launcher there is one process, and nothing here imports torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from accelerate import PartialState
    from torch import Tensor

T = TypeVar("T")
# One process may generate for hours longer than another. A process that dies is noticed by the launcher, which ends
# the others: no clock is needed for that.
_PATIENCE = timedelta(days=30)


class ProcessLost(RuntimeError):
    """Another process of this command has ended, so the rest cannot go on."""


def count() -> int:
    """How many processes there are; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def index() -> int:
    """This process's number, from 0."""
    return int(os.environ.get("RANK", "0")) if count() > 1 else 0


def is_main() -> bool:
    """Whether this is the process that writes files and prints."""
    return index() == 0


@cache
def state() -> PartialState:
    """The process group, joined at the first use; it lets one process be hours behind another."""
    from accelerate import PartialState

    from ropg.models import default_device

    return PartialState(cpu=default_device() == "cpu", timeout=_PATIENCE)


def wait() -> None:
    """Return once all processes have come here. Raises ProcessLost where one has ended."""
    if count() > 1:
        with _losses():
            state().wait_for_everyone()


@contextmanager
def main_first() -> Iterator[None]:
    """Let the main process do what follows before the others do: it makes what they then find made."""
    if not is_main():
        wait()
    yield
    if is_main():
        wait()


def agree(value: T) -> T:
    """The main process's ``value`` (JSON) for everyone, so that all take the same way."""
    if count() == 1:
        return value
    import torch

    text = json.dumps(value).encode()
    length = _broadcast(torch.tensor([len(text)], device=state().device))
    body = torch.zeros(int(length), dtype=torch.uint8, device=state().device)
    if is_main():
        body = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(body.device)
    found: T = json.loads(bytes(_broadcast(body).tolist()))
    return found


def total(number: int) -> int:
    """The sum of the numbers that all processes pass."""
    if count() == 1:
        return number
    import torch
    from accelerate.utils import reduce

    with _losses():
        return int(reduce(torch.tensor(number, device=state().device), reduction="sum"))


def require_same(digest: str, what: str) -> None:
    """Raise RuntimeError in every process unless all pass the same ``digest`` of ``what``."""
    if total(int(agree(digest) != digest)):
        raise UnlikeProcesses(
            f"the {count()} processes do not have the same {what}: they must see the same files, packages and kind of "
            "device. Start one process, or make the machines alike"
        )


class UnlikeProcesses(RuntimeError):
    """Processes that should do parts of one thing were about to do different things."""


def _broadcast(tensor: Tensor) -> Tensor:
    from accelerate.utils import broadcast

    with _losses():
        found: Any = broadcast(tensor)
    return found


@contextmanager
def _losses() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo and NCCL raise plain or distributed RuntimeErrors
        raise ProcessLost(
            f"another of the {count()} processes has ended ({str(error).splitlines()[0][:200]}); its message stands "
            "above. What was generated is kept: the same command, with any number of processes, goes on from here"
        ) from error
