"""A study from its first run to its page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg.console import say
from ropg.files import write_text
from ropg.runs import RunError
from ropg.study import page as text
from ropg.study.comparing import (
    Comparison,
    choose_finalists,
    compare,
    growth,
    rank_correlation,
    require_same_queries,
)
from ropg.study.outcomes import Outcome, read_end_metric, read_outcome
from ropg.study.plan import Dataset, Job, Study, dataset_overrides, load_study
from ropg.study.running import Workshop, share_threads

#: Systems that need no training, in the evaluation of the end metric.
FIXED = ("none", "random", "bm25", "initial")


def conduct(
    name: str,
    *,
    data: Path | None = None,
    runs: Path | None = None,
    stores: Path | None = None,
    page: Path | None = None,
    jobs: int = 1,
    only: Sequence[str] = (),
    train: bool = True,
) -> dict[str, Path]:
    """Run a study and write its page after every part; the runs that failed, with their logs.

    Parameters are those of ``python -m ropg.study``; ``train=False`` only writes the page. Raises ValueError or
    FileNotFoundError for a study, a data set or a folder that is not there.
    """
    study = load_study(name)
    known = {dataset.name: dataset for dataset in study.datasets}
    if unknown := [one for one in only if one not in known]:
        raise ValueError(f"--only {unknown[0]}: the study has {', '.join(known)}")
    if jobs < 1:
        raise ValueError(f"--jobs {jobs}: at least 1")
    datasets = [known[one] for one in known if not only or one in only]
    lacking = [d.name for d in datasets if d.file is not None and data is None]
    if lacking and train:
        shipped = [d.name for d in datasets if d.file is None]
        rest = f", or --only {' '.join(shipped)}" if shipped else ""
        raise ValueError(f"{', '.join(lacking)} need --data DIR, the folder with their files{rest}")
    for dataset in datasets:
        if train and dataset.file is not None and not (Path(str(data)) / dataset.file).is_file():
            raise FileNotFoundError(f"{Path(str(data)) / dataset.file}: there is no such file; see --data")
    label = Path(name).stem
    root = Path(runs or f"runs/study-{label}").resolve()
    shop = Workshop(
        dataclasses.replace(study, datasets=tuple(datasets)),
        None if data is None else Path(data).resolve(),
        root,
        Path(stores or f"stores/study-{label}").resolve(),
        jobs,
    )
    where = page or (Path(study.page) if study.page else root / "study.md")
    if train:
        share_threads(jobs)
        run_all(shop, where)
    write(shop, where)
    say("study", f"{where}")
    for job, log in shop.failed.items():
        say("study", f"failed: {job}; see {log}")
    return shop.failed


def run_all(shop: Workshop, page: Path) -> None:
    """Screening, the curve over training queries, finalists on all seeds, the end metric; a page after each."""
    study = shop.study
    ready = []
    for dataset in study.datasets:
        jobs = study.screening(dataset)
        if all(map(shop.is_finished, jobs)) or shop.feedback(jobs[0]):
            ready.append(dataset)
    for dataset in ready:
        if shop.train(study.screening(dataset), f"{dataset.name}: screening"):
            write(shop, page)
    if sum(shop.train(study.curve_jobs(dataset), f"{dataset.name}: training queries") for dataset in ready):
        write(shop, page)
    best = finalists(shop)
    trained = 0
    for dataset in ready:
        named = [v for v in study.variants_of(dataset) if v.name in best]
        jobs = [Job(dataset, variant, seed) for variant in named for seed in study.seeds]
        trained += shop.train(jobs, f"{dataset.name}: seeds")
    if trained:
        write(shop, page)
    for dataset in ready:
        end_metric(shop, dataset, [name for name in best if outcome_of(shop, dataset, name) is not None])


def finalists(shop: Workshop) -> list[str]:
    """The variants for all seeds, chosen on dev over the data sets that claims rest on, and on all where none is."""
    study = shop.study
    datasets = [d for d in study.datasets if d.claims] or list(study.datasets)
    found: dict[str, list[Outcome]] = {}
    for variant in study.variants:
        outcomes = [outcome_of(shop, dataset, variant.name) for dataset in datasets]
        found[variant.name] = [o for o in outcomes if o is not None]
    return choose_finalists(found, study.finalists)


def outcome_of(shop: Workshop, dataset: Dataset, variant: str, seed: int | None = None) -> Outcome | None:
    """A finished run, None where there is none."""
    seed = shop.study.seeds[0] if seed is None else seed
    run = shop.runs / dataset.name / f"{variant}-seed{seed}"
    return read_outcome(run) if (run / "heldout.json").exists() and (run / "summary.json").exists() else None


def end_metric(shop: Workshop, dataset: Dataset, best: Sequence[str]) -> None:
    """Answer every held-out query with ``end_k`` documents: the fixed systems and the finalists' first seeds."""
    study = shop.study
    folder = shop.runs / dataset.name / "end"
    systems = [*FIXED, *best]
    if not (folder / "results.json").exists() or _systems_of(folder) != set(systems):
        seed = study.seeds[0]
        named = [f'++models.{v}="{shop.runs / dataset.name / f"{v}-seed{seed}"}"' for v in best]
        shop.command(
            [
                *dataset_overrides(dataset, study, shop.data, shop.stores),
                *named,
                f"evaluation.systems=[{','.join(systems)}]",
                f"retrieval.k={study.end_k}",
                f'run.dir="{folder}"',
                f'run.root="{shop.runs / dataset.name}"',
            ],
            f"{dataset.name}/end",
            "evaluate.py",
        )


