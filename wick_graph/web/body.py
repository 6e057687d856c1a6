"""Read the body of an answer, never more of it than was asked for."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import httpx

from wick_graph.errors import ToolError

ACCEPTED: Final = "identity, gzip"
"""The encodings that an answer may have."""


async def read_body(response: httpx.Response, limit: int) -> bytes:
    """Return an answer's decoded body.

    Raises:
        ToolError: It is longer than `limit` bytes, before or after it is decoded, is broken off,
            or has another encoding than one of gzip.
    """
    declared = response.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_long(limit)
    body = bytearray()
    async for part in _decoded(response, limit):
        body += part
        if len(body) > limit:
            raise _too_long(limit)
    return bytes(body)


def _too_long(limit: int) -> ToolError:
    return ToolError(f"the answer is longer than {limit} bytes")


async def _decoded(response: httpx.Response, limit: int) -> AsyncIterator[bytes]:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise ToolError(f"the answer is encoded as {encoding!r:.80}, which was not asked for")
    inflate = Inflate(limit) if encoding.endswith("gzip") else None
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > limit:
            raise _too_long(limit)
        yield part if inflate is None else inflate(part)
    if inflate is not None and size and not inflate.complete:
        raise ToolError("the answer is broken off in the middle of its gzip data")


class Inflate:
    """Decode gzip; gives at most one byte more than the limit at a time."""

    def __init__(self, limit: int) -> None:
        self._zlib: Final = zlib.decompressobj(wbits=31)
        self._limit: Final = limit
        self._decode: Final[Callable[[bytes, int], bytes]] = self._zlib.decompress

    @property
    def complete(self) -> bool:
        """Whether the data has come to its end."""
        return self._zlib.eof

    def __call__(self, part: bytes) -> bytes:
        """Decode a part.

        Raises:
            ToolError: It is no gzip.
        """
        try:
            return self._decode(part, self._limit + 1)
        except zlib.error:
            raise ToolError("the answer says that it is gzip, and is not") from None
