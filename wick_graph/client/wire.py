"""The wire protocol of the client: requests, answers, streams, and two transports."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

import httpx

from wick_graph.errors import ConfigError, ServerError
from wick_graph.events import (
    ChatModelEnd,
    ChatModelRetry,
    ChatModelStart,
    ChatModelStream,
    Done,
    Event,
    Failed,
    Interrupted,
    OutputDelta,
    SubagentEvent,
    ToolEnd,
    ToolStart,
)
from wick_graph.types import StoppedBecause

# --- Requests, answers and streams, without the transport.


T_co = TypeVar("T_co", covariant=True)

Input = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]

UNSET: Final = object()

_NOT_NOW: Final = frozenset({429, 502, 503, 504})
"""Refusals that pass: of the server, or of a proxy while it restarts."""

_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each attempt to reconnect; the last one repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a run on the server."""

    text: str
    thread_id: str
    run_id: str
    stopped_because: StoppedBecause
    tool_calls: list[dict[str, Any]]
    todos: list[dict[str, Any]]
    files: dict[str, Any]
    interrupts: list[dict[str, Any]]
    output: Any
    """What an agent gave in place of a text, as data; None if it gave a text."""
    raw: dict[str, Any] = field(repr=False)
    """The whole answer."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """A request to send, and how to read its answer."""

    method: str
    path: str
    body: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[Any], T_co] = lambda value: value

    def sent(self) -> dict[str, Any]:
        """Return the request's arguments, by httpx's names."""
        return {"json": self.body, "params": self.params, "headers": self.headers}


def answer_of(body: Mapping[str, Any]) -> Answer:
    """Read the result of a run."""
    return Answer(
        text=body["response"],
        thread_id=body["thread_id"],
        run_id=body["run_id"],
        stopped_because=body["stopped_because"],
        tool_calls=body["tool_calls"],
        todos=body["todos"],
        files=body["files"],
        interrupts=body["interrupts"],
        output=body.get("structured_response"),
        raw=dict(body),
    )


def run_body(
    given: Input,
    thread_id: str | None,
    context: Mapping[str, Any] | None = None,
    on_disconnect: str | None = None,
    output_schema: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build the body of a request to an agent."""
    if isinstance(given, str):
        messages: list[Any] = [{"role": "user", "content": given}]
    elif isinstance(given, Mapping):
        messages = [dict(given)]
    else:
        messages = [dict(message) for message in given]
    body: dict[str, Any] = {"messages": messages}
    if thread_id is not None:
        body["thread_id"] = thread_id
    if context is not None:
        body["context"] = dict(context)
    if on_disconnect is not None:
        body["on_disconnect"] = on_disconnect
    if output_schema is not None:
        body["output_schema"] = dict(output_schema)
    return body


def agent_path(agent: str | None, verb: str) -> str:
    """Return the path of an action of an agent."""
    return f"/agents/{verb}" if agent is None else f"/agents/{quote(agent, safe='')}/{verb}"


def resume_body(
    thread_id: str, answer: Any, context: Mapping[str, Any] | None, **more: Any
) -> dict[str, Any]:
    """Build the body of a request to resume."""
    body: dict[str, Any] = {"thread_id": thread_id, **more}
    if context is not None:
        body["context"] = dict(context)
    return body if answer is UNSET else {**body, "answer": answer}


def key_header(key: str | None) -> dict[str, str]:
    """Build the header of an idempotency key."""
    return {} if key is None else {"Idempotency-Key": key}


def checked(status: int, text: str) -> Any:
    """Read an answer's JSON.

    Raises:
        ServerError: The server refused the request.
    """
    try:
        body = json.loads(text) if text else None
    except ValueError:
        body = None
    if status < 400:
        return body
    said = body.get("error") if isinstance(body, dict) else None
    said = said.get("message") if isinstance(said, dict) else said  # in OpenAI's format
    raise ServerError(said or f"the server answered with {status}", status, body or {})