def _systems_of(folder: Path) -> set[str]:
    return {record["system"] for record in json.loads((folder / "results.json").read_text(encoding="utf-8"))}


def write(shop: Workshop, page: Path) -> None:
    """Write tables and plots from what is finished; parts of which nothing is finished say so."""
    study = shop.study
    variants = {variant.name: variant for variant in study.variants}
    titles = {d.name: d.label for d in study.datasets}
    screened = {d.name: _screened(shop, d) for d in study.datasets}
    blocks: dict[str, str] = {}
    rows = [
        (d, screened[d.name][0].outcomes[0], _feedback_calls(shop, d))
        for d in study.datasets
        if screened[d.name]
    ]
    if rows:
        blocks["datasets"] = text.datasets_table(rows)
    for name, compared in screened.items():
        if compared:
            blocks[f"screening-{name}"] = text.variants_table(compared, variants)
    shown = {titles[name]: compared for name, compared in screened.items() if compared}
    pictures = _Pictures(page)
    if shown:
        from ropg.study.plots import difference_plot

        blocks["differences"] = pictures.add(
            "differences",
            difference_plot(shown, {v.name: v.label for v in study.variants}),
            "First-document reward of every variant minus that of the initial encoder",
        )
    best = finalists(shop)
    for dataset in study.datasets:
        finals = _finals(shop, dataset, best)
        if finals:
            blocks[f"finals-{dataset.name}"] = text.variants_table(finals, variants, finals=True)
    blocks |= _training(shop, best, pictures) | _curve(shop, pictures) | _end(shop, pictures)
    for name, compared in screened.items():
        table = text.encoders_table(compared, variants)
        if table:  # one data set is enough to compare ways to train
            blocks["encoders"] = f"{titles[name]}:\n\n{table}"
            break
    blocks["failed"] = "\n".join(f"- {name}" for name in shop.failed) or "None."
    headings = text.new_blocks(study)
    nothing = "Not finished yet."
    text.write_page(page, study.title, {n: (h, blocks.get(n) or nothing) for n, h in headings.items()})


class _Pictures:
    """The plots of a page, in a folder of its name beside it."""

    def __init__(self, page: Path) -> None:
        self.page = page

    def add(self, name: str, svg: str, alternative: str) -> str:
        """Write a plot; the Markdown that shows it."""
        folder = self.page.with_suffix("")
        write_text(folder / f"{name}.svg", svg)
        return f"![{alternative}]({folder.name}/{name}.svg)"


def _screened(shop: Workshop, dataset: Dataset) -> list[Comparison]:
    found = {v.name: outcome_of(shop, dataset, v.name) for v in shop.study.variants_of(dataset)}
    return compare({name: [outcome] for name, outcome in found.items() if outcome is not None})


def _finals(shop: Workshop, dataset: Dataset, best: Sequence[str]) -> list[Comparison]:
    """The finalists of which all seeds are finished."""
    found: dict[str, list[Outcome]] = {}
    for name in best:
        outcomes = [outcome_of(shop, dataset, name, seed) for seed in shop.study.seeds]
        if None not in outcomes:
            found[name] = [o for o in outcomes if o is not None]
    return compare(found) if len(shop.study.seeds) > 1 else []


