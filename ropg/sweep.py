"""What a sweep found: ``python -m ropg.sweep FOLDER…`` prints and writes the table and the plots.

A folder is that of a sweep (``runs/multirun/NAME``) or any below which finished runs lie. A summary is read as plain
JSON, whether a retriever's or a selector's. Choose by the dev columns: the held-out ones are to report, not to choose.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ropg.console import say
from ropg.files import write_json, write_text

MEASURES = {
    "dev_expected": "Dev expected",
    "dev_first": "Dev first",
    "heldout_first": "Held-out first",
    "heldout_expected": "Held-out expected",
    "seconds": "Seconds",
    "llm_calls": "LLM calls",
}
NOTE = (
    "Rewards are mean Eval of the best checkpoint: expected under the policy, and of the first-ranked document (of the "
    "chosen retriever, for a selector). Rows are sorted by the expected reward on dev, by which to choose; held-out "
    "rewards are only to be reported. A lower method.temperature sharpens the policy, which by itself raises the "
    "expected reward. ± is the standard deviation over seeds."
)


def job_files(sweep: Path) -> Path:
    """Where the jobs of a sweep leave their outcomes."""
    return Path(sweep) / "jobs"


def read_jobs(sweep: Path) -> list[dict[str, Any]]:
    """The outcomes of a sweep's jobs, by their overrides. Raises ValueError, naming the file, for a damaged one."""
    return sorted(map(_read_job, job_files(sweep).glob("*.json")), key=lambda job: job["overrides"])


def _read_job(path: Path) -> dict[str, Any]:
    remedy = "delete it; the sweep's command writes it again"
    try:
        job = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {remedy}") from error
    kinds = {"overrides": list, "status": str, "message": str, "run": str | None}
    whole = isinstance(job, dict) and all(n in job and isinstance(job[n], k) for n, k in kinds.items())
    if not whole or not all(isinstance(override, str) for override in job["overrides"]):
        raise ValueError(f"{path} is damaged (it lacks what belongs there); {remedy}")
    return dict(job)


def best_evaluation(run: Path) -> dict[str, Any] | None:
    """The dev evaluation whose weights a run keeps, by its ``optim.choose_by``; None before training."""
    from ropg.evaluation.plots import read_metrics

    path = Path(run) / "metrics.jsonl"
    if not path.exists():
        return None
    measure = chosen_by(run)
    return max(read_metrics(path), key=lambda record: record[measure], default=None)


def chosen_by(run: Path) -> str:
    """The dev reward by which a run chooses the weights it keeps; the default where it has no configuration."""
    from ropg.configuration import OptimConfig
    from ropg.runs import load_config

    known = (Path(run) / "config.yaml").exists()
    return load_config(Path(run)).optim.choose_by if known else OptimConfig().choose_by


def best_dev_reward(run: Path) -> float | None:
    """The best reward on dev, the one that the run chooses by; what a search maximises."""
    found = best_evaluation(run)
    return None if found is None else float(found[chosen_by(run)])


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Finished runs: those that a sweep's jobs name, or those that lie below a folder."""
    found: list[Path] = []
    for folder in map(Path, folders):
        jobs = read_jobs(folder)
        named = [folder / job["run"] for job in jobs if job["run"]]
        found += named if jobs else [path.parent for path in folder.rglob("summary.json")]
    return sorted({run.resolve() for run in found if (run / "summary.json").exists()})


def read_run(run: Path) -> dict[str, Any]:
    """One row: ``keys`` (what decided the run, flat) and ``values`` (see MEASURES; None where a run has none).

    Raises RunError, naming the file, where one of the run's files is damaged.
    """
    from ropg.runs import RunError, decides, decisive, load_config, read_json

    remedy = "delete it, and the same command writes it again"
    summary = read_json(run / "summary.json", remedy)
    config, best = load_config(run), best_evaluation(run) or {}
    try:
        heldout = summary["heldout"]
        first = heldout["selector"]["reward"] if "selector" in heldout else heldout["trained"]["first_reward"]
        values = {
            "dev_expected": best.get("expected_reward"),
            "dev_first": best.get("first_reward"),
            "heldout_first": first,
            "heldout_expected": heldout.get("trained", {}).get("expected_reward"),
            "seconds": summary["seconds"],
            "llm_calls": summary["llm_calls"],
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{run / 'summary.json'} is damaged (it lacks what belongs there); {remedy}"
        ) from error
    for name, value in values.items():
        if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
            raise RunError(f"{run}: {MEASURES[name]} is {value!r} and no finite number; train that run again")
    return {"run": str(run), "keys": dict(_flat(decisive(config, decides(config)))), "values": values}


