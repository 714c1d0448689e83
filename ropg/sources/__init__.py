"""Where examples come from: one module per source, all loaded by :func:`load_examples`.

``lamp`` (the benchmark's files), ``pgraphrag`` (reviews in a user-item graph), ``records`` (any JSON, JSON
lines or CSV with a field map) and ``sample`` (the shipped synthetic data). All return an ``ExampleSet``:
a lazy sequence with a ``report`` of what the validator found.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ropg.registry import Registry
from ropg.sources.report import KINDS, Report, ValidationError, did_you_mean

if TYPE_CHECKING:
    from ropg.sources.example_set import ExampleSet

__all__ = ["KINDS", "SOURCES", "Report", "ValidationError", "load_examples"]

SOURCES = Registry("ropg.sources", "source")


def load_examples(source: str, **options: Any) -> ExampleSet:
    """Load examples from a source by its name, or by ``package.module:function`` for one's own code.

    All sources take ``split``, ``limit`` (first users only), ``seed``, ``on_problem`` (a policy, error,
    skip or keep, per kind of finding; see ``KINDS``) and ``cache_dir``. The rest is documented by each
    source: ``load_examples("lamp", task="LaMP-4", root=folder, split="dev")``,
    ``load_examples("pgraphrag", path=file, task="title")``, ``load_examples("records", path=file)``,
    ``load_examples("sample", split="train")``.

    Raises ValueError for an unknown source or option, with the nearest name; FileNotFoundError,
    MalformedFile, RecordError and ValidationError with the name of the file.
    """
    factory = SOURCES.get(source)
    signature = inspect.signature(factory)
    if not any(part.kind is part.VAR_KEYWORD for part in signature.parameters.values()):
        for option in options:
            if option not in signature.parameters:
                raise ValueError(
                    f"source {source}: unknown option {option!r}{did_you_mean(option, signature.parameters)}"
                )
    try:
        signature.bind(**options)
    except TypeError as error:
        raise ValueError(f"source {source}: {error}; options: {signature}") from None
    return factory(**options)
