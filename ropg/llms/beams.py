"""Beams of one prompt share its keys and values: they are read once for all of them.

An encoder-decoder's beams look at the same prompt, each from a row of its own, so ``generate`` repeats the prompt's
keys and values for every beam and reads them as often. Here they stay as they are, and the beams of a prompt become
query positions of one row.

Legend: N prompts, B beams of each, H heads, S tokens of the longest prompt, D the size of a head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

NAME = "ropg_beams"


def share_prompts(decoder: Any) -> bool:
    """Let a decoder's rows share the keys and values of their prompt; False where this model cannot.

    It can where transformers takes attention functions from outside and the model's own is ``sdpa``, whose numbers
    differ in rounding only.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError:  # an older transformers
        return False
    if getattr(decoder.config, "_attn_implementation", None) == NAME:
        return True
    if getattr(decoder.config, "_attn_implementation", None) != "sdpa" or not hasattr(
        decoder, "_can_set_attn_implementation"
    ):
        return False
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    decoder.set_attn_implementation(NAME)
    return bool(decoder.config._attn_implementation == NAME)


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Attention of transformers' signature, for (N * B, H, 1, D) queries on (N, H, S, D) keys and values too.

    Returns (N * B, 1, H, D), and no weights. With as many keys as queries it is plain ``sdpa``.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    prompts, rows = key.shape[0], query.shape[0]
    if rows == prompts:
        found: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options
        )
        return found
    beams, heads, size = rows // prompts, query.shape[1], query.shape[3]
    folded = query.view(prompts, beams, heads, size).transpose(1, 2)  # (N, H, B, D)
    mask = None if attention_mask is None else attention_mask[::beams]  # (N, 1, 1, S)
    if mask is not None:
        mask = mask.expand(-1, -1, beams, -1)
    options["is_causal"] = False
    output, _ = sdpa_attention_forward(module, folded, key, value, mask, **options)  # (N, B, H, D)
    return output.reshape(rows, 1, heads, size), None
