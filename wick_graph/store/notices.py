"""Notices between the processes of a database: hints that something has changed, and no content.

A notice may come twice, late or never, and anyone who may connect can forge one. So who gets
one reads the rows, and reads them now and then without one. On PostgreSQL a process has one
connection for notices. It sends them outside of transactions that write: a commit with a NOTIFY
in it waits for all others of its kind. Other databases pass on the notices within this process.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, Final

from wick_graph.errors import StorageError
from wick_graph.store.dialect import Dialect

PER_SECOND: Final = 20
"""The most transactions with notices that a process sends in a second."""

_AT_ONCE: Final = 5
"""Those of them that need not wait for the one before: a run begins with three of its process."""

_BYTES: Final = 7_900
"""PostgreSQL takes less than 8,000 bytes at once."""

_ALL: Final = "*"

_MOST: Final = 4_096
"""Topics that wait to be sent; with more, the others look at all they know."""

_ECHO_SECONDS: Final = 5.0
"""Time for the first notice to come back to its sender."""

_AGAIN_SECONDS: Final = (0.2, 30.0)
"""The first and the longest pause before another attempt to connect."""

_log: Final = logging.getLogger(__name__)


def topic(kind: str, *names: str | bytes) -> str:
    """Return the short name of what may change: no id that a user chose is sent in the clear."""
    made = blake2b(digest_size=8)
    for part in (kind, *names):
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        made.update(len(data).to_bytes(4, "big") + data)
    return made.hexdigest()


class Notices:
    """Tells the processes of a database what has changed; all methods may be called anywhere.

    Args:
        dialect: The database; None passes on notices within this process alone.
    """

    def __init__(self, dialect: Dialect | None = None) -> None:
        self._dialect = dialect
        self.works = False
        """Whether notices of other processes arrive now; if not, look often."""
        self._me = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._calls: dict[str, list[Callable[[], object]]] = {}
        self._unsent: dict[str, None] = {}
        self._echoed = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None

    def start(self) -> None:
        """Begin to send and get notices, in a thread of its own."""
        if self._thread is None and self._dialect is not None and self._dialect.locks:
            if self._bell is None:
                self._bell = socket.socketpair()
                self._bell[0].setblocking(False)
                self._bell[1].setblocking(False)
            thread = threading.Thread(target=self._keep, name="wick-notices", daemon=True)
            thread.start()  # one that cannot be started is tried again
            self._thread = thread

    def close(self) -> None:
        """Send what is left, and end the thread; closing twice is harmless."""
        self._closed.set()
        self._ring()
        if self._thread is not None:
            self._thread.join(_ECHO_SECONDS)
        for end in self._bell or ():
            end.close()
        self._thread = self._bell = None

    def tell(self, *topics: str) -> None:
        """Tell all processes that something has changed; call this after its commit."""
        for one in topics:
            self._call(one)
        if self._thread is not None:
            with self._lock:
                self._unsent.update(dict.fromkeys(topics))
                if len(self._unsent) > _MOST:  # the database is away for long
                    self._unsent = {_ALL: None}
            self._ring()

    @contextlib.contextmanager
    def listening(self, one: str, call: Callable[[], object]) -> Iterator[None]:
        """Call a function at each notice of a topic, and whenever some may have been missed.

        It is called in any thread, and may neither wait nor raise.
        """
        with self._lock:
            self._calls.setdefault(one, []).append(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls[one].remove(call)
                if not self._calls[one]:
                    del self._calls[one]

    def _call(self, one: str | None) -> None:
        with self._lock:
            every = self._calls.values() if one is None else (self._calls.get(one, ()),)
            calls = [call for found in every for call in found]
        for call in calls:
            call()

    def _ring(self) -> None:
        if self._bell is not None:
            with contextlib.suppress(OSError):  # it rings already, or is closed
                self._bell[0].send(b"!")

    # --- The thread: one connection, opened again when it is lost.

    def _keep(self) -> None:
        shortest, longest = _AGAIN_SECONDS
        pause = shortest
        while not self._closed.is_set():
            try:
                with self._connected() as (raw, channel):
                    pause = shortest
                    self._serve(raw, channel)
            except Exception as error:  # whatever it is, those who listen look by themselves
                if self.works or pause == shortest:
                    _log.warning("no notices from other processes; runs are polled: %s", error)
            if self.works:
                self.works = False
                self._call(None)
            if not self._closed.wait(pause):
                pause = min(2 * pause, longest)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[tuple[Any, str]]:
        """Connect and listen; check that notices arrive.

        Raises:
            StorageError: They do not: a pooler may be in between.
        """
        assert self._dialect is not None
        raw, channel = self._dialect.direct()
        self._echoed.clear()
        try:
            raw.add_notify_handler(lambda notice: self._arrived(notice.payload))
            raw.execute(f"LISTEN {channel}")
            raw.execute("SELECT pg_notify(%s, %s)", (channel, f"{self._me}:"))
            until = time.monotonic() + _ECHO_SECONDS
            while not self._echoed.is_set():
                self._receive(raw)
                if time.monotonic() > until:
                    raise StorageError(
                        "the database passes on no notices; connect without a pooler, or through "
                        "one in session mode"
                    )
                self._closed.wait(0.01)
            self.works = True
            self._call(None)  # some may have been missed
            yield raw, channel
        finally:
            raw.close()

    def _serve(self, raw: Any, channel: str) -> None:
        assert self._bell is not None
        rate, free, then = PER_SECOND - _AT_ONCE, float(_AT_ONCE), time.monotonic()
        with selectors.DefaultSelector() as waits:
            waits.register(raw.fileno(), selectors.EVENT_READ)
            waits.register(self._bell[1], selectors.EVENT_READ)
            while not self._closed.is_set() or self._unsent:
                waits.select(max(0.0, (1 - free) / rate) if self._unsent else None)
                with contextlib.suppress(BlockingIOError):
                    self._bell[1].recv(4_096)
                self._receive(raw)
                now = time.monotonic()
                free, then = min(float(_AT_ONCE), free + (now - then) * rate), now
                if self._unsent and (free >= 1 or self._closed.is_set()):
                    self._send(raw, channel)
                    free -= 1

    def _receive(self, raw: Any) -> None:
        """Take what has arrived while no statement runs; statements take the rest."""
        raw.pgconn.consume_input()
        while (notice := raw.pgconn.notifies()) is not None:
            self._arrived(notice.extra.decode("ascii", "replace"))

    def _arrived(self, payload: str) -> None:
        sender, _, topics = payload.partition(":")
        if sender == self._me:
            self._echoed.set()
            return
        for one in topics.split(","):
            self._call(None if one == _ALL else one)

    def _send(self, raw: Any, channel: str) -> None:
        with self._lock:
            topics, self._unsent = [*self._unsent], {}
        most = (_BYTES - len(self._me) - 1) // (len(topic("")) + 1)
        payloads = [
            f"{self._me}:{','.join(topics[at : at + most])}" for at in range(0, len(topics), most)
        ]
        raw.execute("SELECT pg_notify(%s, unnest(%s::text[]))", (channel, payloads))


SILENT: Final = Notices()
"""Passes on notices within this process alone, between stores that have no other."""
