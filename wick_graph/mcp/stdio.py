"""MCP over a program's standard input and output, one JSON-RPC message a line, in bounds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import anyio
from anyio.abc import Process
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from wick_graph.mcp.bounds import (
    MAX_MESSAGE_BYTES,
    MAX_UNASKED,
    MAX_UNASKED_BYTES,
    TooMuch,
    check_message,
)
from wick_graph.mcp.connection import Target

LEAVE_SECONDS: Final = 2.0
"""For the program to end by itself, and again after SIGTERM."""
_READ: Final = 65_536


@contextlib.asynccontextmanager
async def program(target: Target, failed: Callable[[str], None]) -> AsyncIterator[Any]:
    """Start a program and connect to it; all of its process group has ended afterwards.

    Args:
        target: The command.
        failed: Told why the connection ended, if the program broke a bound.
    """
    process = await anyio.open_process(
        list(target.command),
        env={**get_default_environment(), **target.env},
        stderr=subprocess.DEVNULL,  # what it says beside the protocol is not for our user
        cwd=target.cwd,
        start_new_session=True,
    )
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
    """Carry messages between a program and the SDK's session."""

    def __init__(self, process: Process, failed: Callable[[str], None]) -> None:
        self._process, self._failed = process, failed
        self._unasked = self._lines = 0
        self._heard, self.incoming = anyio.create_memory_object_stream[Any](0)
        self.outgoing, self._said = anyio.create_memory_object_stream[SessionMessage](0)

    async def read(self) -> None:
        """Pass on what the program says, until it ends or says too much."""
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
        except ValueError as error:  # for the session to tell
            message = error
        await self._heard.send(message)

    async def write(self) -> None:
        """Pass on what the session says."""
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
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with anyio.move_on_after(LEAVE_SECONDS):
            with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream):
                while True:  # a program that still writes would not see that it is to end
                    await process.stdout.receive(_READ)
            await process.wait()
            break
    await process.stdout.aclose()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
