"""The SDK's side of a connection; imported only where MCP servers are used."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TextIO

import anyio
import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from wick_graph.mcp.connection import CONNECT_SECONDS, Target


@contextlib.asynccontextmanager
async def connect(target: Target, ends: asyncio.Event) -> AsyncIterator[Client]:
    """Start or reach a server; set the event when it goes away by itself."""
    async with contextlib.AsyncExitStack() as stack:
        if target.url:
            timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
            http = httpx2.AsyncClient(headers=dict(target.headers), timeout=timeout)
            await stack.enter_async_context(http)
            transport: Any = streamable_http_client(target.url, http_client=http)
        else:
            command, *args = target.command
            parameters = StdioServerParameters(
                command=command, args=args, env=dict(target.env), cwd=target.cwd
            )
            # what a server says beside the protocol is not for the user of this program
            silent = _silence()
            stack.callback(silent.close)
            transport = stdio_client(parameters, errlog=silent)
        yield await stack.enter_async_context(Client(_watched(transport, ends)))


def _silence() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


@contextlib.asynccontextmanager
async def _watched(transport: Any, ends: asyncio.Event) -> AsyncIterator[Any]:
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
