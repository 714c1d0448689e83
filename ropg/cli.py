"""The one place that touches Hydra: command line to :class:`ropg.configuration.Config`.

Everything here runs before any model library is imported, so that help and a refused configuration
answer at once.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import re
import sys
import time
import typing
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Sweep
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from ropg import processes
from ropg.configuration import Config
from ropg.multirun import finish_sweep, is_multirun, job_of_sweep, with_sweep_folder

CONF = Path(__file__).resolve().parent.parent / "conf"
QUOTES = "'\""
KNOWN = (
    ValueError,
    OSError,
    MemoryError,
    FloatingPointError,
    RuntimeError,
)  # errors with a message for the user
UNREADABLE = re.compile(r"token recognition|mismatched input|extraneous input|no viable|Unknown function")


class Refused(Exception):
    """A request that cannot be carried out as it stands; the message says what to change."""


def run(function: Callable[[Config], Any], argv: Sequence[str] | None = None) -> None:
    """Compose the configuration from ``conf/`` and the command line, and hand it to ``function``.

    A misspelt or mistyped key ends the process with status 2 and the nearest valid key; a
    :class:`Refused`, a missing file or a bad value ends it with status 1 and its message. With --multirun such a job
    is reported and the others go on; ``function`` returns the run folder, whose dev reward a sweeper then gets.
    """
    # argparse takes no option between two overrides
    arguments = sorted(sys.argv[1:] if argv is None else argv, key=lambda a: a not in ("--multirun", "-m"))
    settle_process()
    ConfigStore.instance().store(name="schema", node=Config)
    sweep, command = is_multirun(arguments), uuid.uuid4().hex

    def job(composed: DictConfig) -> Any:
        if sweep:
            return job_of_sweep(
                lambda: function(typed(composed)), command, (Refused, *KNOWN, OmegaConfBaseException)
            )
        with plain_errors():  # here as well: Hydra would print a line of its own first
            return function(typed(composed))

    with plain_errors():
        check_strings(arguments)
        if "sweep=optuna" in arguments:
            register_sweeper()
        arguments = with_default_experiment(arguments)
        sys.argv = [sys.argv[0], *(with_sweep_folder(arguments) if sweep else arguments)]
        hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(job)()
        status = finish_sweep(command) if sweep else 0
    if status:
        raise SystemExit(status)


def settle_process() -> None:
    """What holds for every command: warnings in one line each, and one process that talks for all."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach us whole instead of being printed there
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.showwarning = lambda message, *_, **__: print(f"note: {message}", file=sys.stderr)
    if not processes.is_main():
        os.environ["TQDM_DISABLE"] = "1"
        warnings.showwarning = lambda *_, **__: None


def register_sweeper() -> None:
    """Make the search of ``sweep=optuna`` known to Hydra, which only looks among its own plugins."""
    try:
        from hydra.core.plugins import Plugins

        from ropg.optuna_sweeper import ResumableSweeper
    except ModuleNotFoundError as error:
        raise Refused(f"sweep=optuna needs {error.name}: pip install 'ropg[sweep]'") from error
    Plugins.instance().register(ResumableSweeper)


@contextmanager
def plain_errors() -> Iterator[None]:
    """End the process with a message where an error has one for the user; tracebacks with ROPG_DEBUG=1."""
    debug = bool(os.environ.get("ROPG_DEBUG"))
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        if debug:
            raise
        stop(explain(error), 2)
    except processes.ProcessLost as error:  # the lost one, or the launcher, has said why
        if not processes.is_main():
            raise SystemExit(1) from error
        stop(str(error), 1)
    except (Refused, *KNOWN) as error:
        ours = type(error).__module__.partition(".")[0] in ("ropg", "rspg")
        if debug or (isinstance(error, RuntimeError) and not ours):
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
    """Turn a composed DictConfig into the dataclass; types are checked and interpolations resolved.

    Raises OmegaConf's error for a key that no dataclass has, however it got in (``+optim.learning_rate=1``).
    """
    for key in _leaves(OmegaConf.to_container(composed)):
        if field_type(key) is None:
            raise ConfigKeyError(f"There is no key {key}.\n    full_key: {key}")
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), composed))
    assert isinstance(config, Config)
    return config


