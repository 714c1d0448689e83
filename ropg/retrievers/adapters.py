"""LoRA: low-rank matrices beside an encoder's frozen weights, which alone are trained (Hu et al., 2021).

A linear layer W x becomes W x + (alpha / rank) B A x, with A (rank, in) drawn at random and B (out, rank) zero: at
first nothing changes. The adapters are peft's, which is an optional package and imported where it is used.
"""

from __future__ import annotations

import copy
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ropg.retrievers.encoder import Encoder

INSTALL = 'pip install "ropg[lora]"'


def check_peft() -> None:
    """Raise ValueError, with the command, where peft is not installed."""
    if importlib.util.find_spec("peft") is None:
        raise ValueError(f"encoder.train=lora needs peft, which is not installed: {INSTALL}")


def add_adapters(
    encoder: Encoder,
    *,
    rank: int = 8,
    alpha: float = 16,
    targets: str | Sequence[str] | None = None,
    seed: int = 0,
) -> None:
    """Freeze the weights of an encoder and put adapters, without dropout, beside them; its vectors stay the same.

    ``encoder.module`` becomes peft's wrapper. What :meth:`~ropg.retrievers.encoder.Encoder.save` writes is still an
    ordinary model: the adapters are added to a copy of the weights.

    Parameters
    ----------
    rank, alpha: of the adapters; what they compute is multiplied by alpha / rank.
    targets: names of the linear layers that get one, such as ``["query", "value"]``, or ``all-linear``; None for
        what peft chooses for this kind of model, mostly the attention's queries and values.
    seed: decides the random half of the adapters.

    Raises ValueError where peft is missing, knows no layers for this kind of model, or finds none of that name.
    """
    import torch

    wrap = _wrapping(rank, alpha, targets)
    devices = [encoder.device] if encoder.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        encoder.module = wrap(encoder.module)


def check_targets(encoder: Encoder, *, targets: str | Sequence[str] | None = None) -> None:
    """Raise ValueError as :func:`add_adapters` would; the encoder stays as it is, and nothing is computed."""
    import torch

    module: Any = encoder.module
    with torch.device("meta"):  # the same layers without weights
        _wrapping(1, 1, targets)(type(module)(module.config))


def merged(module: Any) -> Any:
    """An ordinary model with a module's adapters in its weights, as a copy; the module itself where it has none."""
    if not hasattr(module, "merge_and_unload"):
        return module
    return copy.deepcopy(module).merge_and_unload()


def _wrapping(rank: int, alpha: float, targets: str | Sequence[str] | None) -> Any:
    """The function that puts adapters into a module."""
    check_peft()
    from peft import LoraConfig, get_peft_model

    chosen = targets if targets is None or isinstance(targets, str) else list(targets)
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=chosen, lora_dropout=0.0)  # type: ignore[arg-type]

    def wrap(module: Any) -> Any:
        try:
            return get_peft_model(module, config)
        except ValueError as error:
            kind = getattr(module.config, "model_type", type(module).__name__)
            raise ValueError(
                f"encoder.lora.targets={targets}: no layer of this {kind} model is known by that, and adapters would "
                "train nothing; name its linear layers, as in encoder.lora.targets=[query,value], or take all of "
                f"them: encoder.lora.targets=all-linear ({error})"
            ) from error

    return wrap
