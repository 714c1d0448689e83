"""What of the bi-encoder is trained: all of it, adapters beside its weights (LoRA), or the query side alone."""

from __future__ import annotations

import dataclasses
from typing import Any

from ropg.cli import Refused
from ropg.configuration import Config
from ropg.retrievers.adapters import add_adapters, check_peft, check_targets

WAYS = ("full", "lora", "query")


def check(config: Config) -> None:
    """Refuse a way of training that does not exist, or numbers that are none of LoRA's."""
    way, lora = config.encoder.train, config.encoder.lora
    if way not in WAYS:
        raise Refused(
            f"encoder.train={way}: it is full (all weights), lora (adapters beside them) or query (the query side "
            "alone, documents keep their vectors)"
        )
    if way != "lora":
        return
    if not isinstance(lora.rank, int) or lora.rank < 1:
        raise Refused(f"encoder.lora.rank={lora.rank}: it is a number from 1, such as 8")
    if not lora.alpha > 0:
        raise Refused(f"encoder.lora.alpha={lora.alpha}: it is above 0, such as twice the rank")
    names = lora.targets if isinstance(lora.targets, list) else [lora.targets]
    if not names or not all(isinstance(name, str) or (name is None and len(names) == 1) for name in names):
        raise Refused(
            f"encoder.lora.targets={lora.targets}: it is a list of layers' names, as in [query,value], or all-linear; "
            "leave it out for the attention's queries and values"
        )
    check_peft()


def check_encoder(config: Config, encoder: Any) -> None:
    """Refuse an encoder that cannot be trained in the way that is asked for, before feedback on its candidates.

    Raises ValueError for layers that it does not have.
    """
    way = config.encoder.train
    if way != "query" and hasattr(encoder, "encode_queries"):
        raise Refused(
            f"encoder.train={way}: {config.encoder.model} is an encoder of queries alone, whose documents have the "
            f"vectors of {encoder.documents_model}; encoder.train=query trains it further"
        )
    if way == "lora":
        check_targets(encoder, targets=config.encoder.lora.targets)


def trainable(config: Config, encoder: Any) -> Any:
    """The encoder that the training loop gets, made from the initial one, which is changed or becomes part of it."""
    way = config.encoder.train
    if way == "lora":
        add_adapters(encoder, **dataclasses.asdict(config.encoder.lora), seed=config.seed)
    if way == "query" and not hasattr(encoder, "encode_queries"):
        from ropg.retrievers.two_towers import freeze_documents

        return freeze_documents(encoder, config.encoder.model)
    return encoder
