"""The process around the application: its socket, its signals, its log."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import inspect
import json
import logging
import math
import signal
import socket
import struct
import sys
import termios
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from types import FrameType
from typing import Any, ClassVar, Final, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from wick_graph.constants import DEFAULT_PORT
from wick_graph.core.redaction import REDACTOR
from wick_graph.engine.agent import Agent
from wick_graph.errors import ConfigError
from wick_graph.loading import Agents
from wick_graph.server.app import create_app
from wick_graph.service.options import LOCAL, ServerOptions
from wick_graph.service.service import Service
from wick_graph.targets import agents_of
from wick_graph.tools import tool as make_tool
from wick_graph.tools.toolsets import ToolStore

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
        queued = bytearray(4)
        with contextlib.suppress(OSError):  # not available on every system
            fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, queued)
        return self.transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)

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
        before = signal.signal(signal.SIGHUP, self.handle_exit)  # uvicorn handles the others
        try:
            await super().serve(sockets)
        finally:
            signal.signal(signal.SIGHUP, before)

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


def serve(service: Service, *, ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is called with the address once it answers.

    Raises:
        ConfigError: The address cannot be bound.
    """
    bound = bind(service.options)
    _log_to(sys.stderr)
    server = _Process(uvicorn_config(service), service)
    if ready is not None:
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        service.when_ready = lambda: ready(f"http://{shown}:{port}")
    with bound:
        server.run([bound])


def uvicorn_config(service: Service) -> uvicorn.Config:
    """Configure uvicorn for a service."""
    limits = service.options.limits
    return uvicorn.Config(
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
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(_BACKLOG)  # so that a client that knows the address is not refused
            failed.pop_all()
    except OSError as error:
        raise ConfigError(
            f"cannot serve on {options.host}:{options.port}: {error.strerror or error}; "
            "choose another --port or --host"
        ) from None
    return made


def _log_to(stream: Any) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("wick_graph", *_QUIET):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "wick_graph" else logging.WARNING)


# --- A server that a program builds: in the background, or mounted in another application.


_SOURCE: Final = "Server"

_START_SECONDS: Final = 60.0


