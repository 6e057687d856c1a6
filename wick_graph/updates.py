"""What may be written to the state from outside the engine: one check for hooks, tools, callers.

A value of the wrong kind would poison the thread: every later step would fail on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages

from wick_graph.constants import TODO_STATUSES, TOO_DEEP
from wick_graph.errors import MessageError
from wick_graph.messages.check import validate
from wick_graph.messages.content import is_deep, is_unicode, text_of
from wick_graph.messages.copies import owned
from wick_graph.messages.lowering import lower
from wick_graph.request import MessageView
from wick_graph.state import WRITABLE


def private_update(update: Mapping[str, Any]) -> dict[str, Any]:
    """Return an update as plain data that nobody but the thread holds.

    So whoever wrote it may go on changing what it wrote, and the thread does not change with it.
    """
    return {name: _private(value) for name, value in update.items()}


def _private(value: Any) -> Any:
    return list(value) if isinstance(value, MessageView) else owned(value)


def problem(update: Mapping[str, Any]) -> str | None:
    """Say in one sentence why an update cannot be written, or None if it can."""
    for name, value in update.items():
        if name not in WRITABLE:
            return f"the state has no channel {name!r}; it has {', '.join(sorted(WRITABLE))}"
        check = _CHECKS.get(name)
        found = check(value) if check is not None else None
        if found is not None:
            return f"{name}: {found}"
    return None


def message_problem(value: Any) -> str | None:
    """Say why something is no list of messages that a thread may hold, or None."""
    given = list(value) if isinstance(value, list | tuple) else [value]
    for at, one in enumerate(given):
        if _is_deep(one):
            return f"message[{at}]: {TOO_DEEP}"
    try:
        messages = convert_to_messages(given)
        validate(lower([m for m in messages if not isinstance(m, RemoveMessage)]))
    except MessageError as error:
        return str(error)
    except (ValueError, TypeError, NotImplementedError) as error:
        return str(error).splitlines()[0]
    for at, message in enumerate(messages):
        if not is_unicode(text_of(message)):
            return f"message[{at}]: content has half a surrogate pair; send valid Unicode text"
    return None


def _is_deep(message: Any) -> bool:
    """Tell whether a message, or the dict that one is made of, is nested too deeply."""
    if not isinstance(message, BaseMessage):
        return is_deep(message)
    parts: list[Any] = [message.additional_kwargs, message.response_metadata]
    if not isinstance(message.content, str):
        parts.append(message.content)
    parts += [call["args"] for call in getattr(message, "tool_calls", ())]
    return any(part and is_deep(part) for part in parts)


def _todos(value: Any) -> str | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return f"must be a list of todos, not {_kind(value)}"
    for todo in value:
        if not isinstance(todo, Mapping) or todo.get("status", "pending") not in TODO_STATUSES:
            return f"a todo has id, title and a status of {', '.join(TODO_STATUSES)}"
    return None


def _mapping(value: Any) -> str | None:
    return None if isinstance(value, Mapping) else f"must be a mapping, not {_kind(value)}"


def _counts(value: Any) -> str | None:
    if isinstance(value, Mapping) and all(type(n) is int for n in value.values()):
        return None
    return "must map names to whole numbers"


def _number(value: Any) -> str | None:
    return None if type(value) is int else f"must be a whole number, not {_kind(value)}"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"must be a text, not {_kind(value)}"


def _list(value: Any) -> str | None:
    return None if isinstance(value, list | tuple) else f"must be a list, not {_kind(value)}"


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


_CHECKS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "messages": message_problem,
    "todos": _todos,
    "files": _mapping,
    "usage": _counts,
    "iteration": _number,
    "stop_reason": _text,
    "memory": _mapping,
    "middleware": _mapping,
    "skills": _list,
}
