"""Tools of MCP servers: programs on this machine, and servers behind HTTP."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from langchain_core.messages import ToolMessage

from wick_graph.core.bridge import ENGINE_LOOP
from wick_graph.errors import ConfigError, ToolError, missing_extra
from wick_graph.machine import at_fork, end_group
from wick_graph.tools.arguments import check_foreign
from wick_graph.tools.bound import BoundTool, bind_tool
from wick_graph.tools.protocol import ToolContext
from wick_graph.types import Replay

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool


# --- A remote tool's schema, without parts that could hang the check of arguments.


_NAMED: Final = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})

_LITERAL: Final = frozenset({"enum", "const", "default", "examples"})

_LEFT_OUT: Final = frozenset({"pattern", "patternProperties", "$id", "id", "$schema"})


def plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without its regular expressions, which the server checks itself.

    Raises:
        ConfigError: It has external or circular references, or is too large.
    """
    made: dict[str, Any] = _without(schema)
    check_foreign(made)
    return made


def _without(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            out[key] = {name: _without(item) for name, item in value.items()}
        elif key in _LITERAL:
            out[key] = value
        elif key not in _LEFT_OUT:
            out[key] = _without(value)
    return out


# --- An MCP server's answer as a tool's result.


def reply_of(answer: CallToolResult, call_id: str) -> Any:
    """Return the joined texts of an answer, or blocks if it has images.

    Raises:
        ToolError: The answer says that the call failed.
    """
    blocks = [_block(item) for item in answer.content]
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    if answer.is_error:
        raise ToolError(text or "the tool failed and did not say why")
    if all(block["type"] == "text" for block in blocks):
        return text if blocks else answer.structured_content
    return ToolMessage(content=cast(Any, blocks), tool_call_id=call_id)


def _block(item: Any) -> dict[str, Any]:
    if item.type == "text":
        return {"type": "text", "text": item.text}
    if item.type == "image":
        return {"type": "image", "base64": item.data, "mime_type": item.mime_type}
    if item.type == "resource" and getattr(item.resource, "text", None) is not None:
        return {"type": "text", "text": item.resource.text}
    if item.type == "resource_link":
        return {"type": "text", "text": f"{item.name}: {item.uri}"}
    return {"type": "text", "text": f"[{item.type} that cannot be shown]"}


# --- One connection to an MCP server, held open by a task while it is used and alive.


T = TypeVar("T")

CONNECT_SECONDS: Final = 30.0
"""Seconds for a server to start and initialise."""

EXIT_SECONDS: Final = 10.0
"""Seconds that the process waits at its end for its programs to end."""

BUSY_SECONDS: Final = 1.0
"""Seconds that it waits for a busy loop, and then for programs that were told to leave."""

ENDED: Final = "it was ended before it answered"

MISSING: Final = missing_extra("mcp_servers", "the MCP SDK", "mcp")


@dataclass(frozen=True, slots=True)
class Target:
    """An MCP server's command or URL."""

    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment of the command, besides the few harmless variables that it inherits."""
    cwd: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of each request to the URL."""
    check: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    """Called before each start of the command; an exception prevents the start."""


class Ends(asyncio.Event):
    """Set when a connection has ended or must end."""

    why: str = ""
    """What the server did to end it, if anything."""

    def because(self, why: str) -> None:
        """Set the event with a reason."""
        self.why = self.why or why
        self.set()


class Connection:
    """A live connection; everything here happens on one event loop."""

    def __init__(self, target: Target, idle: float | None) -> None:
        self._target = target
        self._idle = idle
        self._used = time.monotonic()
        self._calls = 0
        self._ends = Ends()
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Client] = loop.create_future()
        self._owner = asyncio.create_task(self._own())
        if target.command:
            PROGRAMS.connections.add(self)
            self._owner.add_done_callback(lambda _: PROGRAMS.connections.discard(self))

    @property
    def alive(self) -> bool:
        """Whether the server is alive, as far as is known."""
        return not self._ends.is_set() and not self._owner.done()

    @property
    def opened(self) -> bool:
        """Whether the server has been reached."""
        return self._ready.done() and self._ready.exception() is None

    async def use(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Call a function with the client; the connection is not idle meanwhile.

        Raises:
            Exception: From connecting or from the call.
        """
        self._calls += 1
        try:
            return await call(await self._reached())
        finally:
            self._calls -= 1
            self._used = time.monotonic()

    async def _reached(self) -> Client:
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as limit:
                return await asyncio.shield(self._ready)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ToolError(f"it did not start within {CONNECT_SECONDS:g} s") from None

    @property
    def why(self) -> str:
        """What the server did to end the connection; empty if nothing is known."""
        return self._ends.why

    def end(self) -> None:
        """End the connection; a running call fails."""
        self._ends.set()
        # It hangs before the connection is open; a second time would stop the end of its program.
        if not self._ready.done() and not self._owner.cancelling():
            self._owner.cancel()

    async def close(self) -> None:
        """End the connection, and wait until it has closed."""
        self.end()
        await asyncio.wait([self._owner])

    async def _own(self) -> None:
        """Open, hold and close the connection in one task, as its cancel scopes require."""
        try:
            if self._target.check is not None:  # it may read many files
                await asyncio.to_thread(self._target.check)
            async with _client(self._target, self._ends) as client:
                self._ready.set_result(client)
                await self._while_used()
        except BaseException as error:  # passed on to the waiters
            cancelled = isinstance(error, asyncio.CancelledError)
            if not self._ready.done():
                # Its cancellation is none of theirs: their run would seem to be cancelled.
                self._ready.set_exception(ToolError(ENDED) if cancelled else error)
                self._ready.exception()  # there may be no waiter
            if cancelled:
                raise
        finally:
            self._ends.set()

    async def _while_used(self) -> None:
        while not self._ends.is_set():
            spare = None if self._idle is None else self._used + self._idle - time.monotonic()
            if spare is not None and spare <= 0:
                if not self._calls:
                    self._ends.set()  # before it closes: a call from now on opens a new one
                    return
                spare = self._idle
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ends.wait(), spare)


class Programs:
    """The programs that this process has started, which end with it.

    One that hangs would not notice that its input is closed.
    """

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self.groups: set[int] = set()
        """The process groups of those that run."""
        self.ending = False

    def forget(self) -> None:
        """Leave them to the parent: this process is a fork."""
        self.connections.clear()
        self.groups.clear()
        self.ending = False

    @staticmethod
    @cache
    def watch() -> None:
        """End them when this process ends."""
        atexit.register(PROGRAMS.end)

    def end(self) -> None:
        """Let each end as `McpServer.close` does, and kill those that a hung loop cannot reach."""
        begun = threading.Event()

        async def close() -> None:
            begun.set()
            self.ending = True  # from now on none is started
            while self.connections:
                await asyncio.gather(*(one.close() for one in self.connections))

        with suppress(KeyboardInterrupt):
            with suppress(TimeoutError):
                if ENGINE_LOOP.is_made:
                    done = ENGINE_LOOP.submit(close())
                    if begun.wait(BUSY_SECONDS):
                        done.result(EXIT_SECONDS)
            self._signal(at_once=False)
            if self.groups:
                time.sleep(BUSY_SECONDS)
        self._signal(at_once=True)

    def _signal(self, *, at_once: bool) -> None:
        for group in [*self.groups]:
            end_group(group, at_once=at_once)


PROGRAMS: Final = Programs()

at_fork(after_in_child=PROGRAMS.forget)


def _client(target: Target, ends: Ends) -> AbstractAsyncContextManager[Client]:
    try:
        from wick_graph.tools import mcp_transport  # noqa: PLC0415  # the SDK is an optional extra
    except ImportError:
        raise ConfigError(MISSING) from None
    return mcp_transport.connect(target, ends)


# --- An MCP server as a source of tools: connected when needed, reconnected after its death.


CALL_SECONDS: Final = 60.0

IDLE_SECONDS: Final = 300.0

MARGIN_SECONDS: Final = 5.0
"""Seconds by which the server's deadline, with the better error, precedes the tool's."""

LIST_SECONDS: Final = 15.0
"""Seconds that a new agent waits for a server's tools."""

AGAIN_SECONDS: Final = 30.0
"""Seconds until a failed request for a server's tools is repeated."""

MAX_LIST_BYTES: Final = 4 * 2**20
"""Bytes of the descriptions of all tools."""

FORGOTTEN: Final = "it knows the session no more"
"""Why a session behind HTTP has ended: its server was started again, or has dropped it."""

_NO_ANSWER: Final = frozenset({-32000, -32700})
"""The SDK's codes of a server that is gone, and of an answer that cannot be read."""

_LOG: Final = logging.getLogger(__name__)


class _Forgotten(Exception):
    """The server has refused a call as of a session that it does not know."""


class McpServer:
    """One session with an MCP server, shared by all users of its tools on any thread and loop.

    The first use opens the session. It closes after `idle` seconds without use, and the next call
    reopens it, also after the server's death. A call that is running when the server dies fails; it
    is never sent twice.

    A server that cannot be reached, hangs or breaks the protocol has no tools until it answers
    again; its agents work without them.

    Args:
        name: Prefix of each tool's name: `name_tool`.
        target: The server's command or URL.
        timeout: Seconds for one call.
        idle: Seconds; None keeps the session until `close`.
        only: Names of the server's tools to use; all by default.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        *,
        timeout: float = CALL_SECONDS,
        idle: float | None = IDLE_SECONDS,
        only: tuple[str, ...] = (),
    ) -> None:
        if target.command:
            PROGRAMS.watch()
        self.name: Final = name
        self.timeout = timeout
        self._target = target
        self._idle = idle
        self._only = only
        self._live: Connection | None = None
        self._pid = os.getpid()
        self._tools: tuple[BoundTool, ...] | None = None
        self._asking = threading.Lock()
        self._listing: Future[tuple[BoundTool, ...]] | None = None
        self._again = 0.0
        """When to repeat a failed request for the tools."""

    @property
    def connected(self) -> bool:
        """Whether a session is open, as far as is known."""
        return self._live is not None and self._live.alive

    def tools(self, wait: float | None = None) -> tuple[BoundTool, ...]:
        """Return the server's tools; ask for them once, and return none until it answers.

        Args:
            wait: Seconds to wait for the answer; a default if None.

        Raises:
            ConfigError: It lacks a tool in `only`, or the SDK is missing.
        """
        if self._tools is not None:
            return self._tools
        listing = self._asked()
        if listing is None:
            return ()
        try:
            seconds = LIST_SECONDS if wait is None else wait
            self._tools = listing.result(0 if ENGINE_LOOP.is_here() else seconds)
        except TimeoutError:
            _LOG.warning("the MCP server %s has not answered yet; its tools are missing", self.name)
            return ()
        except (ToolError, ConfigError) as error:
            with self._asking:
                self._listing, self._again = None, time.monotonic() + AGAIN_SECONDS
            if isinstance(error, ConfigError):
                raise
            _LOG.warning("the tools of %s are missing: %s", self.name, error)
            return ()
        return self._tools

    def known(self) -> tuple[BoundTool, ...]:
        """Return the tools known now; ask a server that was not asked yet."""
        if self._tools is not None:
            return self._tools
        listing = self._asked()
        try:
            return () if listing is None or not listing.done() else self.tools()
        except ConfigError as error:  # it was correct when the agent was built
            _LOG.warning("%s", error)
            return ()

    def _asked(self) -> Future[tuple[BoundTool, ...]] | None:
        """Request the tools, unless a request is running or has just failed."""
        with self._asking:
            if self._listing is not None and self._pid != os.getpid():
                self._listing = None  # its loop does not exist in this process
            if self._listing is None and time.monotonic() >= self._again:
                self._listing = ENGINE_LOOP.submit(self._listed())
            return self._listing

    async def call(self, tool: str, args: dict[str, Any], call_id: str) -> Any:
        """Call one of the server's tools.

        Raises:
            ToolError: The call failed or timed out, or the server died.
        """
        sending = self._use(lambda client: client.call_tool(tool, args))
        made = await asyncio.wrap_future(ENGINE_LOOP.submit(sending))
        return reply_of(made, call_id)

    def close(self) -> None:
        """End the session and, if the server is a local program, the server."""
        if self._live is not None and self._pid == os.getpid() and not ENGINE_LOOP.is_here():
            with suppress(TimeoutError):
                ENGINE_LOOP.submit(self._live.close()).result(EXIT_SECONDS)
        self._live = None

    async def _use(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Use the session on the engine's loop; drop it if it no longer works."""
        with suppress(_Forgotten):  # the server has not taken the call
            return await self._used(self._session(), call)
        try:
            return await self._used(self._session(), call)
        except _Forgotten as error:
            raise ToolError(str(error)) from None

    def _session(self) -> Connection:
        if self._live is None or not self._live.alive or self._pid != os.getpid():
            if PROGRAMS.ending:
                raise ToolError(f"the MCP server {self.name} is not started as the process ends")
            self._live, self._pid = Connection(self._target, self._idle), os.getpid()
        return self._live

    async def _used(self, live: Connection, call: Callable[[Client], Awaitable[T]]) -> T:
        seconds = self.timeout
        try:
            async with asyncio.timeout(seconds) as limit:
                return await live.use(call)
        except ConfigError:
            raise
        except Exception as error:
            if limit.expired():
                if not live.opened:
                    live.end()
                raise ToolError(
                    f"the MCP server {self.name} did not answer within {seconds:g} s"
                ) from None
            if _is_refusal(error):
                text = f"the MCP server {self.name} refused: {error}"
                if live.why == FORGOTTEN:
                    live.end()
                    raise _Forgotten(text) from None
                raise ToolError(text) from None
            live.end()
            text = live.why or _said(error)
            if not live.opened:
                raise ToolError(
                    f"the MCP server {self.name} cannot be used ({text}); the next call tries again"
                ) from error
            raise ToolError(
                f"the MCP server {self.name} is gone ({text}); the call may or may not have had "
                "its effect, and the next one starts the server again"
            ) from error

    async def _listed(self) -> tuple[BoundTool, ...]:
        found = await self._use(_all_tools)
        missing = set(self._only) - {tool.name for tool in found}
        if missing:
            known = ", ".join(tool.name for tool in found)
            raise ConfigError(f"the MCP server {self.name} has no {min(missing)}; it has {known}")
        made: list[BoundTool] = []
        for tool in found:
            if self._only and tool.name not in self._only:
                continue
            try:
                made.append(bind_tool(McpTool(self, tool)))
            except ConfigError as error:
                _LOG.warning("%s of the MCP server %s is ignored: %s", tool.name, self.name, error)
        return tuple(made)


def _is_refusal(error: Exception) -> bool:
    """Return whether a live server answers with an error, of JSON-RPC's codes or its own."""
    code = getattr(error, "code", None)
    return isinstance(code, int) and code not in _NO_ANSWER


class McpTool:
    """One tool of an MCP server."""

    def __init__(self, server: McpServer, tool: Tool) -> None:
        self._server: Final = server
        self._tool: Final = tool.name
        self.name: Final = f"{server.name}_{tool.name}"
        self.description: Final = tool.description or tool.title or f"{tool.name} of {server.name}"
        self.parameters: Final = plain(tool.input_schema)
        hints = tool.annotations
        harmless = hints is not None and (hints.read_only_hint or hints.idempotent_hint)
        self.replay: Final[Replay] = "safe" if harmless else "never"
        self.timeout: Final = server.timeout + MARGIN_SECONDS

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        """Call the tool.

        Raises:
            ToolError: The call failed or timed out, or the server died.
        """
        return await self._server.call(self._tool, args, ctx.call_id)


def _said(error: BaseException) -> str:
    """Return an error's text; the first one's for a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ToolError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def _all_tools(client: Client) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    size = 0
    for _ in range(100):  # pages; the limit stops a server that never ends
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        size += sum(len(tool.model_dump_json()) for tool in page.tools)
        if size > MAX_LIST_BYTES:
            raise ToolError(f"its tools take more than {MAX_LIST_BYTES // 2**20} MiB to describe")
        cursor = page.next_cursor
        if not cursor:
            break
    return found
