"""uvicorn's HTTP/1.1 protocol with a deadline for the head of a request.

uvicorn waits for ever for a head that comes byte by byte; a few hundred of such connections would
take every place there is.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class Deadline(H11Protocol):
    """Close a connection whose next head takes too long."""

    seconds: ClassVar[float] = 10.0
    _late: asyncio.TimerHandle | None = None

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

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._done()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(self.seconds, self._close)

    def _done(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()


def with_deadline(seconds: float) -> type[asyncio.Protocol]:
    """Make a protocol class with another deadline."""
    return type("Deadline", (Deadline,), {"seconds": seconds})
