"""Gradients in the memory of one batch: what the backward pass needs of a batch is computed there, once more.

A training step embeds or scores its texts in batches. Kept for the backward pass, the activations of all of them
would lie in memory together, however small a batch is. Recomputed, only the results stay (one vector or one score
for each text), and the backward pass goes through one batch at a time: the gradient cache of Gao et al. (2021), by
gradient checkpointing. It costs a second forward pass and changes no number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import torch

Recompute = Literal["auto", "always", "never"]


def check_recompute(value: str) -> None:
    """Raise ValueError for a setting that does not exist."""
    if value not in get_args(Recompute):
        raise ValueError(f"recompute {value!r} is unknown; choose one of {', '.join(get_args(Recompute))}")


def recomputed(
    forward: Callable[[Any], torch.Tensor], setting: Recompute, n_batches: int, device: torch.device
) -> Callable[[Any], torch.Tensor]:
    """The function to call on each of ``n_batches`` batches instead of ``forward``.

    ``auto`` recomputes on a GPU, whose memory is what batches are sized for, and not on a CPU. One batch alone is
    never recomputed, nor is anything without gradients: nothing would be saved.
    """
    import torch

    wanted = setting == "always" or (setting == "auto" and device.type == "cuda")
    if not wanted or n_batches < 2 or not torch.is_grad_enabled():
        return forward
    from torch.utils.checkpoint import checkpoint

    return lambda batch: checkpoint(forward, batch, use_reentrant=False)
