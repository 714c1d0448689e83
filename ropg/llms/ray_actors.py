"""One LLM on many actors of a Ray cluster (``feedback.engine=ray``): the same texts, sooner.

Planned batches flow as blocks through a Ray Data stream (:mod:`ropg.llms._ray_data`) to actors that hold the
LLM, and come back as they are finished. Whoever asks commits them, so the store has one writer, on this
machine. Here lies only the tokenizer. A lost actor or node costs its block, which is done again; a block that
loses its actor again and again ends the run. The actors are given up when nothing was asked for a while, so
that training after feedback has the GPUs.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ropg.llms.base import BatchedLLM
from ropg.llms.protocol import Generation, NonFiniteLogits, PromptTooLong

TRIES = 3  # how often a block may lose its actor
IDLE_SECONDS = 20.0
INSTALL = "pip install 'ropg[ray]'"
_ERRORS: dict[str, type[Exception]] = {
    e.__name__: e
    for e in (FileNotFoundError, MemoryError, NonFiniteLogits, OSError, PromptTooLong, ValueError)
}


class BlockFailed(RuntimeError):
    """A block that cannot be answered: it killed every actor that tried, or met an error nobody foresaw."""


def check_ray() -> None:
    """Raise ValueError, with the command, where Ray Data is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ValueError(f"feedback.engine=ray needs Ray Data, which is not installed: {INSTALL}")


