"""A process that matches a model's pattern, and is killed when that takes too long.

RE2 takes time in proportion to what it reads, but also to what the pattern stands for, and nothing
can interrupt it. So no pattern of a model is compiled or matched in this process. A worker that has
done its search waits a while for the next one.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from wick_graph.backends import search_worker
from wick_graph.backends.limits import GREP_SECONDS, MAX_GREP_FILE_BYTES, MAX_GREP_MATCHES
from wick_graph.backends.patterns import Pattern, refused
from wick_graph.backends.walk import Walk
from wick_graph.errors import ToolError

MARGIN_SECONDS: Final = 2
"""Processor time that a worker may have beyond a search's own."""
_IDLE: Final = 2
"""Workers that wait for a search."""


class _Process:
    """A worker's process, and our end of its socket."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self.owner = os.getpid()
        self.since = 0.0
        """When it began to wait."""
        with theirs:
            try:
                self.popen = _started(theirs.fileno())
            except BaseException:
                self.socket.close()
                raise

    def kill(self) -> None:
        self.popen.kill()

    def end(self) -> None:
        self.kill()
        self.popen.wait()
        self.socket.close()


class _Waiting:
    """The workers that wait; a fork of this process takes none of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: list[_Process] = []

    def take(self) -> _Process:
        while True:
            with self._lock:
                one = self._found.pop() if self._found else None
            if one is None:
                return _Process()
            if one.owner == os.getpid():
                late = time.monotonic() - one.since > search_worker.IDLE_SECONDS / 2
                if not late and one.popen.poll() is None:
                    return one
                one.end()

    def give(self, one: _Process) -> None:
        one.since = time.monotonic()
        with self._lock:
            if len(self._found) < _IDLE:
                self._found.append(one)
                return
        one.end()

    def close(self) -> None:
        with self._lock:
            found, self._found = self._found, []
        for one in found:
            if one.owner == os.getpid():
                one.end()

    def forked(self) -> None:
        self._lock = threading.Lock()
        for one in self._found:
            one.socket.close()  # else the worker would not see that our parent has ended
            one.popen.returncode = 0  # not ours to wait for


_WAITING: Final = _Waiting()
atexit.register(_WAITING.close)
os.register_at_fork(after_in_child=_WAITING.forked)


class Worker:
    """Match one pattern, within the time of a walk.

    Raises:
        ToolError: The pattern is refused, or takes longer to understand than a search may.
    """

    def __init__(self, pattern: Pattern, walk: Walk) -> None:
        self._pattern, self._walk = pattern, walk
        self._process: Final = _WAITING.take()
        self._fine = True
        """Whether it can be asked again."""
        self._closed = False
        self._ending = threading.Lock()
        walk.stop.then(self._end_early)
        try:
            self._compile()
        except BaseException:
            self.close()
            raise

    def names(self, names: Sequence[str]) -> list[int]:
        """Return the places of the names that match as a whole; empty when time is up."""
        return self._ask({"names": list(names)}) or []

    def lines(self, fds: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return place of the file, number and first byte of the lines that match."""
        found = self._ask({"files": len(fds)}, tuple(fds)) or []
        return [(at, line, start) for at, line, start in found]

    def close(self) -> None:
        """Let the process go."""
        with self._ending:
            if self._closed:
                return
            self._closed = True
        if self._fine:
            _WAITING.give(self._process)
        else:
            self._process.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _end_early(self) -> None:
        """Kill the process, if it still works for this search."""
        with self._ending:
            if not self._closed:
                self._fine = False
                self._process.kill()

    def _compile(self) -> None:
        pattern = self._pattern
        answer = self._ask({"compile": pattern.text, "options": dict(pattern.options)})
        if answer is None and not self._walk.stop.is_set():
            raise ToolError("the pattern takes too long to be understood; write a simpler one")
        if answer:
            raise ToolError(refused(pattern.given, answer["error"]))

    def _ask(self, message: Any, fds: tuple[int, ...] = ()) -> Any:
        """Return the answer; None when time is up, or nobody waits any more.

        Raises:
            ToolError: The worker has died of the pattern.
        """
        walk = self._walk
        if walk.is_over():
            return None
        connection, answer = self._process.socket, None
        connection.settimeout(max(walk.left(), 0.001))
        self._fine = False
        try:
            search_worker.send(connection, message, fds)
            answer = search_worker.receive(connection)
        except TimeoutError:
            walk.is_over()
            return None
        except (OSError, ValueError):  # it has ended meanwhile
            pass
        if answer is None:
            if walk.is_over():
                return None
            raise ToolError("the pattern needs more than a search may have; write a simpler one")
        self._fine = not walk.stop.is_set()
        return answer[0]


def _started(number: int) -> subprocess.Popen[bytes]:
    found = find_spec("re2")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).resolve().parent
    folder = folder.parent if found.submodule_search_locations else folder
    limits = (int(GREP_SECONDS) + MARGIN_SECONDS, MAX_GREP_FILE_BYTES, MAX_GREP_MATCHES + 1)
    program = str(Path(search_worker.__file__).resolve())
    return subprocess.Popen(
        [sys.executable, "-I", "-S", program, str(number), str(folder), *map(str, limits)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        pass_fds=(number,),
        start_new_session=True,
    )
