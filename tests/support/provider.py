"""A model provider on loopback: a real HTTP server that says what a test tells it to say.

    def test_something(provider):
        provider.say("Hello", Reply(calls=[Call(name="add", args={"a": 1}, id="c1")]))
        model = ChatOpenAI(base_url=provider.url, api_key="k", model="m")

It speaks OpenAI's chat completions (`provider.url`), and under `provider.origin` Anthropic's
messages and Ollama's chat too. Replies are given in the order in which requests come. It stops
by itself after `LIFETIME` seconds or `MOST_REQUESTS` requests, whatever happens.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest

from tests.support import wire
from tests.support.wire import Call, Reply

__all__ = ["Call", "Provider", "Reply", "Request", "provider"]

LIFETIME: Final = 290.0
MOST_REQUESTS: Final = 2_000
_POLL: Final = 0.01
_IDLE: Final = 10.0
"""Seconds that a connection may be silent."""
_LONGEST_BODY: Final = 16_000_000


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    """Without the part of the address that is this provider's own."""
    headers: Mapping[str, str]
    """By lower-case name."""
    body: Any
    """The JSON, parsed; None if there was none."""
    at: float
    """Seconds of the monotonic clock."""


Step = Reply | str | Callable[[Request], Reply | str]
"""A reply, its text alone, or a function that makes it from the request."""


class Provider:
    """The server, its script and what it was asked."""

    lifetime: float = LIFETIME

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.failures: list[BaseException] = []
        """What went wrong in the server itself; empty in a sound test."""
        self.models: list[str] = ["test-model"]
        """What `/v1/models` and `/api/tags` list."""
        self.stopped = threading.Event()
        self._script: deque[Step] = deque()
        self._lock = threading.Lock()
        # clients keep connections by address for the life of the process: each server has its own
        self._own = uuid.uuid4().hex[:8]
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._serve, name="provider", daemon=True)
        self._thread.start()

    @property
    def origin(self) -> str:
        """The address for Anthropic's and Ollama's clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{self._own}"

    @property
    def url(self) -> str:
        """The address for OpenAI's clients, the `base_url`."""
        return f"{self.origin}/v1"

    @property
    def bodies(self) -> list[Any]:
        """The bodies of the requests for replies, in order."""
        return [r.body for r in self.requests if r.method == "POST"]

    def say(self, *steps: Step) -> None:
        """Add replies to the end of the script."""
        with self._lock:
            self._script.extend(steps)

    def assert_complete(self) -> None:
        """Fail if replies are left that nobody asked for."""
        with self._lock:
            assert not self._script, f"{len(self._script)} replies were never asked for"

    def close(self) -> None:
        """Stop; open connections end at once."""
        self.stopped.set()
        self._thread.join(_IDLE)
        self._server.finish()

    def next_reply(self, request: Request) -> Reply:
        """Record a request and take its reply from the script."""
        with self._lock:
            self.requests.append(request)
            if len(self.requests) > MOST_REQUESTS:
                self.stopped.set()
            step: Step = self._script.popleft() if self._script else _NOTHING_LEFT
        made = step if isinstance(step, Reply | str) else step(request)
        return Reply(text=made) if isinstance(made, str) else made

    def protocol_of(self, path: str) -> str | None:
        """The protocol that a path speaks."""
        return _PROTOCOLS.get(path)

    def path_of(self, path: str) -> str | None:
        """The path without this server's own part; None for another server's."""
        own = f"/{self._own}/"
        return path[len(own) - 1 :] if path.startswith(own) else None

    def note(self, request: Request) -> None:
        """Record a request that takes no reply from the script."""
        with self._lock:
            self.requests.append(request)

    def _serve(self) -> None:
        until = time.monotonic() + self.lifetime
        while not self.stopped.is_set() and time.monotonic() < until:
            self._server.handle_request()
        self.stopped.set()


_PROTOCOLS: Final[Mapping[str, str]] = {
    "/v1/chat/completions": "openai",
    "/v1/messages": "anthropic",
    "/api/chat": "ollama",
}
_NOTHING_LEFT: Final = Reply(status=400, error="the test scripted no further reply")


