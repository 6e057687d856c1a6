"""The two clients: the same calls, one waits in its thread, the other in a loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

import httpx

from wick_graph.client import wire
from wick_graph.client.wire import UNSET, Answer, Call, Following, Input
from wick_graph.errors import ServerError
from wick_graph.events import Event

_TIMEOUT: Final = httpx.Timeout(10.0, read=None)
"""A run may take long; what is reached must be reached at once."""


def _invoke(given: Input, agent: str | None, thread_id: str | None, key: str | None) -> Call:
    body = wire.asked(given, thread_id)
    headers = wire.key_header(key)
    path = wire.agent_path(agent, "invoke")
    return Call("POST", path, body, headers=headers, read=wire.answer_of)


def _stream(
    given: Input, agent: str | None, thread_id: str | None, key: str | None, how: str | None
) -> Call:
    body = wire.asked(given, thread_id, how)
    return Call("POST", wire.agent_path(agent, "stream"), body, headers=wire.key_header(key))


def _resume(thread_id: str, answer: Any, key: str | None, *, stream: bool) -> Call:
    body = wire.resumed(thread_id, answer, stream=stream)
    read = (lambda value: value) if stream else wire.answer_of
    return Call("POST", "/agents/resume", body, headers=wire.key_header(key), read=read)


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class Client:
    """Talk to a server; safe to share between threads.

    Args:
        url: The server's address.
        token: From `wick token create`.
        reconnect_for: Seconds for which a broken stream is taken up again.
    """

    def __init__(self, url: str, token: str | None = None, *, reconnect_for: float = 60.0) -> None:
        self._http = httpx.Client(
            base_url=wire.base_of(url), headers=_headers(token), timeout=_TIMEOUT, trust_env=False
        )
        self._reconnect_for = reconnect_for

    def call(self, call: Call) -> Any:
        """Make any request, and read its answer.

        Raises:
            ServerError: The server refused it, or cannot be reached.
        """
        try:
            got = self._http.request(
                call.method, call.path, json=call.body, params=call.params, headers=call.headers
            )
        except httpx.HTTPError as error:
            raise ServerError(f"the server cannot be reached: {error}") from error
        return call.read(wire.checked(got.status_code, got.text))

    def get(self, path: str, **params: Any) -> Any:
        """Read a path of the server's, such as `/threads`."""
        return self.call(Call("GET", path, params=params))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Write to a path of the server's, such as `/threads/ID/pin`."""
        return self.call(Call("POST", path, body))

    def delete(self, path: str) -> None:
        """Delete what a path of the server's names."""
        self.call(Call("DELETE", path))

    def invoke(
        self,
        input: Input,
        *,
        agent: str | None = None,
        thread_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Ask an agent and wait for the answer.

        Raises:
            ServerError: The request was refused, or the run failed.
        """
        answer: Answer = self.call(_invoke(input, agent, thread_id, idempotency_key))
        return answer

    def resume(
        self, thread_id: str, answer: Any = UNSET, *, idempotency_key: str | None = None
    ) -> Answer:
        """Go on where a thread stands, with the answer that it waits for."""
        got: Answer = self.call(_resume(thread_id, answer, idempotency_key, stream=False))
        return got

    def stream(
        self,
        input: Input,
        *,
        agent: str | None = None,
        thread_id: str | None = None,
        idempotency_key: str | None = None,
        on_disconnect: str | None = None,
    ) -> Iterator[Event]:
        """Ask an agent and yield what happens; the last event is `Done` or `Failed`.

        Raises:
            ServerError: The request was refused, or the stream broke and cannot be taken up.
        """
        call = _stream(input, agent, thread_id, idempotency_key, on_disconnect)
        return self._follow(call)

    def stream_resume(
        self, thread_id: str, answer: Any = UNSET, *, idempotency_key: str | None = None
    ) -> Iterator[Event]:
        """Go on where a thread stands, and yield what happens."""
        return self._follow(_resume(thread_id, answer, idempotency_key, stream=True))

    def events(self, run_id: str, *, after: int | None = None) -> Iterator[Event]:
        """Follow a run from its beginning, or from behind an event's number."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        return self._follow(Call("GET", f"/runs/{run_id}/events", headers=headers))

    def _follow(self, call: Call) -> Iterator[Event]:
        following = Following(call, self._reconnect_for)
        while not following.ended:
            problem: Exception | None = None
            try:
                yield from self._connection(following)
            except (httpx.HTTPError, ConnectionError) as error:
                problem = error
            if not following.ended:
                time.sleep(following.pause(problem))

    def _connection(self, following: Following) -> Iterator[Event]:
        call, lines = following.call, following.lines()
        next(lines)
        with self._http.stream(call.method, call.path, json=call.body, headers=call.headers) as got:
            if got.status_code >= 400:
                got.read()
                wire.refuse_stream(got.status_code, got.text)
                return
            following.opened(got.headers)
            for line in got.iter_lines():
                event = lines.send(line)
                if event is not None:
                    yield event

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient:
    """Talk to a server from a loop; see `Client`."""

    def __init__(self, url: str, token: str | None = None, *, reconnect_for: float = 60.0) -> None:
        self._http = httpx.AsyncClient(
            base_url=wire.base_of(url),
            headers=_headers(token),
            timeout=_TIMEOUT,
            trust_env=False,
            limits=httpx.Limits(max_connections=None),
        )
        self._reconnect_for = reconnect_for

    async def call(self, call: Call) -> Any:
        """Make any request, and read its answer.

        Raises:
            ServerError: The server refused it, or cannot be reached.
        """
        try:
            got = await self._http.request(
                call.method, call.path, json=call.body, params=call.params, headers=call.headers
            )
        except httpx.HTTPError as error:
            raise ServerError(f"the server cannot be reached: {error}") from error
        return call.read(wire.checked(got.status_code, got.text))

    async def get(self, path: str, **params: Any) -> Any:
        """Read a path of the server's, such as `/threads`."""
        return await self.call(Call("GET", path, params=params))

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Write to a path of the server's, such as `/threads/ID/pin`."""
        return await self.call(Call("POST", path, body))

    async def delete(self, path: str) -> None:
        """Delete what a path of the server's names."""
        await self.call(Call("DELETE", path))

    async def invoke(
        self,
        input: Input,
        *,
        agent: str | None = None,
        thread_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Ask an agent and wait for the answer; see `Client.invoke`."""
        answer: Answer = await self.call(_invoke(input, agent, thread_id, idempotency_key))
        return answer

    async def resume(
        self, thread_id: str, answer: Any = UNSET, *, idempotency_key: str | None = None
    ) -> Answer:
        """Go on where a thread stands, with the answer that it waits for."""
        got: Answer = await self.call(_resume(thread_id, answer, idempotency_key, stream=False))
        return got

    def stream(
        self,
        input: Input,
        *,
        agent: str | None = None,
        thread_id: str | None = None,
        idempotency_key: str | None = None,
        on_disconnect: str | None = None,
    ) -> AsyncIterator[Event]:
        """Ask an agent and yield what happens; see `Client.stream`."""
        call = _stream(input, agent, thread_id, idempotency_key, on_disconnect)
        return self._follow(call)

    def stream_resume(
        self, thread_id: str, answer: Any = UNSET, *, idempotency_key: str | None = None
    ) -> AsyncIterator[Event]:
        """Go on where a thread stands, and yield what happens."""
        return self._follow(_resume(thread_id, answer, idempotency_key, stream=True))

    def events(self, run_id: str, *, after: int | None = None) -> AsyncIterator[Event]:
        """Follow a run from its beginning, or from behind an event's number."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        return self._follow(Call("GET", f"/runs/{run_id}/events", headers=headers))

    async def _follow(self, call: Call) -> AsyncIterator[Event]:
        following = Following(call, self._reconnect_for)
        while not following.ended:
            problem: Exception | None = None
            try:
                async for event in self._connection(following):
                    yield event
            except (httpx.HTTPError, ConnectionError) as error:
                problem = error
            if not following.ended:
                await asyncio.sleep(following.pause(problem))

    async def _connection(self, following: Following) -> AsyncIterator[Event]:
        call, lines = following.call, following.lines()
        next(lines)
        async with self._http.stream(
            call.method, call.path, json=call.body, headers=call.headers
        ) as got:
            if got.status_code >= 400:
                await got.aread()
                wire.refuse_stream(got.status_code, got.text)
                return
            following.opened(got.headers)
            async for line in got.aiter_lines():
                event = lines.send(line)
                if event is not None:
                    yield event

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