def _feedback_calls(shop: Workshop, dataset: Dataset) -> int:
    """The LLM calls of the feedback that the runs on a data set share."""
    calls = 0
    for path in (shop.runs / dataset.name / "feedback").glob("feedback*.json"):
        try:
            calls += int(json.loads(path.read_text(encoding="utf-8"))["llm_calls"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} is damaged ({error}); delete it") from error
    return calls


def _training(shop: Workshop, best: Sequence[str], pictures: _Pictures) -> dict[str, str]:
    """Dev rewards of the finalists while they train."""
    from ropg.evaluation.plots import learning_curves

    lines = []
    for dataset in shop.study.datasets:
        runs = {
            shop.study.variant(name).label: outcome.history
            for name in best
            if (outcome := outcome_of(shop, dataset, name)) is not None
        }
        if runs:
            lines.append(
                pictures.add(
                    f"training-{dataset.name}",
                    learning_curves(runs),
                    f"{dataset.label}: rewards on dev while training",
                )
            )
    return {"training": "\n\n".join(lines)} if lines else {}


def _curve(shop: Workshop, pictures: _Pictures) -> dict[str, str]:
    """The curve over training queries."""
    if shop.study.curve is None:
        return {}
    panels: dict[str, tuple[list[Outcome], Any]] = {}
    for dataset in shop.study.datasets:
        jobs = shop.study.curve_jobs(dataset)
        outcomes = [outcome_of(shop, dataset, job.variant.name) for job in jobs]
        outcomes.append(outcome_of(shop, dataset, shop.study.curve.variant))
        runs = sorted((o for o in outcomes if o is not None), key=lambda o: o.n_train)
        for run in runs:
            require_same_queries(runs[0], run)
        if len({run.n_train for run in runs}) > 1:
            panels[dataset.label] = (runs, growth(runs))
    if not panels:
        return {}
    from ropg.study.plots import growth_plot

    picture = pictures.add(
        "queries",
        growth_plot({title: runs for title, (runs, _) in panels.items()}),
        "First-document reward against the number of training queries",
    )
    return {"curve": f"{text.curve_table(panels)}\n{picture}"}


def _end(shop: Workshop, pictures: _Pictures) -> dict[str, str]:
    """The end metric beside the first-document reward."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    k, metric = shop.study.end_k, "rouge1"
    for dataset in shop.study.datasets:
        path = shop.runs / dataset.name / "end" / "results.json"
        if not path.exists():
            continue
        found = read_end_metric(path, metric)
        any_run = next(iter((shop.runs / dataset.name).glob("*/heldout.json")), None)
        first = {} if any_run is None else read_outcome(any_run.parent).first_reward
        part: list[Mapping[str, Any]] = []
        for system, record in found.items():
            trained = outcome_of(shop, dataset, system)
            reward = (
                float(trained.first_reward["trained"].mean())
                if trained is not None
                else float(first[system].mean())
                if system in first
                else None
            )
            part.append(
                {
                    "label": _label(shop.study, system),
                    "first_reward": reward,
                    "value": record["value"],
                    "low": record["ci_low"],
                    "high": record["ci_high"],
                }
            )
        rows[dataset.label] = part
    if not rows:
        return {}
    from ropg.study.plots import end_plot

    points = {
        title: {r["label"]: (r["first_reward"], r["value"]) for r in part if r["first_reward"] is not None}
        for title, part in rows.items()
    }
    lines = [text.end_table(rows, "ROUGE-1", k)]
    for title, marks in points.items():
        found_one = rank_correlation([x for x, _ in marks.values()], [y for _, y in marks.values()])
        if found_one is not None:
            lines.append(
                f"{title}: rank correlation of the two (Spearman) {text.signed(found_one[0], 2)}, "
                f"p {text.p_text(found_one[1])}, {len(marks)} systems.\n"
            )
    lines.append(
        pictures.add("end", end_plot(points, "ROUGE-1", k), "End metric against first-document reward")
    )
    return {"end": "\n".join(lines)}


def _label(study: Study, system: str) -> str:
    from ropg.evaluation.tables import LABELS

    return next((v.label for v in study.variants if v.name == system), LABELS.get(system, system))
