"""Run one shell command: bounded in time, in memory and on disk, and leaving no process behind."""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from wick_graph.backends import reaper
from wick_graph.backends.limits import (
    GRACE_SECONDS,
    MAX_OUTPUT_BYTES,
    OUTPUT_HEAD_BYTES,
    OUTPUT_TAIL_BYTES,
)
from wick_graph.backends.protocol import Executed, Stop
from wick_graph.errors import ToolError

TIMED_OUT: Final = 124
_READ_BYTES: Final = 2**16
_LATE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 1.0
_PASSED_ON: Final = ("HOME", "LANG", "LOGNAME", "SHELL", "TMPDIR", "TZ", "USER")
_STREAMS: Final = ("stdout", "stderr")

Spool = Callable[[str], tuple[int, str]]
"""Open the file for a stream's whole output: its descriptor, and the path to tell."""


def clean_environment(workdir: str) -> dict[str, str]:
    """Return the variables that a command gets: few, and none that changes how programs start."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith("LC_")
    }
    inside = f"{os.path.realpath(workdir)}/"
    folders = os.environ.get("PATH", "").split(os.pathsep)
    safe = [
        f for f in folders if f.startswith("/") and not f"{os.path.realpath(f)}/".startswith(inside)
    ]
    return {**kept, "PATH": os.pathsep.join(safe) or "/usr/local/bin:/usr/bin:/bin", "TERM": "dumb"}


@dataclass(slots=True)
class Capture:
    """One stream: its beginning and its end in memory, all of it in a file if it is long."""

    open_file: Callable[[], tuple[int, str]]
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0
    file: str | None = None
    problem: str | None = None
    _fd: int = -1

    def feed(self, data: bytes) -> None:
        """Take in what was read."""
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
        """Close the file; return what is shown of the stream."""
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
            self.problem = f"the whole output could not be kept: {error.strerror}"
            os.close(self._fd)
            self._fd = -1


def _in_memory() -> int:
    return OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES


def run(
    command: str, *, cwd: str, env: Mapping[str, str], timeout: float, spool: Spool, stop: Stop
) -> Executed:
    """Run a command by `/bin/sh -c`, without input, and wait until all its processes are gone.

    Raises:
        ToolError: It could not be started.
    """
    running = _Running(command, cwd, dict(env), spool)
    stop.then(running.end)
    try:
        running.watch(timeout)
    finally:
        running.close()
    return running.result(stop)


def _reaper(
    arguments: list[str], cwd: str, env: dict[str, str], fds: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(reaper.__file__).resolve()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
        pass_fds=fds,
        start_new_session=True,
    )


class _Running:
    """One command under way: the reaper, its control pipe, and the pipes that are read."""

    def __init__(self, command: str, cwd: str, env: dict[str, str], spool: Spool) -> None:
        self.captures = {name: Capture(partial(spool, name)) for name in _STREAMS}
        self.timed_out = False
        self.flooded = False
        self.status = b""
        self.late = float("inf")
        self._lock = threading.Lock()
        control, self._control = os.pipe()
        self._status, status = os.pipe()
        arguments = [str(control), str(status), str(GRACE_SECONDS), command]
        try:
            self.process = _reaper(arguments, cwd, env, (control, status))
        except (OSError, ValueError) as error:
            os.close(self._status)
            os.close(self._control)
            raise ToolError(f"the command could not be started: {error}") from error
        finally:
            os.close(control)
            os.close(status)

    def end(self) -> None:
        """Have everything killed; may be called more than once, from any thread."""
        with self._lock:
            control, self._control = self._control, -1
        if control >= 0:
            os.close(control)
            self.late = time.monotonic() + _LATE_SECONDS
            self.process.send_signal(signal.SIGCONT)  # the command may have stopped its reaper

    def watch(self, timeout: float) -> None:
        """Read until all pipes are closed, which is when no process is left."""
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
        """Give everything back; what is still there after all is killed by its group."""
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

    def result(self, stop: Stop) -> Executed:
        """Say how it ended."""
        shown = {name: capture.close() for name, capture in self.captures.items()}
        if self._said("leader") is None:
            raise ToolError(f"the command could not be started: {shown['stderr'].strip()}")
        out, err = (self.captures[name] for name in _STREAMS)
        number = self._said("signal")
        code = self._said("exit") if number is None else 128 + number
        if code is None:
            code, number = 128 + signal.SIGKILL, signal.SIGKILL
        notes = [c.problem for c in (out, err) if c.problem]
        if self.flooded:
            notes.append(f"killed: it wrote more than {MAX_OUTPUT_BYTES // 2**20} MiB")
        elif stop.is_set():
            notes.append("killed: the run was cancelled")
        return Executed(
            stdout=shown["stdout"],
            stderr=shown["stderr"],
            exit_code=TIMED_OUT if self.timed_out else code,
            timed_out=self.timed_out,
            signal=None if number is None or self.timed_out else signal.Signals(number).name,
            stdout_bytes=out.total,
            stderr_bytes=err.total,
            stdout_file=out.file or None,
            stderr_file=err.file or None,
            notes=tuple(notes),
        )

    def _pipes(self) -> dict[str, int]:
        streams = (self.process.stdout, self.process.stderr)
        return {n: s.fileno() for n, s in zip(_STREAMS, streams, strict=True) if s is not None}

    def _read(self, key: selectors.SelectorKey, selector: selectors.BaseSelector) -> None:
        data = os.read(key.fd, _READ_BYTES)
        if not data:
            selector.unregister(key.fileobj)
        elif key.data == "status":
            self.status += data
        elif not self.flooded:
            self.captures[key.data].feed(data)
            if sum(capture.total for capture in self.captures.values()) > MAX_OUTPUT_BYTES:
                self.flooded = True
                self.end()

    def _leader_ended(self) -> bool:
        return b"exit" in self.status or b"signal" in self.status

    def _said(self, word: str) -> int | None:
        for line in self.status.decode("ascii", "replace").splitlines():
            name, _, number = line.partition(" ")
            if name == word:
                return int(number)
        return None