class RayLLM(BatchedLLM):
    """The LLM that ``build`` builds, answered for by actors.

    Identity, decoding, plan and token counts are those of the LLM, so the store's keys and the texts are too.

    Parameters
    ----------
    build: builds the LLM, here (where its weights are never loaded) and in every actor; importable there, as
        ``functools.partial(load_llm, "causal", model=...)`` is. The device is the actor's, so a ``dtype`` of
        "auto" is settled here, by this machine's.
    actors: how many; None for as many as the cluster has room for.
    cpus, gpus: of each actor; fractions share one. None for ``gpus``: one where this machine's LLM would use one.
    blocks: blocks handed out at once per actor, the one that it answers included.
    address: None for a Ray of this process alone, on the loopback interface; "auto" or host:port of a cluster that
        this machine is a node of.
    tries: how often a block may lose its actor before the run ends.
    idle_seconds: how long actors stay without work; the next prompt starts new ones.
    local: more arguments of ``ray.init`` where one is started here, such as ``num_cpus``.

    Raises ValueError for a number out of its range and where Ray is not installed.
    """

    def __init__(
        self,
        build: Callable[..., Any],
        *,
        actors: int | None = None,
        cpus: float = 1.0,
        gpus: float | None = None,
        blocks: int = 2,
        address: str | None = None,
        tries: int = TRIES,
        idle_seconds: float = IDLE_SECONDS,
        local: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value, least in (("actors", actors, 1), ("blocks", blocks, 1), ("tries", tries, 1)):
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")
        sound = all(math.isfinite(share) and share >= 0 for share in (cpus, gpus or 0.0))
        if not sound or (cpus == 0 and not gpus):
            raise ValueError(f"an actor takes a share of CPUs or GPUs; cpus is {cpus} and gpus {gpus}")
        if address is not None and address.startswith("ray://"):
            raise ValueError(
                f"the address {address!r} is that of a Ray client, which cannot stream; run the command on a node of "
                "the cluster with the address auto, or hand it to `ray job submit`"
            )
        check_ray()
        self.llm: Any = build()
        self.family = self.llm.family
        self._build = build
        self._actors, self._cpus, self._gpus, self._blocks = actors, cpus, gpus, blocks
        self._address, self._local = address, dict(local or {})
        self._tries, self._idle_seconds = tries, idle_seconds
        self._stream: Any = None
        self._started = False

    @property
    def identity(self) -> Mapping[str, Any]:
        """That of the LLM."""
        return self.llm.identity

    @property
    def decoding(self) -> Mapping[str, Any]:
        """That of the LLM."""
        return self.llm.decoding

    @property
    def max_input_tokens(self) -> int:
        """That of the LLM."""
        return self.llm.max_input_tokens

    @property
    def loaded(self) -> bool:
        """Whether actors were ever asked for an answer."""
        return self._started

    def count_tokens(self, text: str) -> int:
        """Tokens of a whole prompt, counted here."""
        return self.llm.count_tokens(text)

    def plan(self, prompts: Sequence[str]) -> list[list[int]]:
        """The LLM's own batches: the same as without Ray, and so the same texts."""
        return self.llm.plan(prompts)

    def generate_batch(self, prompts: Sequence[str]) -> list[Generation]:
        """The answers to exactly these prompts, by one actor."""
        ((_, answers),) = self.answer_batches([prompts])  # to its end, which leaves the actors as they are
        return answers

    def answer_batches(
        self, batches: Iterable[Sequence[str]]
    ) -> Iterator[tuple[Sequence[str], list[Generation]]]:
        """Yield each batch with its answers as it is finished, in any order.

        Of ``batches`` no more is read than ``blocks`` per actor ahead of the answers. Raises what the LLM raises,
        and :class:`BlockFailed`, which names the prompts' keys.
        """
        asked = ((batch, {"prompts": list(batch)}) for batch in batches)
        for batch, answers in self._answered(asked):
            yield batch, [Generation(*answer) for answer in answers]

    def likelihood_batches(
        self, batches: Iterable[Sequence[tuple[str, str]]]
    ) -> Iterator[tuple[Sequence[tuple[str, str]], list[float]]]:
        """Yield each batch of (prompt, target) with its likelihoods as it is finished, in any order."""
        yield from self._answered(
            (batch, {"prompts": [p for p, _ in batch], "targets": [t for _, t in batch]}) for batch in batches
        )

    def log_likelihood(self, prompts: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Mean log-probability per token of each target after its prompt, by one actor."""
        pairs = list(zip(prompts, targets, strict=True))
        if not pairs:
            return []
        ((_, values),) = self.likelihood_batches([pairs])
        return values

    def close(self) -> None:
        """Give the actors up; the next prompt starts new ones. A Ray that was started here ends with the process."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _answered(self, asked: Iterable[tuple[Any, dict[str, Any]]]) -> Iterator[tuple[Any, Any]]:
        """(what is asked, its block) -> (what is asked, its answer); a few blocks are always on their way."""
        pending: dict[int, tuple[Any, dict[str, Any]]] = {}
        waiting = iter(asked)
        ahead = 0  # how many blocks may be on their way; known with the number of actors
        try:
            while True:
                more = True
                while len(pending) < max(ahead, 1):
                    item = next(waiting, None)
                    if item is None:
                        more = False
                        break
                    pending[self._put(item[1], fresh=not pending)] = item
                    ahead = self._blocks * self._n_actors
                if not more and self._stream is not None:
                    self._stream.rest()
                if not pending:
                    return
                number, answer = self._stream.next()
                if number in pending:
                    what, block = pending.pop(number)
                    yield what, self._checked(answer, block)
        except BaseException:
            self.close()  # what is on its way is not wanted any more
            raise

    def _put(self, block: dict[str, Any], fresh: bool) -> int:
        """The block's number in the stream; where that has ended or there is none, in a new one."""
        number = None if self._stream is None else self._stream.put(block)
        if number is None:
            assert fresh, "a stream with blocks on their way does not end"
            self.close()
            self._stream = self._open()
            number = self._stream.put(block)
        return int(number)

    def _open(self) -> Any:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine unless asked
        from ropg.llms import _ray_data

        _ray_data.connect(self._address, **self._local)
        self._started = True
        gpus = (
            float(str(getattr(self.llm, "device", "")).startswith("cuda"))
            if self._gpus is None
            else self._gpus
        )
        self._n_actors = self._room(gpus)
        return _ray_data.Stream(
            self._build,
            json.dumps(dict(self.identity), sort_keys=True),
            actors=self._n_actors,
            cpus=self._cpus,
            gpus=gpus,
            tries=self._tries,
            idle_seconds=self._idle_seconds,
        )

    def _room(self, gpus: float) -> int:
        """How many actors: as asked, or as many as there is room for. Raises ValueError where none would ever run."""
        import ray

        fits = []
        for node in ray.nodes():
            has = node["Resources"] if node["Alive"] else {}
            shares = [has.get(kind, 0.0) / n for kind, n in (("CPU", self._cpus), ("GPU", gpus)) if n]
            fits.append(int(min(shares) + 1e-9))
        room = sum(fits)
        if room == 0 and (self._actors is None or self._address is None):
            raise ValueError(
                f"no node of the Ray cluster has room for an actor with {self._cpus:g} CPUs and {gpus:g} GPUs: lower "
                "feedback.ray.cpus or feedback.ray.gpus, or, where the cluster grows by itself, set feedback.ray.actors"
            )
        if self._actors is not None and self._actors > room and self._address is None:
            raise ValueError(
                f"feedback.ray.actors is {self._actors}, and this machine has room for {room} with {self._cpus:g} CPUs "
                f"and {gpus:g} GPUs each: lower it, or leave it null for as many as there is room for"
            )
        return self._actors or room

    def _checked(self, answer: Any, block: dict[str, Any]) -> Any:
        """The answer; an error that came in its place is raised as the LLM would raise it here."""
        if not isinstance(answer, dict):
            return answer
        from ropg.llms._ray_data import POISON

        if answer["error"] in _ERRORS:
            raise _ERRORS[answer["error"]](answer["message"])
        keys = ", ".join(self._keys(block))
        if answer["error"] == POISON:
            raise BlockFailed(
                f"a block of {len(block['prompts'])} prompts lost its actor {self._tries} times and is given up (out "
                "of memory? lower llm.batch_tokens, give actors more, or read the logs under /tmp/ray); all "
                f"that was answered is stored. Keys of its prompts: {keys}"
            )
        raise BlockFailed(
            f"{answer['error']} in an actor: {answer['message']}\n{answer['trace']}Keys of its prompts: {keys}"
        )

    def _keys(self, block: dict[str, Any]) -> list[str]:
        from ropg.feedback.keys import generation_key, likelihood_key  # only for the message

        if "targets" not in block:
            return [generation_key(self.identity, prompt, self.decoding) for prompt in block["prompts"]]
        pairs = zip(block["prompts"], block["targets"], strict=True)
        return [likelihood_key(self.identity, prompt, target) for prompt, target in pairs]


def spread(kind: str, options: Mapping[str, Any], **settings: Any) -> RayLLM:
    """``load_llm(kind, **options)`` on actors. All that actors are told is this name and these values.

    The numeric type is settled here, for all: "auto" would be each actor's own. Raises ValueError where that cannot
    be: actors with GPUs, asked from a machine without one.
    """
    from ropg.llms import load_llm

    check_ray()
    build = partial(load_llm, kind, **options)
    if options.get("dtype") == "auto":
        here: Any = build()
        if (settings.get("gpus") or 0) > 0 and not str(here.device).startswith("cuda"):
            raise ValueError(
                "llm.dtype=auto would be float32 by this machine, which has no GPU, and the actors have: set "
                "llm.dtype=bfloat16 (or float32)"
            )
        build = partial(build, dtype=here.dtype)
    return RayLLM(build, **settings)
