"""Many requests in flight from plain synchronous code: an event loop in a thread, and retries around httpx."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from ropg.llms.endpoint_protocol import (
    PATHS,
    Api,
    BrokenAnswer,
    EndpointError,
    Reply,
    Unanswered,
    read_reply,
    server_message,
)
from ropg.llms.endpoint_replicas import Replica, Rotation, wait_before

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_AGAIN = (408, 409, 425, 429)  # of the 4xx: the same request may succeed later
_LONGEST_PAUSE = 600.0  # seconds that a server may ask to wait
_REMEDIES = {
    400: "The request does not suit this server or model: check llm.options.extra, llm.max_input_tokens and llm.stop",
    401: "Put the server's key into the environment variable that llm.options.key_variable names",
    403: "The key that llm.options.key_variable names may not use this model",
    404: "Check llm.model, which is the name that the server serves it under, and llm.options.url, which ends in /v1",
    413: "Lower llm.max_input_tokens",
    422: "The server does not know a field of the request: check llm.options.extra and llm.options.api",
}


@dataclass(frozen=True)
class Settings:
    """How requests are made; see :class:`ropg.llms.endpoint.EndpointLLM`."""

    urls: tuple[str, ...]
    api: Api
    concurrency: int
    timeout: float
    connect_timeout: float
    retries: int
    max_failures: int
    patience: float


@dataclass(frozen=True)
class Key:
    """An API key that no ``repr``, traceback or message shows."""

    value: str = field(repr=False)

    def redact(self, text: str) -> str:
        """``text`` with the key taken out."""
        return text.replace(self.value, "[key]") if self.value else text

    @property
    def headers(self) -> dict[str, str]:
        """The header that carries it, if there is one."""
        return {"Authorization": f"Bearer {self.value}"} if self.value else {}


class Client:
    """Requests on an event loop in a thread of its own; use it as a context manager.

    The thread makes it work where a loop is running already (a notebook), and lets requests go on while
    the caller writes an answer down. Leaving the context cancels what is still in flight.
    """

    def __init__(self, settings: Settings, key: Key) -> None:
        self.settings = settings
        self.done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self._key = key
        self._rotation = Rotation(settings.urls)
        self._last_answer = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)

    def __enter__(self) -> Client:
        import httpx

        settings = self.settings
        self._http = httpx.AsyncClient(
            headers=self._key.headers,
            follow_redirects=False,  # a redirect must not carry the key, or the prompts, to another host
            timeout=httpx.Timeout(settings.timeout, connect=settings.connect_timeout, pool=None),
            limits=httpx.Limits(
                max_connections=settings.concurrency, max_keepalive_connections=settings.concurrency
            ),
            # what is on this machine is asked directly, whatever proxy the environment names
            mounts={f"all://{'[::1]' if host == '::1' else host}": None for host in LOOPBACK},
        )
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self._loop.close()

    async def _close(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        try:
            await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 5)
            await asyncio.wait_for(self._http.aclose(), 3)
        finally:
            self._loop.stop()

    def submit(self, body: Mapping[str, Any]) -> Future[Reply]:
        """Begin one request. Its future is put into ``done`` when it is finished, however it ended."""
        future = asyncio.run_coroutine_threadsafe(self._ask(body), self._loop)
        future.add_done_callback(self.done.put)
        return future

    async def _ask(self, body: Mapping[str, Any]) -> Reply:
        """Send until there is an answer. Raises Unanswered for this prompt alone, EndpointError for the run."""
        name, failures = str(body.get("prompt") or body.get("messages")), 0
        while True:
            replica = await self._replica()
            replica.in_flight += 1
            try:
                reply = await self._send(replica, body)
                self._rotation.succeeded(replica)
                self._last_answer = time.monotonic()
                return reply
            except _Pause as pause:
                self._pause(replica, pause)
                wait = wait_before(1, name)
            except Unanswered:
                self._rotation.succeeded(replica)
                raise
            except BrokenAnswer as error:
                failures += 1
                now = time.monotonic()
                self._rotation.failed(replica, now)
                self._give_up(error, failures, now)
                wait = wait_before(failures, name)
            finally:
                replica.in_flight -= 1
            await asyncio.sleep(wait)

    async def _replica(self) -> Replica:
        while not isinstance(found := self._rotation.choose(time.monotonic()), Replica):
            await asyncio.sleep(found)
        return found

    def _give_up(self, error: Exception, failures: int, now: float) -> None:
        settings, rotation = self.settings, self._rotation
        if rotation.gone(now, settings.max_failures, settings.patience):
            places = ", ".join(sorted({place(url) for url in settings.urls}))
            raise EndpointError(
                f"no answer from {places}: {rotation.silent} failures in a row in {now - rotation.since:.0f} s, the "
                f"last one: {error}. Start the server, or correct llm.options.url"
            ) from None
        if failures > settings.retries and rotation.silent < failures:  # others are answered meanwhile
            raise Unanswered(f"asked {failures} times without an answer, the last time: {error}") from None

    def _pause(self, replica: Replica, pause: _Pause) -> None:
        now = time.monotonic()
        if pause.seconds > _LONGEST_PAUSE or now - self._last_answer > _LONGEST_PAUSE + pause.seconds:
            raise EndpointError(
                f"{place(replica.url)} takes no more requests ({pause}); it asks to wait {pause.seconds:.0f} s, and "
                f"the last answer is {now - self._last_answer:.0f} s old. Wait, or lower llm.options.concurrency"
            )
        replica.paused_until = max(replica.paused_until, now + pause.seconds)

    async def _send(self, replica: Replica, body: Mapping[str, Any]) -> Reply:
        """One attempt. Raises BrokenAnswer where another may help, _Pause where it must wait."""
        import httpx

        settings = self.settings
        url = replica.url + PATHS[settings.api]
        try:
            # the whole attempt has a limit too: a server may send a byte from time to time
            async with asyncio.timeout(settings.connect_timeout + settings.timeout):
                response = await self._http.post(url, json=body)
        except TimeoutError:
            raise BrokenAnswer(f"{place(url)}: no answer within {settings.timeout:g} s") from None
        except httpx.TimeoutException as error:
            seconds = settings.connect_timeout if "Connect" in type(error).__name__ else settings.timeout
            raise BrokenAnswer(
                f"{place(url)}: nothing for {seconds:g} s ({type(error).__name__}); llm.options.timeout is the limit"
            ) from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            said = self._key.redact(str(error))[:200]
            raise BrokenAnswer(f"{place(url)}: {type(error).__name__} {said}".rstrip()) from None
        try:
            if response.status_code == 200:
                return read_reply(settings.api, response.content)
            self._refuse(url, response)
        except (BrokenAnswer, EndpointError) as error:
            cleaned = self._key.redact(str(error))
            if cleaned != str(error):
                raise type(error)(cleaned) from None
            raise
        raise AssertionError("a status other than 200 raises")

    def _refuse(self, url: str, response: Any) -> None:
        """Raise for a status other than 200."""
        status = response.status_code
        message, code = server_message(self._key.redact(response.text).encode("utf-8", "replace"))
        said = f"{place(url)} answers {status}: {message}"
        if status == 429 and code != "insufficient_quota":
            raise _Pause(said, retry_after(response.headers.get("retry-after")))
        if status == 503 and "retry-after" in response.headers:
            raise _Pause(said, retry_after(response.headers["retry-after"]))
        if (status in _AGAIN and status != 429) or status >= 500:
            raise BrokenAnswer(said)
        if code == "content_filter":
            raise Unanswered(f"{said}. Leave the record out, or ask a server that does not filter it")
        if 300 <= status < 400:
            target = place(response.headers.get("location", ""))
            raise EndpointError(
                f"{said} (a redirect to {target}); redirects are not followed: name the right URL"
            )
        raise EndpointError(f"{said}. {_REMEDIES.get(status, 'Correct the request or the server')}")


class _Pause(BrokenAnswer):
    """The server is there and asks to wait."""

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


def retry_after(value: str | None, now: float | None = None) -> float:
    """The seconds of a Retry-After header, a number or a date; 0 where there is none.

    >>> retry_after("2"), retry_after(None), retry_after("soon")
    (2.0, 0.0, 0.0)
    >>> retry_after("Thu, 01 Jan 1970 00:01:00 GMT", now=50.0)
    10.0
    """
    text = (value or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - (time.time() if now is None else now)
        except (ValueError, TypeError):
            return 0.0
    return max(0.0, seconds) if seconds < float("inf") else 0.0


def place(url: str) -> str:
    """Scheme, host and port of a URL: all that messages show of it.

    >>> place("https://someone:secret@host:8000/v1/completions?key=x")
    'https://host:8000'
    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an unreadable URL"
    return f"{parts.scheme}://{parts.hostname or ''}{port}"
