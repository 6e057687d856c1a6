"""Paths into a state: `messages[-1].content`, `files["a.txt"]`, `todos`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from wick_graph.errors import DebugError

Path = tuple[str | int, ...]
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_PART: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_]\w*)|\[(?P<index>-?\d{1,9})\]|\[(?P<key>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\]"""
)


def read_path(text: str) -> Path:
    """Read a path; its first part is a channel.

    Raises:
        DebugError: It is none.
    """
    text = text.strip()
    start = _NAME.match(text)
    if start is None:
        raise DebugError(f"{text[:80]!r} is no path; write one such as messages[-1].content")
    return (start[0], *_parts(text, start.end()))


def write_path(path: Path) -> str:
    """Write a path."""
    made = ""
    for part in path:
        if isinstance(part, int):
            made += f"[{part}]"
        elif _NAME.fullmatch(part):
            made += f".{part}" if made else part
        else:
            made += f"[{part!r}]"
    return made


def _parts(text: str, at: int) -> Iterator[str | int]:
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            raise DebugError(
                f"{text[:80]!r} is no path: column {at + 1} is not understood; "
                "write one such as messages[-1].content"
            )
        if found["name"]:
            yield found["name"]
        elif found["index"]:
            yield int(found["index"])
        else:
            yield str(ast.literal_eval(found["key"]))
        at = found.end()
