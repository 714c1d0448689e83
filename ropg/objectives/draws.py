"""Random draws that depend on the row alone, neither on its padding nor on the batch it is part of.

A row spends exactly one number of the batch's generator, so the rows of the next micro-batch draw what
they would have drawn in one large batch (:func:`ropg.training.batch.row_generator`). A row that needs
more numbers seeds a stream of its own with that one, and takes them by the real documents' order.
"""

from __future__ import annotations

import torch
from torch import Tensor


def row_uniforms(rows: int, generator: torch.Generator | None, more: int = 0) -> tuple[Tensor, Tensor]:
    """One number in [0, 1) per row from ``generator``, and ``more`` from a stream that it seeds.

    Asking for more numbers leaves the first ones as they are. -> (B,) and (B, more), float64, on the
    generator's device and on the CPU.
    """
    device = torch.device("cpu") if generator is None else generator.device
    first = torch.rand(rows, dtype=torch.float64, device=device, generator=generator)
    streams = torch.empty(rows, more, dtype=torch.float64)
    if more:
        # the low bits of the number seed the stream: its high bits are what the first draw is made from
        for row, seed in enumerate((first.cpu() * 2.0**53).long().remainder(2**32).tolist()):
            own = torch.Generator().manual_seed(seed)
            streams[row] = torch.rand(more, dtype=torch.float64, generator=own)
    return first, streams


def draw_documents(
    log_probs: Tensor, mask: Tensor, generator: torch.Generator | None, samples: int = 1
) -> Tensor:
    """Columns of each row, drawn independently from exp(log_probs). (B, K) -> (B, S) long.

    The distribution function is inverted, which spends one number per draw, where torch.multinomial
    spends one per column and would draw differently for the same row under other padding. The first draw
    is the same for every number of draws. Dead rows get column 0.
    """
    first, more = row_uniforms(log_probs.shape[0], generator, samples - 1)
    uniform = torch.cat([first.unsqueeze(-1), more.to(first.device)], dim=-1)  # (B, S)
    probs = log_probs.to(uniform.device, torch.float64).exp()  # (B, K), 0 at masked places
    if probs.shape[-1] == 0:
        return torch.zeros(uniform.shape, dtype=torch.long, device=mask.device)
    cumulative = probs.cumsum(dim=-1)  # (B, K)
    # <= : a place of probability 0 is never first
    below = cumulative.unsqueeze(1) <= (uniform * cumulative[:, -1:]).unsqueeze(-1)  # (B, S, K)
    places = torch.arange(probs.shape[-1], device=probs.device)
    last = (probs > 0).long().mul(places).amax(dim=-1, keepdim=True)  # (B, 1)
    return torch.minimum(below.sum(dim=-1), last).to(mask.device)


def gumbel_noise(mask: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
    """Independent standard Gumbel numbers for each draw and document. (B, K) bool -> (B, S, K) float64.

    They belong to the real documents in their order, so padding anywhere moves none. Masked places hold
    what must not be read.
    """
    rows, columns = mask.shape
    _, stream = row_uniforms(rows, generator, columns * samples)
    uniform = stream.reshape(rows, columns, samples).clamp(min=torch.finfo(torch.float64).tiny)
    noise = -torch.log(-torch.log(uniform))  # (B, K, S), the j-th row of a query for its j-th real document
    order = (mask.cpu().long().cumsum(dim=-1) - 1).clamp(min=0)  # (B, K)
    noise = noise.gather(1, order.unsqueeze(-1).expand(-1, -1, samples))
    return noise.transpose(1, 2).to(mask.device)
