"""What run folders, models and source caches keep of one user."""

from __future__ import annotations

import fcntl
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropg.files import write_json
from ropg.runs import RunError, load_config


@dataclass
class Traces:
    """One run folder: predictions of the user's examples by file, and a report that shows texts of examples."""

    folder: Path
    ids: set[str]
    predictions: dict[Path, int] = field(default_factory=dict)
    report: Path | None = None

    def words(self) -> str:
        """What there is, for a person."""
        parts = [f"{n} predictions in {path.name}" for path, n in self.predictions.items()]
        if self.report:
            parts.append("report.html (it shows texts of examples; evaluate.py writes it again)")
        return ", ".join(parts)


def traces_in_runs(root: Path, user: str, ids: Collection[str]) -> tuple[list[Traces], list[str]]:
    """The runs below ``root`` that keep something of the user, and what cannot be reached there.

    Which examples are the user's is read from each run's own data; ``ids`` are known beforehand. Models
    that the user's examples trained, and cached data files that hold them, are named and left.

    Raises FileNotFoundError where there is no such folder.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not there; --runs names the folder of run folders (run.root)")
    found, unreachable = [], []
    caches: dict[Path, None] = {}
    for config in sorted(root.rglob("config.yaml")):
        folder = config.parent
        try:
            mine, trained, cache = _examples(folder, user)
        except Exception as error:  # whatever a missing or damaged data file makes a source raise
            mine, trained, cache = set(), None, None
            unreachable.append(
                f"{folder}: its data cannot be read ({str(error).splitlines()[0] if str(error) else error!r}), so only "
                f"examples named {user!r} or given by --examples were looked for"
            )
        wanted = {*mine, *ids}
        traces = Traces(folder, wanted)
        for path in sorted((folder / "predictions").glob("*.json")):
            number = _count(path, wanted)
            if number:
                traces.predictions[path] = number
        page = folder / "report.html"
        if page.exists() and (traces.predictions or trained is None):
            traces.report = page
        if traces.predictions or traces.report:
            found.append(traces)
        if (folder / "model").is_dir() and trained is not False:
            certainty = "was" if trained else "may have been"
            unreachable.append(
                f"{folder / 'model'} and its checkpoints: {certainty} trained with this user's data"
            )
        rounds = sorted(folder.glob("*-round-*.parquet"))
        if rounds and trained is not False:
            unreachable.append(
                f"{folder}: {len(rounds)} table(s) of refreshed candidates may name this user's example and documents; "
                "delete them once the run is finished, nothing reads them then"
            )
        caches[_cache_folder(cache)] = None
    for place in caches or {_cache_folder(None): None}:
        for path in sorted(place.glob("*.arrow")):
            if _cached(path, user):
                unreachable.append(
                    f"{path}: a cached copy of a data file with this user; delete it, it is made again"
                )
    return found, unreachable


def forget_in_runs(traces: Traces) -> None:
    """Remove what ``traces_in_runs`` found in one run folder. Raises RunError where the run is at work."""
    with (traces.folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(
                f"{traces.folder}: a process is at work on this run; wait for it, then forget again"
            ) from None
        if traces.report:
            traces.report.unlink(missing_ok=True)
        for path in traces.predictions:
            content = _content(path)
            content["golds"] = [gold for gold in content["golds"] if str(gold["id"]) not in traces.ids]
            write_json(path, content)


def _examples(folder: Path, user: str) -> tuple[set[str], bool, str | None]:
    """The ids of the user's examples in a run's data, whether they were among those of training, its cache."""
    from ropg import build

    config = load_config(folder)
    data = config.data
    found: set[str] = set()
    trained = False
    for split in dict.fromkeys((data.train, data.dev, data.test)):
        if not split:
            continue
        try:
            examples = build.build_examples(config, split, None)
        except FileNotFoundError:
            if split == data.train:
                raise
            continue  # not every data set has all splits
        for i in range(len(examples)):
            example = examples[i]
            if example.user == user:
                found.add(example.id)
                trained = trained or split != data.test
    return found, trained, data.cache_dir


def _content(path: Path) -> dict[str, Any]:
    import json

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if all("id" in gold for gold in content["golds"]):
            return dict(content)
    except (ValueError, KeyError, TypeError):
        pass
    raise RunError(f"{path} is not in LaMP's output format; delete it, evaluate.py writes it again")


def _count(path: Path, ids: Collection[str]) -> int:
    return sum(str(gold["id"]) in ids for gold in _content(path)["golds"])


def _cache_folder(cache_dir: str | None) -> Path:
    from ropg.sources.arrow_store import cache_folder

    return cache_folder(cache_dir)


def _cached(path: Path, user: str) -> bool:
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            return any(
                user in reader.get_batch(i).column(name).to_pylist()
                for i in range(reader.num_record_batches)
                for name in ("user", "id")
            )
    except (pa.ArrowException, OSError, KeyError):
        return False
