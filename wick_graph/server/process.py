"""The process around the application: its socket, its signals, its log."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import math
import socket
import struct
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, Final, Literal

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from wick_graph import machine
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import ConfigError
from wick_graph.service.options import ServerOptions
from wick_graph.service.service import Service

# --- uvicorn's HTTP/1.1 protocol with deadlines for stalled clients.
#
# uvicorn waits forever for a head that arrives byte by byte, and for a client that does not read
# its answer. A few hundred such connections would exhaust the server.


_AT_ONCE: Final = struct.pack("ii", 1, 0)


class Deadline(H11Protocol):
    """Close a connection if its next head takes too long or its client stops reading."""

    head: ClassVar[float] = 10.0
    send: ClassVar[float] = 30.0
    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _unread: float = math.inf
    """Unread bytes at the last check."""

    def connection_made(self, transport: Any) -> None:
        """Start the deadline for a head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Receive data; stop the deadline once a head is complete."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._done()
        elif self._late is None:
            self._wait()

    def on_response_complete(self) -> None:
        """Stop the deadlines; the idle timeout applies."""
        super().on_response_complete()
        self._done()
        self._watch()

    def pause_writing(self) -> None:
        """Start to check whether the client reads."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Stop checking: the client reads again."""
        super().resume_writing()
        self._unread = math.inf

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all deadlines."""
        self._done()
        if self._stuck is not None:
            self._stuck.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(self.head, self._close)

    def _done(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def _watch(self) -> None:
        """Start to check whether the client reads."""
        if self._stuck is None and self.transport.get_write_buffer_size():
            self._unread = self._waiting()
            self._stuck = self.loop.call_later(self.send, self._look)

    def _waiting(self) -> int:
        """Count the unread bytes, here and in the buffer of the operating system."""
        connection = self.transport.get_extra_info("socket")
        unsent = machine.unsent(connection.fileno())
        return self.transport.get_write_buffer_size() + unsent

    def _look(self) -> None:
        """Abort the connection if its client read nothing; `close` would wait for it."""
        self._stuck = None
        if self.transport.get_write_buffer_size() and self._waiting() >= self._unread:
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self.transport.abort()
        else:
            self._watch()


def with_deadlines(head: float, send: float) -> type[asyncio.Protocol]:
    """Return a protocol class with these deadlines, in seconds."""
    return type("Deadline", (Deadline,), {"head": head, "send": send})


_BACKLOG: Final = 2048

_QUIET: Final = ("uvicorn", "opentelemetry")


class _Process(uvicorn.Server):
    """A server that lets running steps end when it is stopped or its terminal closes.

    After the first signal it accepts no new run, suspends the running ones, tells their readers,
    and exits. A second signal does all this at once.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal stops it."""
        self._loop = asyncio.get_running_loop()
        with machine.on_hangup(self.handle_exit):  # uvicorn handles the other signals
            await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start to stop."""
        if self._loop is None or self._service.stop_now.is_set():
            super().handle_exit(sig, frame)
        elif self._service.draining:
            self._loop.call_soon_threadsafe(self._service.stop_now.set)
        else:
            self._service.draining = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        async def drain() -> None:
            await self._service.drain(self._service.options.limits.drain)
            self.should_exit = True

        self._draining = asyncio.ensure_future(drain())


class JsonLines(logging.Formatter):
    """One JSON object per line: a logged text can neither start a line nor show a secret."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        made: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": REDACTOR.text(record.getMessage()),
        }
        if record.exc_info:
            made["exception"] = REDACTOR.text(self.formatException(record.exc_info))
        return json.dumps(made, ensure_ascii=True)


def serve(app: Any, service: Service, *, ready: Callable[[str], None] | None = None) -> None:
    """Serve an application until SIGTERM or SIGINT.

    `ready` is called with the address once it answers.

    Raises:
        ConfigError: The address cannot be bound.
    """
    bound = bind(service.options)
    _log_to(sys.stderr)
    server = _Process(uvicorn_config(app, service.options), service)
    address = url_of(bound)

    def begin() -> None:
        _spare_collections()
        if ready is not None:
            ready(address)

    service.when_ready = begin
    with bound:
        server.run([bound])


_THRESHOLDS: Final = (50_000, 20, 50)


def _spare_collections() -> None:
    """Let the garbage collector pass over what the start has made, and collect less often.

    Many runs at once make many objects that live for one turn, and few cycles. This is for a
    process of our own: an application that mounts the server keeps its settings.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def uvicorn_config(
    app: Any, options: ServerOptions, *, lifespan: Literal["on", "off"] = "on"
) -> uvicorn.Config:
    """Configure uvicorn for an application; it runs the service unless `lifespan` is off."""
    limits = options.limits
    return uvicorn.Config(
        app,
        http=with_deadlines(limits.header, limits.send),
        lifespan=lifespan,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=int(limits.idle),
        timeout_graceful_shutdown=5,
        backlog=_BACKLOG,
    )


def bind(options: ServerOptions) -> socket.socket:
    """Open the socket to serve.

    Raises:
        ConfigError: It cannot be opened; the text gives the reason.
    """
    try:
        found = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, number, _, address = found[0]
        made = socket.socket(family, kind, number)
        with contextlib.ExitStack() as failed:
            failed.enter_context(made)
            machine.reserve(made)
            made.bind(address)
            made.listen(_BACKLOG)  # so that a client that knows the address is not refused
            failed.pop_all()
    except OSError as error:
        raise ConfigError(
            f"cannot serve on {options.host}:{options.port}: {error.strerror or error}; "
            "choose another --port or --host"
        ) from None
    return made


def url_of(bound: socket.socket) -> str:
    """Return the URL of a socket that serves."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _log_to(stream: Any) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("wick_graph", *_QUIET):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "wick_graph" else logging.WARNING)
