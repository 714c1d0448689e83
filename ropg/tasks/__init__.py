"""Tasks: φ_q, document text, φ_p with its token budget, labels, the reading of outputs, Eval.

    task = get_task("LaMP-4")
    task.prompt(x, documents, tokenizer, 512)
    task.score(output, gold)

A new task is one new file in this package that registers a function returning a
:class:`~ropg.tasks.base.TaskDefinition`, or no code at all: a definition in YAML
(:mod:`ropg.tasks.defined`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from typing import Any

from ropg.registry import Registry
from ropg.tasks.base import Task, TaskDefinition
from ropg.tasks.budget import Prompt
from ropg.tasks.metrics import RougeTokenizer, get_metric, register_metric

__all__ = ["Prompt", "Task", "TaskDefinition", "get_metric", "get_task", "register_metric", "register_task"]

TASKS = Registry("ropg.tasks", "task")
register_task = TASKS.register


def get_task(
    name: str,
    template: str = "paper",
    language: str = "en",
    *,
    metric: str | None = None,
    rouge_tokenizer: RougeTokenizer | None = None,
    definition: Mapping[str, Any] | str | None = None,
    **options: Any,
) -> Task:
    """The task of a name.

    Parameters
    ----------
    name: ``LaMP-1`` … ``LaMP-7`` (``LaMP_4`` and ``lamp_4`` are the same), ``pgraphrag_title``,
        ``pgraphrag_text``, ``pgraphrag_rating``, or ``package.module:function`` of one's own.
    template: ``paper`` (Table 2, for instruction-tuned LLMs) or ``pattern`` (input/output blocks, for
        small base models).
    language: of the wording that the template adds: ``en``; the pgraphrag tasks also ``pt``.
    metric: Eval, where not the task's own: ``accuracy``, ``normalized_mae`` (Eq. 8), ``rouge1``, ``rouge2``,
        ``rougeL``, ``meteor``, ``meteor_synonyms``, ``exact_match``, ``token_f1``, ``likelihood`` (computed by
        the LLM), a name given to :func:`register_metric`, or ``package.module:function``.
    rouge_tokenizer: ``ascii`` or ``unicode``; None: ``ascii`` for English, as published, else ``unicode``.
    definition: a task of one's own, as a mapping or the path of a YAML file; ``name`` is then only its name.
    options: what the task's own function takes beside the language: ``max_words`` of ``pgraphrag_title``.

    Raises
    ------
    UnknownName (a ValueError) with the nearest names; ValueError for a template, language, definition or
    option that the task does not have.

    >>> get_task("lamp_4").name
    'LaMP-4'
    >>> get_task("LaMP-1").query('x')
    'x'
    """
    if definition is not None:
        from ropg.tasks.defined import define_task

        _check_options(name, options, ())
        spec = define_task(name, definition)
    else:
        key = name if ":" in name else re.sub(r"[-_\s]+", "_", name.strip().lower())
        key = re.sub(r"^lamp(?=\d$)", "lamp_", key)
        build = TASKS.get(key)
        _check_options(name, options, inspect.signature(build).parameters)
        spec = build(language=language, **options)
    tokenizer: RougeTokenizer = rouge_tokenizer or ("ascii" if language == "en" else "unicode")
    eval_metric = get_metric(
        metric or spec.metric, tokenizer=tokenizer, labels=spec.labels, language=language
    )
    return Task(spec, template, language, eval_metric)


def _check_options(name: str, options: Mapping[str, Any], accepted: Collection[str]) -> None:
    """Raise ValueError for an option that the task does not take."""
    for option in options:
        if option not in accepted:
            known = ", ".join(other for other in accepted if other != "language") or "none"
            raise ValueError(f"the task {name} takes no option {option!r}; it takes {known}")
