"""What doors share: contents, the parts of replies as clients draw them, the runs of an exchange.

An exchange is a user's message and all that answers it: a run, and the runs that continue it after
a question, a failure or a cancellation. Clients of several protocols see it as one thing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from wick_graph.errors import ThreadBusyError
from wick_graph.server import schemas
from wick_graph.server.guard import RequestContext
from wick_graph.server.routes.runs import SUSPENDED
from wick_graph.server.sse import EventStream, Pieces
from wick_graph.service.event_log import TERMINAL, Wire, events_after
from wick_graph.service.options import Problem
from wick_graph.store.server_rows import RUNNING, StreamRow

RUNS: Final = 1_000
"""The latest runs of a thread, among which those of an exchange are."""


def content_of(blocks: Sequence[str | Mapping[str, Any]]) -> Any:
    """Return texts, and the addresses of images, as the content of a message.

    Args:
        blocks: A text each, or `{"url": …}` of an image.

    Raises:
        ValueError: A block is refused.
    """
    made = [
        {"type": "text", "text": one}
        if isinstance(one, str)
        else {"type": "image_url", "image_url": {"url": one["url"]}}
        for one in blocks
    ]
    schemas.check_parts(made)
    return blocks[0] if len(blocks) == 1 and isinstance(blocks[0], str) else made


T = TypeVar("T")


async def found_or_begun(
    find: Callable[[], Awaitable[T | None]], begin: Callable[[], Awaitable[T]]
) -> tuple[T, bool]:
    """Return what an equal request has begun, else begin it; and whether this one has.

    If both come at once, the second one finds nothing, and then no room for its own.
    """
    if (known := await find()) is not None:
        return known, False
    try:
        return await begin(), True
    except (Problem, ThreadBusyError):
        if (known := await find()) is None:
            raise
        return known, False


class Part(NamedTuple):
    """One part of a reply begins, grows or ends.

    Kinds: `text-` and `reasoning-` with `start`, `delta` and `end`; `call-` with `start`, `delta`,
    `end` and, with the whole arguments, `ready`; `result` of a call; `void`: the pieces of this
    reply so far do not count.
    """

    kind: str
    key: str
    """The id of the reply, of its reasoning or of the call."""
    data: Mapping[str, Any] = {}


class Parts:
    """Turns a run's events into parts; each begins once, and ends."""

    def __init__(self, row: StreamRow) -> None:
        self._run_id = row.run_id
        self._count = 0
        self._results: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self._count += 1
        self._key = ""
        self._open: dict[str, str] = {}
        """What has begun and not ended: its kind, or the call's id, and its key."""
        self._calls: dict[Any, str] = {}
        self._has_text = self._has_parts = False

    def of(self, event: Wire) -> Iterator[Part]:
        """Yield the parts of an event."""
        kind, data = event["event"], event.get("data", {})
        if kind in ("on_chat_model_start", "on_chat_model_retry", *TERMINAL):
            yield from self._close()  # also the last words of a guardrail, which no model ends
            if self._has_parts and kind not in TERMINAL:
                yield Part("void", self._key)
            self._begin()
        elif kind == "on_chat_model_stream":
            yield from self._piece(data)
        elif kind == "on_chat_model_end":
            yield from self._whole(data)
        elif kind == "on_tool_end" and event["run_id"] not in self._results:
            self._results.add(event["run_id"])
            yield Part("result", event["run_id"], data)

    def _named(self, data: Mapping[str, Any]) -> str:
        """Return the reply's id."""
        self._has_parts = True
        if not self._key:
            self._key = data.get("message_id") or f"run-{self._run_id}-{self._count}"
        return self._key

    def _piece(self, data: Mapping[str, Any]) -> Iterator[Part]:
        key = self._named(data)
        if thought := data.get("reasoning"):
            yield from self._grown("reasoning", f"{key}-reasoning", thought)
        if data["delta"]:
            yield from self._text(key, data["delta"])
        for piece in data.get("calls", ()):
            yield from self._call(key, piece)

    def _text(self, key: str, delta: str) -> Iterator[Part]:
        yield from self._close("reasoning")
        self._has_text = True
        yield from self._grown("text", key, delta)

    def _grown(self, kind: str, key: str, delta: str) -> Iterator[Part]:
        if kind not in self._open:
            self._open[kind] = key
            yield Part(f"{kind}-start", key)
        yield Part(f"{kind}-delta", key, {"delta": delta})

    def _call(self, key: str, piece: Mapping[str, Any]) -> Iterator[Part]:
        index = piece.get("index")
        if index not in self._calls:
            if not piece.get("id") or not piece.get("name"):
                return  # the whole reply tells it
            yield from self._close("reasoning", "text")
            call = self._calls[index] = str(piece["id"])
            self._open[call] = call
            yield Part("call-start", call, {"name": piece["name"], "reply": key})
        if piece.get("args"):
            yield Part("call-delta", self._calls[index], {"delta": piece["args"]})

    def _whole(self, data: Mapping[str, Any]) -> Iterator[Part]:
        key = self._named(data)
        if data["content"] and not self._has_text:
            yield from self._text(key, data["content"])
        for call in data["tool_calls"]:
            if call["id"] not in self._calls.values():
                args = json.dumps(call["args"])
                yield from self._call(key, {**call, "index": ("whole", call["id"]), "args": args})
        yield from self._close()
        for call in data["tool_calls"]:
            yield Part("call-ready", call["id"] or "", call)
        self._begin()

    def _close(self, *kinds: str) -> Iterator[Part]:
        for kind in kinds or [*self._open]:
            if (key := self._open.pop(kind, None)) is not None:
                yield Part(f"{kind if kind in ('reasoning', 'text') else 'call'}-end", key)


