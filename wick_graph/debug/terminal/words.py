"""Lines and arguments: how what is typed is taken apart."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Final

from wick_graph.errors import DebugError

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_SIGN: Final = re.compile(r"\\.|[\"'()\[\]{};]", re.DOTALL)
_QUOTES: Final = "\"'"
_CLOSES: Final = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}
"""What ends what a sign begins."""


def commands_in(text: str) -> list[str]:
    """Split a line at the semicolons that stand outside of quotes and brackets.

    Raises:
        DebugError: A quote or bracket is never closed, and a semicolon stands behind it.
    """
    made: list[str] = []
    begin, opened = 0, ""
    for found in _SIGN.finditer(text):
        sign = found[0]
        if opened[-1:] in _QUOTES and opened:
            opened = opened[:-1] if sign == opened[-1] else opened
        elif sign in _CLOSES:
            opened += _CLOSES[sign]
        elif opened and sign == opened[-1]:
            opened = opened[:-1]
        elif sign == ";" and not opened:
            made.append(text[begin : found.start()])
            begin = found.end()
    rest = text[begin:]
    if opened and ";" in rest:
        raise DebugError(
            f"{opened[-1]} is missing in {rest.strip()[:80]!r}; close it, or write its command last"
        )
    return [part.strip() for part in [*made, rest] if part.strip()]


def unquoted(text: str) -> str:
    """Return an expression without the quotes around the whole of it, as shells have them."""
    if _QUOTED.fullmatch(text) is None:
        return text
    return re.sub(r"\\(.)", r"\1", text[1:-1])


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
