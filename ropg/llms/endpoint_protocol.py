"""OpenAI's completions and chat protocol as pure functions: what is sent, and what an answer means."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ropg.llms.protocol import FinishReason
from ropg.text import well_formed

Api = Literal["completions", "chat"]
PATHS = {"completions": "/completions", "chat": "/chat/completions"}
MOST_STOPS = 4  # the protocol's limit; the rest of the stop strings is applied here
_SHOWN = 300  # characters of a server's message that an error shows
_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
}


class EndpointError(RuntimeError):
    """The run cannot go on with this server; the message says why and what to do."""


class Unanswered(EndpointError):
    """The server answers, but has no usable text for one prompt."""


class BrokenAnswer(Exception):
    """An answer that did not arrive whole; asking again may help."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer as the server gave it; ``finish_reason`` and the counts are None where it named none."""

    text: str
    finish_reason: FinishReason | None
    prompt_tokens: int | None = None
    new_tokens: int | None = None


def request_body(
    api: Api,
    model: str,
    prompt: str,
    *,
    max_new_tokens: int,
    stop: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The JSON of one greedy request.

    Temperature 0 and penalties of 0 are sent always: servers take what a request leaves out from the
    model's own defaults for chatting.

    >>> request_body("completions", "m", "Hello", max_new_tokens=4, stop=["\\n"])["stop"]
    ['\\n']
    >>> request_body("chat", "m", "Hello", max_new_tokens=4)["messages"]
    [{'role': 'user', 'content': 'Hello'}]
    """
    text = well_formed(prompt)
    body: dict[str, Any] = {"model": model, "max_tokens": max_new_tokens, "temperature": 0}
    body |= {"frequency_penalty": 0, "presence_penalty": 0}
    body |= {"prompt": text} if api == "completions" else {"messages": [{"role": "user", "content": text}]}
    if stop:
        body["stop"] = list(stop[:MOST_STOPS])
    return body | dict(extra or {})


def read_reply(api: Api, content: bytes) -> Reply:
    """The text of a whole answer with status 200.

    Raises BrokenAnswer for half a JSON body and for an answer that the server itself broke off, Unanswered
    for one that holds no text of the model: filtered, a tool call, or of another shape. An empty text that
    the model wrote is an answer.

    >>> read_reply("completions", b'{"choices": [{"text": " Fine", "finish_reason": "stop"}]}').text
    ' Fine'
    >>> read_reply("chat", b'{"choices": [{"text": "x"}]}')
    Traceback (most recent call last):
    ropg.llms.endpoint_protocol.Unanswered: the server's answer has no text where api=chat has it: ...
    """
    try:
        answer = json.loads(content)
    except ValueError as error:  # also bytes that are no UTF-8
        raise BrokenAnswer(f"the body of {len(content)} bytes is no whole JSON") from error
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise Unanswered(f"the server's answer has no choices: {shorten(content)}")
    reason = choice.get("finish_reason")
    if reason in ("abort", "error"):
        raise BrokenAnswer(f"the server broke the answer off (finish_reason {reason!r})")
    if reason is not None and reason not in _FINISH:
        raise Unanswered(
            f"the answer ended with finish_reason {str(reason)[:40]!r}, so its text is not the model's answer; "
            "leave the record out, or ask a model or server that does not filter it"
        )
    holder: Any = choice if api == "completions" else choice.get("message")
    text = holder.get("text" if api == "completions" else "content") if isinstance(holder, dict) else None
    if not isinstance(text, str):
        raise Unanswered(
            f"the server's answer has no text where api={api} has it: {shorten(content)}. Check "
            "llm.options.api, and switch a model's thinking off"
        )
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return Reply(
        text,
        None if reason is None else _FINISH[reason],
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
    )


def server_message(content: bytes) -> tuple[str, str]:
    """The message and the code of an error body, shortened; whatever shape it has.

    >>> server_message(b'{"error": {"message": "no such model", "code": "model_not_found"}}')
    ('no such model', 'model_not_found')
    >>> server_message(b"Bad Gateway")
    ('Bad Gateway', '')
    """
    try:
        answer = json.loads(content)
    except ValueError:
        return shorten(content), ""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return shorten(str(error).encode("utf-8", "replace")), ""
    message = error.get("message") or error.get("detail") or json.dumps(error)
    return shorten(str(message).encode("utf-8", "replace")), str(error.get("code") or "")


def shorten(content: bytes) -> str:
    """Bytes of a server as one short printable line."""
    text = " ".join(content[: 4 * _SHOWN].decode("utf-8", "replace").split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