class Following:
    """A run's stream over several connections: what was seen, and where to continue."""

    def __init__(self, first: Call[Event], reconnect_for: float) -> None:
        self.call = first
        self._patience = reconnect_for
        self._last: int | None = None
        self._run_id: str | None = None
        self._lost_since: float | None = None
        self._tries = 0
        self._refusal: tuple[int, str] | None = None
        self.ended = False

    def opened(self, status: int, headers: Mapping[str, str]) -> bool:
        """Note the head of an answer; return False if the request was refused."""
        self._run_id = headers.get("x-run-id", self._run_id)
        self._refusal = None
        return status < 400

    def refused(self, status: int, text: str) -> None:
        """Read a refusal; for a run that has begun it may be temporary, and is retried.

        Raises:
            ServerError: The refusal is final.
        """
        if status not in _NOT_NOW or self._run_id is None:
            checked(status, text)
        self._refusal = status, text

    def lines(self) -> Generator[Event | None, str, None]:
        """Receive lines by `send` and yield the event that a line completes."""
        event: Event | None = None
        number: int | None = None
        while True:
            line = yield event
            event, self._lost_since = None, None  # a ping shows that the server is alive
            name, _, value = line.partition(": ")
            try:
                if name == "id":
                    number = int(value)
                elif name == "data":
                    event = self._seen(number, json.loads(value))
                    number = None
            except _MALFORMED as error:
                kind = type(error).__name__
                raise ServerError(f"the server sent a malformed event ({kind})") from None

    def _seen(self, number: int | None, body: Mapping[str, Any]) -> Event | None:
        if number is not None:
            if self._last is not None and number <= self._last:
                return None
            self._last = number
        self._tries = 0
        if body["event"] == "gap":
            raise ServerError("events of this run are no longer kept; read the thread's state")
        event = event_of(body)
        self.ended = isinstance(event, Done | Failed)
        return event

    def pause(self, problem: Exception | None) -> float:
        """Return how long to wait before reconnecting.

        Raises:
            ServerError: The stream cannot reconnect, or has tried for too long.
        """
        now = time.monotonic()
        self._lost_since = self._lost_since or now
        if self._run_id is None or now - self._lost_since > self._patience:
            if problem is None and self._refusal is not None:
                checked(*self._refusal)
            raise ServerError(f"the stream broke off: {problem or 'it ended too early'}")
        headers = {} if self._last is None else {"Last-Event-ID": str(self._last)}
        self.call = Call("GET", f"/runs/{self._run_id}/events", headers=headers)
        self._tries += 1
        return _PAUSES[min(self._tries, len(_PAUSES)) - 1]


def event_of(body: Mapping[str, Any]) -> Event | None:
    """Read an event; None if this release does not know it."""
    make = _MAKERS.get(body["event"])
    if make is None:
        return None
    ids = {"run_id": body.get("run_id", ""), "thread_id": body.get("thread_id")}
    return make(body.get("name", ""), body.get("data", {}), ids)


_Made = Callable[[str, Mapping[str, Any], dict[str, Any]], Event]

