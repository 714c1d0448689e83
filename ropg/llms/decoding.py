"""Greedy or beam search and nothing else: the generation settings, and the check that logits are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ropg.llms.protocol import NonFiniteLogits

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

_SAMPLING = (
    "do_sample",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "top_h",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "penalty_alpha",
    "seed",
)
_LENGTHS = ("max_length", "min_length", "min_new_tokens")


def refuse_options(options: Mapping[str, Any], known: str) -> None:
    """Raise for decoding options that would make feedback random or cut it, and for unknown ones.

    >>> refuse_options({"temperature": 0.7}, known="num_beams, stop")
    Traceback (most recent call last):
    ValueError: temperature=0.7 asks for sampling; feedback is stored once per prompt, so the LLM ...
    >>> refuse_options({"do_sample": False, "temperature": None}, known="num_beams, stop")
    """
    for name, value in options.items():
        if name in _SAMPLING:
            if value:
                raise ValueError(
                    f"{name}={value!r} asks for sampling; feedback is stored once per prompt, so the LLM "
                    "decodes greedily or by beam search only: leave the option out and set num_beams"
                )
        elif name in _LENGTHS:
            raise ValueError(
                f"{name} is not used: max_new_tokens limits the new text, whatever the prompt's length"
            )
        else:
            raise ValueError(f"unknown LLM option {name!r}. Known: {known}.")


def end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """All token ids that end an answer: those of the model's generation settings and the tokenizer's."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return sorted({int(i) for i in [*ids, tokenizer.eos_token_id] if i is not None})


def generation_config(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, num_beams: int, max_new_tokens: int
) -> GenerationConfig:
    """Fresh settings that take only the token ids from the model's own.

    Models ship defaults for chatting (sampling, temperature, minimum and maximum lengths); taking them over
    would make feedback random or cut it.
    """
    from transformers import GenerationConfig

    own, config = model.generation_config, model.config
    start = getattr(own, "decoder_start_token_id", None)
    if start is None:
        start = getattr(config, "decoder_start_token_id", None)
    return GenerationConfig(
        do_sample=False,
        num_beams=num_beams,
        max_new_tokens=max_new_tokens,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=end_token_ids(model, tokenizer) or None,
        bos_token_id=tokenizer.bos_token_id,
        decoder_start_token_id=start,
    )


class FiniteLogits:
    """A logits processor that changes nothing and remembers which rows had NaN or infinite logits.

    The sum of a row is finite exactly when the row is (logits are far below the range of float32), so one
    reduction per step is enough, and :meth:`places` waits for the device once, at the end.
    """

    def __init__(self) -> None:
        self.bad: Tensor | None = None  # (rows,) bool

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(rows, vocabulary) -> the same scores."""
        bad = ~scores.sum(dim=-1).isfinite()
        self.bad = bad if self.bad is None else self.bad | bad
        return scores

    def places(self, n_prompts: int) -> list[int]:
        """The places in the batch of the prompts with a row that was not finite."""
        if self.bad is None:
            return []
        rows = self.bad.view(n_prompts, -1).any(dim=1)  # (prompts, beams) -> (prompts,)
        return list(rows.nonzero().flatten().tolist())


def raise_non_finite(places: list[int], n_prompts: int) -> None:
    """Raise NonFiniteLogits for the prompts at ``places`` of a batch."""
    raise NonFiniteLogits(
        f"the model computed NaN or infinite logits for {len(places)} of {n_prompts} prompts (the first: "
        f"number {places[0]} of the batch); nothing of this batch is kept. Use dtype=bfloat16 or float32 "
        "(float16 overflows in many models), and check that the weights are whole"
    )
