"""The selector's model: a Longformer that reads one pool member, and a linear layer that scores it.

Shapes: N inputs, T tokens, D dimensions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LongformerConfig, LongformerModel, PreTrainedTokenizerBase
from transformers.models.longformer.modeling_longformer import LongformerPreTrainedModel

from ropg.models import quiet_transformers
from rspg.longformer import load_longformer


class SelectorModel(LongformerPreTrainedModel):
    """S(R_i, x) of Eq. 6: a linear layer on the last state of the first token, which attends to all others.

    ``save_pretrained`` and ``from_pretrained`` work as with any model of transformers.

    Attributes
    ----------
    longformer: the encoder, without a pooler. score: the linear layer, D -> 1.
    """

    config_class = LongformerConfig

    def __init__(self, config: LongformerConfig) -> None:
        super().__init__(config)
        self.longformer = LongformerModel(config, add_pooling_layer=False)
        self.score = nn.Linear(config.hidden_size, 1)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        global_attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Score inputs. (N, T) long each -> (N,), in the precision of the weights even under autocast.

        ``global_attention_mask`` is 1 at the first token. T is at best a multiple of the attention window:
        else transformers pads, and says so.
        """
        states = self.longformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            global_attention_mask=global_attention_mask,
            token_type_ids=token_type_ids,
        ).last_hidden_state  # (N, T, D)
        first = states[:, 0].to(self.score.weight.dtype)  # (N, D)
        # bf16 would round scores to 3 digits, and the softmax over the pool lives on their differences
        with torch.autocast(first.device.type, enabled=False):
            return self.score(first).squeeze(-1)  # (N,)

    @classmethod
    def from_encoder(
        cls,
        encoder: str,
        *,
        attention_window: int | None = None,
        layers: int | None = None,
        max_length: int = 1024,
        seed: int = 0,
    ) -> tuple[SelectorModel, PreTrainedTokenizerBase]:
        """A selector to be trained: the encoder's weights below a linear layer drawn from ``seed``.

        Parameters
        ----------
        encoder, attention_window, layers, max_length: as :func:`rspg.longformer.load_longformer`.
        seed: of the linear layer's weights; the global random generator is neither read nor moved.

        Returns
        -------
        The model, in float32 on the CPU, in evaluation mode; and its tokenizer.

        Raises FileNotFoundError, ValueError: as :func:`rspg.longformer.load_longformer`.
        """
        longformer, tokenizer = load_longformer(
            encoder, attention_window=attention_window, layers=layers, max_length=max_length
        )
        with quiet_transformers(), torch.device("meta"):  # no memory, and no draw from the random generator
            model: Any = cls(longformer.config)
        model.longformer = longformer
        model.score = nn.utils.skip_init(nn.Linear, longformer.config.hidden_size, 1)
        with torch.no_grad():
            generator = torch.Generator().manual_seed(seed)
            model.score.weight.normal_(std=longformer.config.initializer_range, generator=generator)
            model.score.bias.zero_()
        return model.eval(), tokenizer
