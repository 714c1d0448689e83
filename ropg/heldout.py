"""summary.json: what a trained retriever is worth on held-out users, from stored feedback alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg import build
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.console import say
from ropg.costs import cost_line
from ropg.examples import Example
from ropg.feedback.queries import ScoredQuery
from ropg.files import write_json


def write_summary(
    config: Config,
    task: Any,
    encoder: Any,
    examples: Sequence[Example],
    queries: Mapping[str, Sequence[ScoredQuery]],
    folder: Path,
    llm_calls: int,
    seconds: float,
    costs: Mapping[str, Any],
) -> dict[str, Any]:
    """Score the held-out candidates with the trained encoder and BM25 and write ``summary.json``.

    Before it ``heldout.json``: ``example_ids`` and, in their order, each system's rewards per query, so that runs
    can be compared in pairs without an encoder.
    ``costs``: of training, from :func:`ropg.costs.training_costs`.
    """
    from ropg.evaluation import heldout_summary
    from ropg.evaluation.summary import heldout_rewards

    heldout = queries["heldout"]
    if not heldout:
        raise Refused(
            "no held-out query has feedback: profiles need two documents and golds; see the counts above"
        )
    rows = (
        [q.rewards for q in heldout],
        [q.initial_scores for q in heldout],
        dense_scores(encoder, heldout),
        bm25_order(build.build_retriever("bm25", config, task), examples, heldout),
    )
    temperature = config.method.temperature
    each = heldout_rewards(*rows, temperature=temperature)
    write_json(
        folder / "heldout.json",
        {"example_ids": [q.example_id for q in heldout]}
        | {what: {name: v.tolist() for name, v in systems.items()} for what, systems in each.items()},
    )
    summary = {
        "method": config.method.name,
        "task": task.name,
        "seed": config.seed,
        "n_train": len(queries["train"]),
        **heldout_summary(*rows, temperature=temperature),
        "llm_calls": llm_calls,
        "seconds": round(seconds, 1),
        **costs,
    }
    write_json(folder / "summary.json", summary)
    for line in (*summary_lines(summary), cost_line(summary)):
        say("heldout", line)
    return summary


def dense_scores(encoder: Any, queries: Sequence[ScoredQuery]) -> list[list[float]]:
    """Dot products of each query with its own candidates; of its tower with theirs where there are two."""
    if hasattr(encoder, "encode_queries"):
        asked, read = [q.query for q in queries], [text for q in queries for text in q.documents]
        of_queries = dict(zip(asked, encoder.encode_queries(asked), strict=True))
        of_documents = dict(zip(read, encoder.encode_documents(read), strict=True))
    else:
        texts = [text for q in queries for text in (q.query, *q.documents)]
        of_queries = of_documents = dict(zip(texts, encoder.encode(texts), strict=True))
    return [[float(of_queries[q.query] @ of_documents[text]) for text in q.documents] for q in queries]


def bm25_order(bm25: Any, examples: Sequence[Example], queries: Sequence[ScoredQuery]) -> list[list[float]]:
    """BM25's order of each query's candidates as scores, from its ranking of the whole profile."""
    wanted = {q.example_id for q in queries}
    found = {e.id: e for e in examples if e.id in wanted}
    scores = []
    for q in queries:
        ranked = bm25.rank(q.query, found[q.example_id].profile, example=found[q.example_id])
        place = {r.document.id: -float(position) for position, r in enumerate(ranked)}
        scores.append([place[document_id] for document_id in q.document_ids])
    return scores


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """The summary in words: mean Eval of the first-ranked candidate, and the gap to the oracle closed."""
    reward = {name: values["first_reward"] for name, values in summary["heldout"].items()}
    lines = ["first-document reward: " + ", ".join(f"{name} {value:.3f}" for name, value in reward.items())]
    closed = gap_closed(summary)
    p = {name: "not testable" if v is None else f"{v:.4f}" for name, v in summary["p_values"].items()}
    gap = (
        "no gap between the initial retriever and the oracle"
        if closed is None
        else f"gap closed {closed:.0%}"
    )
    lines.append(
        f"{gap}; p {p['initial']} against initial, {p['bm25']} against BM25; n = {summary['n_heldout']}"
    )
    return lines


def gap_closed(summary: dict[str, Any]) -> float | None:
    """(trained − initial) / (oracle − initial) of the first-document rewards; None where there is no gap.

    >>> gap_closed({"heldout": {"trained": {"first_reward": 0.6}, "initial": {"first_reward": 0.4},
    ...                         "oracle": {"first_reward": 0.8}}})
    0.5
    """
    first = {name: summary["heldout"][name]["first_reward"] for name in ("initial", "trained", "oracle")}
    room = first["oracle"] - first["initial"]
    return round((first["trained"] - first["initial"]) / room, 6) if room > 0 else None
