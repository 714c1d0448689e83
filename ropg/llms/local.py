"""An LLM that runs here, through transformers. ``seq2seq`` and ``causal`` differ in what they add to it."""

from __future__ import annotations

import gc
import inspect
from abc import abstractmethod
from array import array
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ropg.batching import plan_batches
from ropg.hardware import check_attention
from ropg.llms import batching, decoding, loading
from ropg.llms.base import BatchedLLM
from ropg.llms.protocol import Generation, PromptTooLong
from ropg.llms.stopping import StopStrings, find_stop

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import GenerationConfig, PreTrainedTokenizerBase

Pair = tuple[list[int], list[int]]  # token ids of a prompt and of the target after it

_AT_ONCE = (
    1024  # prompts that a tokenizer reads at once: what it says beside the ids is many times their size
)

_OPTIONS = (
    "revision, gguf_file, chat_template, num_beams, max_new_tokens, max_input_tokens, stop, batch_tokens, "
    "max_batch_size, device, dtype, attention"
)


class LocalLLM(BatchedLLM):
    """A frozen transformers model that decodes greedily or by beam search.

    Building one loads nothing. The tokenizer is loaded by the first prompt that is measured, the weights
    by the first that is answered; ``identity`` needs neither.

    Parameters
    ----------
    model: a hub name, a folder, a GGUF file, or ``package:name/inside``.
    revision: of a hub name.
    gguf_file: the GGUF file in the folder or hub repository, when ``model`` does not name it itself.
    chat_template: put each prompt into the model's chat template, as the user's only message.
    num_beams: 1 is greedy.
    max_new_tokens: limit of the new text.
    max_input_tokens: limit of a prompt, special and chat-template tokens included.
    stop: the new text ends before the first of these strings (:func:`ropg.llms.stopping.find_stop`).
    batch_tokens: padded size of a batch: prompts x beams x (longest prompt + max_new_tokens).
    max_batch_size: prompts in a batch.
    device: "auto" is this process's GPU if there is one.
    dtype: "auto" is bfloat16 on a GPU that has it, else float32.
    attention: "auto" (transformers' choice), "sdpa", "eager" or "flash_attention_2".

    Raises ValueError for options that ask for sampling, that do not exist or that contradict each other,
    and FileNotFoundError for a model that is named by a path and is not there.
    """

    family: ClassVar[str]
    padding_side: ClassVar[str]

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        gguf_file: str | None = None,
        chat_template: bool = False,
        num_beams: int = 1,
        max_new_tokens: int = 64,
        max_input_tokens: int = 512,
        stop: Sequence[str] | str = (),
        batch_tokens: int = 16384,
        max_batch_size: int = 32,
        device: str | None = "auto",
        dtype: str = "auto",
        attention: str = "auto",
        **others: Any,
    ) -> None:
        decoding.refuse_options(others, known=_OPTIONS)
        numbers = {
            "num_beams": num_beams,
            "max_new_tokens": max_new_tokens,
            "max_input_tokens": max_input_tokens,
            "batch_tokens": batch_tokens,
            "max_batch_size": max_batch_size,
        }
        for name, value in numbers.items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if dtype not in loading.DTYPES:
            raise ValueError(f"unknown dtype {dtype!r}. Known: {', '.join(loading.DTYPES)}.")
        check_attention(attention, device=lambda: loading.resolve_device(device), dtype=dtype)
        self.attention = attention
        self.stop = (stop,) if isinstance(stop, str) else tuple(stop)
        if "" in self.stop:
            raise ValueError("an empty stop string would end every text at once; leave it out")
        self.files = loading.find_model(model, gguf_file, revision)
        self.chat_template = chat_template
        self.num_beams = num_beams
        self.max_new_tokens = max_new_tokens
        self.max_input_tokens = max_input_tokens
        self.batch_tokens = batch_tokens
        self.max_batch_size = max_batch_size
        self._device = device
        self._dtype = dtype
        self._model: Any = None
        self._settings: GenerationConfig | None = None
        self._completes: dict[int, bool] = {}  # which tokens can complete a stop string

    # What identifies a text

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Kind, weights, numeric type and chat template: with ``decoding`` and a prompt, the text."""
        return {
            "kind": self.family,
            **self.files.identity,
            "dtype": self.dtype,
            "chat_template": self.chat_template,
        }

    @cached_property
    def decoding(self) -> dict[str, Any]:
        """The decoding settings that can change the text. A prompt's limit and batch sizes cannot."""
        return {
            "num_beams": self.num_beams,
            "max_new_tokens": self.max_new_tokens,
            "stop": list(self.stop),
        }

    @cached_property
    def device(self) -> str:
        """Where the weights go, such as "cpu" or "cuda:0"."""
        return loading.resolve_device(self._device)

    @cached_property
    def dtype(self) -> str:
        """The numeric type, "auto" resolved."""
        return loading.resolve_dtype(self._dtype, self.device)

    # Loading

    @property
    def loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._model is not None

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, loaded at first use."""
        return loading.load_tokenizer(self.files, self.padding_side)

    @property
    def model(self) -> Any:
        """The frozen transformers model, loaded at first use.

        Raises ValueError when the model's positions do not hold a prompt and its answer.
        """
        if self._model is None:
            import torch

            config = loading.load_config(self.files)
            if config is not None:  # before the weights: they may take minutes
                self._check_positions(getattr(config, "max_position_embeddings", None))
            model = loading.load_weights(
                self.auto_class(), self.files, getattr(torch, self.dtype), self.device, self.attention
            )
            tokenizer = self.tokenizer
            if tokenizer.pad_token_id >= model.get_input_embeddings().num_embeddings:
                tokenizer.pad_token = tokenizer.eos_token  # an added pad token that the weights do not know
            self._check_positions(getattr(model.config, "max_position_embeddings", None))
            self._settings = decoding.generation_config(
                model, tokenizer, num_beams=self.num_beams, max_new_tokens=self.max_new_tokens
            )
            model.generation_config = self._settings  # generate() fills gaps from here
            self._model = model
        return self._model

    # Prompts

    def count_tokens(self, text: str) -> int:
        """Tokens of a whole prompt, special and chat-template tokens included."""
        return len(self.encode([text])[0])

    def plan(self, prompts: Sequence[str]) -> list[list[int]]:
        """Batches of indices into ``prompts``, longest first; see :func:`ropg.batching.plan_batches`.

        Raises PromptTooLong before anything is generated.
        """
        encoded = self._encode_checked(prompts)
        padded = [(len(ids) + self.max_new_tokens) * self.num_beams for ids in encoded]
        return plan_batches(padded, self.batch_tokens, self.max_batch_size, self._units(encoded))

    def _units(self, encoded: Sequence[Sequence[int]]) -> list[Sequence[int]] | None:
        """Prompts that are best answered together; None where it is all the same."""
        return None

    def _encode_checked(self, prompts: Sequence[str]) -> list[array[int]]:
        """Token ids of prompts, packed: a plan holds those of all prompts. Raises PromptTooLong."""
        encoded: list[array[int]] = []
        for start in range(0, len(prompts), _AT_ONCE):
            encoded += (array("i", ids) for ids in self.encode(prompts[start : start + _AT_ONCE]))
        long = [(index, len(ids)) for index, ids in enumerate(encoded) if len(ids) > self.max_input_tokens]
        if long:
            index, count = long[0]
            raise PromptTooLong(
                f"prompt {index} has {count} tokens, over max_input_tokens={self.max_input_tokens} "
                f"({len(long)} of {len(prompts)} prompts are too long). It begins {prompts[index][:80]!r}. "
                "Build it with build_prompt(..., tokenizer=llm.count_tokens, max_tokens=llm.max_input_tokens)"
            )
        return encoded

    # Answers

    def generate_batch(self, prompts: Sequence[str]) -> list[Generation]:
        """The answers to exactly these prompts, in order: one planned batch.

        A batch that does not fit into memory is halved and retried. Raises PromptTooLong,
        NonFiniteLogits, and MemoryError when one prompt alone does not fit.
        """
        encoded = [ids.tolist() for ids in self._encode_checked(prompts)]
        return batching.halve_on_out_of_memory(self._generate, encoded, _release_memory) if encoded else []

    def log_likelihood(self, prompts: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Mean log-probability per token of each target after its prompt; at most 0.

        The prompt is encoded as for generating. Batches are planned by length; a pair that occurs more
        than once is computed once. Raises ValueError for an empty target, for a pair that the model's
        positions do not hold and for lists of unequal length; PromptTooLong; NonFiniteLogits.
        """
        pairs = list(zip(prompts, targets, strict=True))
        distinct = list(dict.fromkeys(pairs))
        for index, (_, target) in enumerate(pairs):
            if not target.strip():
                raise ValueError(f"target {index} is empty; an empty text has no likelihood")
        self._encode_checked([prompt for prompt, _ in distinct])
        encoded = [self.encode_pair(prompt, target) for prompt, target in distinct]
        self._check_pairs(encoded)
        values = dict.fromkeys(distinct, 0.0)
        lengths = [len(prompt) + len(target) for prompt, target in encoded]
        for batch in plan_batches(lengths, self.batch_tokens, self.max_batch_size):
            means = batching.halve_on_out_of_memory(self._score, [encoded[i] for i in batch], _release_memory)
            values.update({distinct[i]: mean for i, mean in zip(batch, means, strict=True)})
        return [values[pair] for pair in pairs]

    def _generate(self, encoded: Sequence[list[int]]) -> list[Generation]:
        import torch

        _ = self.model  # loads the weights, and the tokenizer's pad token with them
        with torch.inference_mode():
            rows, bad = self._decode_batch(self._inputs(encoded))
        if bad:
            decoding.raise_non_finite(bad, len(encoded))
        return [self._read(ids, len(prompt)) for ids, prompt in zip(rows, encoded, strict=True)]

    def _decode_batch(self, inputs: dict[str, Any]) -> tuple[list[list[int]], list[int]]:
        """New tokens of each prompt, and the places of prompts with logits that are not finite: by ``generate``."""
        from transformers import LogitsProcessorList, StoppingCriteriaList

        start = self._new_text_starts(inputs["input_ids"].shape[1])
        finite = decoding.FiniteLogits()
        criteria = [StopStrings(self.stop, self._decode, start, self._completes)] if self.stop else []
        output = self.model.generate(
            **inputs,
            generation_config=self._settings,
            logits_processor=LogitsProcessorList([finite]),
            stopping_criteria=StoppingCriteriaList(criteria),
        )
        return output[:, start:].tolist(), finite.places(len(inputs["input_ids"]))

    def _read(self, ids: list[int], prompt_tokens: int) -> Generation:
        """One row of new tokens: cut at the end-of-sequence token or at a stop string, decoded."""
        assert self._settings is not None
        ends, pad = self._settings.eos_token_id or [], self._settings.pad_token_id
        length = next((place for place, token in enumerate(ids) if token in ends), len(ids))
        ended = length < len(ids)
        text = self._decode(ids[:length])
        stop = find_stop(text, self.stop)
        if stop is None:
            return Generation(text, "stop" if ended else "length", prompt_tokens, length + ended)
        while (
            length and ids[length - 1] == pad
        ):  # the rest of a row that a stop string ended, as is any "end" there
            length -= 1
        return Generation(text[:stop], "stop", prompt_tokens, length)

    def _decode(self, ids: list[int]) -> str:
        # clean_up_tokenization_spaces would move punctuation about: the text is the model's own
        text = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def _inputs(self, encoded: Sequence[list[int]]) -> dict[str, Any]:
        """What ``generate`` reads of a batch."""
        return self._pad(encoded)

    def _pad(self, encoded: Sequence[list[int]]) -> dict[str, Tensor]:
        """Token ids and attention mask, both (prompts, longest prompt), padded on the family's side."""
        import torch

        width = max(map(len, encoded))
        ids = torch.full((len(encoded), width), int(self.tokenizer.pad_token_id))
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(encoded):
            place = slice(width - len(tokens), None) if self.padding_side == "left" else slice(len(tokens))
            ids[row, place] = torch.tensor(tokens)
            mask[row, place] = 1
        return {"input_ids": ids.to(self.device), "attention_mask": mask.to(self.device)}

    @cached_property
    def _cache_name(self) -> str:
        """What this version of transformers calls the cache of keys and values."""
        return "cache" if "cache" in inspect.signature(self.model.forward).parameters else "past_key_values"

    # What a family adds

    @abstractmethod
    def auto_class(self) -> Any:
        """transformers' automatic class for this family."""

    @abstractmethod
    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids of whole prompts, special and chat-template tokens included; never empty."""

    @abstractmethod
    def encode_pair(self, prompt: str, target: str) -> Pair:
        """Token ids of a prompt and of the target that follows it; both never empty."""

    @abstractmethod
    def _check_positions(self, limit: int | None) -> None:
        """Raise ValueError when ``limit`` positions do not hold the longest prompt and answer."""

    @abstractmethod
    def _check_pairs(self, pairs: Sequence[Pair]) -> None:
        """Raise ValueError, naming the pair, for one that the model's positions do not hold."""

    @abstractmethod
    def _new_text_starts(self, prompt_width: int) -> int:
        """How many leading tokens of a generated row are not new text."""

    @abstractmethod
    def _score(self, pairs: Sequence[Pair]) -> list[float]:
        """Mean log-probability per target token of each pair, in one forward pass."""


def _release_memory() -> None:
    """Give what a failed batch held back to the device."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
