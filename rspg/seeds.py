"""All finished selectors of one setting side by side: what each method and seed made of its pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ropg.evaluation.tables import LABELS
from rspg.qpp import PREDICTOR_LABELS
from rspg.tables import p_text

SEED_HEADER = (
    "Method",
    "Seed",
    "Pool",
    "Success",
    "Best QPP",
    "p QPP",
    "Eval",
    "Best fixed",
    "p fixed",
    "Random",
    "p random",
    "Oracle",
    "n",
)

SEED_NOTE = (
    "Success rates of the selector and of the best query performance predictor (raw or z-scored; p QPP: McNemar's "
    "test of the two), and mean Eval of the selector, of the retriever that was best on "
    "dev, of a random choice (p: paired t-tests, McNemar's where Eval is 0 or 1) and of the oracle, on held-out "
    "users. Pool is the number of retrievers."
)


def selector_seed_rows(summaries: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Every selector's run, by method, size of the pool and seed; values as text, three decimals."""
    rows = []
    runs = [run for run in summaries if "selector" in run["heldout"]]
    for run in sorted(runs, key=lambda r: (str(r["method"]), -len(r["pool"]), int(r["seed"]))):
        heldout, p = run["heldout"], run["p_values"]
        best = max(run["qpp"].items(), key=lambda item: item[1]["success_rate"], default=("", None))
        name = best[0].removesuffix("_z")
        label = PREDICTOR_LABELS.get(name, name) + (" z" if best[0].endswith("_z") else "")
        rows.append(
            [
                LABELS.get(run["method"], str(run["method"])),
                str(run["seed"]),
                str(len(run["pool"])),
                f"{heldout['selector']['success_rate']:.3f}",
                "–" if best[1] is None else f"{best[1]['success_rate']:.3f} ({label})",
                p_text(p["success_rate"].get(best[0])),
                f"{heldout['selector']['reward']:.3f}",
                f"{heldout['best_fixed']['reward']:.3f}",
                p_text(p["reward"]["best_fixed"]),
                f"{heldout['random']['reward']:.3f}",
                p_text(p["reward"]["random_choice"]),
                f"{heldout['upper']['reward']:.3f}",
                str(run["n_heldout"]),
            ]
        )
    return rows


def print_selector_seeds(rows: Sequence[Sequence[str]]) -> None:
    """Print the rows as a table."""
    from rich.console import Console
    from rich.table import Table

    left_out = ("Random", "p random", "n")  # what is left fits; tables.md has all
    shown = Table(title="Selectors, every seed", title_justify="left", box=None, padding=(0, 1, 0, 0))
    chosen = [i for i, name in enumerate(SEED_HEADER) if name not in left_out]
    for i in chosen:
        shown.add_column(SEED_HEADER[i], justify="left" if i == 0 else "right")
    for row in rows:
        shown.add_row(*(row[i] for i in chosen))
    Console().print(shown)
