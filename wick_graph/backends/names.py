"""Names of files: from a model's words to the system's bytes, and safely back into a sentence."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

from wick_graph.errors import RefusedError, ToolError

_MAX_PATH_BYTES: Final = 4_095
_SHOWN_CHARS: Final = 200
_ESCAPED_BYTE: Final = re.compile(rb"\\x([89a-f][0-9a-f])")
REASONS: Final = {
    errno.ENOENT: "does not exist",
    errno.ELOOP: "is or passes through a symbolic link that is not followed here",
    errno.EXDEV: "leads outside the working directory; name a path inside it",
    errno.ENOTDIR: "uses something as a directory that is none",
    errno.ENAMETOOLONG: "is too long for a file name",
    errno.ENXIO: "is not a regular file",
}
_FORBIDDEN: Final = frozenset({errno.ELOOP, errno.EXDEV, errno.ENXIO})
"""What a rule of ours forbids; all else is the file system's own answer."""


def shown(path: str) -> str:
    """Quote a path for a sentence: cut, and with nothing in it that a terminal would obey."""
    text = ascii(path) if not path.isprintable() else f"'{path}'"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…'"


def encoded(rel: str) -> bytes:
    """Return a path as bytes.

    Raises:
        ToolError: No path can be written like that.
    """
    if not rel:
        raise ToolError("the path is empty; write '.' for the working directory")
    if "\0" in rel:
        raise ToolError(f"{shown(rel)} has a NUL character, which no path can have")
    try:
        raw = os.fsencode(rel)
    except UnicodeEncodeError as error:
        raise ToolError(f"{shown(rel)} has a character that no path can have") from error
    if len(raw) > _MAX_PATH_BYTES:
        raise ToolError(f"{shown(rel)} {REASONS[errno.ENAMETOOLONG]}")
    return raw


def decoded(name: str) -> str:
    """Return a name from the system as text; a byte that is not UTF-8 is written with `xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def plain(part: bytes) -> bytes:
    """Return the name that is meant by one in which bytes are written out."""
    return _ESCAPED_BYTE.sub(_byte, part)


def _byte(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode())


def refused(rel: str, error: OSError, done: str = "read") -> ToolError:
    """Make the error that says of a path why it could not be `done`."""
    kind = RefusedError if error.errno in _FORBIDDEN else ToolError
    return kind(f"{shown(rel)} {why(error, done)}")


def why(error: OSError | ValueError, done: str = "read") -> str:
    """Say in the rest of a sentence why a path could not be `done`."""
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno in (errno.EACCES, errno.EPERM):
            return f"may not be {done}: permission denied"
        known = REASONS.get(error.errno)
        return known or f"cannot be {'opened' if done == 'read' else done}: {error.strerror}"
    return str(error)
