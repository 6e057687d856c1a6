"""An error as data: its type, message, notes, frames and causes, in at most 4 kB."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator
from pathlib import PurePath
from types import TracebackType
from typing import Any, Final

MAX_BYTES: Final = 4_096
"""Largest size of an error as text."""

_TEXT: Final = 1_000
"""Bytes of a message or of all notes."""

_LINE: Final = 120

_FRAMES: Final = 8
"""The innermost frames of each error that are kept."""

_CAUSES: Final = 4

_OURS: Final = (
    ("wick_graph", "foreign", "seams.py"),
    ("langgraph", "pregel"),
    ("langgraph", "_internal"),
    ("langchain_core", "runnables"),
)
"""Parts of paths of frames that only pass a call on."""


def traceback_of(error: Any) -> list[dict[str, Any]] | None:
    """Describe an error, then what caused it: no values of variables, only source lines.

    Returns None for what was not raised.
    """
    if not isinstance(error, BaseException) or error.__traceback__ is None:
        return None
    made: list[dict[str, Any]] = []
    left = MAX_BYTES
    for one in _chain(error):
        part = _described(one)
        while part["frames"] and _size(part) > left:
            del part["frames"][0]
        if (size := _size(part)) > left:
            break
        made.append(part)
        left -= size
    return made


def lines_of(found: list[dict[str, Any]]) -> list[str]:
    """Return a described error as lines, as Python prints it, the cause below what it caused."""
    made: list[str] = []
    for at, part in enumerate(found):
        made += ["caused by:"] if at else []
        made.append(f"{part['type']}: {part['message']}")
        made += [f"  note: {note}" for note in part["notes"]]
        for file, line, function, source in part["frames"]:
            made += [f"  {file}:{line} in {function}", *([f"    {source}"] if source else [])]
    return made


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the members of a group after it, and then the causes."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left and len(seen) <= _CAUSES:
        at = left.pop(0)
        if at is None or id(at) in seen:
            continue
        seen.add(id(at))
        yield at
        members = at.exceptions if isinstance(at, BaseExceptionGroup) else ()
        left += [*members, at.__cause__ or (None if at.__suppress_context__ else at.__context__)]


def _described(error: BaseException) -> dict[str, Any]:
    given = getattr(error, "__notes__", None)
    notes = [str(note) for note in given[:_CAUSES]] if isinstance(given, list) else []
    left = _TEXT // max(len(notes), 1)
    return {
        "type": type(error).__name__,
        "message": _cut(message_of(error), _TEXT),
        "notes": [_cut(note, left) for note in notes],
        "frames": _frames(error.__traceback__),
    }


def _cut(text: str, size: int) -> str:
    return text[:size].encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def message_of(error: BaseException) -> str:
    """Return the text of an error, also of one that cannot make it."""
    try:
        return str(error)
    except Exception:  # a third-party `__str__`
        return "its text cannot be shown"


def _frames(found: TracebackType | None) -> list[list[Any]]:
    made = []
    for frame, line in traceback.walk_tb(found):
        code, number = frame.f_code, line or 0  # Python has no line for what it adds itself
        if not _passes_on(PurePath(code.co_filename).parts):
            source = linecache.getline(code.co_filename, number, frame.f_globals).strip()
            made.append([code.co_filename, number, code.co_name, source[:_LINE]])
    return made[-_FRAMES:]


def _passes_on(path: tuple[str, ...]) -> bool:
    return any(path[at : at + len(ours)] == ours for ours in _OURS for at in range(len(path)))


def _size(part: dict[str, Any]) -> int:
    return len(str(part).encode("utf-8", "replace"))
