"""The process around the application: its socket, its signals, its log."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import uvicorn

from wick_graph.errors import ConfigError
from wick_graph.redact import REDACTOR
from wick_graph.server.app import create_app
from wick_graph.server.options import ServerOptions
from wick_graph.server.protocol import with_deadlines
from wick_graph.server.service import Service

_BACKLOG: Final = 2048
_QUIET: Final = ("uvicorn", "opentelemetry")


class Server(uvicorn.Server):
    """A server that lets running steps end when it is told to stop, or its terminal is gone.

    The first signal: no new run is taken on, readers are told that their runs are suspended, and
    then the process ends. The second one does all that at once.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        self._loop = asyncio.get_running_loop()
        before = signal.signal(signal.SIGHUP, self.handle_exit)  # uvicorn takes the others
        try:
            await super().serve(sockets)
        finally:
            signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        if self._loop is None or self._service.hurry.is_set():
            super().handle_exit(sig, frame)
        elif self._service.draining:
            self._loop.call_soon_threadsafe(self._service.hurry.set)
        else:
            self._service.draining = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        async def drain() -> None:
            await self._service.drain(self._service.options.limits.drain)
            self.should_exit = True

        self._draining = asyncio.ensure_future(drain())


class JsonLines(logging.Formatter):
    """One JSON object a line: nothing that is logged can begin a line of its own, or is secret."""

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


def serve(service: Service, *, ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is called with the address once it answers.

    Raises:
        ConfigError: The address cannot be bound.
    """
    options = service.options
    bound = bind(options)
    _log_to(sys.stderr)
    limits = options.limits
    config = uvicorn.Config(
        create_app(service),
        http=with_deadlines(limits.header, limits.send),
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
    server = Server(config, service)
    if ready is not None:
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        service.when_ready = lambda: ready(f"http://{shown}:{port}")
    with bound:
        server.run([bound])


def bind(options: ServerOptions) -> socket.socket:
    """Open the socket that is served.

    Raises:
        ConfigError: It cannot be opened, with the reason.
    """
    try:
        found = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, number, _, address = found[0]
        made = socket.socket(family, kind, number)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)  # so that nobody who was told of the address is refused
    except OSError as error:
        raise ConfigError(
            f"cannot serve on {options.host}:{options.port}: {error.strerror or error}; "
            "take another --port or --host"
        ) from None
    return made


def _log_to(stream: Any) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("wick_graph", *_QUIET):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "wick_graph" else logging.WARNING)
