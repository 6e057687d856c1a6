"""A client's two bodies, and what they await: httpx in a loop, or in the caller's thread.

As in `wick_graph.drive` the body is one `async def`; with the leaves that block it never suspends,
and `run_to_end` drives it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import httpx

from wick_graph.client import wire
from wick_graph.client.wire import Call, Following
from wick_graph.errors import ServerError
from wick_graph.events import Event

T = TypeVar("T")
_TIMEOUT: Final = httpx.Timeout(10.0, read=None)
"""A run may take long; what is reached must be reached at once."""
_SILENT: Final = 60.0
"""Seconds without a line, or a server's ping, after which a stream counts as broken."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer whose body is still to come."""

    status: int
    headers: Mapping[str, str]
    lines: AsyncIterator[str]


class Leaves(Protocol):
    """What a body may await."""

    async def ask(self, call: Call[Any]) -> tuple[int, str]:
        """Make a request; return the answer's status and text."""

    def open(self, call: Call[Any]) -> AbstractAsyncContextManager[Opened]:
        """Make a request whose answer is read line by line."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


async def ask(leaves: Leaves, call: Call[T]) -> T:
    """Make a request, and read its answer.

    Raises:
        ServerError: The server refused it, or cannot be reached.
    """
    try:
        status, text = await leaves.ask(call)
    except httpx.HTTPError as error:
        raise ServerError(f"the server cannot be reached: {error}") from error
    return call.read(wire.checked(status, text))


async def follow(leaves: Leaves, call: Call[Event], reconnect_for: float) -> AsyncIterator[Event]:
    """Yield a run's events to the last one, over as many connections as that takes.

    Raises:
        ServerError: The server refused it, or the stream broke and cannot be taken up.
    """
    following = Following(call, reconnect_for)
    while not following.ended:
        problem: Exception | None = None
        try:
            async with leaves.open(following.call) as opened:
                if following.opened(opened.status, opened.headers):
                    lines = following.lines()
                    next(lines)
                    async for line in opened.lines:
                        if (event := lines.send(line)) is not None:
                            yield event
                else:
                    following.refused(opened.status, "\n".join([x async for x in opened.lines]))
        except (httpx.HTTPError, ConnectionError) as error:
            problem = error
        if not following.ended:
            await leaves.sleep(following.pause(problem))


def settings(url: str, token: str | None) -> dict[str, Any]:
    """Make what both of httpx's clients are given."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    address = wire.base_of(url)
    return {"base_url": address, "headers": headers, "timeout": _TIMEOUT, "trust_env": False}


def _stream_timeout() -> httpx.Timeout:
    return httpx.Timeout(_TIMEOUT.connect, read=_SILENT)


class Blocking:
    """Leaves that block and never suspend."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def ask(self, call: Call[Any]) -> tuple[int, str]:
        """Make a request; return the answer's status and text."""
        got = self._http.request(call.method, call.path, **call.sent())
        return got.status_code, got.text

    @asynccontextmanager
    async def open(self, call: Call[Any]) -> AsyncIterator[Opened]:
        """Make a request whose answer is read line by line."""
        with self._http.stream(
            call.method, call.path, timeout=_stream_timeout(), **call.sent()
        ) as got:

            async def lines() -> AsyncIterator[str]:
                for line in got.iter_lines():
                    yield line

            yield Opened(got.status_code, got.headers, lines())

    async def sleep(self, seconds: float) -> None:
        """Wait in the caller's thread."""
        time.sleep(seconds)  # noqa: ASYNC251  # this driver has no loop to hold up


class Suspending:
    """Leaves that let the loop go on meanwhile."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, call: Call[Any]) -> tuple[int, str]:
        """Make a request; return the answer's status and text."""
        got = await self._http.request(call.method, call.path, **call.sent())
        return got.status_code, got.text

    @asynccontextmanager
    async def open(self, call: Call[Any]) -> AsyncIterator[Opened]:
        """Make a request whose answer is read line by line."""
        async with self._http.stream(
            call.method, call.path, timeout=_stream_timeout(), **call.sent()
        ) as got:
            yield Opened(got.status_code, got.headers, got.aiter_lines())

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