class _Server(ThreadingHTTPServer):
    """One thread per connection, each ended with the server."""

    daemon_threads = True
    timeout = _POLL

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._open: dict[threading.Thread, socket.socket] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        self._open = {t: s for t, s in self._open.items() if t.is_alive()}
        self._open[thread] = request
        thread.start()

    def finish(self) -> None:
        for thread, connection in self._open.items():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(_IDLE)
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about clients that hang up; keep everything else for the test."""

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        connection.settimeout(_IDLE)
        return connection, address


class _Cut(Exception):
    """The scripted end of a connection."""


class _Handler(BaseHTTPRequestHandler):
    """One request and its answer, after which the connection ends."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        provider = self.server.provider
        request = self._request(None)
        if request is None:
            return
        provider.note(request)
        if request.path == "/v1/models":
            listed = [{"id": name, "object": "model"} for name in provider.models]
            self._send(200, {}, json.dumps({"object": "list", "data": listed}).encode())
        elif request.path == "/api/tags":
            listed = [{"name": name, "model": name} for name in provider.models]
            self._send(200, {}, json.dumps({"models": listed}).encode())
        else:
            self._send(404, {}, b'{"error":{"message":"no such path"}}')

    def do_POST(self) -> None:
        length = min(int(self.headers.get("content-length") or 0), _LONGEST_BODY)
        request = self._request(self.rfile.read(length))
        if request is None:
            return
        protocol = self.server.provider.protocol_of(request.path)
        if protocol is None:
            self.server.provider.note(request)
            self._send(404, {}, b'{"error":{"message":"no such path"}}')
            return
        try:
            self._answer(protocol, request)
        except (_Cut, OSError):
            self.close_connection = True
        except BaseException as error:
            self.server.provider.failures.append(error)
            raise

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _request(self, raw: bytes | None) -> Request | None:
        path = self.server.provider.path_of(self.path.split("?", 1)[0])
        if path is None:
            self._send(404, {}, b'{"error":{"message":"another server\'s path"}}')
            return None
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(raw) if raw else None
        return Request(self.command, path, headers, body, time.monotonic())

    def _answer(self, protocol: str, request: Request) -> None:
        reply = self.server.provider.next_reply(request)
        self._pause(reply.delay)
        asked = request.body or {}
        if reply.body is not None:
            self._send(reply.status, reply.headers, reply.body, reply.content_type, reply.cut_after)
        elif reply.status != 200:
            self._send(reply.status, reply.headers, wire.failure(reply))
        elif protocol == "ollama":
            self._stream(reply, "application/x-ndjson", wire.ollama_lines(reply, asked))
        elif asked.get("stream"):
            events = wire.openai_events if protocol == "openai" else wire.anthropic_events
            self._stream(reply, "text/event-stream", events(reply, asked))
        else:
            whole = wire.openai_body if protocol == "openai" else wire.anthropic_body
            body = whole(reply, asked)
            self._send(200, reply.headers, body, "application/json", reply.cut_after)

    def _send(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        content_type: str = "application/json",
        cut_after: int | None = None,
    ) -> None:
        sent = {"Content-Type": content_type, "Content-Length": str(len(body)), **headers}
        self._head(status, sent)
        self.wfile.write(body[:cut_after])

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()

    def _stream(self, reply: Reply, content_type: str, events: Iterable[bytes]) -> None:
        self._head(
            200, {"Content-Type": content_type, "Transfer-Encoding": "chunked", **reply.headers}
        )
        left = reply.cut_after
        for at, event in enumerate(events):
            if at == reply.broken_after:
                self._chunk(wire.stream_error(reply))
                break
            if at:
                self._pause(reply.gap)
            self._chunk(event if left is None else event[:left])
            if left is not None:
                left -= len(event)
                if left <= 0:
                    self._end_early(reply)
        self.wfile.write(b"0\r\n\r\n")

    def _end_early(self, reply: Reply) -> None:
        if reply.clean_cut:
            self.wfile.write(b"0\r\n\r\n")
        raise _Cut

    def _chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    def _pause(self, duration: float) -> None:
        if duration and self.server.provider.stopped.wait(duration):
            raise _Cut


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Serve scripted replies on loopback for the length of a test."""
    server = Provider()
    try:
        yield server
        assert not server.failures, server.failures
    finally:
        server.close()
