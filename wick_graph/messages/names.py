"""Tool names as every provider accepts them."""

from __future__ import annotations

import re
from typing import Final

MAX_NAME: Final = 64
"""Characters of a name that every provider takes."""
_PREFIX: Final = "functions."
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 64
_PORTABLE: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


def sanitise_tool_name(name: str) -> str:
    """Return a tool's name without a leading `functions.` and with `_` for what is refused.

    The same function makes the name that is stored, looked up and answered.
    """
    return sanitise_name(name.removeprefix(_PREFIX))


def sanitise_name(name: str) -> str:
    """Return a name in which each character but `a-z A-Z 0-9 _ -` is a `_`."""
    return _REFUSED.sub("_", name)


def portable_tool_name(name: str) -> str:
    """Return a tool's name as every provider takes it: one that wants a letter first gets a `_`."""
    if _PORTABLE.fullmatch(name):
        return name
    made = sanitise_tool_name(name)
    return (made if made[:1].isalpha() or made[:1] == "_" else f"_{made}")[:_LONGEST]
