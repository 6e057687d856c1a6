"""The page's stream: what happens in several threads, in one answer for all tabs of a browser."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from wick_graph.core.redaction import REDACTOR
from wick_graph.debug import protocol
from wick_graph.debug.answers import Answers
from wick_graph.errors import ThreadNotFoundError
from wick_graph.server.guard import API, Reader, RequestContext
from wick_graph.server.recordings import answers_of, is_admitted
from wick_graph.server.sse import EventStream, frame
from wick_graph.service.event_log import changes
from wick_graph.service.options import Problem
from wick_graph.types import THREAD_ID_PATTERN

router: Final = APIRouter(tags=["page"], prefix=API)

_TOPIC: Final = rf"^(run|moments):([0-9]{{1,10}}):({THREAD_ID_PATTERN.pattern})$"

_MOST: Final = 64
"""Topics of one stream."""

_LOOK: Final = 0.3
"""Seconds between two looks for what no event of this process announces."""

_ADMITTED: Final = 2.0
"""Seconds between two looks whether the caller may still read."""

_QUIET: Final = 15.0
"""Seconds between two looks at the rows of a silent thread, with notices of other servers."""

_EVENTS: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/event-stream": {}}}}

Topics = Annotated[
    list[Annotated[str, Query(pattern=_TOPIC)]],
    Query(
        max_length=_MOST,
        description="`run:5:ID` for the events of a thread's runs after number 5, "
        "`moments:5:ID` for its moments.",
    ),
]


@dataclass(slots=True)
class _Topic:
    """The events of a thread's runs, or its moments."""

    context: RequestContext
    thread_id: str
    after: int
    moments: Answers | None
    changed: asyncio.Event
    """Set when the thread's runs may have more events."""
    due: float = 0.0

    async def read(self) -> list[tuple[int, Any]]:
        """Return what is new, with its numbers."""
        if self.moments is not None:
            return await self._moments(self.moments)
        live = self.context.tenant.runs.live.get(self.thread_id)
        found = None if live is None else live.event_log.since(self.after)
        if found is None and (self.changed.is_set() or time.monotonic() >= self.due):
            self.changed.clear()
            streams = self.context.streams
            found = await streams.run(streams.read, self.thread_id, self.after)
            quiet = not found and self.context.saver.notices.works
            self.due = time.monotonic() + _QUIET if quiet else 0.0
        found = found or []
        return [(number, REDACTOR.value(event)) for number, event in found]

    async def _moments(self, answers: Answers) -> list[tuple[int, Any]]:
        if time.monotonic() < self.due:
            return []
        page = await asyncio.to_thread(answers.moments, self.after, protocol.MOST)
        self.due = 0.0 if page.moments else time.monotonic() + _LOOK
        return [(row.seq, row.model_dump()) for row in page.moments]

    def news(self) -> list[asyncio.Event]:
        """Return what is set when a run has more events."""
        if self.moments is not None:
            return []
        live = self.context.tenant.runs.live.get(self.thread_id)
        return [self.changed if live is None else live.event_log.news()]


@router.get("/stream", response_class=Response, responses=_EVENTS)
async def stream(context: Reader, request: Request, follow: Topics = []) -> EventStream:  # noqa: B006  # FastAPI copies it
    """Follow threads, each from a number on, and the news of the caller's tenant.

    A topic's thread that does not exist is named in the refusal, as `thread_id`.
    """
    context.service.check_open()
    topics = [await _topic(context, request, text) for text in follow]

    async def pieces() -> AsyncIterator[bytes | None]:
        with ExitStack() as stack:
            for topic in topics:
                topic.changed = stack.enter_context(changes(context.saver, topic.thread_id))
            async with aclosing(_pieces(context, request, topics)) as found:
                with suppress(ThreadNotFoundError):  # one was deleted: the next stream names it
                    async for piece in found:
                        yield piece

    limits = context.options.limits
    return EventStream(pieces, ping=limits.ping, send_timeout=limits.send)


async def _pieces(
    context: RequestContext, request: Request, topics: Sequence[_Topic]
) -> AsyncGenerator[bytes | None]:
    known: int | None = None
    checked = 0.0
    while not context.service.draining:
        if time.monotonic() >= checked + _ADMITTED:
            if not await is_admitted(context, request):
                return
            checked = time.monotonic()
        known, news = context.tenant.bus.after(known)
        for event in news:
            yield frame(None, {"event": "news", "data": event})
        waits = [event for topic in topics for event in topic.news()]  # before they are read
        found = False
        for topic in topics:
            for number, event in await topic.read():
                found, topic.after = True, number
                kind = "run" if topic.moments is None else "moments"
                data = {"thread_id": topic.thread_id, "number": number, "data": event}
                yield frame(None, {"event": kind, "data": data})
        yield None
        if not found:
            await _first(waits)


async def _topic(context: RequestContext, request: Request, text: str) -> _Topic:
    found = re.fullmatch(_TOPIC, text)
    assert found is not None
    kind, after, thread_id = found.groups()
    if await context.saver.threads.aget(thread_id) is None:
        raise Problem(404, "thread not found", {"thread_id": thread_id})
    moments = await answers_of(context, request, thread_id) if kind == "moments" else None
    return _Topic(context, thread_id, int(after), moments, asyncio.Event())


async def _first(events: Sequence[asyncio.Event]) -> None:
    """Wait for one of some events, for a moment at most."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    if not waits:
        await asyncio.sleep(_LOOK)
        return
    try:
        await asyncio.wait(waits, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
    finally:  # also if the reader leaves
        for wait in waits:
            wait.cancel()
