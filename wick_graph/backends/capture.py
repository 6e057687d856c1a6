"""What a command writes: its beginning and its end in memory, all of it in a file if it is long."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from wick_graph.backends.limits import MAX_OUTPUT_BYTES, OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES
from wick_graph.errors import ToolError

STREAMS: Final = ("stdout", "stderr")

Spool = Callable[[str], tuple[int, str]]
"""Open the file for a stream's whole output: its descriptor, and the path to tell."""


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


class Output:
    """Both streams of a command, and whether they are too long."""

    def __init__(self, spool: Spool) -> None:
        self.captures: Final = {name: Capture(partial(spool, name)) for name in STREAMS}
        self.flooded = False

    def feed(self, name: str, data: bytes) -> bool:
        """Take in what was read; False if it is too much, and nothing more is taken."""
        if not self.flooded:
            self.captures[name].feed(data)
            written = sum(capture.total for capture in self.captures.values())
            self.flooded = written > MAX_OUTPUT_BYTES
        return not self.flooded

    def notes(self, cancelled: bool) -> list[str]:
        """Say what the reader must know."""
        notes = [capture.problem for capture in self.captures.values() if capture.problem]
        if self.flooded:
            notes.append(f"killed: it wrote more than {MAX_OUTPUT_BYTES // 2**20} MiB")
        elif cancelled:
            notes.append("killed: the run was cancelled")
        return notes

    def close(self) -> dict[str, Any]:
        """Close the files; return the fields of `Executed` that tell what was written."""
        shown = {name: capture.close() for name, capture in self.captures.items()}
        sizes = {f"{name}_bytes": c.total for name, c in self.captures.items()}
        files = {f"{name}_file": c.file or None for name, c in self.captures.items()}
        return {**shown, **sizes, **files}
