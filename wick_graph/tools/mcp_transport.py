"""The transport of an MCP connection, with limits; imported only if MCP servers are used."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import anyio
import httpx2
from anyio.abc import Process
from mcp import Client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from wick_graph.constants import MAX_ANSWER_PARTS
from wick_graph.machine import end_group
from wick_graph.messages.content import json_parts
from wick_graph.tools.mcp import CONNECT_SECONDS, FORGOTTEN, PROGRAMS, Ends, Target

# --- Limits on what an MCP server sends, enforced while it arrives.


MAX_MESSAGE_BYTES: Final = 4 * 2**20
"""Bytes of one message."""

MAX_UNASKED_BYTES: Final = 16 * 2**20
"""Bytes of all messages since the last one sent to the server."""

MAX_UNASKED: Final = 2_000
"""Number of such messages."""


class TooMuch(httpx2.TransportError):
    """The server exceeds a limit; becomes the error of the call."""


def check_message(line: bytes) -> None:
    """Refuse a message that would need too much memory as objects.

    Raises:
        TooMuch: It has too many keys and items.
    """
    if json_parts(line, MAX_ANSWER_PARTS) > MAX_ANSWER_PARTS:
        raise TooMuch(f"it sent more than {MAX_ANSWER_PARTS:,} keys and items in a message")


async def bound_answer(response: httpx2.Response) -> None:
    """Limit the size of an answer; for httpx2's hook on responses.

    Raises:
        TooMuch: The answer is compressed, which was not requested.
    """
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise TooMuch("it sent an encoding that was not requested")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream, _limit_of(response))


def _limit_of(response: httpx2.Response) -> int | None:
    events = response.headers.get("content-type", "").startswith("text/event-stream")
    if not events:
        return MAX_MESSAGE_BYTES
    # the SDK limits each event; a stream without a request may stay open for hours
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


# --- MCP over standard input and output: one JSON-RPC message per line, with limits.


LEAVE_SECONDS: Final = 2.0
"""Seconds for the program to end by itself, and again after SIGTERM."""

_READ: Final = 65_536


@contextlib.asynccontextmanager
async def program(target: Target, failed: Callable[[str], None]) -> AsyncIterator[Any]:
    """Start a program and connect to it; end its whole process group afterwards.

    Args:
        target: The command.
        failed: Called with the reason if the program exceeds a limit.
    """
    process = await anyio.open_process(
        list(target.command),
        env={**get_default_environment(), **target.env},
        stderr=subprocess.DEVNULL,  # its other output is not for our user
        cwd=target.cwd,
        start_new_session=True,
    )
    PROGRAMS.groups.add(process.pid)
    pipes = _Pipes(process, failed)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pipes.read)
            tasks.start_soon(pipes.write)
            try:
                yield pipes.incoming, pipes.outgoing
            finally:
                tasks.cancel_scope.cancel()
    finally:
        try:
            with anyio.CancelScope(shield=True):
                await _end(process)
        finally:
            pipes.close()


class _Pipes:
    """Carries messages between a program and the SDK's session."""

    def __init__(self, process: Process, failed: Callable[[str], None]) -> None:
        self._process, self._failed = process, failed
        self._unasked = self._lines = 0
        self._heard, self.incoming = anyio.create_memory_object_stream[Any](0)
        self.outgoing, self._said = anyio.create_memory_object_stream[SessionMessage](0)

    async def read(self) -> None:
        """Pass on the program's messages until it ends or exceeds a limit."""
        assert self._process.stdout is not None
        buffer = bytearray()
        gone = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
        with contextlib.suppress(*gone, OSError):
            async with self._heard:
                try:
                    while True:
                        part = await self._process.stdout.receive(_READ)
                        self._count(part)
                        *lines, rest = part.split(b"\n")
                        for line in lines:
                            buffer += line
                            await self._pass_on(bytes(buffer))
                            buffer.clear()
                        buffer += rest
                        if len(buffer) > MAX_MESSAGE_BYTES:
                            raise TooMuch(
                                f"it sent more than {MAX_MESSAGE_BYTES // 2**20} MiB in a message"
                            )
                except TooMuch as error:
                    self._failed(str(error))

    def _count(self, part: bytes) -> None:
        self._unasked += len(part)
        self._lines += part.count(b"\n")
        if self._lines > MAX_UNASKED:
            raise TooMuch(f"it sent more than {MAX_UNASKED:,} messages without being asked")
        if self._unasked > MAX_UNASKED_BYTES:
            raise TooMuch(f"it sent more than {MAX_UNASKED_BYTES // 2**20} MiB without being asked")

    async def _pass_on(self, line: bytes) -> None:
        check_message(line)
        try:
            message: Any = SessionMessage(
                jsonrpc_message_adapter.validate_json(line, by_name=False)
            )
        except ValueError as error:  # for the session to report
            message = error
        await self._heard.send(message)

    async def write(self) -> None:
        """Pass on the session's messages."""
        assert self._process.stdin is not None
        try:
            async with self._said:
                async for message in self._said:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self._unasked = self._lines = 0
                    await self._process.stdin.send(text.encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self._heard.aclose()  # so that the session sees its end

    def close(self) -> None:
        """Close the streams."""
        for stream in (self._heard, self.incoming, self.outgoing, self._said):
            stream.close()


async def _end(process: Process) -> None:
    """Let the program end, then end its group, and wait for that."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError, anyio.BrokenResourceError):
        await process.stdin.aclose()
    for at_once in (None, False, True):
        if at_once is not None:
            end_group(process.pid, at_once=at_once)
        with anyio.move_on_after(LEAVE_SECONDS):
            with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream):
                while True:  # a program that is still writing would not notice the end
                    await process.stdout.receive(_READ)
            await process.wait()
            break
    await process.stdout.aclose()
    end_group(process.pid, at_once=True)
    PROGRAMS.groups.discard(process.pid)


# --- The SDK's side of a connection.


_SESSION: Final = "mcp-session-id"


@contextlib.asynccontextmanager
async def connect(target: Target, ends: Ends) -> AsyncIterator[Client]:
    """Start or reach a server; set the event if the server ends the connection."""
    async with contextlib.AsyncExitStack() as stack:
        if target.url:

            async def note_session(response: httpx2.Response) -> None:
                asked, code = response.request, response.status_code
                if code == 404 and asked.method == "POST" and _SESSION in asked.headers:
                    ends.why = ends.why or FORGOTTEN  # the call ends it, with its refusal

            http = httpx2.AsyncClient(
                headers={"Accept-Encoding": "identity", **target.headers},
                timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
                event_hooks={"response": [note_session, bound_answer]},
            )
            await stack.enter_async_context(http)
            transport: Any = streamable_http_client(target.url, http_client=http)
        else:
            transport = program(target, ends.because)
        yield await stack.enter_async_context(Client(_watched(transport, ends)))


@contextlib.asynccontextmanager
async def _watched(transport: Any, ends: Ends) -> AsyncIterator[Any]:
    """Pass a transport's streams on; set the event when the server closes its side."""
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
