"""From a run's moments to its reader's events: a bounded queue between the two.

The run waits for its reader: at most `EVENT_QUEUE_SIZE` events are on their way, and none is lost.
"""

from __future__ import annotations

import asyncio
import queue
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
    return ChatModelStream(name=moment.name, delta=moment.data["chunk"].text, **ids)


def _reply(moment: Moment, ids: dict[str, Any]) -> Event:
    reply = moment.data["reply"]
    calls = tuple({"id": c["id"], "name": c["name"], "args": c["args"]} for c in reply.tool_calls)
    usage = usage_of(reply).to_dict()
    return ChatModelEnd(name=moment.name, content=reply.text, tool_calls=calls, usage=usage, **ids)


def _again(moment: Moment, ids: dict[str, Any]) -> Event:
    error = moment.data["error"]
    text = str(error) or type(error).__name__
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
    """A port that turns moments into events; where they go is the two subclasses' part."""

    active = True

    def __init__(self, run_id: str, thread_id: str | None, tokens: bool) -> None:
        self.run_id, self.thread_id, self.tokens = run_id, thread_id, tokens

    def record(self, moment: Moment) -> None:
        """Pass on what readers are told of."""
        event = to_event(moment, self.run_id, self.thread_id)
        if event is not None:
            self.put(event)

    async def at(self, moment: Moment) -> Directive:
        """Go on."""
        return None

    def put(self, event: Any) -> None:
        """Hand an event to the reader."""
        raise NotImplementedError


class QueuePort(_EventPort):
    """Events for a reader in another thread; `put` blocks while the queue is full."""

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
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self._closed = False
        self._room = asyncio.Event()
        self._room.set()

    def put(self, event: Any) -> None:
        """Hand it over at once; `at` is where the run waits."""
        if self._closed:
            return
        self.events.put_nowait(event)
        if self.events.qsize() >= EVENT_QUEUE_SIZE:
            self._room.clear()

    async def at(self, moment: Moment) -> Directive:
        """Wait while the reader is behind."""
        await self._room.wait()
        return None

    def close(self) -> None:
        """Say that the reader has left: nothing is kept for it, and nothing waits for it."""
        self._closed = True
        self._room.set()

    async def get(self) -> Any:
        """Take the next event and make room."""
        event = await self.events.get()
        if self.events.qsize() < EVENT_QUEUE_SIZE:
            self._room.set()
        return event
