"""Values as JSON-like data: what expressions, states and differences are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, get_args, get_type_hints

from langchain_core.messages import BaseMessage

from wick_graph.messages import to_wick
from wick_graph.reducers import last
from wick_graph.state import AgentState

EMPTY: Final[Mapping[str, Any]] = {
    "messages": [],
    "todos": [],
    "files": {},
    "summary": {},
    "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
    "cost": {},
    "iteration": 0,
    "stop_reason": "",
    "memory": {},
    "skills": [],
    "seen": {},
}
"""What channels are before anything is written to them."""
PENDING: Final = "pending:"
"""Begins the ids of messages that the thread will give another one."""
_DEEPEST: Final = 40
_MOST: Final = 20_000
_HINTS: Final = get_type_hints(AgentState, include_extras=True)
CHANNELS: Final = frozenset({*_HINTS, *EMPTY})
"""What a state is made of."""
REDUCERS: Final[Mapping[str, Any]] = {
    name: found[1]
    for name, hint in _HINTS.items()
    if len(found := get_args(hint)) > 1 and callable(found[1]) and not isinstance(found[1], type)
}
"""How writes to a channel combine."""


class Shower:
    """Turns values into JSON-like data; a message that was shown once is not made again."""

    def __init__(self) -> None:
        self._messages: dict[int, tuple[BaseMessage, dict[str, Any]]] = {}

    def message(self, message: BaseMessage) -> dict[str, Any]:
        """Show a message in wick's form, with its id."""
        held = self._messages.get(id(message))
        if held is not None and held[0] is message:
            return held[1]
        made: dict[str, Any] = self.plain(to_wick(message))
        if message.id and not message.id.startswith(PENDING):
            made["id"] = message.id
        if len(self._messages) > _MOST:
            self._messages.clear()
        self._messages[id(message)] = message, made  # held, so that no other gets its place
        return made

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Show a value; what has no form in JSON is shown by its text, and says so."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if depth > _DEEPEST:
            return "…"
        if isinstance(value, BaseMessage):
            return self.message(value)
        if isinstance(value, Mapping):
            return {str(key): self.plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.plain(item, depth + 1) for item in value]
        return {"not_shown": type(value).__name__, "repr": _repr(value)}

    def state(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Show a state, with every channel of an agent."""
        made = {name: self.plain(value) for name, value in values.items() if name != "request"}
        return {**EMPTY, **{k: v for k, v in made.items() if not k.startswith(("__", "branch:"))}}


def overlaid(values: Mapping[str, Any], writes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a state with writes in it, as their reducers would put them there."""
    made = dict(values)
    for channel, value in writes:
        reduce = REDUCERS.get(channel, last)
        if channel == "messages" and isinstance(value, list):
            value = [_with_id(item) for item in value]
        made[channel] = reduce(made.get(channel), value)
    return made


def _with_id(item: Any) -> Any:
    """Give a message that has no id yet one that is the same each time it is looked at."""
    if not isinstance(item, BaseMessage) or item.id:
        return item
    return item.model_copy(update={"id": f"{PENDING}{getattr(item, 'tool_call_id', '')}"})


def at_path(value: Any, path: Sequence[str | int]) -> Any:
    """Return what stands at a path.

    Raises:
        LookupError: Nothing does.
    """
    for part in path:
        listed = isinstance(value, list | tuple) and isinstance(part, int)
        if not listed and not isinstance(value, Mapping):
            raise LookupError(part)
        value = value[part]
    return value


def _repr(value: Any) -> str:
    try:
        return repr(value)[:1_000]
    except Exception as error:  # a value's own text may fail; that is what is shown then
        return f"its text cannot be made: {type(error).__name__}"
