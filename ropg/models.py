"""Where model files lie: hub names, folders, and models that ship inside installed packages."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

_PACKAGE = "package:"
_WEIGHTS = ("*.safetensors", "*.gguf", "*.bin")
_SAMPLE = 1 << 20  # bytes read from either end of a weight file for its fingerprint


def resolve_model(name: str) -> str:
    """Turn ``package:some_package/sub/folder`` into a path; return any other name unchanged.

    The package is located without being imported. Raises FileNotFoundError with the remedy when the
    package or the path inside it is missing.

    >>> resolve_model("facebook/contriever")
    'facebook/contriever'
    """
    if not name.startswith(_PACKAGE):
        return name
    package, _, inner = name.removeprefix(_PACKAGE).partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"model {name!r}: the package {package!r} is not installed; `make install` installs the models "
            "of the sample, or name another model"
        )
    path = Path(next(iter(spec.submodule_search_locations))) / inner
    if not path.exists():
        raise FileNotFoundError(f"model {name!r}: {path} does not exist")
    return str(path)


def fingerprint(path: str | Path) -> str | None:
    """Identify the weights in a local file or folder by content, wherever they lie.

    The SHA-256 over name, size and both ends of every weight file and over every JSON file: cheap for
    files of many gigabytes, and different whenever training has changed the weights' file. None for
    names that are not local paths (a hub name is identified by its revision).
    """
    root = Path(path)
    if not root.exists():
        return None
    if root.is_file():
        files = [root]
    else:
        files = sorted({*root.glob("*.json"), *(f for pattern in _WEIGHTS for f in root.glob(pattern))})
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(_SAMPLE))
            if size > _SAMPLE:
                stream.seek(max(_SAMPLE, size - _SAMPLE))
                digest.update(stream.read())
    return digest.hexdigest()[:32]


def default_device() -> str:
    """This process's GPU where there is one, else the CPU."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide transformers' bars and warnings, which would bury what a run prints; show them when it fails."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            yield
    except BaseException:
        sys.stderr.write(said.getvalue())
        raise
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
