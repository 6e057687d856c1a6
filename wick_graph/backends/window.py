"""Read a part of a file that a model can be shown, whatever the file's size."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Final

from wick_graph.backends.limits import MAX_READ_BYTES, MAX_SKIP_BYTES
from wick_graph.backends.search_worker import read_at
from wick_graph.errors import ToolError

_CHUNK_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Window:
    """What was read."""

    text: str
    whole: bytes | None
    """The file's bytes, if the window is all of it."""
    notes: tuple[str, ...]


def read_window(fd: int, size: int, line: int, lines: int | None, byte: int) -> Window:
    """Read from a line, counted from 1 from the place `byte`, at most a megabyte.

    What was appended after the file had that size is not read.

    Raises:
        ToolError: The place is behind the file's end, or too far in to be counted to.
    """
    if byte > size:
        raise ToolError(f"byte={byte} is behind the end of the file, which has {size:,} bytes")
    start = _skip_lines(fd, byte, size, line - 1)
    data = read_at(fd, start, min(MAX_READ_BYTES, size - start))
    if lines is not None:
        data = _first_lines(data, lines)
    end = start + len(data)
    if end < size:
        data = data[: len(data) - _unfinished(data)] or data
        end = start + len(data)
    text = data.decode("utf-8", "replace")
    notes = []
    if "\ufffd" in text and not _is_utf8(data):
        notes.append("not all of it is UTF-8 text; other bytes are shown as \ufffd")
    if (start, end) != (0, size):
        rest = f"; go on with byte={end}" if end < size else ""
        notes.append(f"bytes {start:,} to {end:,} of {size:,} are shown{rest}")
    return Window(text, data if (start, end) == (0, size) else None, tuple(notes))


def _skip_lines(fd: int, start: int, size: int, count: int) -> int:
    """Return where the line begins that has `count` lines before it."""
    at = start
    while count > 0:
        if at - start >= MAX_SKIP_BYTES:
            raise ToolError(
                f"the line is more than {MAX_SKIP_BYTES // 2**20} MiB into the file; "
                "use grep, or name a byte to begin at"
            )
        chunk = read_at(fd, at, min(_CHUNK_BYTES, size - at))
        if not chunk:
            raise ToolError(f"the file ends {count} lines before that line; it has {size:,} bytes")
        found = chunk.count(b"\n")
        if found < count:
            count -= found
            at += len(chunk)
            continue
        at += len(_first_lines(chunk, count))
        count = 0
    return at


def _first_lines(data: bytes, count: int) -> bytes:
    end = 0
    for _ in range(count):
        end = data.find(b"\n", end) + 1
        if not end:
            return data
    return data[:end]


def _unfinished(data: bytes) -> int:
    """Count the bytes at the end that begin a character and do not end it."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 == 0x80:
            continue
        length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        return back if length > back else 0
    return 0


def _is_utf8(data: bytes) -> bool:
    try:
        codecs.decode(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
