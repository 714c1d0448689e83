"""``endpoint``: an LLM behind a server that speaks OpenAI's protocol (vLLM, llama.cpp, TGI, ...)."""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ropg.llms import LLMS
from ropg.llms.base import BatchedLLM
from ropg.llms.causal import CausalLLM
from ropg.llms.decoding import refuse_options
from ropg.llms.endpoint_client import LOOPBACK, Client, Key, Settings, place
from ropg.llms.endpoint_protocol import PATHS, EndpointError, Reply, Unanswered, request_body
from ropg.llms.protocol import Generation, PromptTooLong
from ropg.llms.stopping import find_stop

_OPTIONS = (
    "revision, url, api, tokenizer, key_variable, max_input_tokens, max_new_tokens, stop, num_beams, concurrency, "
    "timeout, connect_timeout, retries, max_failures, patience, extra"
)
_OURS = (
    "model",
    "prompt",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "stream",
    "echo",
    "logprobs",
)
_SEVERAL = ("n", "best_of", "use_beam_search")
_UNANSWERED_IN_A_ROW = 20


@LLMS.register("endpoint")
class EndpointLLM(BatchedLLM):
    """A frozen LLM on any number of servers, asked greedily, with many requests in flight.

    Every prompt is a batch of its own, so a finished answer can be kept at once. Building one asks nothing
    and loads nothing; the tokenizer is loaded by the first prompt that is measured.

    Parameters
    ----------
    model: the name that the server serves it under. With ``revision`` and ``api`` it identifies the texts.
    revision: what distinguishes two versions that are served under one name.
    url: base URL, such as "http://localhost:8000/v1", or a list of them: they take turns.
    api: "completions" sends the prompt as it is, "chat" as the user's only message.
    tokenizer: hub name, folder, GGUF file or ``package:name/inside`` that counts tokens; None: ``model``.
    key_variable: the environment variable that holds the API key. The key itself is no option.
    max_new_tokens, max_input_tokens: as for :class:`ropg.llms.local.LocalLLM`.
    stop: the new text ends before the first of these (:func:`ropg.llms.stopping.find_stop`). The server gets
        the first four to save time; all are applied here.
    concurrency: requests in flight.
    timeout: seconds for one answer. connect_timeout: seconds for a connection.
    retries: attempts after the first for a prompt that fails while others are answered.
    max_failures, patience: the run ends after so many failures in a row over at least so many seconds.
    extra: more fields of the request, for this server; they are part of ``decoding``.

    Raises ValueError, before anything is asked, for options that do not exist, that ask for sampling or
    beams, for a URL that is none or holds a password, and for a key that is missing or unusable.
    """

    family = "causal"
    runs_here: ClassVar[bool] = False

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        url: str | Sequence[str] = "http://localhost:8000/v1",
        api: str = "completions",
        tokenizer: str | None = None,
        key_variable: str = "OPENAI_API_KEY",
        max_new_tokens: int = 64,
        max_input_tokens: int = 512,
        stop: Sequence[str] | str = (),
        num_beams: int = 1,
        concurrency: int = 16,
        timeout: float = 300.0,
        connect_timeout: float = 10.0,
        retries: int = 8,
        max_failures: int = 10,
        patience: float = 10.0,
        extra: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        _refuse(others, extra or {}, num_beams)
        if not model:
            raise ValueError(
                "llm=endpoint needs llm.model=NAME, the name that the server serves the model under"
            )
        if api not in PATHS:
            raise ValueError(f"api is {api!r}; it is {' or '.join(PATHS)}")
        whole = {"max_new_tokens": max_new_tokens, "max_input_tokens": max_input_tokens, "retries": retries}
        whole |= {"concurrency": concurrency, "max_failures": max_failures}
        for name, value in whole.items():
            least = 0 if name == "retries" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} is {value!r}; it is a whole number of at least {least}")
        for name, seconds in (
            ("timeout", timeout),
            ("connect_timeout", connect_timeout),
            ("patience", patience),
        ):
            if (
                isinstance(seconds, bool)
                or not isinstance(seconds, int | float)
                or not 0 < seconds < float("inf")
            ):
                raise ValueError(f"{name} is {seconds!r}; it is a number of seconds above 0")
        self.stop = (stop,) if isinstance(stop, str) else tuple(stop)
        if "" in self.stop:
            raise ValueError("an empty stop string would end every text at once; leave it out")
        if importlib.util.find_spec("httpx") is None:
            raise ValueError("llm=endpoint needs httpx: pip install 'ropg[endpoint]'")
        urls = _checked_urls([url] if isinstance(url, str) else list(url))
        self.name, self.revision, self.api = model, revision, api
        self.max_new_tokens, self.max_input_tokens = max_new_tokens, max_input_tokens
        self.extra = dict(extra or {})
        self.key_variable = key_variable
        self.settings = Settings(
            urls=urls,
            api="chat" if api == "chat" else "completions",
            concurrency=concurrency,
            timeout=timeout,
            connect_timeout=connect_timeout,
            retries=retries,
            max_failures=max_failures,
            patience=patience,
        )
        self._asked = False
        # only its tokenizer is used, never its weights; a path that is not there is refused here
        self._counter = CausalLLM(
            tokenizer or model,
            revision=revision if tokenizer is None else None,
            chat_template=api == "chat",
            device="cpu",
            dtype="float32",
        )
        if _read_key(key_variable).value:
            _note_plain_http(urls, key_variable)

    # What identifies a text

    @property
    def identity(self) -> dict[str, Any]:
        """Name, revision and protocol. Never an address: the same model answers the same wherever it is served."""
        return {"kind": "endpoint", "model": self.name, "revision": self.revision, "api": self.api}

    @property
    def decoding(self) -> dict[str, Any]:
        """The decoding settings that can change the text."""
        kept = {"num_beams": 1, "max_new_tokens": self.max_new_tokens, "stop": list(self.stop)}
        return {**kept, "extra": self.extra} if self.extra else kept

    @property
    def loaded(self) -> bool:
        """Whether a server has been asked."""
        return self._asked

    # Prompts

    def count_tokens(self, text: str) -> int:
        """Tokens of a whole prompt, special and chat-template tokens included."""
        _ = self._tokenizer  # says what to do where there is none
        return self._counter.count_tokens(text)

    @cached_property
    def _tokenizer(self) -> Any:
        name = self._counter.files.name
        try:
            tokenizer = self._counter.tokenizer
        except (OSError, ValueError) as error:
            raise ValueError(
                f"there is no tokenizer {name!r} to count tokens with ({' '.join(str(error).split())[:200]}); name "
                "the model's one: llm.options.tokenizer=HUB_NAME_OR_FOLDER"
            ) from error
        if self._counter.chat_template and not tokenizer.chat_template:
            raise ValueError(
                f"tokenizer {name!r} has no chat template to count a prompt's tokens with; name the served model's own "
                "(llm.options.tokenizer=HUB_NAME_OR_FOLDER) or, for a base model, take llm.options.api=completions"
            )
        return tokenizer

    def plan(self, prompts: Sequence[str]) -> list[list[int]]:
        """Every prompt alone, those that begin alike after one another: servers keep what they have just read.

        Raises PromptTooLong before anything is asked.
        """
        _ = self._tokenizer
        lengths = [len(ids) for ids in self._counter.encode(prompts)]
        long = [index for index, length in enumerate(lengths) if length > self.max_input_tokens]
        if long:
            index = long[0]
            raise PromptTooLong(
                f"prompt {index} has {lengths[index]} tokens, over max_input_tokens={self.max_input_tokens} "
                f"({len(long)} of {len(prompts)} prompts are too long). It begins {prompts[index][:80]!r}. "
                "Build it with build_prompt(..., tokenizer=llm.count_tokens, max_tokens=llm.max_input_tokens)"
            )
        return [[index] for index in sorted(range(len(prompts)), key=lambda index: prompts[index])]

    # Answers

    def generate_batch(self, prompts: Sequence[str]) -> list[Generation]:
        """The answers to these prompts, in order, all in flight at once up to ``concurrency``."""
        answers: dict[str, Generation] = {}
        for batch, made in self.answer_batches([prompt] for prompt in dict.fromkeys(prompts)):
            answers[batch[0]] = made[0]
        return [answers[prompt] for prompt in prompts]

    def answer_batches(
        self, batches: Iterable[Sequence[str]]
    ) -> Iterator[tuple[Sequence[str], list[Generation]]]:
        """Yield each batch with its answers as soon as they are there, in any order.

        A prompt that the server has no usable text for does not hold up the others: they are asked first.
        Raises EndpointError when the run cannot go on, and Unanswered at the end where prompts were left
        over. What came before is yielded first. Leaving the iteration cancels what is in flight.
        """
        waiting = iter(batches)
        open_batches: dict[Future[Reply], _Open] = {}
        left_over: list[str] = []
        failure: EndpointError | None = None
        answered = in_a_row = 0
        exhausted = False
        with Client(self.settings, _read_key(self.key_variable)) as client:
            while True:
                while not exhausted and failure is None and len(open_batches) < self.settings.concurrency:
                    batch = next(waiting, None)
                    exhausted = batch is None
                    if batch is not None:
                        self._asked = True
                        opened = _Open(batch, [None] * len(batch))
                        for place_, prompt in enumerate(batch):
                            future = client.submit(self._body(prompt, self.stop))
                            open_batches[future] = opened
                            opened.places[future] = place_
                if not open_batches or (failure is not None and client.done.empty()):
                    break
                future = client.done.get()
                opened = open_batches.pop(future)
                place_ = opened.places.pop(future)
                error = future.exception()
                if error is None:
                    in_a_row = 0
                    reply = future.result()
                    if self._stopped_too_early(reply) and not opened.asked_again[place_]:
                        opened.asked_again[place_] = True
                        stops = [stop for stop in self.stop if stop.strip()]
                        again = client.submit(self._body(opened.prompts[place_], stops))
                        open_batches[again], opened.places[again] = opened, place_
                        continue
                    opened.answers[place_] = self._generation(opened.prompts[place_], reply)
                    if all(answer is not None for answer in opened.answers):
                        answered += len(opened.prompts)
                        yield opened.prompts, [a for a in opened.answers if a is not None]
                elif isinstance(error, Unanswered):
                    in_a_row += 1
                    left_over.append(f"{opened.prompts[place_][:80]!r}: {error}")
                    if in_a_row >= _UNANSWERED_IN_A_ROW:
                        failure = failure or EndpointError(f"{in_a_row} prompts in a row have no answer")
                elif isinstance(error, EndpointError):
                    failure = failure or error
                else:
                    raise error
        if failure is not None and not left_over:
            raise EndpointError(f"{failure}. {_so_far(answered)}")
        if left_over:
            raise (Unanswered if failure is None else EndpointError)(
                f"{f'{failure}. ' if failure else ''}{len(left_over)} prompts have no answer, the first, which begins "
                f"{left_over[0]}. {_so_far(answered)}"
            )

    def log_likelihood(self, prompts: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Refused with ValueError: the protocol has no likelihood of a given text that servers agree on."""
        raise ValueError(LIKELIHOOD_REFUSED)

    def _body(self, prompt: str, stop: Sequence[str]) -> dict[str, Any]:
        return request_body(
            self.settings.api,
            self.name,
            prompt,
            max_new_tokens=self.max_new_tokens,
            stop=stop,
            extra=self.extra,
        )

    def _stopped_too_early(self, reply: Reply) -> bool:
        """Whether the server may have ended a text at white space that comes before its first word.

        A stop string of white space counts only after the first other character (find_stop); servers do not
        know that, so such a prompt is asked again without those strings, which are then applied here.
        """
        blank = any(not stop.strip() for stop in self.stop)
        return blank and reply.finish_reason != "length" and not reply.text.strip()

    def _generation(self, prompt: str, reply: Reply) -> Generation:
        stop = find_stop(reply.text, self.stop)
        prompt_tokens, new_tokens = reply.prompt_tokens, reply.new_tokens
        if prompt_tokens is None:
            prompt_tokens = self.count_tokens(prompt)
        if new_tokens is None:
            new_tokens = len(self._tokenizer(reply.text, add_special_tokens=False)["input_ids"])
        if stop is not None:
            return Generation(reply.text[:stop], "stop", prompt_tokens, new_tokens)
        reason = reply.finish_reason or ("length" if new_tokens >= self.max_new_tokens else "stop")
        return Generation(reply.text, reason, prompt_tokens, new_tokens)


LIKELIHOOD_REFUSED = (
    "the likelihood Eval needs the log-probabilities of a given text, which OpenAI's protocol has no agreed way to "
    "ask for: run the LLM in this process (llm.kind=causal or seq2seq), or use feedback.eval=metric"
)


class _Open:
    """A batch that is being answered."""

    def __init__(self, prompts: Sequence[str], answers: list[Generation | None]) -> None:
        self.prompts = prompts
        self.answers = answers
        self.places: dict[Future[Reply], int] = {}
        self.asked_again = [False] * len(prompts)


def _so_far(answered: int) -> str:
    return f"{answered} prompts were answered in this run and are kept; the same command goes on with the missing ones"


def _refuse(others: Mapping[str, Any], extra: Mapping[str, Any], num_beams: int) -> None:
    for name in others:
        if re.search(r"api_?key|token$|secret|password|authorization|^key$", name, re.IGNORECASE):
            raise ValueError(
                f"llm.options.{name}: a key is never part of a configuration, which runs keep and print. Put it into "
                "the environment variable OPENAI_API_KEY, or into the one that llm.options.key_variable names"
            )
    refuse_options(others, known=_OPTIONS)
    if num_beams != 1:
        raise ValueError(
            f"num_beams={num_beams}: OpenAI's protocol has no beam search; llm=endpoint decodes greedily, num_beams=1. "
            "For beams run the LLM in this process (llm.kind=causal or seq2seq)"
        )
    for name in extra:
        if name in _OURS:
            raise ValueError(
                f"extra.{name}: this field is set by the LLM's other options; leave it out of extra"
            )
        if name in _SEVERAL:
            raise ValueError(f"extra.{name}: one greedy answer is asked for; leave it out of extra")
        if name.endswith("_penalty"):
            continue
        if re.search(r"api_?key|authorization|secret|password", name, re.IGNORECASE):
            raise ValueError(
                f"extra.{name}: a key is never part of a configuration; see llm.options.key_variable"
            )
        try:
            refuse_options({name: extra[name]}, known="")
        except ValueError as error:
            if "sampling" in str(error):
                raise


def _checked_urls(urls: Sequence[Any]) -> tuple[str, ...]:
    if not urls:
        raise ValueError("url is empty; it names at least one base URL, such as http://localhost:8000/v1")
    checked = []
    for number, url in enumerate(urls):
        where = f"url number {number + 1}"
        try:
            parts = urlsplit(url if isinstance(url, str) else "")
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ValueError(f"{where} is no http or https URL; one is written http://localhost:8000/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                f"{where} ({place(url)}) holds a user, a password or a query, which runs would keep and print; the key "
                "belongs into the environment variable that llm.options.key_variable names"
            )
        base = url.rstrip("/")
        for path in sorted(PATHS.values(), key=len, reverse=True):
            base = base.removesuffix(path)
        checked.append(base)
    return tuple(dict.fromkeys(checked))


def _read_key(variable: str) -> Key:
    """The key of the environment. Messages name the variable only where it can be the name of one."""
    if not isinstance(variable, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise ValueError(
            "llm.options.key_variable is no name of an environment variable (it is not the key itself)"
        )
    key = os.environ.get(variable, "").strip()
    if not key and variable != "OPENAI_API_KEY":
        raise ValueError(
            "the environment variable that llm.options.key_variable names is not set; export it, or leave the option "
            "out for a server without key"
        )
    if not re.fullmatch(r"[!-~]*", key):
        raise ValueError(
            f"the key in {variable} has characters that no key has (spaces, line breaks or accents)"
        )
    return Key(key)


def _note_plain_http(urls: Sequence[str], variable: str) -> None:
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            warnings.warn(
                f"the key in {variable} goes to {place(url)} UNENCRYPTED, for everyone on the way to read: use "
                "https, or unset the variable if that server needs no key",
                stacklevel=3,
            )


__all__ = ["LIKELIHOOD_REFUSED", "EndpointError", "EndpointLLM", "Unanswered"]
