"""All finished runs of one setting side by side: what each method and seed made of the same feedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEADER = (
    "Method",
    "Seed",
    "Initial",
    "BM25",
    "Random",
    "Trained",
    "Oracle",
    "Gap",
    "p initial",
    "p BM25",
    "n",
)

SEED_NOTE = (
    "Mean Eval of the first of the candidates that each system ranks, one document in the prompt, on held-out "
    "users. Gap is the share that training closed, (trained − initial) / (oracle − initial). p-values are "
    "two-tailed paired permutation tests of trained against the initial encoder and against BM25."
)


def seed_rows(summaries: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """First-document reward of every run, by method and seed; values as text, three decimals.

    ``Gap`` is (trained − initial) / (oracle − initial).

    >>> first = {"initial": 0.4, "bm25": 0.5, "random": 0.3, "trained": 0.6, "oracle": 0.8}
    >>> run = {"method": "ropg_kd", "seed": 0, "n_heldout": 150, "p_values": {"initial": 0.0001, "bm25": None},
    ...        "heldout": {name: {"first_reward": value} for name, value in first.items()}}
    >>> seed_rows([run])[0][2:]
    ['0.400', '0.500', '0.300', '0.600', '0.800', '50 %', '0.0001', '–', '150']
    """
    rows = []
    for run in sorted(summaries, key=lambda r: (str(r["method"]), int(r["seed"]))):
        first = {name: float(values["first_reward"]) for name, values in run["heldout"].items()}
        room = first["oracle"] - first["initial"]
        closed = f"{(first['trained'] - first['initial']) / room:.0%}".replace("%", " %") if room > 0 else "–"
        p = [
            "–" if run["p_values"][name] is None else f"{run['p_values'][name]:.4f}"
            for name in ("initial", "bm25")
        ]
        values = [f"{first[name]:.3f}" for name in ("initial", "bm25", "random", "trained", "oracle")]
        rows.append([str(run["method"]), str(run["seed"]), *values, closed, *p, str(run["n_heldout"])])
    return rows


def print_seeds(rows: Sequence[Sequence[str]]) -> None:
    """Print the rows as a table."""
    from rich.console import Console
    from rich.table import Table

    left_out = ("Random", "n")  # what is left fits into eighty characters; tables.md has all
    sizes = " to ".join(sorted({row[-1] for row in rows}, key=int))
    shown = Table(
        title=f"First-document reward on held-out users (n = {sizes})",
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    chosen = [i for i, name in enumerate(HEADER) if name not in left_out]
    for i in chosen:
        shown.add_column(HEADER[i], justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*(row[i] for i in chosen))
    Console().print(shown)
