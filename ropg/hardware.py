"""What hardware decides, and what a user may decide instead: number type, attention, activation memory, compilation.

Everything here is a small function of what a machine reports, so that it can be tested on a machine without a GPU.
torch is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Literal, get_args

Attention = Literal["auto", "sdpa", "eager", "flash_attention_2"]


def computes_in_bf16(device: str) -> bool:
    """Whether a device multiplies in bfloat16 itself: NVIDIA's from Ampere on (A100, RTX 30), AMD's.

    Older GPUs (V100, T4) only emulate it, which torch counts as supported too, and which is slower than float32.

    >>> computes_in_bf16("cpu")
    False
    """
    if not device.startswith("cuda"):
        return False
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def check_attention(attention: str, *, device: Callable[[], str], dtype: str) -> None:
    """Raise ValueError for an attention implementation that does not exist or cannot run here.

    ``device`` is asked only for flash attention, ``dtype`` is a torch type's name or "auto".

    >>> check_attention("flash", device=lambda: "cpu", dtype="auto")
    Traceback (most recent call last):
    ValueError: attention 'flash' is unknown; choose one of auto, sdpa, eager, flash_attention_2
    """
    if attention not in get_args(Attention):
        known = ", ".join(get_args(Attention))
        raise ValueError(f"attention {attention!r} is unknown; choose one of {known}")
    if attention != "flash_attention_2":
        return
    remedy = "or leave attention=auto, which is PyTorch's own (sdpa) where the model has it"
    if not device().startswith("cuda"):
        raise ValueError(
            f"attention=flash_attention_2 runs on a GPU only, and the device is {device()}; {remedy}"
        )
    if find_spec("flash_attn") is None:
        raise ValueError(f"attention=flash_attention_2 needs a package: pip install flash-attn; {remedy}")
    if dtype == "float32" or (dtype == "auto" and not computes_in_bf16(device())):
        raise ValueError(
            f"attention=flash_attention_2 works in 16 bits only; set dtype=float16 or bfloat16, {remedy}"
        )


def attention_options(attention: str) -> dict[str, Any]:
    """What ``from_pretrained`` is told: nothing for "auto", so that transformers chooses.

    >>> attention_options("auto"), attention_options("eager")
    ({}, {'attn_implementation': 'eager'})
    """
    return {} if attention == "auto" else {"attn_implementation": attention}


def require_attention(model: Any, attention: str) -> None:
    """Raise ValueError unless a loaded model uses the attention that was asked for."""
    used = getattr(model.config, "_attn_implementation", None)
    if attention not in ("auto", used):
        raise ValueError(
            f"attention={attention} was asked for, and {type(model).__name__} uses {used}; leave attention=auto"
        )


def refuse_launch(environment: Mapping[str, str]) -> None:
    """Raise ValueError where `accelerate launch` asks for a way of training that is not supported.

    >>> refuse_launch({"ACCELERATE_USE_DEEPSPEED": "false"})
    >>> refuse_launch({"ACCELERATE_USE_FSDP": "true"})
    Traceback (most recent call last):
    ValueError: training under FSDP is not supported: the encoders ...ddp.yaml
    """
    for variable, name in (("ACCELERATE_USE_FSDP", "FSDP"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")):
        if environment.get(variable, "false").lower() in ("true", "1"):
            raise ValueError(
                f"training under {name} is not supported: the encoders trained here fit a GPU whole, and every "
                "process keeps a copy; launch with accelerate launch --config_file docs/accelerate/ddp.yaml"
            )
