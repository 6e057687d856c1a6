"""How much an MCP server may say: bounded while it arrives, whatever it says of its length."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import httpx2

from wick_graph.constants import MAX_ANSWER_PARTS
from wick_graph.messages.jsontext import json_parts

MAX_MESSAGE_BYTES: Final = 4 * 2**20
"""Of one message."""
MAX_UNASKED_BYTES: Final = 16 * 2**20
"""Of all messages since something was last sent to the server."""
MAX_UNASKED: Final = 2_000
"""Such messages."""


class TooMuch(httpx2.TransportError):
    """The server says more than is listened to; ends in the error of the call."""


def check_message(line: bytes) -> None:
    """Refuse a message that would take too much to be made into objects.

    Raises:
        TooMuch: It has too many keys and items.
    """
    if json_parts(line, MAX_ANSWER_PARTS) > MAX_ANSWER_PARTS:
        raise TooMuch(f"it sent more than {MAX_ANSWER_PARTS:,} keys and items in a message")


async def bound_answer(response: httpx2.Response) -> None:
    """Let no more of an answer arrive than is listened to; for httpx2's hook on responses.

    Raises:
        TooMuch: The answer is compressed, which was not asked for.
    """
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise TooMuch("it sent an encoding that was not asked for")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream, _limit_of(response))


def _limit_of(response: httpx2.Response) -> int | None:
    events = response.headers.get("content-type", "").startswith("text/event-stream")
    if not events:
        return MAX_MESSAGE_BYTES
    # the SDK bounds each event; a stream that nobody asked something with may go on for hours
    return None if response.request.method == "GET" else MAX_UNASKED_BYTES


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, limit: int | None) -> None:
        self._stream, self._limit = stream, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if self._limit is not None and size > self._limit:
                raise TooMuch(f"it sent more than {self._limit // 2**20} MiB")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
