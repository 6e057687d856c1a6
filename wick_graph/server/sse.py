"""Server-sent events: one JSON line per event, pings, and timeouts for stalled clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, cast

from fastapi import Response
from starlette.types import Receive, Scope, Send

from wick_graph.service.options import log

HEADERS: Final = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "Connection": "close",
}

PING: Final = b": ping\n\n"

Pieces = AsyncIterator[bytes | None]
"""What goes over the wire; None means that the next piece may take long."""


def frame(number: int | None, event: Mapping[str, Any]) -> bytes:
    """Encode an event; its data is one line of ASCII, so no text can break out of it."""
    head = "" if number is None else f"id: {number}\n"
    data = json.dumps(event, separators=(",", ":"), ensure_ascii=True, default=str)
    return f"{head}event: {event['event']}\ndata: {data}\n\n".encode("ascii")


class EventStream(Response):
    """Send pieces until they end, or the client disconnects or stops reading.

    Nothing is buffered for a client: the next piece is fetched once the last one is sent.

    Args:
        pieces: Called once; returns the pieces to send.
        ping: Seconds between two pings while there is nothing to send.
        send_timeout: Seconds before a stalled client is disconnected.
        left: Called if the client disconnected, or was disconnected, before the end.
        headers: Headers of the answer.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        pieces: Callable[[], Pieces],
        *,
        ping: float,
        send_timeout: float,
        left: Callable[[], Awaitable[None]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._pieces, self._ping, self._timeout, self._left = pieces, ping, send_timeout, left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        work = asyncio.create_task(self._send_all(send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
            finished = work.done() and _finished(work)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.wait([work, gone])
        if not finished and self._left is not None:
            await self._left()

    async def _send_all(self, send: Send) -> bool:
        """Send all pieces; return False if the client stopped reading."""
        try:
            async with aclosing(self._pieces()) as pieces:  # type: ignore[type-var]  # a generator
                pinged = _with_pings(pieces, self._ping)
                async with aclosing(pinged):
                    async for piece in pinged:
                        await self._put(send, piece)
            await self._put(send, b"", more=False)
        except (TimeoutError, OSError):
            return False
        return True

    async def _put(self, send: Send, body: bytes, more: bool = True) -> None:
        message = {"type": "http.response.body", "body": body, "more_body": more}
        async with asyncio.timeout(self._timeout):
            await send(message)


async def _with_pings(coming: Pieces, every: float) -> AsyncGenerator[bytes]:
    """Join pieces that are available together; send pings while waiting after a None."""
    pieces: list[bytes] = []
    pause = False
    while True:
        if pause:
            waiting = asyncio.ensure_future(anext(coming, _END))
            try:
                while not (await asyncio.wait([waiting], timeout=every))[0]:
                    yield PING
            finally:
                waiting.cancel()
                await asyncio.wait([waiting])
            found = waiting.result()
        else:
            found = await anext(coming, _END)
        if found is _END:
            break
        pause = found is None
        if found:
            pieces.append(cast("bytes", found))
        if pieces and (pause or len(pieces) >= _PIECES):
            yield b"".join(pieces)
            pieces = []
    if pieces:
        yield b"".join(pieces)


def _finished(work: asyncio.Task[bool]) -> bool:
    error = work.exception()
    if error is not None:  # the answer has begun; its early end tells the client
        log.error("a stream broke off", exc_info=error)
    return error is None and work.result()


_END: Final = object()

_PIECES: Final = 64


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