def _flat(node: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        node = dataclasses.asdict(node)
    if not isinstance(node, Mapping) or not node:
        return [(prefix, node)]
    return [leaf for name, value in node.items() for leaf in _flat(value, f"{prefix}.{name}".lstrip("."))]


def differing_keys(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was swept: the method where there are several, and keys with several values within a method.

    >>> differing_keys([{"keys": {"method.name": "a", "x": 1, "seed": 0}},
    ...                 {"keys": {"method.name": "b", "x": 2, "seed": 0}},
    ...                 {"keys": {"method.name": "b", "x": 2, "seed": 1}}])
    ['method.name', 'seed']
    """
    names = list(dict.fromkeys(name for row in rows for name in row["keys"]))
    methods = {row["keys"].get("method.name") for row in rows}

    def varies(name: str) -> bool:
        return any(
            len({repr(r["keys"].get(name)) for r in rows if r["keys"].get("method.name") == method}) > 1
            for method in methods
        )

    found = [name for name in names if name != "method.name" and varies(name)]
    return (["method.name"] if len(methods) > 1 else []) + found


def over_seeds(rows: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> list[dict[str, Any]]:
    """Rows that differ in nothing but the seed as one, with mean, sd (None for one seed) and n, best dev first."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    shown = [name for name in swept if name != "seed"]
    for row in rows:
        groups.setdefault(repr([row["keys"].get(name) for name in shown]), []).append(row)
    found = []
    for members in groups.values():
        means: dict[str, float | None] = {}
        sds: dict[str, float | None] = {}
        for name in MEASURES:
            values = [m["values"][name] for m in members if m["values"][name] is not None]
            means[name] = fmean(values) if values else None
            sds[name] = stdev(values) if len(values) > 1 else None
        keys = {name: members[0]["keys"].get(name) for name in shown}
        found.append({"keys": keys, "n": len(members), "mean": means, "sd": sds})
    return sorted(
        found, key=lambda g: -math.inf if g["mean"]["dev_expected"] is None else -g["mean"]["dev_expected"]
    )


def summarise(folders: Sequence[Path]) -> dict[str, Any]:
    """``{"swept", "runs", "settings", "jobs"}``: the keys that differ, every run, means over seeds, and outcomes.

    Raises ValueError where there is neither a finished run nor a job.
    """
    rows = [read_run(run) for run in find_runs(folders)]
    jobs = [job for folder in folders for job in read_jobs(folder)]
    if not rows and not jobs:
        raise ValueError(f"no finished run in {', '.join(map(str, folders))}")
    swept = differing_keys(rows)
    for row in rows:
        row["keys"] = {name: row["keys"].get(name) for name in swept}
    return {"swept": swept, "runs": rows, "settings": over_seeds(rows, swept), "jobs": jobs}


def write_sweep(folders: Sequence[Path], into: Path) -> dict[str, Any]:
    """Print the table, and write sweep.md, sweep.json and sweep.html below ``into``."""
    from ropg.evaluation.report import Grid, Picture, Section, Text, render_report
    from ropg.evaluation.sweep_plots import sweep_plot
    from ropg.evaluation.table_text import escape_markdown, markdown_grid

    found = summarise(folders)
    header, rows = table(found)
    left = len(header) - len(MEASURES) - 1
    jobs = [[job["status"], " ".join(job["overrides"]), job["message"]] for job in found["jobs"]]
    bad = [job for job in jobs if job[0] != "done"]
    write_json(into / "sweep.json", {name: found[name] for name in ("swept", "settings", "runs", "jobs")})
    escaped = [[escape_markdown(cell) for cell in row] for row in rows]
    text = f"{markdown_grid([escape_markdown(h) for h in header], escaped, left)}\n{escape_markdown(NOTE)}\n"
    if bad:
        cells = [[escape_markdown(cell) for cell in job] for job in bad]
        text += "\n" + markdown_grid(["Job", "Overrides", "Message"], cells, left=3)
    write_text(into / "sweep.md", text)
    sections = [Section("Settings", [Grid(header, rows, left=left), Text(NOTE)])]
    keys = [name for name in found["swept"] if name != "seed"]
    if keys and len(rows) > 1:
        plots: list[Any] = [
            Picture(
                sweep_plot(found["runs"], keys[i : i + 3]), f"Reward against {', '.join(keys[i : i + 3])}"
            )
            for i in range(0, len(keys), 3)
        ]
        sections.append(Section("Reward against each key", plots))
    if jobs:
        sections.append(Section("Jobs", [Grid(["Job", "Overrides", "Message"], jobs, left=3)]))
    write_text(into / "sweep.html", render_report("Sweep", sections))
    _print(header, rows)
    say("sweep", f"{into / 'sweep.html'}, sweep.md, sweep.json")
    return found


def table(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the means over seeds as text."""
    keys = [name for name in found["swept"] if name != "seed"]
    rows = []
    for group in found["settings"]:
        cells = [_value(group["keys"][name]) for name in keys]
        rows.append([*cells, str(group["n"]), *(_measure(group, name) for name in MEASURES)])
    return [*keys, "Seeds" if "seed" in found["swept"] else "Runs", *MEASURES.values()], rows


def _value(value: Any) -> str:
    """A key's value, short.

    >>> _value(1.23456e-05), _value(8), _value(None)
    ('1.23e-05', '8', '–')
    """
    return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _measure(group: Mapping[str, Any], name: str) -> str:
    mean, sd = group["mean"][name], group["sd"][name]
    if mean is None:
        return "–"
    if name in ("seconds", "llm_calls"):
        return f"{mean:.0f}"
    return f"{mean:.3f}" + ("" if sd is None else f" ± {sd:.3f}")


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    left = len(header) - len(MEASURES) - 1
    short = [
        name.rpartition(".")[2] if i < left and name != "method.name" else name
        for i, name in enumerate(header)
    ]
    shown = Table(title="Sweep, best on dev first", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for i, name in enumerate(short):
        shown.add_column(Text(name), justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row))
    Console().print(shown)


def main(arguments: Sequence[str]) -> int:
    """The command line; writes into the first folder."""
    if not arguments or arguments[0].startswith("-"):
        print("python -m ropg.sweep FOLDER…  (a sweep's folder, or one below which finished runs lie)")
        return 0 if arguments else 2
    try:
        write_sweep([Path(a) for a in arguments], Path(arguments[0]))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