_MAKERS: Final[dict[str, _Made]] = {
    "on_chat_model_start": lambda name, data, ids: ChatModelStart(name=name, **ids),
    "on_chat_model_stream": lambda name, data, ids: ChatModelStream(
        name=name,
        delta=data["delta"],
        reasoning=data.get("reasoning", ""),
        calls=tuple(data.get("calls", ())),
        message_id=data.get("message_id", ""),
        **ids,
    ),
    "on_chat_model_retry": lambda name, data, ids: ChatModelRetry(
        name=name, error=data["error"], delay=data["delay"], **ids
    ),
    "on_chat_model_end": lambda name, data, ids: ChatModelEnd(
        name=name,
        content=data["content"],
        tool_calls=tuple(data["tool_calls"]),
        usage=data["usage"],
        message_id=data.get("message_id", ""),
        **ids,
    ),
    "on_tool_start": lambda name, data, ids: ToolStart(name=name, args=data["args"], **ids),
    "on_tool_end": lambda name, data, ids: ToolEnd(
        name=name, output=data["output"], error=data.get("error"), **ids
    ),
    "on_output": lambda name, data, ids: OutputDelta(
        attempt=data["attempt"], output=data["output"], **ids
    ),
    "on_subagent": lambda name, data, ids: SubagentEvent(
        path=tuple(data["path"]), cause=data["cause"], inner=event_of(data["event"]), **ids
    ),
    "interrupt": lambda name, data, ids: Interrupted(
        interrupt_id=data["id"], value=data["value"], **ids
    ),
    "done": lambda name, data, ids: Done(
        stopped_because=data["stopped_because"],
        reason=data.get("reason", ""),
        duration_ms=data["total_duration_ms"],
        **ids,
    ),
    "error": lambda name, data, ids: Failed(
        error=data["error"], stopped_because=data.get("stopped_because", "failed"), **ids
    ),
}


def base_of(url: str) -> str:
    """Check a server's address.

    Raises:
        ConfigError: It is not an HTTP address.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url!r:.80} is not a server's address; begin it with http://")
    return url.rstrip("/")


# --- The two bodies of a client, and what they await: httpx on a loop, or in the caller's thread.
#
# As in `wick_graph.core.bridge`, a body is one `async def`; over the blocking transport it never
# suspends, and `run_to_end` drives it.


T = TypeVar("T")

_TIMEOUT: Final = httpx.Timeout(10.0, read=None)
"""A run may take long, but the server must accept connections at once."""

_SILENT: Final = 60.0
"""Seconds without a line, or a server's ping, after which a stream counts as broken."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer before its body is read."""

    status: int
    headers: Mapping[str, str]
    lines: AsyncIterator[str]


class Transport(Protocol):
    """What a body may await."""

    async def ask(self, call: Call[Any]) -> tuple[int, str]:
        """Send a request; return the answer's status and text."""

    def open(self, call: Call[Any]) -> AbstractAsyncContextManager[Opened]:
        """Send a request and read its answer line by line."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


async def ask(transport: Transport, call: Call[T]) -> T:
    """Send a request and read its answer.

    Raises:
        ServerError: The server refused the request, or cannot be reached.
    """
    try:
        status, text = await transport.ask(call)
    except httpx.HTTPError as error:
        raise ServerError(f"the server cannot be reached: {error}") from error
    return call.read(checked(status, text))


async def follow(
    transport: Transport, call: Call[Event], reconnect_for: float
) -> AsyncIterator[Event]:
    """Yield a run's events up to the last one, over as many connections as needed.

    Raises:
        ServerError: The server refused the request, or a broken stream cannot reconnect.
    """
    following = Following(call, reconnect_for)
    while not following.ended:
        problem: Exception | None = None
        try:
            async with transport.open(following.call) as opened:
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
            await transport.sleep(following.pause(problem))


def settings(url: str, token: str | None) -> dict[str, Any]:
    """Return the arguments of both httpx clients."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    address = base_of(url)
    # The list of authorities takes 20 ms to read, and HTTP needs none.
    verify = address.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    own = {"base_url": address, "headers": headers, "timeout": _TIMEOUT, "verify": verify}
    return {**own, "trust_env": False}


def _stream_timeout() -> httpx.Timeout:
    return httpx.Timeout(_TIMEOUT.connect, read=_SILENT)


