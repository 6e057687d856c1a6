"""HTTP clients for libraries that send their own requests to untrusted addresses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import httpx

from wick_graph.errors import ToolError
from wick_graph.web.addresses import Target
from wick_graph.web.client import Client

MOST_BYTES: Final = 64 * 2**20
"""Bytes of one answer."""

_KEPT: Final = ("accept", "content-type", "content-length", "transfer-encoding")
"""Headers that a library may set; its others may hold secrets of the environment."""


def clients(rules: Client, headers: Mapping[str, str]) -> tuple[httpx.Client, httpx.AsyncClient]:
    """Return two clients that connect to allowed addresses only.

    Args:
        rules: What is allowed.
        headers: Sent with each request, besides those that describe its body.
    """
    transport = _Transport(rules, headers)
    return (
        httpx.Client(transport=transport, trust_env=False),
        httpx.AsyncClient(transport=transport, trust_env=False),
    )


class _Transport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Check and resolve the address of each request, and connect to what was checked."""

    def __init__(self, rules: Client, headers: Mapping[str, str]) -> None:
        self._rules: Final = rules
        self._headers: Final = dict(headers)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        target = Target.parse(str(request.url))
        pinned = self._pinned(request, target, self._rules.address(target))
        transport = httpx.HTTPTransport(verify=self._rules.verify(target), trust_env=False)
        try:
            response = transport.handle_request(pinned)
            response.stream = _Answer(_checked(response), transport.close, _nothing)
        except BaseException:
            transport.close()
            raise
        return response

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        target = Target.parse(str(request.url))
        address = await asyncio.to_thread(self._rules.address, target)
        pinned = self._pinned(request, target, address)
        transport = httpx.AsyncHTTPTransport(verify=self._rules.verify(target), trust_env=False)
        try:
            response = await transport.handle_async_request(pinned)
            response.stream = _Answer(_checked(response), lambda: None, transport.aclose)
        except BaseException:
            await transport.aclose()
            raise
        return response

    def _pinned(self, request: httpx.Request, target: Target, address: str) -> httpx.Request:
        netloc = f"[{address}]" if ":" in address else address
        kept = {name: request.headers[name] for name in _KEPT if name in request.headers}
        own = {"Host": target.authority, "Accept-Encoding": "identity", "Connection": "close"}
        return httpx.Request(
            request.method,
            f"{target.scheme}://{netloc}:{target.port}{target.path}",
            headers={**kept, **self._headers, **own},
            stream=request.stream,
            # the certificate must match the name, whatever address the connection uses
            extensions={**request.extensions, "sni_hostname": target.host.rstrip(".")},
        )


async def _nothing() -> None:
    """Close nothing."""


def _checked(response: httpx.Response) -> Any:
    """Return an answer's stream if it is not encoded, so that its size is what arrives."""
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ToolError("the answer is encoded, which was not requested")
    return response.stream


class _Answer(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer up to a limit; closing it closes its connection."""

    def __init__(
        self, inner: Any, close: Callable[[], None], aclose: Callable[[], Awaitable[None]]
    ) -> None:
        self._inner, self._close, self._aclose = inner, close, aclose
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        for part in self._inner:
            yield self._counted(part)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            yield self._counted(part)

    def _counted(self, part: bytes) -> bytes:
        self._size += len(part)
        if self._size > MOST_BYTES:
            raise ToolError(f"the answer is longer than {MOST_BYTES} bytes")
        return part

    def close(self) -> None:
        self._inner.close()
        self._close()

    async def aclose(self) -> None:
        await self._inner.aclose()
        await self._aclose()
