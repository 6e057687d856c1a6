"""uvicorn's HTTP/1.1 protocol with deadlines for those who send or take nothing.

uvicorn waits for ever for a head that comes byte by byte, and for a reader that takes nothing of
what was sent to it; a few hundred of such connections would take every place there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import math
import socket
import struct
import sys
import termios
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

_AT_ONCE: Final = struct.pack("ii", 1, 0)


class Deadline(H11Protocol):
    """Close a connection whose next head takes too long, or whose reader stands still."""

    head: ClassVar[float] = 10.0
    send: ClassVar[float] = 30.0
    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _unread: float = math.inf
    """Bytes that waited for the reader when it was looked at last."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Go on, and see whether a head is complete."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._done()
        elif self._late is None:
            self._wait()

    def on_response_complete(self) -> None:
        """Leave the connection to the time that it may be idle."""
        super().on_response_complete()
        self._done()
        self._watch()

    def pause_writing(self) -> None:
        """Wait for the reader, for a while."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Note that the reader goes on."""
        super().resume_writing()
        self._unread = math.inf

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._done()
        if self._stuck is not None:
            self._stuck.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(self.head, self._close)

    def _done(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def _watch(self) -> None:
        """Begin to look whether the reader takes what waits for it."""
        if self._stuck is None and self.transport.get_write_buffer_size():
            self._unread = self._waiting()
            self._stuck = self.loop.call_later(self.send, self._look)

    def _waiting(self) -> int:
        """Count the bytes that wait for the reader, here and in the system's own buffer."""
        connection = self.transport.get_extra_info("socket")
        queued = bytearray(4)
        with contextlib.suppress(OSError):  # not every system tells
            fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, queued)
        return self.transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)

    def _look(self) -> None:
        """Cut off a reader that took nothing; `close`, and the system, would wait for it."""
        self._stuck = None
        if self.transport.get_write_buffer_size() and self._waiting() >= self._unread:
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self.transport.abort()
        else:
            self._watch()


def with_deadlines(head: float, send: float) -> type[asyncio.Protocol]:
    """Make a protocol class with other deadlines, in seconds."""
    return type("Deadline", (Deadline,), {"head": head, "send": send})