class BlockingTransport:
    """A transport that blocks and never suspends."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def ask(self, call: Call[Any]) -> tuple[int, str]:
        """Send a request; return the answer's status and text."""
        got = self._http.request(call.method, call.path, **call.sent())
        return got.status_code, got.text

    @asynccontextmanager
    async def open(self, call: Call[Any]) -> AsyncIterator[Opened]:
        """Send a request and read its answer line by line."""
        with self._http.stream(
            call.method, call.path, timeout=_stream_timeout(), **call.sent()
        ) as got:

            async def lines() -> AsyncIterator[str]:
                for line in got.iter_lines():
                    yield line

            yield Opened(got.status_code, got.headers, lines())

    async def sleep(self, seconds: float) -> None:
        """Wait in the caller's thread."""
        time.sleep(seconds)  # noqa: ASYNC251  # this driver has no loop to block


class AsyncTransport:
    """A transport that suspends on the event loop."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, call: Call[Any]) -> tuple[int, str]:
        """Send a request; return the answer's status and text."""
        got = await self._http.request(call.method, call.path, **call.sent())
        return got.status_code, got.text

    @asynccontextmanager
    async def open(self, call: Call[Any]) -> AsyncIterator[Opened]:
        """Send a request and read its answer line by line."""
        async with self._http.stream(
            call.method, call.path, timeout=_stream_timeout(), **call.sent()
        ) as got:
            yield Opened(got.status_code, got.headers, got.aiter_lines())

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


# --- Every call of a client: what to send, and how to read the answer.


def get(path: str, **params: Any) -> Call[Any]:
    """Read a path of the server, such as `/threads`."""
    return Call("GET", path, params=params)


def post(path: str, body: Mapping[str, Any] | None = None) -> Call[Any]:
    """Write to a path of the server, such as `/threads/ID/pin`."""
    return Call("POST", path, body)


def delete(path: str) -> Call[None]:
    """Delete the resource at a path of the server."""
    return Call("DELETE", path)


def invoke(
    input: Input,
    *,
    agent: str | None = None,
    thread_id: str | None = None,
    context: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    output_schema: Mapping[str, Any] | None = None,
) -> Call[Answer]:
    """Ask an agent and wait for the answer, an object of a JSON schema if one is given.

    Raises:
        ServerError: The request was refused, or the run failed.
    """
    body = run_body(input, thread_id, context, output_schema=output_schema)
    headers, path = key_header(idempotency_key), agent_path(agent, "invoke")
    return Call("POST", path, body, headers=headers, read=answer_of)


def resume(
    thread_id: str,
    answer: Any = UNSET,
    *,
    context: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    force: bool = False,
) -> Call[Answer]:
    """Resume a thread with the answer that it waits for.

    With `force`, resume even a poisoned thread.

    Raises:
        ServerError: The request was refused, or the run failed.
    """
    body = resume_body(thread_id, answer, context, **({"force": True} if force else {}))
    headers = key_header(idempotency_key)
    return Call("POST", "/agents/resume", body, headers=headers, read=answer_of)


def stream(
    input: Input,
    *,
    agent: str | None = None,
    thread_id: str | None = None,
    context: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    on_disconnect: str | None = None,
    output_schema: Mapping[str, Any] | None = None,
) -> Call[Event]:
    """Ask an agent and yield the run's events; the last one is `Done` or `Failed`.

    Raises:
        ServerError: The request was refused, or a broken stream cannot reconnect.
    """
    body = run_body(input, thread_id, context, on_disconnect, output_schema)
    headers = key_header(idempotency_key)
    return Call("POST", agent_path(agent, "stream"), body, headers=headers)


def stream_resume(
    thread_id: str,
    answer: Any = UNSET,
    *,
    context: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    force: bool = False,
) -> Call[Event]:
    """Resume a thread and yield the run's events; see `resume` and `stream`."""
    more = {"force": True} if force else {}
    body = resume_body(thread_id, answer, context, stream=True, **more)
    return Call("POST", "/agents/resume", body, headers=key_header(idempotency_key))


def events(run_id: str, *, after: int | None = None) -> Call[Event]:
    """Follow a run from its beginning, or after an event's number; see `stream`."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    return Call("GET", f"/runs/{run_id}/events", headers=headers)
