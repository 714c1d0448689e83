"""``seq2seq``: encoder-decoder LLMs such as FlanT5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ropg.batching import overhead, slices
from ropg.llms import LLMS
from ropg.llms.beams import share_prompts
from ropg.llms.likelihood import IGNORED, mean_log_probabilities
from ropg.llms.local import LocalLLM, Pair
from ropg.text import well_formed

if TYPE_CHECKING:
    from torch import Tensor


@LLMS.register("seq2seq")
class Seq2SeqLLM(LocalLLM):
    """An encoder-decoder model; see :class:`ropg.llms.local.LocalLLM` for the options.

    The likelihood of a target is that of its tokens with the end-of-sequence token, as these models are
    trained: their answers always end with it.

    Raises ValueError for ``dtype="float16"``, in which T5 overflows to NaN, and for a chat template.
    """

    family = "seq2seq"
    padding_side = "right"

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model, **options)
        if self._dtype == "float16":
            raise ValueError("T5 overflows to NaN in float16: use dtype=bfloat16 or dtype=float32")
        if self.chat_template:
            raise ValueError("seq2seq models have no chat template: use chat_template=False")

    def auto_class(self) -> Any:
        """transformers' automatic class for this family."""
        from transformers import AutoModelForSeq2SeqLM

        return AutoModelForSeq2SeqLM

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids of whole prompts, special tokens included; never empty."""
        encoded = self.tokenizer([well_formed(prompt) for prompt in prompts])["input_ids"] if prompts else []
        return [ids or [int(self.tokenizer.pad_token_id)] for ids in encoded]

    def encode_pair(self, prompt: str, target: str) -> Pair:
        """Token ids of a prompt and of the decoder's target, end-of-sequence token included."""
        ids = list(self.tokenizer(text_target=well_formed(target))["input_ids"])
        if ids[-1:] != [self.tokenizer.eos_token_id]:
            ids.append(int(self.tokenizer.eos_token_id))
        return self.encode([prompt])[0], ids

    def _inputs(self, encoded: Sequence[list[int]]) -> dict[str, Any]:
        """What ``generate`` reads: prompts encoded, and the keys and values that the decoder makes of them.

        Prompts go through the encoder in passes of like length. The decoder's view of a prompt is computed once for all
        its beams (:mod:`ropg.llms.beams`); ``generate`` itself would compute it for each of them.
        """
        import torch
        from transformers import DynamicCache, EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput

        class OfPrompts(DynamicCache):
            """Keys and values of the prompts, the same for all beams of one.

            Beam search follows its beams by copying their rows at every step, these too, though a prompt's rows are
            all alike: most of the time of a batch went there.
            """

            def reorder_cache(self, beam_idx: Tensor) -> None:
                """Beams change places only within a prompt, so nothing moves."""

        assert self._settings is not None
        padded = self._pad(encoded)
        with torch.inference_mode():
            states = self._encode(encoded)  # (prompts, width, D)
            cache = EncoderDecoderCache(DynamicCache(), OfPrompts())
            start = torch.full((len(encoded), 1), self._settings.decoder_start_token_id, device=self.device)
            self.model.get_decoder()(
                input_ids=start,
                encoder_hidden_states=states,
                encoder_attention_mask=padded["attention_mask"],
                use_cache=True,
                **{self._cache_name: cache},
            )
            if not share_prompts(self.model.get_decoder()):
                cache.cross_attention_cache.batch_repeat_interleave(self.num_beams)
        return {
            **padded,
            "encoder_outputs": BaseModelOutput(last_hidden_state=states),
            self._cache_name: EncoderDecoderCache(DynamicCache(), cache.cross_attention_cache),
        }

    def _encode(self, encoded: Sequence[list[int]]) -> Tensor:
        """The encoder's states of each prompt, padded with zeros: (prompts, longest prompt, D)."""
        encoder, width = self.model.get_encoder(), max(map(len, encoded))
        states: Any = None
        for part in slices(list(map(len, encoded)), overhead(self.device)):
            found = encoder(**self._pad([encoded[i] for i in part])).last_hidden_state
            if states is None:
                states = found.new_zeros(len(encoded), width, found.shape[2])
            states[part, : found.shape[1]] = found
        return cast("Tensor", states)

    def _check_positions(self, limit: int | None) -> None:
        # T5 has relative positions and no limit; others have one for each side
        if limit is not None and max(self.max_input_tokens, self.max_new_tokens) > limit:
            raise ValueError(
                f"max_input_tokens={self.max_input_tokens} or max_new_tokens={self.max_new_tokens} exceeds "
                f"the {limit} positions of {self.files.name!r}: lower it"
            )

    def _check_pairs(self, pairs: Sequence[Pair]) -> None:
        limit = getattr(self.model.config, "max_position_embeddings", None)
        for index, (_, target) in enumerate(pairs):
            if limit is not None and len(target) > limit:
                raise ValueError(
                    f"target {index} has {len(target)} tokens, over the {limit} positions of "
                    f"{self.files.name!r}"
                )

    def _new_text_starts(self, prompt_width: int) -> int:
        return 1  # the decoder's start token

    def _score(self, pairs: Sequence[Pair]) -> list[float]:
        import torch

        inputs = self._pad([prompt for prompt, _ in pairs])
        labels = torch.full((len(pairs), max(len(target) for _, target in pairs)), IGNORED)
        for row, (_, target) in enumerate(pairs):
            labels[row, : len(target)] = torch.tensor(target)
        labels = labels.to(self.device)
        shifted = self.model.prepare_decoder_input_ids_from_labels(labels)
        with torch.inference_mode():
            logits = self.model(**inputs, decoder_input_ids=shifted, use_cache=False).logits
            return mean_log_probabilities(logits, labels)
