"""Files in a prompt: read within limits, front matter parsed, text framed as data."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, Protocol, runtime_checkable

from wick_graph.backends import Entry, FileSystem
from wick_graph.config.yaml_reader import read_yaml
from wick_graph.errors import ConfigError
from wick_graph.messages.content import visible

# --- Put somebody else's text into a prompt so that it stays data: framed, escaped, cut,
# visible.
#
# A frame is no boundary of security: a model may still believe what it reads. What a model may *do*
# is decided by the tools that it is given. Nothing here formats with the text as a template.


MARK_DIGITS: Final = 16
"""64 bits: a text cannot be made that holds the mark which is derived from it."""


def mark_of(*seeds: str) -> str:
    """Derive a frame's mark of what it frames: the same for the same text.

    So the part of the prompt that a provider has cached stays as it is, and no author of a text
    can know its mark: with each change of the text it is another one.
    """
    return hashlib.sha256("\0".join(seeds).encode("utf-8", "replace")).hexdigest()[:MARK_DIGITS]


def framed(tag: str, mark: str, text: str) -> str:
    """Put a text between an opening and a closing line that carry the mark."""
    return f'<{tag} id="{mark}">\n{text}\n</{tag} id="{mark}">'


def escaped(text: str, tag: str) -> str:
    """Return a text in which nothing hidden is left and nothing opens or closes the frame."""
    # one class, not `\s*/?\s*`: a text of nothing but spaces must not cost its length squared
    return re.sub(rf"<(?=[\s/]*{tag})", "&lt;", visible(text), flags=re.IGNORECASE)


def cut(text: str, limit: int) -> str:
    """Return the first `limit` bytes of a text, or the text itself if it has no more."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else raw[:limit].decode("utf-8", "ignore")


def one_line(text: str, limit: int) -> str:
    """Return a text as one line of at most `limit` characters, for a place in a list.

    Arrows and angle brackets are replaced, so that it cannot look like another entry or a frame.
    """
    line = visible(" ".join(text.split()))
    line = line.replace("→", "->").replace("<", "&lt;").replace(">", "&gt;")
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


# --- The block of YAML at the head of a Markdown file: found line by line, read strictly.


MAX_BYTES: Final = 64 * 1024
"""Of a file, how much is looked at for its front matter."""

_FENCE: Final = "---"


def split(text: str) -> str | None:
    """Return the lines between the first line `---` and the next one, or None.

    A byte order mark, Windows line ends and spaces behind a fence are all right. What comes after
    the second fence is never looked at, so a nested block is text.
    """
    lines = text.removeprefix("\ufeff").split("\n")
    end = _end(lines)
    return None if end is None else "\n".join(line.rstrip("\r") for line in lines[1:end])


def body(text: str) -> str:
    """Return what stands behind the block; the whole text where there is no block."""
    lines = text.removeprefix("\ufeff").split("\n")
    end = _end(lines)
    return "\n".join(lines if end is None else lines[end + 1 :])


def _end(lines: list[str]) -> int | None:
    """Return the number of the line that ends the block, None where there is none."""
    if lines[0].rstrip() != _FENCE:
        return None
    return next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)


def read(data: bytes) -> dict[str, Any]:
    """Return what the front matter of a file says; nothing where it has none or a bad one."""
    block = split(data[:MAX_BYTES].decode("utf-8", "replace"))
    if block is None:
        return {}
    try:
        found = read_yaml(block, "front matter").data
    except ConfigError:
        return {}
    return found if isinstance(found, dict) else {}


# --- What the hooks that load files ask of the place where the files are.


@runtime_checkable
class Reader(Protocol):
    """Read below one directory and nowhere else; a `Root` is one.

    Every refusal is a `ToolError`. A path is never handed to a shell.
    """

    def read_bytes(self, rel: str, limit: int) -> bytes:
        """Return the file's first `limit` bytes."""
        ...

    def scan_dir(self, rel: str = ".", limit: int | None = None) -> tuple[list[Entry], int]:
        """Return the first `limit` entries by name, and how many there are."""
        ...


class BackendReader:
    """Read what the tools of a backend may read, by the same paths."""

    def __init__(self, backend: FileSystem) -> None:
        self._backend = backend

    def read_bytes(self, rel: str, limit: int) -> bytes:
        """Return the file's first `limit` bytes; what is not UTF-8 comes as U+FFFD."""
        return self._backend.read(rel).text.encode("utf-8", "replace")[:limit]

    def scan_dir(self, rel: str = ".", limit: int | None = None) -> tuple[list[Entry], int]:
        """Return the first `limit` entries by name, and how many there are."""
        listing = self._backend.ls(rel, limit)
        return listing.entries, listing.total


def reader_of(backend: FileSystem | Reader) -> Reader:
    """Return what reads the files of a backend; a `Reader`, such as a `Root`, reads by itself."""
    return backend if isinstance(backend, Reader) else BackendReader(backend)


def is_missing(error: BaseException) -> bool:
    """Say whether a refusal means only that there is no such file or directory."""
    return isinstance(error.__cause__, FileNotFoundError)
