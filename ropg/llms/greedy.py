"""Greedy decoding of a batch of prompts that shrinks as answers end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

#: The share of a batch's rows that must have ended before they are taken out: moving the others copies their cache.
WORTH = 0.1


def decode_greedily(
    forward: Callable[..., Any],
    inputs: dict[str, Any],
    cache_name: str,
    max_new_tokens: int,
    ends: Sequence[int],
    check: Callable[[Tensor, Tensor], None],
    stopped: Callable[[Tensor], Tensor] | None = None,
) -> list[list[int]]:
    """The new tokens of each row, its end token included: what transformers' greedy ``generate`` gives.

    A batch of ``generate`` computes every row until the last one has ended. Titles end after three tokens or after
    twenty, so up to half of its steps' work is for rows that nobody reads; here a row that has ended leaves.
    The decoder-only model must know position ids, and a cache that ``batch_select_indices`` can thin out.

    Parameters
    ----------
    forward: the model.
    inputs: ``input_ids`` (rows, T) and ``attention_mask`` (rows, T), padded on the left, and under ``cache_name`` the
        cache of all tokens but the last; it is used up. ``rows`` (rows,): which prompt each is, so that the answers
        come in the prompts' order.
    ends: the end-of-sequence tokens.
    check: called at every step with logits (live rows, vocabulary) in float32 and these rows' numbers.
    stopped: new tokens (live rows, n) -> (live rows,) bool, True where a stop string has just been completed.
    """
    import torch

    ids, mask, cache = inputs["input_ids"], inputs["attention_mask"], inputs[cache_name]
    answers: list[list[int]] = [[] for _ in range(len(ids))]
    rows = inputs["rows"]  # of the tensors below: the prompt's number
    live = torch.ones_like(rows, dtype=torch.bool)
    last, new = ids[:, -1:], ids[:, :0]
    positions = mask.sum(dim=1, keepdim=True) - 1
    ending = torch.tensor(list(ends), dtype=ids.dtype, device=ids.device)
    for step in range(max_new_tokens):
        output = forward(
            input_ids=last, attention_mask=mask, position_ids=positions, use_cache=True, **{cache_name: cache}
        )
        logits = output.logits[:, -1].float()  # (rows, vocabulary)
        check(logits[live], rows[live])
        last = logits.argmax(dim=-1, keepdim=True)
        new = torch.cat([new, last], dim=1)  # (rows, step + 1)
        ended = torch.isin(last[:, 0], ending)
        if stopped is not None:
            ended = ended | stopped(new)
        over = live & (ended | (step + 1 == max_new_tokens))
        for row, tokens in zip(rows[over].tolist(), new[over].tolist(), strict=True):
            answers[row] = tokens
        live = live & ~over
        n_live = int(live.sum())
        if n_live == 0:
            break
        mask = torch.cat([mask, torch.ones_like(last)], dim=1)
        positions = positions + 1
        if n_live <= (1 - WORTH) * len(rows):
            kept = live.nonzero()[:, 0]
            cache.batch_select_indices(kept)
            rows, last, new, mask, positions = (t[kept] for t in (rows, last, new, mask, positions))
            live = torch.ones_like(rows, dtype=torch.bool)
    return answers
