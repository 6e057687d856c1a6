"""The two clients, thin wrappers of the calls in `wick_graph.client.wire`."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

import httpx

from wick_graph.client import wire
from wick_graph.client.wire import Call
from wick_graph.core.bridge import run_to_end
from wick_graph.events import Event

P = ParamSpec("P")

T = TypeVar("T")

_END: Final = object()


def _asks(make: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(make)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(make(*args, **kwargs))

    return method


def _follows(make: Callable[P, Call[Event]]) -> Callable[Concatenate[Client, P], Iterator[Event]]:
    @functools.wraps(make)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[Event]:
        return self.follow(make(*args, **kwargs))

    return method


def _aasks(make: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    @functools.wraps(make)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(make(*args, **kwargs))

    return method


def _afollows(
    make: Callable[P, Call[Event]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[Event]]:
    @functools.wraps(make)
    def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Event]:
        return self.follow(make(*args, **kwargs))

    return method


class Client:
    """A client of a server; safe to share between threads.

    Args:
        url: The server's address.
        token: A token from `wick token create`.
        reconnect_for: Seconds during which a broken stream tries to reconnect.
    """

    def __init__(self, url: str, token: str | None = None, *, reconnect_for: float = 60.0) -> None:
        self._http = httpx.Client(**wire.settings(url, token))
        self._transport = wire.BlockingTransport(self._http)
        self._reconnect_for = reconnect_for

    def call(self, call: Call[T]) -> T:
        """Send a request and return its parsed answer.

        Raises:
            ServerError: The server refused the request, or cannot be reached.
        """
        return run_to_end(wire.ask(self._transport, call))

    def follow(self, call: Call[Event]) -> Iterator[Event]:
        """Send a request for a stream and yield its events.

        Raises:
            ServerError: The server refused the request, or a broken stream cannot reconnect.
        """
        events: Any = wire.follow(self._transport, call, self._reconnect_for)

        async def step() -> Any:
            return await anext(events, _END)

        async def close() -> None:
            await events.aclose()

        try:
            while (event := run_to_end(step())) is not _END:
                yield cast("Event", event)
        finally:
            run_to_end(close())

    get = _asks(wire.get)
    post = _asks(wire.post)
    delete = _asks(wire.delete)
    invoke = _asks(wire.invoke)
    resume = _asks(wire.resume)
    stream = _follows(wire.stream)
    stream_resume = _follows(wire.stream_resume)
    events = _follows(wire.events)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClient:
    """An asynchronous client of a server; see `Client`."""

    def __init__(self, url: str, token: str | None = None, *, reconnect_for: float = 60.0) -> None:
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(**wire.settings(url, token), limits=limits)
        self._transport = wire.AsyncTransport(self._http)
        self._reconnect_for = reconnect_for

    async def call(self, call: Call[T]) -> T:
        """Send a request and return its parsed answer; see `Client.call`."""
        return await wire.ask(self._transport, call)

    async def follow(self, call: Call[Event]) -> AsyncIterator[Event]:
        """Send a request for a stream and yield its events; see `Client.follow`."""
        followed: Any = wire.follow(self._transport, call, self._reconnect_for)
        async with aclosing(followed) as events:
            async for event in events:
                yield event

    get = _aasks(wire.get)
    post = _aasks(wire.post)
    delete = _aasks(wire.delete)
    invoke = _aasks(wire.invoke)
    resume = _aasks(wire.resume)
    stream = _afollows(wire.stream)
    stream_resume = _afollows(wire.stream_resume)
    events = _afollows(wire.events)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
