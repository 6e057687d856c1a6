"""From a run's moments to its reader's events: a bounded queue between the two.

The run waits for its reader: at most `EVENT_QUEUE_SIZE` events are on their way, and none is lost.
"""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from contextlib import suppress
from typing import Any

from wick_graph.constants import EVENT_QUEUE_SIZE
from wick_graph.errors import RunCancelled
from wick_graph.events import (
    ChatModelEnd,
    ChatModelRetry,
    ChatModelStart,
    ChatModelStream,
    Event,
    ToolEnd,
    ToolStart,
)
from wick_graph.moments import Directive, Moment
from wick_graph.redact import REDACTOR
from wick_graph.request import AGENT
from wick_graph.usage import usage_of


def to_event(moment: Moment, run_id: str, thread_id: str | None) -> Event | None:
    """Translate a moment, or return None for one that readers are not told of."""
    make = _MAKERS.get((moment.kind, moment.phase))
    if make is None or moment.data.get("purpose", AGENT) != AGENT:
        return None
    ids = {"run_id": moment.call_id or run_id, "thread_id": thread_id}
    event: Event = make(moment, ids)
    return event


def _chunk(moment: Moment, ids: dict[str, Any]) -> Event:
    chunk = moment.data["chunk"]
    text = chunk.content if type(chunk.content) is str else chunk.text
    return ChatModelStream(name=moment.name, delta=text, **ids)


def _reply(moment: Moment, ids: dict[str, Any]) -> Event:
    reply = moment.data["reply"]
    calls = tuple({"id": c["id"], "name": c["name"], "args": c["args"]} for c in reply.tool_calls)
    usage = usage_of(reply).to_dict()
    return ChatModelEnd(name=moment.name, content=reply.text, tool_calls=calls, usage=usage, **ids)


def _again(moment: Moment, ids: dict[str, Any]) -> Event:
    error = moment.data["error"]
    text = REDACTOR.text(str(error) or type(error).__name__)
    return ChatModelRetry(name=moment.name, error=text, delay=moment.data["delay"], **ids)


def _tool_start(moment: Moment, ids: dict[str, Any]) -> Event:
    return ToolStart(name=moment.name, args=moment.data["args"], **ids)


def _tool_end(moment: Moment, ids: dict[str, Any]) -> Event:
    result = moment.data["result"]
    output = result.to_message().text
    return ToolEnd(name=moment.name, output=output, error=result.error, **ids)


_MAKERS: dict[tuple[str, str], Any] = {
    ("model", "request"): lambda moment, ids: ChatModelStart(name=moment.name, **ids),
    ("model", "chunk"): _chunk,
    ("model", "response"): _reply,
    ("model", "retry"): _again,
    ("model", "fallback"): _again,
    ("tool", "enter"): _tool_start,
    ("tool", "exit"): _tool_end,
}


class _EventPort:
    """A port that turns moments into events; where they go is the two subclasses' part.

    A whole reply is told of once its step is durable: when the next node begins, or the run ends.
    """

    active = True

    def __init__(self, run_id: str, thread_id: str | None, tokens: bool) -> None:
        self.run_id, self.thread_id, self.tokens = run_id, thread_id, tokens
        self._reply: Event | None = None

    def record(self, moment: Moment) -> None:
        """Pass on what readers are told of."""
        if moment.phase == "chunk" and self._reply is None and moment.kind == "model":
            chunk = moment.data["chunk"]  # the one kind of which there are thousands
            delta = chunk.content if type(chunk.content) is str else chunk.text
            run_id = moment.call_id or self.run_id
            self.put(
                ChatModelStream(
                    name=moment.name, delta=delta, run_id=run_id, thread_id=self.thread_id
                )
            )
            return
        event = to_event(moment, self.run_id, self.thread_id)
        reply = self._reply
        if reply is not None and (event is not None or _is_later(moment)):
            self._reply = None
            self._tell(reply, moment)
        if type(event) is ChatModelEnd:
            self._reply = event
        elif event is not None:
            self.put(event)

    def _tell(self, reply: Event, moment: Moment) -> None:
        if moment.kind != "run":
            self.put(reply)
        elif moment.phase != "error":  # else it may not be stored
            with suppress(RunCancelled):  # the run has ended and is closed, reader or not
                self.put(reply)

    async def at(self, moment: Moment) -> Directive:
        """Go on."""
        return None

    def put(self, event: Any) -> None:
        """Hand an event to the reader."""
        raise NotImplementedError


def _is_later(moment: Moment) -> bool:
    """Say whether the step before this moment is over, and durable."""
    return moment.kind == "run" or (moment.kind == "node" and moment.phase == "enter")


class QueuePort(_EventPort):
    """Events for a reader in another thread; `put` blocks while the queue is full."""

    holds = False

    def __init__(self, run_id: str, thread_id: str | None, tokens: bool) -> None:
        super().__init__(run_id, thread_id, tokens)
        self.events: queue.Queue[Any] = queue.Queue(EVENT_QUEUE_SIZE)
        self.closed = False

    def put(self, event: Any) -> None:
        """Wait for room.

        Raises:
            RunCancelled: The reader has left.
        """
        while not self.closed:
            try:
                self.events.put(event, timeout=0.2)
            except queue.Full:
                continue
            return
        raise RunCancelled


class LoopPort(_EventPort):
    """Events for a reader in the same loop; the run waits at each piece of text for room."""

    def __init__(self, run_id: str, thread_id: str | None, tokens: bool) -> None:
        super().__init__(run_id, thread_id, tokens)
        self._events: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._closed = False
        self._room = asyncio.Event()
        self._room.set()
        self.holds = False
        """The reader is behind."""

    def put(self, event: Any) -> None:
        """Hand it over at once; `at` is where the run waits."""
        if self._closed:
            return
        self._events.append(event)
        if len(self._events) >= EVENT_QUEUE_SIZE and not self.holds:
            self.holds = True
            self._room.clear()
        if self._reader is not None:
            if not self._reader.done():
                self._reader.set_result(None)
            self._reader = None

    async def at(self, moment: Moment) -> Directive:
        """Wait while the reader is behind."""
        if self.holds:
            await self._room.wait()
        return None

    def close(self) -> None:
        """Say that the reader has left: nothing is kept for it, and nothing waits for it."""
        self._closed = True
        self._make_room()

    async def get(self) -> Any:
        """Take the next event and make room."""
        while not self._events:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self.take()

    def take(self) -> Any:
        """Take the next event, if there is one, and make room; None if there is none."""
        if not self._events:
            return None
        event = self._events.popleft()
        if self.holds and len(self._events) < EVENT_QUEUE_SIZE:
            self._make_room()
        return event

    def _make_room(self) -> None:
        self.holds = False
        self._room.set()
