"""What a study compares: data sets × variants × seeds, from a YAML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropg.sources.report import did_you_mean

HERE = Path(__file__).parent

#: What a study file may hold -> the type of each.
_KEYS: Mapping[str, type] = {
    "title": str,
    "page": str,
    "overrides": list,
    "datasets": dict,
    "variants": dict,
    "curve": dict,
    "finalists": int,
    "seeds": list,
    "end_k": int,
}
_OF_DATASET: Mapping[str, type] = {"label": str, "overrides": list, "file": str, "claims": bool}
_OF_VARIANT: Mapping[str, type] = {"label": str, "group": str, "overrides": list, "datasets": list}


@dataclass(frozen=True)
class Dataset:
    """One data set. ``file``: its name in the folder of data, None for what is shipped.

    claims: whether finalists are chosen on it.
    """

    name: str
    label: str
    overrides: tuple[str, ...]
    file: str | None = None
    claims: bool = True


@dataclass(frozen=True)
class Variant:
    """One way to train. ``datasets``: the only ones it runs on; empty for all.

    group: the heading of the table under which it stands.
    """

    name: str
    label: str
    overrides: tuple[str, ...]
    group: str = ""
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Curve:
    """The curve over training queries: ``variant`` with each of ``limits`` as data.limit_train."""

    variant: str
    limits: tuple[int, ...] = ()


@dataclass(frozen=True)
class Job:
    """One training run."""

    dataset: Dataset
    variant: Variant
    seed: int

    @property
    def name(self) -> str:
        """The folder of the run below that of the study."""
        return f"{self.dataset.name}/{self.variant.name}-seed{self.seed}"


@dataclass(frozen=True)
class Study:
    """All of it.

    overrides: of every run. finalists: how many variants are run with all ``seeds``; the screening has the first.
    end_k: documents per prompt of the end metric. page: where the page lies; None: beside the runs.
    """

    title: str
    datasets: tuple[Dataset, ...]
    variants: tuple[Variant, ...]
    overrides: tuple[str, ...] = ()
    curve: Curve | None = None
    finalists: int = 4
    seeds: tuple[int, ...] = (0, 1, 2)
    end_k: int = 4
    page: str | None = None
    folder: Path = field(default=HERE, compare=False)

    def screening(self, dataset: Dataset) -> list[Job]:
        """Every variant on a data set, with the first seed."""
        return [Job(dataset, variant, self.seeds[0]) for variant in self.variants_of(dataset)]

    def variants_of(self, dataset: Dataset) -> list[Variant]:
        """The variants that run on a data set."""
        return [v for v in self.variants if not v.datasets or dataset.name in v.datasets]

    def curve_jobs(self, dataset: Dataset) -> list[Job]:
        """The runs of the curve over training queries, smallest first, without the one of the screening."""
        if self.curve is None:
            return []
        whole = self.variant(self.curve.variant)
        return [
            Job(
                dataset,
                Variant(
                    f"{whole.name}-first{limit}", whole.label, (*whole.overrides, f"data.limit_train={limit}")
                ),
                self.seeds[0],
            )
            for limit in sorted(self.curve.limits)
        ]

    def variant(self, name: str) -> Variant:
        """The variant of that name."""
        return next(v for v in self.variants if v.name == name)


def load_study(name: str) -> Study:
    """Read a study: ``full`` and ``quick`` are shipped, anything else is a file.

    Raises FileNotFoundError or ValueError, with the file, the key and the remedy.
    """
    from omegaconf import OmegaConf
    from yaml import YAMLError

    shipped = {path.stem: path for path in HERE.glob("*.yaml")}
    path = shipped.get(name, Path(name))
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{name}: neither a file nor a study that is shipped ({', '.join(sorted(shipped))})"
        ) from None
    except (YAMLError, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no YAML: {error}") from error
    where = str(path)
    found = _checked(content, _KEYS, where)
    datasets = [
        _named(Dataset, key, value, _OF_DATASET, f"{where}: datasets.{key}")
        for key, value in found.get("datasets", {}).items()
    ]
    variants = [
        _named(Variant, key, value, _OF_VARIANT, f"{where}: variants.{key}")
        for key, value in found.get("variants", {}).items()
    ]
    if not datasets or not variants:
        raise ValueError(f"{where} names no datasets or no variants; a study needs one of each at least")
    known = {dataset.name for dataset in datasets}
    for variant in variants:
        if unknown := [name for name in variant.datasets if name not in known]:
            hint = did_you_mean(unknown[0], known)
            raise ValueError(f"{where}: variants.{variant.name}.datasets names {unknown[0]!r}{hint}")
    seeds = found.get("seeds", [0, 1, 2])
    if not seeds or not all(isinstance(s, int) and s >= 0 for s in seeds) or len(set(seeds)) < len(seeds):
        raise ValueError(f"{where}: seeds are distinct whole numbers from 0, at least one, not {seeds!r}")
    curve = found.get("curve")
    if curve is not None:
        curve = _checked(curve, {"variant": str, "limits": list}, f"{where}: curve")
        if curve.get("variant") not in {variant.name for variant in variants}:
            raise ValueError(f"{where}: curve.variant={curve.get('variant')!r} is none of the variants")
        limits = curve.get("limits", [])
        if not all(isinstance(limit, int) and limit > 0 for limit in limits):
            raise ValueError(f"{where}: curve.limits are whole numbers from 1, not {limits!r}")
        curve = Curve(curve["variant"], tuple(limits))
    return Study(
        title=found.get("title", path.stem),
        datasets=tuple(datasets),
        variants=tuple(variants),
        overrides=_texts(found.get("overrides", []), f"{where}: overrides"),
        curve=curve,
        finalists=found.get("finalists", 4),
        seeds=tuple(seeds),
        end_k=found.get("end_k", 4),
        page=found.get("page"),
        folder=path.parent,
    )


def overrides_of(job: Job, study: Study, data: Path | None, runs: Path, stores: Path) -> list[str]:
    """The command line of a run, after ``train.py``."""
    return [
        *dataset_overrides(job.dataset, study, data, stores),
        *job.variant.overrides,
        f"seed={job.seed}",
        f'run.dir="{runs / job.name}"',
    ]


def dataset_overrides(dataset: Dataset, study: Study, data: Path | None, stores: Path) -> list[str]:
    """What all runs on a data set share."""
    where = [] if dataset.file is None else [f"data.file={dataset.file}", f'data.root="{data}"']
    return [*dataset.overrides, *where, *study.overrides, f'store.dir="{stores / dataset.name}"']


def _named(kind: Any, name: str, value: Any, keys: Mapping[str, type], where: str) -> Any:
    options = _checked(value or {}, keys, where)
    for key in ("overrides", "datasets"):
        if key in options:
            options[key] = _texts(options[key], f"{where}.{key}")
    return kind(name=str(name), **{"label": str(name), "overrides": (), **options})


def _checked(value: Any, keys: Mapping[str, type], where: str) -> dict[str, Any]:
    """A mapping with known keys of the right type. Raises ValueError, with the nearest key."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a mapping, not {value!r}")
    for key, content in value.items():
        if key not in keys:
            raise ValueError(f"{where}: unknown key {key!r}{did_you_mean(str(key), keys)}")
        fits = isinstance(content, keys[key])
        if keys[key] is int:
            fits = isinstance(content, int) and not isinstance(content, bool) and content >= 1
        if not fits:
            raise ValueError(f"{where}.{key} must be {_kind(keys[key])}, not {content!r}")
    return dict(value)


def _kind(kind: type) -> str:
    names = {
        list: "a list",
        dict: "a mapping",
        str: "text",
        int: "a whole number from 1",
        bool: "true or false",
    }
    return names[kind]


def _texts(values: Sequence[Any], where: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{where} must be texts such as optim.lr=3e-5, not {list(values)!r}")
    return tuple(values)
