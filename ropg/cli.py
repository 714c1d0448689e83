"""The one place that touches Hydra: command line to :class:`ropg.configuration.Config`.

Everything here runs before any model library is imported, so that help and a refused configuration
answer at once.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import sys
import typing
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ropg.configuration import Config

CONF = Path(__file__).resolve().parent.parent / "conf"


class Refused(Exception):
    """A request that cannot be carried out as it stands; the message says what to change."""


def run(function: Callable[[Config], None], argv: Sequence[str] | None = None) -> None:
    """Compose the configuration from ``conf/`` and the command line, and hand it to ``function``.

    A misspelt or mistyped key ends the process with status 2 and the nearest valid key; a
    :class:`Refused`, a missing file or a bad value ends it with status 1 and its message.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach us whole instead of being printed there
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    ConfigStore.instance().store(name="schema", node=Config)
    debug = bool(os.environ.get("ROPG_DEBUG"))
    warnings.showwarning = lambda message, *_, **__: print(f"note: {message}", file=sys.stderr)
    try:
        check_strings(arguments)
        sys.argv = [sys.argv[0], *with_default_experiment(arguments)]
        hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(
            lambda composed: function(typed(composed))
        )()
    except (HydraException, OmegaConfBaseException) as error:
        if debug:
            raise
        stop(explain(error), 2)
    except (Refused, ValueError, OSError) as error:
        if debug:
            raise
        stop(f"{error}\n(ROPG_DEBUG=1 shows where this came from.)", 1)
    except KeyboardInterrupt:
        stop("interrupted; the same command again goes on from here", 130)


def compose(*overrides: str) -> Config:
    """The same composition for notebooks and tests: ``compose("method=ropg_rl", "seed=1")``."""
    ConfigStore.instance().store(name="schema", node=Config)
    check_strings(overrides)
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(hydra.compose("config", with_default_experiment(list(overrides))))


def typed(composed: DictConfig) -> Config:
    """Turn a composed DictConfig into the dataclass; types are checked and interpolations resolved."""
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), composed))
    assert isinstance(config, Config)
    return config


def with_default_experiment(arguments: list[str]) -> list[str]:
    """The sample's settings belong to the sample: other data without an experiment gets the paper's.

    >>> with_default_experiment(["data=lamp"])
    ['experiment=paper', 'data=lamp']
    >>> with_default_experiment(["method=ropg_rl"])
    ['method=ropg_rl']
    """
    chosen = dict(a.split("=", 1) for a in arguments if re.match(r"(data|experiment)=", a))
    if "experiment" not in chosen and chosen.get("data", "sample") != "sample":
        return ["experiment=paper", *arguments]
    return arguments


def check_strings(arguments: Sequence[str]) -> None:
    """Refuse values of text keys that the override grammar would silently turn into something else.

    ``data.path=1_2`` would arrive as 12: the message gives the quoted form.
    """
    parser = OverridesParser.create()
    for argument in arguments:
        if argument.startswith("-") or "=" not in argument:
            continue
        override = parser.parse_override(argument)
        if override.key_or_group is None or field_type(override.key_or_group) is not str:
            continue
        raw = argument.split("=", 1)[1]
        value = override.value()
        if isinstance(value, bool | int | float) and str(value) != raw:
            raise Refused(
                f"{argument}: {override.key_or_group} is text, but {raw} reads as the number {value}. "
                f"""Quote it twice: '{override.key_or_group}="{raw}"'"""
            )


def field_type(key: str) -> Any:
    """The type of a dotted key in Config, Optional removed; None for keys that are not in it.

    >>> field_type("optim.lr"), field_type("data.path"), field_type("nothing")
    (<class 'float'>, <class 'str'>, None)
    """
    node: Any = Config
    for part in key.split("."):
        hints = typing.get_type_hints(node) if dataclasses.is_dataclass(node) else {}
        if part not in hints:
            return None
        node = hints[part]
        options = [t for t in typing.get_args(node) if t is not type(None)]
        if typing.get_origin(node) not in (dict, list) and len(options) == 1:
            node = options[0]
    return node


def keys(node: Any = Config, prefix: str = "") -> list[str]:
    """All dotted keys of the configuration."""
    found = []
    for name, hint in typing.get_type_hints(node).items():
        if dataclasses.is_dataclass(hint):
            found += [f"{prefix}{name}", *keys(hint, f"{prefix}{name}.")]
        else:
            found.append(f"{prefix}{name}")
    return found


def explain(error: Exception) -> str:
    """A refused configuration in one or two lines, with the nearest valid key or option."""
    text = str(error)
    cause = error.__cause__ or error.__context__
    if cause is not None and str(cause) not in text:
        text += f"\n{cause}"
    text = "\n".join(
        line
        for line in text.splitlines()
        if line.strip() and not line.startswith(("To append", "    object_type", "    reference_type"))
    )
    tried = re.search(r"full_key: ([\w.]+)", text) or re.search(r"Could not override '([\w.]+)'", text)
    groups = {p.name: sorted(f.stem for f in p.glob("*.yaml")) for p in CONF.iterdir() if p.is_dir()}
    group = re.search(r"Could not find '(\w+)/([\w.]+)'", text)
    if group and group[1] in groups:
        near = difflib.get_close_matches(group[2], groups[group[1]], n=3, cutoff=0.4)
        text = f"{group[1]}={group[2]}: there is no such option."
        text += f" Did you mean {' or '.join(near)}?" if near else ""
        return f"{text} Options: {', '.join(groups[group[1]])}."
    grammar = r"token recognition|mismatched input|extraneous input|no viable"
    if isinstance(error, HydraException) and re.search(grammar, text):
        remedy = """A value with = , # ( ) $ or accents needs quotes inside quotes: 'key="the value"'."""
        return f"{text.splitlines()[0]}\n{remedy}"
    near = []
    if tried and "could not be converted" not in text:
        known = list(dict.fromkeys([*keys(), *groups]))
        near = [k for k in difflib.get_close_matches(tried[1], known, n=3, cutoff=0.6) if k != tried[1]]
        leaf = tried[1].rsplit(".", 1)[-1]
        near = (
            near
            or [
                k
                for k in known
                if difflib.get_close_matches(leaf, [k.rsplit(".", 1)[-1]], cutoff=0.75) and k != tried[1]
            ][:3]
        )
    elif missing := re.search(r"Could not override '([\w@/]+)'\.\s*No match in the defaults list", text):
        near = difflib.get_close_matches(missing[1], [*groups, *keys()], n=3, cutoff=0.5)
    return text + (f"\nDid you mean {' or '.join(near)}?" if near else "")


def stop(message: str, status: int) -> typing.NoReturn:
    """Print ``message`` to standard error and leave."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(status)
