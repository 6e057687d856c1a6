"""What goes over the wire, without the wire: requests, answers, and streams to follow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

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
    SubagentEvent,
    ToolEnd,
    ToolStart,
)
from wick_graph.types import StoppedBecause

T_co = TypeVar("T_co", covariant=True)
Input = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
UNSET: Final = object()
_NOT_NOW: Final = 503
_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each further attempt to take a stream up again; the last one repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a run, as the server tells it."""

    text: str
    thread_id: str
    run_id: str
    stopped_because: StoppedBecause
    tool_calls: list[dict[str, Any]]
    todos: list[dict[str, Any]]
    files: dict[str, Any]
    interrupts: list[dict[str, Any]]
    raw: dict[str, Any] = field(repr=False)
    """All that came."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """A request to make, and how its answer is read."""

    method: str
    path: str
    body: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[Any], T_co] = lambda value: value

    def sent(self) -> dict[str, Any]:
        """Return what goes with the request, by httpx's names."""
        return {"json": self.body, "params": self.params, "headers": self.headers}


def answer_of(body: Mapping[str, Any]) -> Answer:
    """Read the end of a run."""
    return Answer(
        text=body["response"],
        thread_id=body["thread_id"],
        run_id=body["run_id"],
        stopped_because=body["stopped_because"],
        tool_calls=body["tool_calls"],
        todos=body["todos"],
        files=body["files"],
        interrupts=body["interrupts"],
        raw=dict(body),
    )


def asked(given: Input, thread_id: str | None, on_disconnect: str | None = None) -> dict[str, Any]:
    """Make the body of a request to an agent."""
    if isinstance(given, str):
        messages: list[Any] = [{"role": "user", "content": given}]
    elif isinstance(given, Mapping):
        messages = [dict(given)]
    else:
        messages = [dict(message) for message in given]
    body: dict[str, Any] = {"messages": messages}
    if thread_id is not None:
        body["thread_id"] = thread_id
    if on_disconnect is not None:
        body["on_disconnect"] = on_disconnect
    return body


def agent_path(agent: str | None, verb: str) -> str:
    """Return the path of an agent's verb."""
    return f"/agents/{verb}" if agent is None else f"/agents/{quote(agent, safe='')}/{verb}"


def resumed(thread_id: str, answer: Any, **more: Any) -> dict[str, Any]:
    """Make the body of a request to go on."""
    body: dict[str, Any] = {"thread_id": thread_id, **more}
    return body if answer is UNSET else {**body, "answer": answer}


def key_header(key: str | None) -> dict[str, str]:
    """Make the header of an idempotency key."""
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
    said = said.get("message") if isinstance(said, dict) else said  # in OpenAI's form
    raise ServerError(said or f"the server answered with {status}", status, body or {})


class Following:
    """A run's stream, from one connection to the next: what was seen, and where it goes on."""

    def __init__(self, first: Call[Event], reconnect_for: float) -> None:
        self.call = first
        self._patience = reconnect_for
        self._last: int | None = None
        self._run_id: str | None = None
        self._lost_since: float | None = None
        self._tries = 0
        self.ended = False

    def opened(self, status: int, headers: Mapping[str, str]) -> bool:
        """Note what the head of an answer says; False where the request is refused."""
        self._run_id = headers.get("x-run-id", self._run_id)
        return status < 400

    def refused(self, status: int, text: str) -> None:
        """Read a refusal; that of a run which has begun may pass, and it is asked for again.

        Raises:
            ServerError: It is refused for good.
        """
        if status != _NOT_NOW or self._run_id is None:
            checked(status, text)

    def lines(self) -> Generator[Event | None, str, None]:
        """Take lines by `send`, and yield the event that a line completes."""
        event: Event | None = None
        number: int | None = None
        while True:
            line = yield event
            event, self._lost_since = None, None  # the server is there, if it only pings
            name, _, value = line.partition(": ")
            try:
                if name == "id":
                    number = int(value)
                elif name == "data":
                    event = self._seen(number, json.loads(value))
                    number = None
            except _MALFORMED as error:
                kind = type(error).__name__
                raise ServerError(f"the server sent an event that is none ({kind})") from None

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
        """Say how long to wait before the stream is taken up again.

        Raises:
            ServerError: It cannot be, or it was tried for long enough.
        """
        now = time.monotonic()
        self._lost_since = self._lost_since or now
        if self._run_id is None or now - self._lost_since > self._patience:
            raise ServerError(f"the stream broke off: {problem or 'it ended too early'}")
        headers = {} if self._last is None else {"Last-Event-ID": str(self._last)}
        self.call = Call("GET", f"/runs/{self._run_id}/events", headers=headers)
        self._tries += 1
        return _PAUSES[min(self._tries, len(_PAUSES)) - 1]


def event_of(body: Mapping[str, Any]) -> Event | None:
    """Read an event; None for one that this release does not know."""
    make = _MAKERS.get(body["event"])
    if make is None:
        return None
    ids = {"run_id": body.get("run_id", ""), "thread_id": body.get("thread_id")}
    return make(body.get("name", ""), body.get("data", {}), ids)


_Made = Callable[[str, Mapping[str, Any], dict[str, Any]], Event]
_MAKERS: Final[dict[str, _Made]] = {
    "on_chat_model_start": lambda name, data, ids: ChatModelStart(name=name, **ids),
    "on_chat_model_stream": lambda name, data, ids: ChatModelStream(
        name=name, delta=data["delta"], **ids
    ),
    "on_chat_model_retry": lambda name, data, ids: ChatModelRetry(
        name=name, error=data["error"], delay=data["delay"], **ids
    ),
    "on_chat_model_end": lambda name, data, ids: ChatModelEnd(
        name=name,
        content=data["content"],
        tool_calls=tuple(data["tool_calls"]),
        usage=data["usage"],
        **ids,
    ),
    "on_tool_start": lambda name, data, ids: ToolStart(name=name, args=data["args"], **ids),
    "on_tool_end": lambda name, data, ids: ToolEnd(
        name=name, output=data["output"], error=data.get("error"), **ids
    ),
    "on_subagent": lambda name, data, ids: SubagentEvent(
        path=tuple(data["path"]), cause=data["cause"], inner=event_of(data["event"]), **ids
    ),
    "interrupt": lambda name, data, ids: Interrupted(
        interrupt_id=data["id"], value=data["value"], **ids
    ),
    "done": lambda name, data, ids: Done(
        stopped_because=data["stopped_because"], duration_ms=data["total_duration_ms"], **ids
    ),
    "error": lambda name, data, ids: Failed(
        error=data["error"], stopped_because=data.get("stopped_because", "failed"), **ids
    ),
}


def base_of(url: str) -> str:
    """Check a server's address.

    Raises:
        ConfigError: It is no HTTP address.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url!r:.80} is no address of a server; begin it with http://")
    return url.rstrip("/")
