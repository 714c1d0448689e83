"""``causal``: decoder-only LLMs such as LLaMA, also from a GGUF file."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ropg.llms import LLMS
from ropg.llms.greedy import decode_greedily
from ropg.llms.likelihood import IGNORED, mean_log_probabilities
from ropg.llms.local import LocalLLM, Pair
from ropg.llms.prefixes import prefix_groups, prefix_lengths
from ropg.llms.reading import read_texts
from ropg.llms.room import CHUNK
from ropg.llms.stopping import StopStrings
from ropg.text import well_formed

if TYPE_CHECKING:
    from torch import Tensor


@LLMS.register("causal")
class CausalLLM(LocalLLM):
    """A decoder-only model; see :class:`ropg.llms.local.LocalLLM` for the options.

    Batches are padded on the left, so that every prompt ends where its answer begins. What prompts of a batch have in
    common at their start (a review that many users retrieve, a chat template) is read once, as is what the beams of a
    prompt have in common.

    The likelihood of a target is that of its tokens without an end-of-sequence token (a base model ends
    its answer with a stop string). Prompt and target are tokenised as one text, joined by a space where
    the prompt does not end, nor the target begin, with white space; the target's tokens are those after
    the longest beginning that the joint text shares with the prompt alone.
    """

    family = "causal"
    padding_side = "left"

    def auto_class(self) -> Any:
        """transformers' automatic class for this family."""
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids of whole prompts, special and chat-template tokens included; never empty."""
        return self._encode_texts([self._text(prompt) for prompt in prompts])

    def encode_pair(self, prompt: str, target: str) -> Pair:
        """Token ids of a prompt and of the target that follows it; both never empty."""
        text = self._text(prompt)
        joined = text[-1:].strip() == "" or target[0].isspace()
        alone, whole = self._encode_texts([text, text + ("" if joined else " ") + target])
        shared = 0
        while shared < min(len(alone), len(whole)) and alone[shared] == whole[shared]:
            shared += 1
        if shared == len(whole):
            raise ValueError(f"the target {target[:80]!r} has no tokens in this model's vocabulary")
        return whole[:shared] or [self._start_token], whole[shared:]

    def _text(self, prompt: str) -> str:
        """The prompt as the model reads it: in its chat template, or as it is."""
        if not self.chat_template:
            return prompt
        if not self.tokenizer.chat_template:
            raise ValueError(f"model {self.files.name!r} has no chat template; use chat_template=False")
        return str(
            self.tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
            )
        )

    def _encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        # A chat template writes its special tokens itself: adding them again would double BOS.
        encoded = self.tokenizer(
            [well_formed(text) for text in texts], add_special_tokens=not self.chat_template
        )["input_ids"]
        if self._appends_end:
            encoded = [ids[:-1] for ids in encoded]  # nothing is to be said after an end
        return [ids or [self._start_token] for ids in encoded]

    @cached_property
    def _appends_end(self) -> bool:
        ids = self.tokenizer("a", add_special_tokens=not self.chat_template)["input_ids"]
        return len(ids) > 1 and ids[-1] == self.tokenizer.eos_token_id

    @property
    def _start_token(self) -> int:
        """What the model reads in place of an empty prompt."""
        bos = self.tokenizer.bos_token_id
        return int(bos if bos is not None else self.tokenizer.pad_token_id)

    def _check_positions(self, limit: int | None) -> None:
        if limit is not None and self.max_input_tokens + self.max_new_tokens > limit:
            raise ValueError(
                f"max_input_tokens={self.max_input_tokens} and max_new_tokens={self.max_new_tokens} together "
                f"exceed the {limit} positions of {self.files.name!r}: lower one of them"
            )

    def _check_pairs(self, pairs: Sequence[Pair]) -> None:
        limit = getattr(self.model.config, "max_position_embeddings", None)
        for index, (prompt, target) in enumerate(pairs):
            if limit is not None and len(prompt) + len(target) > limit:
                raise ValueError(
                    f"prompt and target {index} have {len(prompt)} + {len(target)} tokens, over the {limit} "
                    f"positions of {self.files.name!r}"
                )

    def _units(self, encoded: Sequence[Sequence[int]]) -> list[Sequence[int]] | None:
        """Prompts that begin alike, where that saves more tokens than padding them to the longest costs."""
        units: list[Sequence[int]] = []
        for group in prefix_groups(encoded, self.max_batch_size):
            lengths = [len(encoded[i]) for i in group.members]
            apart = sum(max(lengths) - length for length in lengths) > group.saved
            units += [[i] for i in group.members] if apart else [group.members]
        return units

    def _inputs(self, encoded: Sequence[list[int]]) -> dict[str, Any]:
        """What decoding starts from: with a cache of all but the last token of each prompt.

        What several prompts begin with is read once, where that is worth a pass of its own; their rests in passes of
        like length; and a prompt once, not once for each of its beams.
        """
        import torch

        if not self._remembers_all:
            return self._pad(encoded)
        groups = prefix_groups(encoded, len(encoded))
        lengths = prefix_lengths(list(map(len, encoded)), groups) or [0] * len(groups)
        prefixes = [encoded[group.members[0]][:length] for group, length in zip(groups, lengths, strict=True)]
        group_of = {i: number for number, group in enumerate(groups) for i in group.members}
        follows = [group_of[i] for i in range(len(encoded))]
        rests = [ids[len(prefixes[group]) : -1] for ids, group in zip(encoded, follows, strict=True)]
        with torch.inference_mode():
            begun = read_texts(self._fill, self._pad, prefixes, self.device) if any(prefixes) else None
            room = min(self.max_new_tokens, CHUNK)
            read = read_texts(self._fill, self._pad, rests, self.device, begun, follows, room)
        last = self._pad([encoded[i][-1:] for i in read.order])
        inputs = {
            # of the tokens that are read only the number counts
            "input_ids": torch.cat([torch.zeros_like(read.mask), last["input_ids"]], dim=1),
            "attention_mask": torch.cat([read.mask, last["attention_mask"]], dim=1),
        }
        rows = torch.tensor(read.order, device=self.device)
        if self.num_beams == 1:
            return inputs | {self._cache_name: read.cache, "rows": rows}
        back = rows.argsort()  # generate answers in the order of its rows
        with torch.inference_mode():
            read.cache.batch_select_indices(back.repeat_interleave(self.num_beams))
        return {name: tensor[back] for name, tensor in inputs.items()} | {self._cache_name: read.cache}

    def _fill(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> None:
        """One pass that fills ``cache``: (rows, S), (rows, P + S), (rows, S). The logits are not used."""
        keep = {"logits_to_keep": 1} if self._keeps_logits else {}
        self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **{self._cache_name: cache},
            **keep,
        )

    @cached_property
    def _remembers_all(self) -> bool:
        """Whether keys and values of every token are all that the model keeps, and padding anywhere is harmless.

        A beginning that is read once is followed by padding where rests differ in length. A model that counts columns
        instead of positions, for a window or for its distances, would answer otherwise than for a prompt alone.
        """
        config = self.model.config.get_text_config(decoder=True)
        takes = inspect.signature(self.model.forward).parameters
        # a window of a model's own names; one that no batch fills cuts nothing off (see WIDER for the two)
        windows = [getattr(config, name, None) for name in ("sliding_window", "window_size")]
        most = 2 * (self.max_input_tokens + self.max_new_tokens)
        return (
            set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
            and all(window is None or window >= most for window in windows)
            and {self._cache_name, "position_ids"} <= takes.keys()
            and not getattr(self.model, "_is_stateful", False)
        )

    def _decode_batch(self, inputs: dict[str, Any]) -> tuple[list[list[int]], list[int]]:
        if self.num_beams > 1 or self._cache_name not in inputs:
            return super()._decode_batch(inputs)
        import torch

        assert self._settings is not None
        bad = torch.zeros(len(inputs["input_ids"]), dtype=torch.bool, device=self.device)

        def check(logits: Tensor, rows: Tensor) -> None:
            bad[rows] |= ~logits.sum(dim=-1).isfinite()  # see FiniteLogits

        stopped = StopStrings(self.stop, self._decode, 0, self._completes) if self.stop else None
        answers = decode_greedily(
            self.model,
            inputs,
            self._cache_name,
            self.max_new_tokens,
            self._settings.eos_token_id or [],
            check,
            stopped,
        )
        return answers, bad.nonzero()[:, 0].tolist()

    def _new_text_starts(self, prompt_width: int) -> int:
        return prompt_width

    def _score(self, pairs: Sequence[Pair]) -> list[float]:
        import torch

        inputs = self._pad([prompt + target for prompt, target in pairs])
        # Padding counts no position: a prompt reads the same in any batch.
        positions = (inputs["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
        width = max(len(target) for _, target in pairs)
        # The logits of the target only: (pairs, width + 1, vocabulary) instead of the whole length.
        keep = {"logits_to_keep": width + 1} if self._keeps_logits else {}
        with torch.inference_mode():
            logits = self.model(**inputs, position_ids=positions, use_cache=False, **keep).logits
            labels = torch.full((len(pairs), width), IGNORED)
            for row, (_, target) in enumerate(pairs):
                labels[row, width - len(target) :] = torch.tensor(target)
            # the logits at one place are those of the next token
            return mean_log_probabilities(logits[:, -width - 1 : -1], labels.to(logits.device))

    @cached_property
    def _keeps_logits(self) -> bool:
        return "logits_to_keep" in inspect.signature(self.model.forward).parameters
