"""What training took: parameters, time, memory."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def training_costs(module: nn.Module, seconds: float) -> dict[str, Any]:
    """What summary.json says of a training.

    ``trainable_parameters``: numbers that were trained. ``train_seconds``: time spent training and evaluating on dev,
    over all interruptions. ``peak_memory_mib``: the largest resident memory of this process, whatever it did before,
    the LLM's answers included; a run that was resumed, or only wrote its summary, reports that of its last process.
    ``peak_gpu_memory_mib``: the same of what torch allocated, where the module is on a CUDA device.
    """
    parameters = list(module.parameters())
    costs = {
        "trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "train_seconds": round(seconds, 1),
        "peak_memory_mib": round(peak_memory_mib()),
    }
    device = parameters[0].device
    if device.type == "cuda":
        import torch

        costs["peak_gpu_memory_mib"] = round(torch.cuda.max_memory_allocated(device) / 2**20)
    return costs


def peak_memory_mib() -> float:
    """The largest resident memory that this process has had so far, in MiB.

    Linux's own count rather than ru_maxrss, which in a fresh process begins with what its parent had.
    """
    with contextlib.suppress(OSError, IndexError):
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def cost_line(summary: Mapping[str, Any]) -> str:
    """The costs in words.

    >>> cost_line({"trainable_parameters": 73728, "train_seconds": 41.2, "peak_memory_mib": 812})
    'trained 73,728 parameters in 41 s; peak memory of this process 812 MiB'
    """
    gpu = summary.get("peak_gpu_memory_mib")
    return (
        f"trained {summary['trainable_parameters']:,} parameters in {summary['train_seconds']:.0f} s; peak memory of "
        f"this process {summary['peak_memory_mib']:,} MiB"
        + (f", of its GPU {gpu:,} MiB" if gpu is not None else "")
    )