def _leaves(node: Any, prefix: str = "") -> Iterator[str]:
    for name, value in node.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def with_default_experiment(arguments: list[str]) -> list[str]:
    """The sample's settings belong to the sample: other data without an experiment gets the paper's.

    >>> with_default_experiment(["--cfg", "job", "data=lamp", "seed=1"])
    ['--cfg', 'job', 'experiment=paper', 'data=lamp', 'seed=1']
    >>> with_default_experiment(["method=ropg_rl"])
    ['method=ropg_rl']
    """
    chosen = dict(a.split("=", 1) for a in arguments if re.match(r"(data|experiment)=", a))
    if "experiment" not in chosen and chosen.get("data", "sample") != "sample":
        place = next(i for i, a in enumerate(arguments) if a.startswith("data="))
        # among the overrides: argparse takes no option between two of them
        return [*arguments[:place], "experiment=paper", *arguments[place:]]
    return arguments


def check_strings(arguments: Sequence[str]) -> None:
    """Refuse values that the override grammar would silently turn into something else, or cannot read.

    ``data.path=1_2`` would arrive as 12, ``llm.stop=[[1]]`` as a list in a list: the message gives the quoted
    form.
    """
    parser = OverridesParser.create()
    for argument in arguments:
        if argument.startswith("-") or "=" not in argument:
            continue
        key, _, raw = argument.partition("=")
        try:
            override = parser.parse_override(argument)
            value = override.value()
        except HydraException as error:
            if UNREADABLE.search(str(error)):
                raise OverrideParseException(
                    argument,
                    f"{argument}: {str(error).splitlines()[0]}. A value with = , # ( ) $ or accents needs quotes "
                    f"inside quotes: {quoted(key, raw)}",
                ) from None
            raise
        kind = field_type(override.key_or_group or "")
        if kind is str and _changed(value, [raw]):
            raise Refused(
                f"{argument}: {override.key_or_group} is text, but {raw} reads as the number {value}. "
                f"Quote it twice: {quoted(key, raw)}"
            )
        texts = re.findall(r"\[[^\[\]]*\]|[^,\[\]\s]+", raw.strip()[1:-1])
        if kind == list[str] and isinstance(value, list) and any(_changed(item, texts) for item in value):
            form = ",".join(f'"{text.strip(QUOTES)}"' for text in texts)
            raise Refused(
                f"{argument}: {override.key_or_group} is a list of texts, but this reads as {value}. "
                f"Quote each: '{key}=[{form}]'"
            )


def _changed(value: Any, written: Sequence[str]) -> bool:
    """Whether a text that was ``written`` arrives as something else; null stays what it is."""
    if value is None or isinstance(value, str | Sweep):
        return False
    return not isinstance(value, bool | int | float) or str(value) not in written


def quoted(key: str, value: str) -> str:
    """An override whose value a shell and the override grammar both leave as it is.

    >>> print(quoted("data.path", "a=b.jsonl"))
    'data.path="a=b.jsonl"'
    """
    return f"""'{key.strip(QUOTES)}="{value.strip(QUOTES)}"'"""


