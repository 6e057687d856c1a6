"""The program that matches a model's patterns, in a process of its own that can be killed.

Run as a script: `python -I -S search_worker.py SOCKET FOLDER SECONDS BYTES MATCHES`; FOLDER holds
the package `re2`. A search holds the interpreter's lock all the time: in its own process it blocks
no other thread. The program ends when the socket closes, and at the latest after SECONDS of
processor time, even if the engine has died.

Each message is four bytes of length and JSON. `{"compile": text, "options": {…}}` comes first; its
answer is `{}` or `{"error": reason}`. The answer to `{"names": […]}` is the positions of the names
that match as a whole. The answer to `{"files": n}`, with n open files attached, is
`[position, line, start]` for each line that matches.

It imports the standard library and `re2` alone, nothing of wick_graph.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

with suppress(ImportError):  # on Windows; nothing starts this program there
    import resource

CHUNK_BYTES = 2**20

MEMORY_BYTES = 8 * 2**20
"""For one compiled pattern."""

SPACE_BYTES = 2**30
"""Of this process."""

MAX_FILES = 128
"""Attached to one message."""

IDLE_SECONDS = 30


class Worker:
    """One pattern and its searches."""

    def __init__(self, connection: socket.socket, seconds: int, largest: int, most: int) -> None:
        self.connection, self.seconds = connection, seconds
        self.largest, self.most = largest, most
        self.expression: Any = None

    def work(self) -> None:
        """Answer messages until the other side has closed, or is idle."""
        while select.select([self.connection], [], [], IDLE_SECONDS)[0]:
            if (found := receive(self.connection)) is None:
                return
            message, fds = found
            if "compile" in message:
                answer: Any = self.compile(message["compile"], message["options"])
            elif "names" in message:
                fits = self.expression.fullmatch
                answer = [at for at, name in enumerate(message["names"]) if fits(name)]
            else:
                answer = [[at, *hit] for at, fd in enumerate(fds) for hit in self.lines(fd)]
                for fd in fds:
                    os.close(fd)
            send(self.connection, answer)

    def compile(self, text: str, given: dict[str, bool]) -> dict[str, str]:
        """Compile the pattern; say why if RE2 refuses it."""
        # only importable once this program knows the folder; the package has no type hints
        import re2  # type: ignore[import-untyped]  # noqa: PLC0415  # as said above

        used = resource.getrusage(resource.RUSAGE_SELF)
        lower(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + self.seconds)
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = MEMORY_BYTES
        for name, value in given.items():
            setattr(options, name, value)
        try:
            self.expression = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0] if error.args else b""
            text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
            return {"error": text or "RE2 refuses it"}
        return {}

    def lines(self, fd: int) -> Iterator[tuple[int, int]]:
        """Yield number and offset of each line that matches, one chunk of whole lines at a time."""
        start, line, found = 0, 1, 0
        while data := self.read(fd, start):
            at, counted = 0, 0
            while at < len(data) and (match := self.expression.search(data, at)):
                first = data.rfind(b"\n", 0, match.start()) + 1
                if first == len(data):  # there is no line after the last line end
                    break
                line += data.count(b"\n", counted, first)
                counted = first
                yield line, start + first
                found += 1
                if found == self.most:
                    return
                end = data.find(b"\n", match.end())
                at = len(data) if end < 0 else end + 1
            line += data.count(b"\n", counted)
            start += len(data)

    def read(self, fd: int, start: int) -> bytes:
        """Read whole lines: a megabyte of them, or one longer line."""
        size, data = CHUNK_BYTES, b""
        while size <= 2 * self.largest:
            data = read_at(fd, start, size)
            if len(data) < size:
                return data
            end = data.rfind(b"\n")
            if end >= 0:
                return data[: end + 1]
            size *= 2
        return data


def read_at(fd: int, start: int, count: int) -> bytes:
    """Read `count` bytes from an offset in a file, fewer only at its end."""
    parts = []
    while count > 0 and (data := os.pread(fd, count, start)):
        parts.append(data)
        start, count = start + len(data), count - len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def send(connection: socket.socket, value: Any, fds: tuple[int, ...] = ()) -> None:
    """Send a message, with open files attached."""
    data = json.dumps(value).encode()
    head = len(data).to_bytes(4, "big")
    if fds:
        socket.send_fds(connection, [head], fds)
    else:
        connection.sendall(head)
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[Any, list[int]] | None:
    """Receive a message and its open files; None once the other side has closed."""
    head, fds, _, _ = socket.recv_fds(connection, 4, MAX_FILES)
    while head and len(head) < 4:
        head += connection.recv(4 - len(head)) or b"\0\0\0\0"
    if not head:
        return None
    left, parts = int.from_bytes(head, "big"), []
    while left:
        part = connection.recv(min(left, CHUNK_BYTES))
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts)), fds


def lower(kind: int, limit: int) -> None:
    """Set a limit of this process, within its hard limit."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def main(arguments: list[str]) -> None:
    """Serve the other end of a socket."""
    number, folder, *limits = arguments
    lower(resource.RLIMIT_AS, SPACE_BYTES)
    lower(resource.RLIMIT_CORE, 0)
    sys.path.append(folder)
    seconds, largest, most = map(int, limits)
    with socket.socket(fileno=int(number)) as connection:
        Worker(connection, seconds, largest, most).work()


if __name__ == "__main__":
    main(sys.argv[1:])
