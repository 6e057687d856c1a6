"""The block of YAML at the head of a Markdown file: found line by line, read strictly."""

from __future__ import annotations

from typing import Any, Final

from wick_graph.config.reader import read_yaml
from wick_graph.errors import ConfigError

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
