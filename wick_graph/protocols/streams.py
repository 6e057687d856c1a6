"""Standard input and output as a way for messages, a line of JSON each."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import Any, BinaryIO, Final

from wick_graph.errors import ConfigError

_LINE: Final = 64 * 1024 * 1024
"""Bytes of a message."""


class StandardStreams:
    """Takes standard input and output for the protocol.

    What else reads from them gets nothing, and what else prints, prints to standard error.
    """

    def __init__(self) -> None:
        self._given: BinaryIO = os.fdopen(os.dup(0), "rb", buffering=0)
        self._told: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    async def opened(self) -> Lines:
        """Return them as a way for messages.

        Raises:
            ConfigError: They are files.
        """
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_LINE)
        try:
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._given)
            transport, protocol = await loop.connect_write_pipe(
                asyncio.streams.FlowControlMixin, self._told
            )
        except ValueError:
            raise ConfigError("wick acp speaks with an editor over pipes, not files") from None
        return Lines(reader, asyncio.StreamWriter(transport, protocol, None, loop))


class Lines:
    """Messages as lines of JSON."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sending = asyncio.Lock()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end. What is no message is answered."""
        while True:
            try:
                line = await self._reader.readline()
            except (ValueError, ConnectionError):
                await self._refuse(-32600, f"a message has at most {_LINE} bytes")
                continue
            if not line:
                return None
            if not line.strip():
                continue
            try:
                made = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(-32700, "send one JSON object in each line")
                continue
            if isinstance(made, dict):
                return made
            await self._refuse(-32600, "send one JSON object in each line")

    async def _refuse(self, code: int, text: str) -> None:
        error = {"code": code, "message": text}
        with suppress(OSError):
            await self.send({"jsonrpc": "2.0", "id": None, "error": error})

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        async with self._sending:
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await self._writer.drain()

    async def close(self) -> None:
        """Send no more."""
        self._writer.close()