@functools.cache  # to resolve types takes a while, and every key of a configuration asks
def field_type(key: str) -> Any:
    """The type of a dotted key in Config, Optional removed; None for keys that are not in it.

    >>> field_type("optim.lr"), field_type("data.path"), field_type("nothing")
    (<class 'float'>, <class 'str'>, None)
    >>> field_type("data.fields.input")
    <class 'str'>
    """
    node: Any = Config
    for part in key.split("."):
        hints = typing.get_type_hints(node) if dataclasses.is_dataclass(node) else {}
        if node is Any:
            return Any
        if typing.get_origin(node) is dict:
            node = typing.get_args(node)[1]
        elif part in hints:
            node = hints[part]
        else:
            return None
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
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and str(cause) not in text:
        text += f"\n{cause}"
    text = "\n".join(
        line
        for line in text.splitlines()
        if line.strip() and not line.startswith(("To append", "    object_type", "    reference_type"))
    )
    tried = re.search(r"full_key: ([\w.]+)", text) or re.search(r"Could not override '([\w.]+)'", text)
    groups = {p.name: sorted(f.stem for f in p.glob("*.yaml")) for p in CONF.iterdir() if p.is_dir()}
    if group := re.search(r"Could not (?:find|load) '(\w+)/([\w.]*)'", text):
        known = groups.get(group[1], [])
        near = difflib.get_close_matches(group[2], known, n=3, cutoff=0.4)
        text = f"{group[1]}={group[2]}: there is no such option."
        text += f" Did you mean {' or '.join(near)}?" if near else ""
        return f"{text} Options: {', '.join(known)}."
    if sweep := re.search(r"Ambiguous value for argument '([^=]+)=(.*)'", text):
        key, value = sweep[1], sweep[2]
        forms = {str: quoted(key, value), list[str]: f"'{key}=[{value}]'"}
        one = f"; as one value it is written {forms[kind]}" if (kind := field_type(key)) in forms else ""
        return f"{key}={value}: a comma separates the runs of --multirun{one}"
    if tried and "Interpolation" in text:
        return (
            f"{tried[1]}: ${{…}} is replaced by another key's value, and there is no such key; templates are "
            f"written with {{title}}, and a $ that is meant as such as '{tried[1]}=\\${{…}}'"
        )
    if tried and "not a ListConfig" in text:
        return f"{tried[1]} is a list, also of one: '{tried[1]}=[…]'"
    if plugin := re.search(r"hydra/(sweeper|launcher)/(optuna|submitit_\w+)'", text):
        return f"{plugin[2]} is not installed: pip install 'ropg[sweep]'"
    known = list(dict.fromkeys([*keys(), *groups]))
    if tried and tried[1] not in known:
        return f"{text}\n{_nearest(tried[1], known)}"
    if missing := re.search(r"Could not override '([\w@/]+)'\.\s*No match in the defaults list", text):
        return f"{text}\n{_nearest(missing[1], [*groups, *known])}"
    return text


def _nearest(key: str, known: Sequence[str]) -> str:
    """What is meant by a key that is not there: the nearest ones, how to add it, or what its part holds.

    >>> _nearest("optim.learning_rate", ["optim", "optim.lr", "optim.epochs", "seed"])
    'optim holds lr, epochs.'
    """
    parent, _, leaf = key.rpartition(".")
    if typing.get_origin(field_type(parent)) is dict:
        return f"{parent} takes keys of your own: write '+{key}=…' to add one."
    held = [name.removeprefix(f"{parent}.") for name in known if parent and name.startswith(f"{parent}.")]
    near = [f"{parent}.{name}" for name in difflib.get_close_matches(leaf, held)]
    near = near or ([] if parent else difflib.get_close_matches(key, known))
    near = near or [n for n in known if difflib.get_close_matches(leaf, [n.rpartition(".")[2]], cutoff=0.75)]
    if near:
        return f"Did you mean {' or '.join(near[:3])}?"
    return f"{parent} holds {', '.join(held)}." if held else "`python train.py --help` lists the keys."


def stop(message: str, status: int) -> typing.NoReturn:
    """Print ``message`` to standard error and leave.

    Of several processes the main one does so at once. What stops all of them alike is then said once: the launcher
    ends the others while they wait a moment.
    """
    if not processes.is_main():
        time.sleep(10)
        message = f"process {processes.index()} of {processes.count()}: {message}"
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(status)
