"""Names to factories: one file per choice, found by its name and imported only when asked for.

``Registry("ropg.retrievers", "retriever")`` resolves the name ``bm25`` by importing the module
``ropg.retrievers.bm25``, which registers its factory. A new choice is therefore one new file; a
user's own code is named by ``package.module:attribute`` and needs no file here at all.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class UnknownName(ValueError):
    """A name that no registered choice has; the message lists the nearest ones."""


class Registry:
    """Choices of one kind, kept in one package.

    Parameters
    ----------
    package: the package whose modules are the choices (one module may register several names).
    kind: the word used in error messages, such as "retriever".
    """

    def __init__(self, package: str, kind: str) -> None:
        self.package = package
        self.kind = kind
        self._factories: dict[str, Callable[..., Any]] = {}

    def register(self, *names: str) -> Callable[[F], F]:
        """Decorator: make a factory or class available under ``names``."""

        def remember(factory: F) -> F:
            for name in names:
                self._factories[name] = factory
            return factory

        return remember

    def get(self, name: str) -> Callable[..., Any]:
        """Return the factory of ``name``.

        Raises UnknownName with the nearest valid names.
        """
        if ":" in name:
            return self._user_code(name)
        if name not in self._factories and name in self._modules():
            importlib.import_module(f"{self.package}.{name}")
        if name not in self._factories:
            for module in self._modules():
                importlib.import_module(f"{self.package}.{module}")
        if name not in self._factories:
            raise UnknownName(self._message(name))
        return self._factories[name]

    def names(self) -> list[str]:
        """All names, sorted. Imports every module of the package."""
        for module in self._modules():
            importlib.import_module(f"{self.package}.{module}")
        return sorted(self._factories)

    def _modules(self) -> list[str]:
        spec = importlib.util.find_spec(self.package)
        folders = list(spec.submodule_search_locations or []) if spec else []
        files = [path.stem for folder in folders for path in Path(folder).glob("*.py")]
        return sorted(name for name in files if not name.startswith("_"))

    def _user_code(self, name: str) -> Callable[..., Any]:
        module, _, attribute = name.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise UnknownName(f"{self.kind} {name!r} cannot be imported: {error}") from error

    def _message(self, name: str) -> str:
        known = sorted(self._factories)
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        return f"unknown {self.kind} {name!r}{hint} Known: {', '.join(known)}."
