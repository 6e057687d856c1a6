"""What a node or a hook wrote to the state: channel, path and what it does there.

A write is `[channel, op, path, value]`; of messages the path is the id, or fourth the call that
a message without an id answers. A value that is not small stands in the checkpoint that follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage

from wick_graph.journal.frames import CALL, Visit
from wick_graph.journal.masking import Mask
from wick_graph.request import position

APPEND, REPLACE, REMOVE, SET = 0, 1, 2, 3
"""What a write does."""
_SCALARS: Final = (bool, int, float, type(None))
_SHORT: Final = 48
_WHOLE: Final = frozenset({"request", "usage"})
"""Channels that are written as one, though their values are mappings."""


def writes_of(writes: Sequence[tuple[str, Any]], visit: Visit, mask: Mask) -> list[list[Any]]:
    """Write down writes."""
    made: list[list[Any]] = []
    for channel, value in writes:
        if channel == "messages":
            made += [_message(m, visit) for m in _listed(value)]
        elif isinstance(value, dict) and channel not in _WHOLE:
            made += [[channel, SET, str(key)] for key in value]
        elif isinstance(value, _SCALARS):
            made.append([channel, SET, None, value])
        elif isinstance(value, str) and len(value) <= _SHORT:
            made.append([channel, SET, None, mask.text(value)])
        else:
            made.append([channel, SET])
    return made


def messages_in(writes: Sequence[tuple[str, Any]]) -> list[BaseMessage]:
    """Return the messages that are written."""
    return [m for channel, value in writes if channel == "messages" for m in _listed(value)]


def _message(message: BaseMessage, visit: Visit) -> list[Any]:
    if isinstance(message, RemoveMessage):
        return ["messages", REMOVE, message.id]
    state = visit.state if isinstance(visit.state, Mapping) else {}
    known = state.get("messages") or () if message.id is not None else ()
    op = REPLACE if known and position(known, message.id or "") is not None else APPEND
    if message.id is None and isinstance(message, ToolMessage):
        call = message.tool_call_id
        return ["messages", op] if call == visit.place[CALL] else ["messages", op, None, call]
    return ["messages", op, message.id]


def _listed(value: Any) -> list[BaseMessage]:
    """A write may also be one message, or a form that a reducer turns into one."""
    items = value if isinstance(value, list | tuple) else [value]
    return [item for item in items if isinstance(item, BaseMessage)]
