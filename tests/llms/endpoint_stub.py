"""A server on loopback that speaks just enough of OpenAI's protocol, and misbehaves as it is told."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# (prompt, how often it was asked before) -> "ok" or a misbehaviour, see Stub.misbehave
Behaviour = Callable[[str, int], str]


def answer_to(prompt: str) -> str:
    """The one right text of a prompt."""
    return f" answer to {prompt}"


class Stub:
    """``url`` to ask; ``asked`` counts prompts, ``bodies`` and ``headers`` keep what came."""

    def __init__(self, behave: Behaviour = lambda prompt, before: "ok", text=answer_to, silence: float = 2.0):
        self.behave, self.text, self.silence = behave, text, silence
        self.asked: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                prompt = body.get("prompt") or body["messages"][-1]["content"]
                with stub.lock:
                    before = stub.asked[prompt]
                    stub.asked[prompt] += 1
                    stub.bodies.append(body)
                    stub.headers.append(dict(self.headers))
                    stub.in_flight += 1
                    stub.most_in_flight = max(stub.most_in_flight, stub.in_flight)
                try:
                    stub.respond(self, body, prompt, stub.behave(prompt, before))
                finally:
                    with stub.lock:
                        stub.in_flight -= 1

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request, client_address):
                pass  # clients that went away

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def respond(self, handler: BaseHTTPRequestHandler, body: dict, prompt: str, how: str) -> None:
        text = self.text(prompt)
        choice: dict[str, Any] = {"finish_reason": "stop", "index": 0}
        choice |= {"text": text} if "prompt" in body else {"message": {"content": text}}
        reply = {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
        content = json.dumps(reply).encode()
        if how == "silent":
            time.sleep(self.silence)
        elif how.startswith("slow"):
            time.sleep(float(how.split()[1]))
        elif how == "cut":  # promises more than it sends
            handler.send_response(200)
            handler.send_header("content-length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content[:10])
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return
        elif how == "half":
            content = content[: len(content) // 2]
        elif how.startswith("json"):
            content = how.removeprefix("json").encode()
        elif how != "ok":  # "STATUS BODY"
            status, _, message = how.partition(" ")
            self.send(
                handler, int(status), message.encode(), {"retry-after": "0.2"} if status == "429" else {}
            )
            return
        self.send(handler, 200, content, {})

    @staticmethod
    def send(handler: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str]) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