class Server:
    """The agents over HTTP, as `wick serve` serves them.

    Args:
        agents: An agent, a mapping of ids to agents, or what `wick_graph.load` returns.
        host: Address to listen at.
        port: Port to listen at; 0 takes any.
        auth: Whether clients need a token.
        options: All options at once, instead of `host`, `port` and `auth`.

    Raises:
        ConfigError: An argument is refused.
    """

    def __init__(
        self,
        agents: Agent | Mapping[str, Agent] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        auth: bool = True,
        options: ServerOptions | None = None,
    ) -> None:
        self.options = options or ServerOptions(host=host, port=port, auth=auth)
        self.url = ""
        """Where the server answers; empty before `start`."""
        self._file = agents if isinstance(agents, Agents) else None
        self._agents: dict[str, Agent] = {}
        if isinstance(agents, Agent):
            self._agents[agents.name] = agents
        elif self._file is None:
            self._agents.update(agents or {})
        self._tools = self._file.tools if self._file is not None else ToolStore()
        self._service: Service | None = None
        self._app: Any = None
        self._running: _Running | None = None
        self._background: _Background | None = None
        self._ended = False

    def register_agent(self, agent: Agent, agent_id: str | None = None) -> None:
        """Serve one more agent, under its name or another id.

        Raises:
            ConfigError: The id is taken, or the server is built already.
        """
        self._must_be_open("agents")
        key = agent_id or agent.name
        if key in self._agents:
            raise ConfigError(f"there is an agent {key} already; pass another agent_id")
        if self._file is not None:
            raise ConfigError("the agents are those of a file; add this one to the file")
        self._agents[key] = agent

    def register_tool(self, fn: Any, *, agent: str | None = None) -> None:
        """Give a tool, or a plain function, to all agents or to one.

        Raises:
            ConfigError: It cannot be a tool, or the server is built already.
        """
        self._must_be_open("tools")
        one = make_tool(fn) if inspect.isroutine(fn) else fn
        self._tools.register(one, agent=agent)

    @property
    def service(self) -> Service:
        """What the server serves, built at the first use.

        Raises:
            ConfigError: There is no agent, or one cannot be served.
        """
        if self._ended:
            raise ConfigError("this server has ended; build another one")
        if self._service is None:
            if self._file is None and not self._agents:
                raise ConfigError("there is nothing to serve; pass an agent to Server")
            found = self._file or agents_of(self._agents, source=_SOURCE)
            self._service = Service(
                found.config,
                self.options,
                model=found.model,
                path=found.config.path,
                given=found.given,
                tools=self._tools,
            )
        return self._service

    @property
    def app(self) -> Any:
        """The ASGI application: serve it, or mount it in your own.

        A mounted application starts with its first request. Pass `lifespan` to your application
        to start and stop both together.
        """
        if self._background is not None:
            raise ConfigError("the server runs in a thread of its own; mount another Server")
        if self._app is None:
            self._running = _Running(self.service)
            self._app = _Mountable(create_app(self.service), self._running)
        return self._app

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """Start the mounted server with your application, and stop it with that."""
        _ = self.app
        assert self._running is not None
        await self._running.start()
        try:
            yield
        finally:
            self._ended = True
            await self._running.stop()

    def token(self, tenant: str = LOCAL, *, scope: str = "run", name: str = "") -> str:
        """Make an access token."""
        token, _ = self.service.tokens.create(tenant, scope=scope, name=name)
        return str(token)

    def start(self) -> Self:
        """Serve in a background thread; return once the server answers.

        Raises:
            ConfigError: The address cannot be bound.
        """
        if self._app is not None:
            raise ConfigError("the server is mounted; start another Server")
        if self._background is None:
            background = _Background(self.service)
            try:
                self.url = background.start()
            except BaseException:
                self._close()
                raise
            self._background = background
        return self

    def stop(self) -> None:
        """Let running steps end, and stop; suspended runs go on at the next start."""
        background, self._background = self._background, None
        if background is not None:
            background.stop()
            self._service, self.url = None, ""
        elif self._app is None:
            self._close()

    def _close(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            service.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _must_be_open(self, what: str) -> None:
        if self._service is not None:
            raise ConfigError(f"the server is built; register {what} before it starts")


class _Running:
    """Runs a service in the loop of its first user."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._task: asyncio.Task[None] | None = None
        self._ready, self._over = asyncio.Event(), asyncio.Event()

    async def start(self) -> None:
        """Wait until the service runs; start it if it does not.

        Raises:
            WickError: It cannot start.
        """
        if self._over.is_set():
            raise ConfigError("this server has ended; build another one")
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        ready = asyncio.ensure_future(self._ready.wait())
        assert self._task is not None
        await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        task = self._task
        if task is not None and task.done():
            self._task = None  # the next request may find what this one could not
            task.result()

    async def stop(self) -> None:
        """Stop the service, and wait until it has."""
        self._over.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        async with self._service.running():
            self._ready.set()
            await self._over.wait()


class _Mountable:
    """The application below any path of another one."""

    def __init__(self, app: Any, running: _Running) -> None:
        self._inner, self._running = app, running

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":  # served alone
            await receive()
            await self._running.start()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._running.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await self._running.start()
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        await self._inner({**scope, "path": path, "root_path": ""}, receive, send)


class _Background:
    """A server in a thread of its own."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._server = uvicorn.Server(uvicorn_config(service))
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answers = threading.Event()
        self._failed: BaseException | None = None

    def start(self) -> str:
        """Start the thread; return the server's URL once it answers."""
        bound = bind(self._service.options)
        host, port = bound.getsockname()[:2]
        self._service.when_ready = self._answers.set

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            with bound:
                await self._server.serve([bound])

        def work() -> None:
            try:
                with asyncio.Runner() as runner:
                    runner.run(serve())
            except BaseException as error:
                self._failed = error
            finally:
                self._answers.set()

        self._thread = threading.Thread(target=work, name="wick-server", daemon=True)
        self._thread.start()
        in_time = self._answers.wait(_START_SECONDS)
        if not in_time or not self._thread.is_alive():
            self.stop()
            why = self._failed or f"it did not answer within {_START_SECONDS:.0f} s, or ended"
            raise ConfigError(f"the server cannot start: {why}") from self._failed
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def stop(self) -> None:
        """Let running steps end, and wait for the thread."""
        if self._thread is None:
            return
        if self._loop is not None and self._thread.is_alive() and self._server.started:
            seconds = self._service.options.limits.drain
            drained = asyncio.run_coroutine_threadsafe(self._service.drain(seconds), self._loop)
            with contextlib.suppress(Exception):  # the loop may end first
                drained.result(seconds + _START_SECONDS)
        self._server.should_exit = True
        self._thread.join()
