"""One connection to an MCP server: a task that holds it open while it is used and alive."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from wick_graph.errors import ConfigError

if TYPE_CHECKING:
    from mcp import Client

T = TypeVar("T")

CONNECT_SECONDS: Final = 30.0
"""For a server to start and to say what it can."""
MISSING: Final = 'mcp_servers needs the MCP SDK; pip install "wick-graph[mcp]"'


@dataclass(frozen=True, slots=True)
class Target:
    """Where an MCP server is: a command to start, or an address."""

    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Given to the command beside the few harmless variables that it inherits."""
    cwd: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent to the address with each request."""
    check: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    """Called before each start of the command; what it raises keeps it from starting."""


class Ends(asyncio.Event):
    """Is set once a connection is over, or is to be."""

    why: str = ""
    """What the server did, if it was that."""

    def because(self, why: str) -> None:
        """Set it, for a reason."""
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

    @property
    def alive(self) -> bool:
        """Whether the server is there, as far as is known."""
        return not self._ends.is_set() and not self._owner.done()

    @property
    def opened(self) -> bool:
        """Whether the server has been reached."""
        return self._ready.done()

    async def use(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Do something with the client; the connection is not idle meanwhile.

        Raises:
            Exception: What connecting or the call raised.
        """
        self._calls += 1
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                client = await asyncio.shield(self._ready)
            return await call(client)
        finally:
            self._calls -= 1
            self._used = time.monotonic()

    @property
    def why(self) -> str:
        """What the server did that ended the connection; empty if it did nothing known."""
        return self._ends.why

    def end(self) -> None:
        """Let the connection go; a call under way fails."""
        self._ends.set()
        if not self._ready.done():  # it hangs before there is anything to hold open
            self._owner.cancel()

    async def ended(self) -> None:
        """Wait until the server is gone."""
        await asyncio.wait([self._owner])

    async def _own(self) -> None:
        """Open, hold and close the connection, all in one task, as its cancel scopes demand."""
        try:
            if self._target.check is not None:  # it may read many files
                await asyncio.to_thread(self._target.check)
            async with _client(self._target, self._ends) as client:
                self._ready.set_result(client)
                await self._while_used()
        except BaseException as error:  # whoever waits for the connection is told
            if not self._ready.done():
                self._ready.set_exception(error)
                self._ready.exception()  # it may be that nobody waits
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._ends.set()

    async def _while_used(self) -> None:
        while not self._ends.is_set():
            spare = None if self._idle is None else self._used + self._idle - time.monotonic()
            if spare is not None and spare <= 0:
                if not self._calls:
                    self._ends.set()  # before it closes: a call that comes now takes a new one
                    return
                spare = self._idle
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ends.wait(), spare)


def _client(target: Target, ends: Ends) -> AbstractAsyncContextManager[Client]:
    try:
        from wick_graph.mcp import transport  # noqa: PLC0415  # the SDK is an optional extra
    except ImportError:
        raise ConfigError(MISSING) from None
    return transport.connect(target, ends)
