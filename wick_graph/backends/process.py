"""Run one command within limits of time, memory and disk; keep the ends of its output."""

from __future__ import annotations

import codecs
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from wick_graph.backends import reaper
from wick_graph.backends.protocol import (
    GRACE_SECONDS,
    MAX_OUTPUT_BYTES,
    OUTPUT_HEAD_BYTES,
    OUTPUT_TAIL_BYTES,
    Executed,
    Stop,
)
from wick_graph.errors import ToolError
from wick_graph.sandbox import Launch

# --- The output of a command: its beginning and end in memory, all of it in a file if it is long.


STREAMS: Final = ("stdout", "stderr")

Spool = Callable[[str], tuple[int, str]]
"""Open the file for a stream's whole output: its descriptor, and the path to show."""


@dataclass(slots=True)
class Capture:
    """One stream: its beginning and end in memory, all of it in a file if it is long."""

    open_file: Callable[[], tuple[int, str]]
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0
    file: str | None = None
    problem: str | None = None
    _fd: int = -1

    def feed(self, data: bytes) -> None:
        """Add data."""
        if self._fd < 0 and self.file is None and self.total + len(data) > _in_memory():
            self._spool()
        self._store(data)
        self.total += len(data)
        room = OUTPUT_HEAD_BYTES - len(self.head)
        self.head += data[:room] if room > 0 else b""
        self.tail += data[max(room, 0) :]
        if len(self.tail) > 2 * OUTPUT_TAIL_BYTES:
            del self.tail[:-OUTPUT_TAIL_BYTES]

    def close(self) -> str:
        """Close the file; return the text to show."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self.total <= _in_memory():
            return bytes(self.head + self.tail).decode("utf-8", "replace")
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self.head))
        tail = bytes(self.tail[-OUTPUT_TAIL_BYTES:])
        cut = next((i for i in range(min(4, len(tail))) if tail[i] & 0xC0 != 0x80), 0)
        left_out = self.total - len(self.head) - len(tail)
        end = tail[cut:].decode("utf-8", "replace")
        return f"{head}\n\n... (truncated {left_out} bytes) ...\n\n{end}"

    def _spool(self) -> None:
        self.file = ""
        try:
            self._fd, self.file = self.open_file()
        except (ToolError, OSError) as error:
            self.problem = str(error)
        self._store(bytes(self.head + self.tail))

    def _store(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view and self._fd >= 0:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self.problem = f"the whole output could not be saved: {error.strerror}"
            os.close(self._fd)
            self._fd = -1


def _in_memory() -> int:
    return OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES


class Output:
    """Both streams of a command, and whether they are too long."""

    def __init__(self, spool: Spool) -> None:
        self.captures: Final = {name: Capture(partial(spool, name)) for name in STREAMS}
        self.flooded = False

    def feed(self, name: str, data: bytes) -> bool:
        """Add data; return False if it is too much, and ignore the rest."""
        if not self.flooded:
            self.captures[name].feed(data)
            written = sum(capture.total for capture in self.captures.values())
            self.flooded = written > MAX_OUTPUT_BYTES
        return not self.flooded

    def notes(self, cancelled: bool) -> list[str]:
        """Return notes for the reader."""
        notes = [capture.problem for capture in self.captures.values() if capture.problem]
        if self.flooded:
            notes.append(f"killed: it wrote more than {MAX_OUTPUT_BYTES // 2**20} MiB")
        elif cancelled:
            notes.append("killed: the run was cancelled")
        return notes

    def close(self) -> dict[str, Any]:
        """Close the files; return the output fields of `Executed`."""
        shown = {name: capture.close() for name, capture in self.captures.items()}
        sizes = {f"{name}_bytes": c.total for name, c in self.captures.items()}
        files = {f"{name}_file": c.file or None for name, c in self.captures.items()}
        return {**shown, **sizes, **files}


# --- Run one command, bounded in time, memory and disk; it leaves no process behind.


TIMED_OUT: Final = 124

_READ_BYTES: Final = 2**16

_LATE_SECONDS: Final = 2.0

_LOOK_SECONDS: Final = 1.0


def shell(command: str, *arguments: str) -> tuple[str, ...]:
    """Return the arguments that run a shell command."""
    return ("/bin/sh", "-c", command, *(("sh", *arguments) if arguments else ()))


def run(
    program: Sequence[str],
    launch: Launch,
    *,
    level: str,
    cwd: str,
    timeout: float,
    spool: Spool,
    stop: Stop,
) -> Executed:
    """Run a program as a sandbox launches it, and wait until all its processes are gone.

    Raises:
        ToolError: it could not be started.
    """
    running = _Running(program, launch, cwd, spool)
    stop.then(running.end)
    try:
        running.watch(timeout)
    finally:
        running.close()
    return running.result(stop, level)


def _reaper(
    arguments: Sequence[str], cwd: str, launch: Launch, fds: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(reaper.__file__).resolve()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=dict(launch.env),
        pass_fds=(*fds, *launch.fds),
        start_new_session=True,
    )


class _Running:
    """One running command: the reaper, its control pipe, and its output pipes."""

    def __init__(self, program: Sequence[str], launch: Launch, cwd: str, spool: Spool) -> None:
        self.output = Output(spool)
        self.folder = launch.plan.get("tmp")
        self.timed_out = False
        self.status = b""
        self.late = float("inf")
        self._lock = threading.Lock()
        control, self._control = os.pipe()
        self._status, status = os.pipe()
        own = (str(control), str(status), str(GRACE_SECONDS), json.dumps(dict(launch.plan)))
        try:
            arguments = (*own, *launch.before, *program)
            self.process = _reaper(arguments, cwd, launch, (control, status))
        except (OSError, ValueError) as error:
            os.close(self._status)
            os.close(self._control)
            raise ToolError(f"the command could not be started: {error}") from error
        finally:
            for fd in (control, status, *launch.fds):
                os.close(fd)

    def end(self) -> None:
        """Kill everything; may be called more than once, from any thread."""
        with self._lock:
            control, self._control = self._control, -1
        if control >= 0:
            os.close(control)
            self.late = time.monotonic() + _LATE_SECONDS
            self.process.send_signal(signal.SIGCONT)  # the command may have stopped its reaper

    def watch(self, timeout: float) -> None:
        """Read until all pipes are closed: then no process is left."""
        until = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for name, fd in (*self._pipes().items(), ("status", self._status)):
                selector.register(fd, selectors.EVENT_READ, name)
            while selector.get_map():
                now = time.monotonic()
                if now >= until and self._control >= 0:
                    self.timed_out = not self._leader_ended()
                    self.end()
                if now >= self.late:
                    break
                wait = min(until, self.late) if self._control >= 0 else self.late
                for key, _ in selector.select(max(0.0, min(wait - now, _LOOK_SECONDS))):
                    self._read(key, selector)

    def close(self) -> None:
        """Release everything; kill the process group of what is still left."""
        self.end()
        try:
            self.process.wait(max(0.0, self.late - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        os.close(self._status)
        if self.process.returncode and (leader := self._said("leader")):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
        if self.folder is not None:  # it is still there if the reaper was killed
            shutil.rmtree(self.folder, ignore_errors=True)

    def result(self, stop: Stop, level: str) -> Executed:
        """Return how the command ended."""
        written = self.output.close()
        if self._said("leader") is None or self._said("failed") is not None:
            raise ToolError(f"the command could not be started: {written['stderr'].strip()}")
        number = self._said("signal")
        code = self._said("exit") if number is None else 128 + number
        if code is None:
            code, number = 128 + signal.SIGKILL, signal.SIGKILL
        return Executed(
            **written,
            exit_code=TIMED_OUT if self.timed_out else code,
            timed_out=self.timed_out,
            signal=None if number is None or self.timed_out else signal.Signals(number).name,
            notes=tuple(self.output.notes(stop.is_set())),
            level=level,
        )

    def _pipes(self) -> dict[str, int]:
        streams = {"stdout": self.process.stdout, "stderr": self.process.stderr}
        return {name: stream.fileno() for name, stream in streams.items() if stream is not None}

    def _read(self, key: selectors.SelectorKey, selector: selectors.BaseSelector) -> None:
        data = os.read(key.fd, _READ_BYTES)
        if not data:
            selector.unregister(key.fileobj)
        elif key.data == "status":
            self.status += data
        elif not self.output.feed(key.data, data):
            self.end()

    def _leader_ended(self) -> bool:
        return b"exit" in self.status or b"signal" in self.status

    def _said(self, word: str) -> int | None:
        for line in self.status.decode("ascii", "replace").splitlines():
            name, _, number = line.partition(" ")
            if name == word:
                return int(number)
        return None
