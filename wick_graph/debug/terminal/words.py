"""Lines and arguments: how what is typed is taken apart."""

from __future__ import annotations

import json
import shlex
from typing import Any

from wick_graph.errors import DebugError


def commands_in(text: str) -> list[str]:
    """Split a line at the semicolons that stand outside of quotes and brackets."""
    made, line, quote, depth = [], "", "", 0
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(depth - 1, 0)
        elif char == ";" and not depth:
            made.append(line)
            line = ""
            continue
        line += char
    return [part.strip() for part in [*made, line] if part.strip()]


def words_of(text: str) -> list[str]:
    """Split arguments as a shell does.

    Raises:
        DebugError: A quotation mark is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise DebugError(f"{text[:80]!r} cannot be read: {str(error).lower()}") from None


def json_of(text: str) -> Any:
    """Read a JSON value; what is none is taken as a text, unless it looks as if it were meant.

    Raises:
        DebugError: It begins like JSON and is none.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        if text[:1] in ("{", "[", '"'):
            raise DebugError(f"{text[:80]!r} is no JSON: {error}") from None
        return text


def number_of(text: str, what: str = "a number") -> int:
    """Read a number.

    Raises:
        DebugError: It is none.
    """
    try:
        return int(text)
    except ValueError:
        raise DebugError(f"{text[:40]!r} is not {what}") from None


def needs(rest: str, what: str) -> str:
    """Return an argument that must be there.

    Raises:
        DebugError: It is not.
    """
    if not rest:
        raise DebugError(f"say {what}")
    return rest
