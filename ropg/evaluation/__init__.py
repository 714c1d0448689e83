"""Evaluation: metrics, significance tests, systems, tables, plots and the report.

Examples, a task and systems go in; ``results.json``, ``predictions/<system>.json``, ``tables.md`` and
``report.html`` come out. What answers prompts is a function given from outside, so nothing here knows an
LLM. Names are imported when first used: importing this package imports neither scipy nor matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropg.evaluation.metrics import CorpusMetric, corpus_metric
    from ropg.evaluation.predictions import read_predictions, score_predictions, write_predictions
    from ropg.evaluation.results import compute_results, read_results, write_results
    from ropg.evaluation.summary import heldout_summary
    from ropg.evaluation.systems import Evaluation, System, evaluate_systems, retriever_system
    from ropg.evaluation.table_text import markdown_table, print_table
    from ropg.evaluation.tables import results_table

_HOMES = {
    "CorpusMetric": "metrics",
    "corpus_metric": "metrics",
    "read_predictions": "predictions",
    "score_predictions": "predictions",
    "write_predictions": "predictions",
    "compute_results": "results",
    "read_results": "results",
    "write_results": "results",
    "heldout_summary": "summary",
    "Evaluation": "systems",
    "System": "systems",
    "evaluate_systems": "systems",
    "retriever_system": "systems",
    "markdown_table": "table_text",
    "print_table": "table_text",
    "results_table": "tables",
}

__all__ = [
    "CorpusMetric",
    "Evaluation",
    "System",
    "compute_results",
    "corpus_metric",
    "evaluate_systems",
    "heldout_summary",
    "markdown_table",
    "print_table",
    "read_predictions",
    "read_results",
    "results_table",
    "retriever_system",
    "score_predictions",
    "write_predictions",
    "write_results",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
