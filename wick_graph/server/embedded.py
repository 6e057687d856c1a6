"""A server that a program builds: in the background, or mounted in another application."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator
from typing import Any, Final, Self

import uvicorn

from wick_graph.constants import DEFAULT_PORT
from wick_graph.engine.agent import Agent
from wick_graph.errors import ConfigError, describe, did_you_mean
from wick_graph.loading import Agents
from wick_graph.server.app import create_app
from wick_graph.server.process import bind, url_of, uvicorn_config
from wick_graph.service.options import LOCAL, ServerOptions
from wick_graph.service.service import Service
from wick_graph.targets import agents_of, as_agent
from wick_graph.tools import tool as make_tool
from wick_graph.tools.toolsets import ToolStore

_SOURCE: Final = "Server"

_START_SECONDS: Final = 60.0


class Server:
    """The agents over HTTP, as `wick serve` serves them.

    Args:
        agents: An agent or a compiled LangGraph graph, a mapping of ids to these, or what
            `wick_graph.load` returns.
        host: Address to listen at.
        port: Port to listen at; 0 takes any.
        auth: Whether clients need a token.
        options: All options at once, instead of `host`, `port` and `auth`.

    Raises:
        ConfigError: An argument is refused.
    """

    def __init__(
        self,
        agents: Any = None,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        auth: bool = True,
        options: ServerOptions | None = None,
    ) -> None:
        self.options = options or ServerOptions(host=host, port=port, auth=auth)
        self._file = agents if isinstance(agents, Agents) else None
        self._agents: dict[str, Agent] = {}
        if self._file is None and agents is not None:
            self._agents.update(agents_of(agents, source=_SOURCE).given)
        self._tools = self._file.tools if self._file is not None else ToolStore()
        self._service: Service | None = None
        self._use: _Background | _Mounted | None = None
        """How it serves; None before it is started or mounted, and again once it is stopped."""

    @property
    def url(self) -> str:
        """Where the server answers; empty unless it runs in the background."""
        return self._use.url if isinstance(self._use, _Background) else ""

    def register_agent(self, agent: Any, agent_id: str | None = None) -> None:
        """Serve one more agent or graph, under its name or another id.

        Raises:
            ConfigError: The id is taken, it is no agent, or the server is built already.
        """
        self._must_be_open("agents")
        if self._file is not None:
            raise ConfigError("the agents are those of a file; add this one to the file")
        made = as_agent(agent_id or "graph", agent, _SOURCE)
        key = agent_id or made.name
        if key in self._agents:
            raise ConfigError(f"there is an agent {key} already; pass another agent_id")
        self._agents[key] = made

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
        if isinstance(self._use, _Mounted) and self._use.over:
            raise ConfigError("this server has ended; build another one")
        if self._service is None:
            self._service = self._built()
        return self._service

    def _built(self) -> Service:
        if self._file is None and not self._agents:
            raise ConfigError("there is nothing to serve; pass an agent to Server")
        found = self._file or agents_of(self._agents, source=_SOURCE)
        for name in self._tools.agents:
            if name not in found:
                hint = did_you_mean(name, found)
                raise ConfigError(
                    f"a tool is registered for {name}, but no agent has this id{hint}"
                )
            if name in found.given and found.given[name].spec.guest:
                raise ConfigError(f"{name} is a LangGraph graph; add its tools to the graph itself")
        return Service(
            found.config,
            self.options,
            model=found.model,
            path=found.config.path,
            given=found.given,
            tools=self._tools,
        )

    @property
    def app(self) -> Any:
        """The ASGI application: serve it, or mount it in your own.

        A mounted application starts with its first request. Pass `lifespan` to your application
        to start and stop both together.
        """
        return self._mounted().app

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """Start the mounted server with your application, and stop it with that."""
        mounted = self._mounted()
        await mounted.start()
        try:
            yield
        finally:
            await mounted.stop()

    def _mounted(self) -> _Mounted:
        if isinstance(self._use, _Background):
            raise ConfigError("the server runs in a thread of its own; mount another Server")
        if self._use is None:
            self._use = _Mounted(self.service)
        return self._use

    def token(self, tenant: str = LOCAL, *, scope: str = "run", name: str = "") -> str:
        """Make an access token."""
        token, _ = self.service.tokens.create(tenant, scope=scope, name=name)
        return str(token)

    def start(self) -> Self:
        """Serve in a background thread; return once the server answers.

        Does nothing if the server runs.

        Raises:
            ConfigError: The address cannot be bound, or the server is mounted.
        """
        if isinstance(self._use, _Mounted):
            raise ConfigError("the server is mounted; start another Server")
        if self._use is None:
            background = _Background(self.service)
            try:
                background.start()
            except BaseException:
                self._close()
                raise
            self._use = background
        return self

    def stop(self) -> None:
        """Let running steps end, and stop; suspended runs go on at the next start.

        Does nothing if the server does not run; a mounted one ends with its application.
        """
        if isinstance(self._use, _Mounted):
            return
        background, self._use = self._use, None
        if background is not None:
            background.stop()
            self._service = None
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


class _Mounted:
    """A service in the event loop of its first user, as an application below any path."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._inner = create_app(service)
        self._task: asyncio.Task[None] | None = None
        self._ready, self._stop = asyncio.Event(), asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether the service was stopped, for good."""
        return self._stop.is_set()

    async def start(self) -> None:
        """Wait until the service runs; start it if it does not.

        Raises:
            ConfigError: It was stopped.
            WickError: It cannot start.
        """
        if self.over:
            raise ConfigError("this server has ended; build another one")
        task = self._task = self._task or asyncio.create_task(self._run())
        ready = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            self._task = None  # the next request may find what this one could not
            task.result()

    async def stop(self) -> None:
        """Stop the service, and wait until it has."""
        self._stop.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        async with self._service.running():
            self._ready.set()
            await self._stop.wait()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request; served alone, start and stop with the server."""
        if scope["type"] == "lifespan":
            await self._serve_alone(receive, send)
            return
        await self.start()
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        await self._inner({**scope, "path": path, "root_path": ""}, receive, send)

    async def _serve_alone(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:  # the server around it must learn that it cannot serve
            await send({"type": "lifespan.startup.failed", "message": describe(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        try:
            await self.stop()
        except Exception as error:
            await send({"type": "lifespan.shutdown.failed", "message": describe(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})


class _Background:
    """A server in a thread of its own."""

    def __init__(self, service: Service) -> None:
        self.url = ""
        self._service = service
        self._server = uvicorn.Server(
            uvicorn_config(create_app(service), service.options, lifespan="off")
        )
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answers = threading.Event()
        self._failed: BaseException | None = None

    def start(self) -> None:
        """Start the thread; return once the server answers.

        Raises:
            ConfigError: It cannot start; the text gives the reason.
        """
        bound = bind(self._service.options)
        self._service.when_ready = self._answers.set

        def work() -> None:
            try:
                with bound, asyncio.Runner() as runner:
                    self._loop = runner.get_loop()
                    runner.run(self._serve(bound))
            except BaseException as error:  # the caller of `start` gets it
                self._failed = error
            finally:
                self._answers.set()

        self._thread = threading.Thread(target=work, name="wick-server", daemon=True)
        self._thread.start()
        in_time = self._answers.wait(_START_SECONDS)
        if self._failed is not None or not in_time:
            self.stop()
            late = f"it did not answer within {_START_SECONDS:.0f} s"
            why = late if self._failed is None else describe(self._failed)
            raise ConfigError(f"the server cannot start: {why}") from self._failed
        self.url = url_of(bound)

    async def _serve(self, bound: Any) -> None:
        async with self._service.running():  # not uvicorn's lifespan, which hides its errors
            await self._server.serve([bound])

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
