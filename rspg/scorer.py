"""Scores of a selector: one forward pass for each pool member (Eq. 6).

Legend: N inputs, B rows of a batch, R pool members of a row, T tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ropg.batching import plan_passes
from ropg.models import default_device, fingerprint, quiet_transformers, resolve_model
from ropg.recompute import Recompute, check_recompute, recomputed
from ropg.retrievers._encoder_files import replaced_folder, transformer_folder
from ropg.retrievers.encoder import checkpoint_layers, dropouts_of
from ropg.tasks.base import Task
from ropg.training.rows import check_lengths
from rspg.inputs import (
    InputTokens,
    Reads,
    SelectorInput,
    check_room,
    pad,
    rounded_up,
    selector_input,
    tokenize,
)
from rspg.model import SelectorModel
from rspg.pool import Reading

_SETTINGS = ("reads", "max_length", "with_names")


@dataclass(frozen=True, slots=True)
class SelectionRow:
    """One input x with its R pool members and the feedback on each (a :class:`ropg.training.rows.Row`).

    example_id: names the row in messages.
    inputs: what the selector reads of each member.
    rewards: Eval of the answer given all that the member retrieved.
    initial_scores, ranks: what a ranking of the pool that is no selector's gave each member.
    baseline: what a choice without a selector is worth; the pipeline gives the mean reward of the pool.

    Raises ValueError, naming the example, where the lists differ in length.

    >>> SelectionRow("q1", [SelectorInput("sun"), SelectorInput("rain")], [1, 0], [0, 0], [1, 2], 0).rewards
    (1.0, 0.0)
    """

    example_id: str
    inputs: tuple[SelectorInput, ...]
    rewards: tuple[float, ...]
    initial_scores: tuple[float, ...]
    ranks: tuple[int, ...]
    baseline: float

    def __post_init__(self) -> None:
        # plain tuples of plain numbers, so that equal rows have equal fingerprints wherever they come from
        object.__setattr__(self, "inputs", tuple(self.inputs))
        for name, kind in (("rewards", float), ("initial_scores", float), ("ranks", int)):
            object.__setattr__(self, name, tuple(kind(value) for value in getattr(self, name)))
        object.__setattr__(self, "baseline", float(self.baseline))
        if len(self.inputs) != len(self.rewards):
            raise ValueError(
                f"row {self.example_id!r} has {len(self.inputs)} inputs but {len(self.rewards)} rewards"
            )
        check_lengths(self)


class Scorer:
    """A selector's model with the way it reads: what training, evaluation and the selector share.

    Attributes
    ----------
    tokenizer: the model's tokenizer.
    reads: "pre", the prompt; "post", the prompt and the LLM's answer after it.
    max_length: tokens of an input, special ones counted.
    with_names: whether the member's name is read too, before the prompt.
    batch_tokens: padded tokens of one batch; a longer input has a batch of its own.
    recompute: whether gradients keep to the memory of one batch; see :mod:`ropg.recompute`.
    fingerprint: identifies the weights that were loaded; training does not change it.

    Raises ValueError for an option out of range, and for a model that does not fit the tokenizer.
    """

    def __init__(
        self,
        model: SelectorModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        reads: Reads,
        max_length: int,
        with_names: bool = False,
        batch_tokens: int = 16384,
        recompute: Recompute = "auto",
        gradient_checkpointing: bool = False,
        fingerprint: str = "",
    ) -> None:
        check_recompute(recompute)
        if reads not in get_args(Reads):
            raise ValueError(f"reads {reads!r} is unknown; choose one of {', '.join(get_args(Reads))}")
        if batch_tokens < 1:
            raise ValueError(f"batch_tokens must be positive, not {batch_tokens}")
        config: Any = model.config
        # Longformer counts positions by the padding index, so another one would shift them
        if tokenizer.pad_token_id != config.pad_token_id:
            raise ValueError(
                f"the tokenizer pads with {tokenizer.pad_token_id} and the model with {config.pad_token_id}; "
                "load both from one folder"
            )
        positions = config.max_position_embeddings - (config.pad_token_id + 1)
        if max_length > positions:
            raise ValueError(f"max_length {max_length} is over the model's {positions} positions; lower it")
        check_room(max_length, reads, tokenizer)
        self._model = model
        self.tokenizer = tokenizer
        self.reads: Reads = reads
        self.max_length = max_length
        self.with_names = with_names
        self.batch_tokens = batch_tokens
        self.recompute: Recompute = recompute
        self.fingerprint = fingerprint
        self._dropouts = dropouts_of(model)
        self._set_dropout(False)
        if gradient_checkpointing:
            checkpoint_layers(model)

    @classmethod
    def from_encoder(
        cls,
        encoder: str,
        *,
        reads: Reads,
        attention_window: int | None = None,
        layers: int | None = None,
        max_length: int = 1024,
        with_names: bool = False,
        batch_tokens: int = 16384,
        recompute: Recompute = "auto",
        gradient_checkpointing: bool = False,
        seed: int = 0,
        device: str | torch.device | None = None,
    ) -> Scorer:
        """A selector to be trained, from any encoder that :func:`rspg.longformer.load_longformer` takes.

        Parameters
        ----------
        encoder, attention_window, layers, max_length, seed: as :meth:`SelectorModel.from_encoder`.
        reads, with_names, batch_tokens, recompute: as the attributes.
        gradient_checkpointing: as :func:`ropg.retrievers.encoder.load_encoder`.
        device: by default this process's GPU where there is one.

        Raises FileNotFoundError where nothing of that name can be loaded, ValueError for wrong options.
        """
        model, tokenizer = SelectorModel.from_encoder(
            encoder, attention_window=attention_window, layers=layers, max_length=max_length, seed=seed
        )
        config: Any = model.config
        found = Path(resolve_model(encoder))
        revision = getattr(config, "_commit_hash", None)
        weights = fingerprint(transformer_folder(found)) if found.is_dir() else None
        origin = weights or (f"{encoder}@{revision}" if revision else encoder)
        window = max(config.attention_window)
        module: Any = model  # Any: the type that transformers gives to .to() is wrong
        return cls(
            module.to(device or default_device()),
            tokenizer,
            reads=reads,
            max_length=max_length,
            with_names=with_names,
            batch_tokens=batch_tokens,
            recompute=recompute,
            gradient_checkpointing=gradient_checkpointing,
            fingerprint=f"{origin}|layers={config.num_hidden_layers}|window={window}|seed={seed}",
        )

    @property
    def module(self) -> SelectorModel:
        """The model, for training."""
        return self._model

    @property
    def device(self) -> torch.device:
        """Where the weights are now."""
        return next(self._model.parameters()).device

    def train_mode(self, dropout: bool = False) -> None:
        """Put the model into training mode, by default without dropout: then nothing changes.

        ``dropout=True`` brings back the probabilities that the model came with.
        """
        self._set_dropout(dropout)
        self._model.train()

    def read(self, task: Task, x: str, members: Sequence[Reading]) -> tuple[SelectorInput, ...]:
        """What the selector reads of each pool member, in their order; see :func:`selector_input`.

        Parameters
        ----------
        members: what each of them gives for x; the generated text is not read by Pre.

        Raises ValueError, naming the member, where ``max_length`` leaves no room for the question.
        """
        inputs = []
        for reading in members:
            try:
                inputs.append(
                    selector_input(
                        task,
                        x,
                        reading.documents,
                        reading.prompt,
                        reading.text or "",
                        self.tokenizer,
                        self.max_length,
                        self.reads,
                        reading.member if self.with_names else None,
                    )
                )
            except ValueError as error:
                raise ValueError(f"pool member {reading.member!r}: {error}") from error
        return tuple(inputs)

    def scores(self, inputs: Sequence[SelectorInput]) -> Tensor:
        """Score inputs: (N,), in their order, in single precision or better, on the model's device.

        Gradients flow unless they are switched off, in which case dropout is off too. Every distinct input
        is computed once, in batches of similar length, so equal inputs have equal scores.

        Raises ValueError for an input of more than ``max_length`` tokens: it was read by another scorer.
        """
        if torch.is_grad_enabled():
            return self._scores(inputs)
        with self._evaluating():
            return self._scores(inputs)

    def score_rows(self, rows: Sequence[SelectionRow]) -> Tensor:
        """Scores of rows, for :func:`ropg.training.train`: (B, R), padded with 0; R is the largest pool."""
        scores = self.scores([one for row in rows for one in row.inputs])  # (N,)
        width = max((len(row.inputs) for row in rows), default=0)
        padded = torch.zeros(len(rows), width, dtype=scores.dtype, device=scores.device)
        mask = torch.tensor([[r < len(row.inputs) for r in range(width)] for row in rows], dtype=torch.bool)
        return padded.masked_scatter(mask.reshape(len(rows), width).to(scores.device), scores)

    def save(self, folder: str | Path) -> None:
        """Write weights (safetensors), configuration and tokenizer, replacing ``folder`` in one go.

        The way of reading goes into ``config.json``. In a distributed run only the main process may call
        this. Raises FileExistsError where the folder holds something other than a model.
        """
        config: Any = self._model.config
        config.rspg = {name: getattr(self, name) for name in _SETTINGS}
        with replaced_folder(Path(folder)) as new, quiet_transformers():
            self._model.save_pretrained(new)
            self.tokenizer.save_pretrained(new)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        batch_tokens: int = 16384,
        device: str | torch.device | None = None,
    ) -> Scorer:
        """Load what :meth:`save` wrote, in float32, without a look at any hub.

        ``device``: by default this process's GPU where there is one.

        Raises FileNotFoundError where the folder holds no complete model, ValueError where it holds a
        model that is no selector.
        """
        folder = Path(folder)
        settings = _selector_settings(folder)
        from transformers import AutoTokenizer

        try:
            with quiet_transformers():
                tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
                loaded: Any = SelectorModel.from_pretrained(
                    folder, local_files_only=True, output_loading_info=True
                )
        except (OSError, SafetensorError) as error:
            raise FileNotFoundError(
                f"the selector in {folder} is not complete ({error}); {_AGAIN}"
            ) from error
        model, info = loaded
        if info["missing_keys"]:
            missing = ", ".join(sorted(info["missing_keys"])[:3])
            raise ValueError(f"the selector in {folder} lacks parameters: {missing}; {_REMEDY}")
        for parameter in model.parameters():
            # out of the file's memory map, where weights lie unaligned and sums differ in the last bit
            parameter.data = parameter.data.float().clone()
        model.to(device or default_device()).eval()
        return cls(
            model,
            tokenizer,
            **settings,
            batch_tokens=batch_tokens,
            fingerprint=fingerprint(folder) or str(folder),
        )

    def _scores(self, inputs: Sequence[SelectorInput]) -> Tensor:
        rows = {one: row for row, one in enumerate(dict.fromkeys(inputs))}
        if not rows:
            return torch.zeros(0, device=self.device)
        tokens = tokenize(list(rows), self.tokenizer)
        longest = max(len(one.ids) for one in tokens)
        if longest > self.max_length:
            raise ValueError(
                f"an input has {longest} tokens, over this selector's max_length of {self.max_length}; read "
                "pool members with this scorer's own read()"
            )
        window = self._window
        lengths = [rounded_up(len(one.ids), window) for one in tokens]
        batches = plan_passes(lengths, self.batch_tokens, str(self.device))
        forward = recomputed(self._forward, self.recompute, len(batches), self.device)
        parts = [forward([tokens[row] for row in batch]) for batch in batches]
        scores = torch.cat(parts)  # (distinct,), in the order of the batches
        place = torch.empty(len(rows), dtype=torch.long)
        place[torch.tensor([row for batch in batches for row in batch])] = torch.arange(len(rows))
        order = place[torch.tensor([rows[one] for one in inputs])]
        return scores[order.to(scores.device)]  # (N,)

    def _forward(self, tokens: Sequence[InputTokens]) -> Tensor:
        """Scores of one batch: (N,)."""
        config: Any = self._model.config
        # padded here to whole windows, whose number is what a pass takes time for anyway
        batch = pad(tokens, self.tokenizer, self._window, type_vocab_size=config.type_vocab_size)  # (N, T)
        scores = self._model(**{name: values.to(self.device) for name, values in batch.items()})
        return scores.to(torch.promote_types(scores.dtype, torch.float32))

    @property
    def _window(self) -> int:
        config: Any = self._model.config
        return max(config.attention_window)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        training = self._model.training
        self._model.eval()
        try:
            yield
        finally:
            self._model.train(training)

    def _set_dropout(self, on: bool) -> None:
        for module, attribute, probability in self._dropouts:
            setattr(module, attribute, probability if on else 0.0)


_AGAIN = "delete that folder, and the command that trained it writes it again from its checkpoints"
_REMEDY = "give the folder that Scorer.save wrote: model/ of a run of method=rspg_pre or method=rspg_post"


def _selector_settings(folder: Path) -> dict[str, Any]:
    """How the selector in a folder reads."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise FileNotFoundError(
            f"{folder} holds no selector: no config.json can be read there; {_REMEDY}"
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{folder} holds no selector: its config.json is not JSON ({error}); {_REMEDY}"
        ) from error
    settings = config.get("rspg") if isinstance(config, dict) else None
    if not isinstance(settings, dict) or set(settings) != set(_SETTINGS):
        raise ValueError(f"{folder} holds a model, but no selector; {_REMEDY}")
    sound = settings["reads"] in get_args(Reads) and isinstance(settings["with_names"], bool)
    if not sound or isinstance(settings["max_length"], bool) or not isinstance(settings["max_length"], int):
        raise ValueError(f"{folder}/config.json: its part rspg is damaged ({settings}); {_REMEDY}")
    return settings
