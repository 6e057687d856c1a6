"""Run one command in a container: bounded in time, memory and disk; what it leaves is found."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from wick_graph.backends.capture import Output, Spool
from wick_graph.backends.docker.box import Box, close_stream, read_ahead, stream_of
from wick_graph.backends.limits import GRACE_SECONDS
from wick_graph.backends.protocol import Executed, Stop
from wick_graph.errors import ConfigError, ToolError

TIMED_OUT: Final = 124
KILLED: Final = 137
_READ_BYTES: Final = 2**16
_LOOK_SECONDS: Final = 0.1
_END_SECONDS: Final = 5.0
_HEAD: Final = 8
_NAMES: Final = {0: "stdout", 1: "stdout", 2: "stderr"}


class Frames:
    """The engine's stream of both outputs, taken apart."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._head = bytearray()
        self._left = 0
        self._name = "stdout"

    def feed(self, data: bytes) -> bool:
        """Take in what was read; False if the command wrote too much."""
        view = memoryview(data)
        while view:
            if self._left:
                part, view = view[: self._left], view[self._left :]
                self._left -= len(part)
                if not self._output.feed(self._name, bytes(part)):
                    return False
                continue
            need = _HEAD - len(self._head)
            self._head += view[:need]
            view = view[need:]
            if len(self._head) == _HEAD:
                self._name = _NAMES.get(self._head[0], "stderr")
                self._left = int.from_bytes(self._head[4:], "big")
                self._head.clear()
        return True


class Running:
    """One command under way in a container."""

    def __init__(self, box: Box, program: Sequence[str], spool: Spool, stop: Stop) -> None:
        self._box = box
        self._stop = stop
        self._lock = threading.Lock()
        self.output = Output(spool)
        self.killed = False
        """The container is gone, and with it everything that ran in it."""
        self.timed_out = False
        try:
            with box.engine.speaking("starting the command") as client:
                made = client.api.exec_create(box.id, list(program), stdin=False, tty=False)
                self._id: str = made["Id"]
                self._stream: Any = client.api.exec_start(self._id, socket=True)
        except ConfigError as error:
            raise ToolError(f"the command could not be started: {error}") from error

    def kill(self) -> None:
        """End the container; may be called from any thread, more than once."""
        with self._lock:
            first, self.killed = not self.killed, True
        if first:
            self._box.kill()

    def watch(self, timeout: float) -> None:
        """Read until the command has ended, and what it left in the background has had its time."""
        until = time.monotonic() + timeout
        sock = stream_of(self._stream)
        sock.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_READ)
            frames = Frames(self.output)
            if not frames.feed(read_ahead(self._stream)):
                self.kill()
            at_end = self._read(selector, frames, until)
            if not at_end and time.monotonic() < until and not self._leaves_something():
                self._read(selector, frames, time.monotonic() + _END_SECONDS)  # a slow engine
        if time.monotonic() >= until and not self.killed and self._code(0.0) is None:
            self.timed_out = True
            self.kill()

    def _read(self, selector: selectors.BaseSelector, frames: Frames, until: float) -> bool:
        """Read until time is up or the command has ended; True at the stream's end."""
        sock = stream_of(self._stream)
        look, ended = time.monotonic() + _LOOK_SECONDS, False
        while (now := time.monotonic()) < until and not self.killed:
            if selector.select(min(_LOOK_SECONDS, until - now)):
                data = _received(sock)
                if data == b"":
                    return True
                if data is not None and not frames.feed(data):
                    self.kill()
            if not ended and now >= look:
                look = now + _LOOK_SECONDS
                ended = not self._inspect()["Running"]
                until = min(until, time.monotonic() + GRACE_SECONDS) if ended else until
        return self.killed

    def result(self) -> Executed:
        """Say how it ended; a container in which something goes on is killed."""
        code = KILLED if self.killed else self._code(_END_SECONDS)
        if not self.killed and (code is None or self._leaves_something()):
            self.kill()
        return Executed(
            **self.output.close(),
            exit_code=TIMED_OUT if self.timed_out else KILLED if code is None else code,
            timed_out=self.timed_out,
            notes=tuple(self.output.notes(self._stop.is_set())),
            level="container",
        )

    def close(self) -> None:
        """Give the stream back."""
        close_stream(self._stream)

    def _leaves_something(self) -> bool:
        try:
            return self._box.processes() > 1
        except ConfigError:
            return True

    def _code(self, seconds: float) -> int | None:
        """Return the exit code, waiting for it that long; None if the command still runs."""
        until = time.monotonic() + seconds
        while True:
            found = self._inspect()
            if not found["Running"]:
                return int(found["ExitCode"] or 0)
            if time.monotonic() >= until:
                return None
            time.sleep(_LOOK_SECONDS / 10)

    def _inspect(self) -> dict[str, Any]:
        try:
            with self._box.engine.speaking("looking at the command") as client:
                found: dict[str, Any] = client.api.exec_inspect(self._id)
                return found
        except ConfigError:  # the container has gone: killed, or it has killed itself
            self.killed = True
            return {"Running": False, "ExitCode": KILLED}


def _received(sock: socket.socket) -> bytes | None:
    """Return what has come, nothing at the end, None if nothing has come yet."""
    try:
        return sock.recv(_READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""