@dataclass(frozen=True, slots=True)
class Exchange:
    """The runs that answer one message of the user, the oldest first."""

    rows: Sequence[StreamRow]
    is_latest: bool = True
    """Whether its thread has no later run."""

    @property
    def id(self) -> str:
        """The id of its first run, which names it."""
        return self.rows[0].run_id

    @property
    def last(self) -> StreamRow:
        """The run that goes on, or has ended last."""
        return self.rows[-1]

    @property
    def goes_on(self) -> bool:
        """Whether a run of it goes on."""
        return self.last.status == RUNNING

    @property
    def message_ids(self) -> Sequence[str | None]:
        """The ids that the client gave to the user's messages."""
        found: Sequence[str | None] = self.rows[0].asked.get("labels", {}).get("ids", ())
        return found

    async def events(self, context: RequestContext) -> AsyncIterator[tuple[StreamRow, Wire | None]]:
        """Yield the events of all its runs with their rows, up to the last one; None is a pause."""
        for row in self.rows:
            live = context.tenant.runs.find(row)
            log = None if live is None else live.event_log
            async for entry in events_after(context.saver, row, row.first - 1, log):
                if entry is not None:
                    context.service.metrics_of(context.caller.tenant).sent()
                yield row, None if entry is None else entry[1]


def exchanges(rows: Sequence[StreamRow]) -> list[Exchange]:
    """Return the exchanges of the latest runs of a thread, the oldest first.

    Args:
        rows: The runs, the newest first; those before the first message are left out.
    """
    made: list[list[StreamRow]] = []
    for row in reversed(rows):
        if row.asked["kind"] == "message":
            made.append([row])
        elif made:
            made[-1].append(row)
    return [Exchange(found, is_latest=found is made[-1]) for found in made]


async def exchanges_of(context: RequestContext, thread_id: str, agent: str) -> list[Exchange]:
    """Return the exchanges of a thread with an agent, the oldest first."""
    rows = await context.streams.run(context.streams.of_thread, thread_id, RUNS)
    return [one for one in exchanges(rows) if one.rows[0].asked["agent"] == agent]


async def unended(context: RequestContext, row: StreamRow) -> Problem:
    """Say why the events of a run stop before its end."""
    if await context.streams.run(context.streams.get, row.thread_id, row.run_id) is None:
        return Problem(404, "the thread was deleted")
    return Problem(503, SUSPENDED)


def streamed(
    context: RequestContext,
    row: StreamRow,
    pieces: Callable[[], Pieces],
    kind: type[EventStream] = EventStream,
    *,
    starts: bool,
) -> EventStream:
    """Stream a run; the server may cancel it when the client that starts it disconnects."""

    async def left() -> None:
        if starts and context.options.on_disconnect == "cancel":
            await context.tenant.runs.cancel(row.thread_id, row.run_id)

    limits, ids = context.options.limits, {"X-Thread-Id": row.thread_id, "X-Run-Id": row.run_id}
    return kind(pieces, ping=limits.ping, send_timeout=limits.send, left=left, headers=ids)
