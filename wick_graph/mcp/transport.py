"""The SDK's side of a connection; imported only where MCP servers are used."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from wick_graph.mcp.bounds import bound_answer
from wick_graph.mcp.connection import CONNECT_SECONDS, Ends, Target
from wick_graph.mcp.stdio import program


@contextlib.asynccontextmanager
async def connect(target: Target, ends: Ends) -> AsyncIterator[Client]:
    """Start or reach a server; set the event when it goes away by itself."""
    async with contextlib.AsyncExitStack() as stack:
        if target.url:
            http = httpx2.AsyncClient(
                headers={"Accept-Encoding": "identity", **target.headers},
                timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
                event_hooks={"response": [bound_answer]},
            )
            await stack.enter_async_context(http)
            transport: Any = streamable_http_client(target.url, http_client=http)
        else:
            transport = program(target, ends.because)
        yield await stack.enter_async_context(Client(_watched(transport, ends)))


@contextlib.asynccontextmanager
async def _watched(transport: Any, ends: Ends) -> AsyncIterator[Any]:
    """Pass a transport's streams on, and tell when the server has closed its side."""
    async with transport as (read, write), anyio.create_task_group() as tasks:
        send, receive = anyio.create_memory_object_stream[Any](0)

        async def forward() -> None:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async with send:
                    async for message in read:
                        await send.send(message)
            ends.set()

        tasks.start_soon(forward)
        try:
            yield receive, write
        finally:
            tasks.cancel_scope.cancel()
            receive.close()
