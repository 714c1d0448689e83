"""The shipped sample: synthetic users, written by ``sample_generator`` as LaMP-4 files. No real data."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from ropg.sources import SOURCES, sample_generator
from ropg.sources.arrow_store import cache_folder
from ropg.sources.example_set import ExampleSet
from ropg.sources.lamp import load as load_lamp
from ropg.sources.splits import SPLITS

SHIPPED = Path(__file__).parent / "sample_files"


@SOURCES.register("sample")
def load(
    *,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_problem: Mapping[str, str] | None = None,
    cache_dir: str | None = None,
) -> ExampleSet:
    """Load a split (train, dev, test) of the synthetic sample, by the same code as real LaMP files.

    ``limit`` takes the split's first users. ``seed`` is taken for the sake of one signature: the sample
    is one fixed data set. Where the package came without the files, they are generated into the cache.
    """
    if split not in SPLITS:
        raise ValueError(f"sample: split={split!r}; known: {', '.join(SPLITS)}")
    root = SHIPPED if _complete(SHIPPED) else _generated(cache_folder(cache_dir))
    return load_lamp(
        task="LaMP-4",
        root=root,
        split=split,
        limit=limit,
        on_problem=on_problem,
        cache_dir=cache_dir,
        name=f"sample (synthetic) {split}",
    )


def _complete(folder: Path) -> bool:
    files = [folder / f"{split}_{part}.json" for split in SPLITS for part in ("questions", "outputs")]
    return all(file.is_file() for file in files)


def _generated(cache: Path) -> Path:
    """The folder of the generated files, named by the generator's version and moved into place whole."""
    state = Path(sample_generator.__file__).stat()
    folder = cache / f"sample-{state.st_size}-{state.st_mtime_ns}"
    if _complete(folder):
        return folder
    temporary = cache / f".sample.{os.getpid()}.{uuid.uuid4().hex[:8]}"
    try:
        sample_generator.write(temporary)
        try:
            os.replace(temporary, folder)
        except OSError:
            if not _complete(folder):  # else another process was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder
