"""Server-sent events: one JSON line per event, pings, and timeouts for stalled clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

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
    return named_frame(None if number is None else str(number), event["event"], event)


def named_frame(place: str | None, name: str, value: Any) -> bytes:
    """Encode any data as the event of a name, as `frame` does."""
    head = "" if place is None else f"id: {place}\n"
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=True, default=str)
    return f"{head}event: {name}\ndata: {data}\n\n".encode("ascii")


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
    ping_piece = PING

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
        wire = _Wire(send, self._timeout, self.ping_piece)
        work = asyncio.create_task(self._send_all(wire))
        gone = asyncio.create_task(_disconnected(receive))
        pings = asyncio.create_task(wire.ping(self._ping))
        try:
            await asyncio.wait([work, gone, pings], return_when=asyncio.FIRST_COMPLETED)
            finished = work.done() and _finished(work)
        finally:
            for task in (work, gone, pings):
                task.cancel()
            await asyncio.wait([work, gone, pings])
        if not finished and self._left is not None:
            await self._left()

    async def _send_all(self, wire: _Wire) -> bool:
        """Send all pieces; return False if the client stopped reading."""
        try:
            async with aclosing(self._pieces()) as pieces:  # type: ignore[type-var]  # a generator
                await wire.follow(pieces)
            await wire.put(b"", more=False)
        except (TimeoutError, OSError):
            return False
        return True


class JsonStream(EventStream):
    """Send one JSON value that may take long: its head is sent at once, then blanks."""

    media_type = "application/json"
    ping_piece = b"\n"


class _Wire:
    """Sends the pieces that are available together, and pings while it waits after a None."""

    def __init__(self, send: Send, timeout: float, ping: bytes) -> None:
        self._send, self._timeout, self._ping = send, timeout, ping
        self._free = asyncio.Lock()
        self._waits = False
        """Whether the next piece may take long."""
        self._sent = 0.0
        """When something was sent last, by the loop's clock."""

    async def put(self, body: bytes, more: bool = True) -> None:
        """Send some bytes, after a ping that is on its way."""
        message = {"type": "http.response.body", "body": body, "more_body": more}
        async with self._free, asyncio.timeout(self._timeout):
            await self._send(message)
        self._sent = asyncio.get_running_loop().time()

    async def follow(self, coming: Pieces) -> None:
        """Send all pieces."""
        pieces: list[bytes] = []
        async for piece in coming:
            self._waits = False
            if piece:
                pieces.append(piece)
            if pieces and (piece is None or len(pieces) >= _PIECES):
                await self.put(b"".join(pieces))
                pieces = []
            self._waits = piece is None
        self._waits = False
        if pieces:
            await self.put(b"".join(pieces))

    async def ping(self, every: float) -> None:
        """Send a ping each time that nothing was sent for so long; end if the client is away."""
        now = asyncio.get_running_loop().time
        self._sent = now()
        while True:
            await asyncio.sleep(max(self._sent + every - now(), every / 10))
            if self._waits and now() >= self._sent + every:
                try:
                    await self.put(self._ping)
                except (TimeoutError, OSError):
                    return


def _finished(work: asyncio.Task[bool]) -> bool:
    error = work.exception()
    if error is not None:  # the answer has begun; its early end tells the client
        log.error("a stream broke off", exc_info=error)
    return error is None and work.result()


_PIECES: Final = 64


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
