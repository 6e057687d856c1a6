"""Values as JSON-like data: paths, differences, states."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from langchain_core.messages import BaseMessage
from langgraph.graph.message import add_messages

from wick_graph.core.state import AgentState, last, reducers
from wick_graph.errors import DebugError
from wick_graph.journal.value_store import DOTS
from wick_graph.langgraph_config import HIDDEN
from wick_graph.messages import to_wick

Path = tuple[str | int, ...]

_NAME: Final = re.compile(r"[^\W\d]\w*")
"""What a path and a condition name without quotes."""

_PART: Final = re.compile(
    r"""\.(?P<name>[^\W\d]\w*)|\[(?P<index>-?\d{1,9})\]|\[(?P<key>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\]"""
)

_STATE: Final = "state"
"""The name before a quoted channel, as in conditions: `state["a b"]`."""


def read_path(text: str) -> Path:
    """Read a path; its first part is a channel: `messages[-1].content`, `state["a b"][0]`.

    Raises:
        DebugError: It is not a path.
    """
    text = text.strip()
    start = _NAME.match(text)
    if start is None:
        raise DebugError(f"{text[:80]!r} is no path; {_WRITE}")
    rest = tuple(_parts(text, start.end()))
    if start[0] == _STATE and text[start.end() :].startswith(('["', "['")):
        return (SHOWN_AS.get(str(rest[0]), rest[0]), *rest[1:])
    return (SHOWN_AS.get(start[0], start[0]), *rest)


def write_path(path: Path) -> str:
    """Write a path."""
    odd = [isinstance(part, str) and not _NAME.fullmatch(part) for part in path]
    if path[:1] == (_STATE,) and odd[1:2] == [True]:
        odd[0] = True  # else it reads as another channel
    made = _STATE if odd[:1] == [True] else ""
    for part, is_odd in zip(path, odd, strict=True):
        if is_odd or isinstance(part, int):
            made += f"[{part!r}]"
        else:
            made += f".{part}" if made else part
    return made


def _parts(text: str, at: int) -> Iterator[str | int]:
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            raise DebugError(
                f"{text[:80]!r} is no path: column {at + 1} is not understood; {_WRITE}"
            )
        if found["name"]:
            yield found["name"]
        elif found["index"]:
            yield int(found["index"])
        else:
            yield str(ast.literal_eval(found["key"]))
        at = found.end()


_WRITE: Final = 'write one such as messages[-1].content or state["a b"]'

Op = Literal["add", "remove", "change"]

MOST: Final = 1_000
"""Limit of listed changes."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference."""

    path: str
    op: Op
    before: Any
    after: Any


def differences(before: Any, after: Any, path: Path = ()) -> list[Change]:
    """List the differences of the smallest parts; at most `MOST`."""
    found: list[Change] = []
    for change in _changes(before, after, path):
        found.append(change)
        if len(found) >= MOST:
            break
    return found


def _changes(before: Any, after: Any, path: Path) -> Iterator[Change]:
    if before is after or before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _of_objects(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
    else:
        yield Change(write_path(path), "change", before, after)


def _of_objects(
    before: Mapping[str, Any], after: Mapping[str, Any], path: Path
) -> Iterator[Change]:
    for key in [*before, *(key for key in after if key not in before)]:
        here = (*path, key)
        if key not in after:
            yield Change(write_path(here), "remove", before[key], None)
        elif key not in before:
            yield Change(write_path(here), "add", None, after[key])
        else:
            yield from _changes(before[key], after[key], here)


def _of_lists(before: list[Any], after: list[Any], path: Path) -> Iterator[Change]:
    """Compare lists: a common beginning and end are equal, and the middle differs."""
    start = _same(before, after)
    stop = _same(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - stop], after[start : len(after) - stop]
    for at in range(max(len(old), len(new))):
        here = (*path, start + at)
        if at >= len(new):
            yield Change(write_path(here), "remove", old[at], None)
        elif at >= len(old):
            yield Change(write_path(here), "add", None, new[at])
        else:
            yield from _changes(old[at], new[at], here)


def _same(one: list[Any], other: list[Any]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a is not b and a != b:
            break
        count += 1
    return count


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
"""Values of channels before the first write."""

SHOWN_AS: Final[Mapping[str, str]] = {"__end__": "end", "__previous__": "previous"}
"""Names for the channels of the functional API."""

Reducer = Callable[[Any, Any], Any]

PENDING: Final = "pending:"
"""Prefix of temporary message ids, which the thread will replace."""

_DEEPEST: Final = 40

_MOST: Final = 20_000

CHANNELS: Final = frozenset({*AgentState.__annotations__, *EMPTY})
"""The fields of a state."""

REDUCERS: Final = reducers()
"""The reducers of the channels."""


class JsonView:
    """Turns values into JSON-like data; converted messages are cached."""

    def __init__(self) -> None:
        self._messages: dict[int, tuple[BaseMessage, dict[str, Any]]] = {}
        self.reducers = REDUCERS
        """The reducers of the channels, also of those of the session's agent."""
        self.channels: Mapping[str, Any] = EMPTY
        """The channels by name, each with its value before the first write, if that is known."""
        self.hides: Callable[[str], bool] | None = None
        """Whether a text under a name must not be shown; None shows all."""

    def look_like(self, channels: Mapping[str, str], empty: Mapping[str, Any]) -> None:
        """Show the state of a graph that is no agent's: its own channels, by their kinds."""
        self.channels = {**dict.fromkeys(channels), **empty}
        self.reducers = reducers_of(channels)

    def message(self, message: BaseMessage) -> dict[str, Any]:
        """Return a message in wick's form, with its id."""
        held = self._messages.get(id(message))
        if held is not None and held[0] is message:
            return held[1]
        made: dict[str, Any] = self.plain(to_wick(message))
        if message.id and not message.id.startswith(PENDING):
            made["id"] = message.id
        if len(self._messages) > _MOST:
            self._messages.clear()
        self._messages[id(message)] = message, made  # kept alive, so that its id() is not reused
        return made

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return a value as JSON-like data; an unserialisable one becomes its marked text."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if depth > _DEEPEST:
            return "…"
        if isinstance(value, BaseMessage):
            return self.message(value)
        if isinstance(value, Mapping):
            return {str(k): self._named(str(k), item, depth + 1) for k, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.plain(item, depth + 1) for item in value]
        return {"not_shown": type(value).__name__, "repr": _repr(value)}

    def _named(self, name: str, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str) and self.hides is not None and self.hides(name):
            return DOTS
        return self.plain(value, depth)

    def state(self, values: Mapping[str, Any], level: str = "") -> dict[str, Any]:
        """Return a state with every channel of an agent, or of a graph that has a value.

        A subgraph, named by the nodes around it as its `level`, has other channels.
        """
        if self.channels is not EMPTY:
            named = {SHOWN_AS.get(name, name): value for name, value in values.items()}
            held = {k: v for k, v in self.channels.items() if v is not None and not level}
            named = {**held, **named}
            return {k: self._named(k, v) for k, v in named.items() if not k.startswith(HIDDEN)}
        made = {
            name: self._named(name, value) for name, value in values.items() if name != "request"
        }
        own = {name: None for name in self.reducers if name not in REDUCERS}
        written = {k: v for k, v in made.items() if not k.startswith(("__", "branch:"))}
        return {**EMPTY, **own, **written}


def reducers_of(channels: Mapping[str, str]) -> Mapping[str, Reducer]:
    """Return the reducers of channels by their kinds; of an unknown one the last write is shown.

    Nothing that a recording names is imported.
    """
    return {name: _KNOWN[kind] for name, kind in channels.items() if kind in _KNOWN}


def _grown(reduce: Reducer) -> Reducer:
    return lambda old, new: new if old is None else reduce(old, new)


def _messages(old: Any, new: Any) -> Any:
    return add_messages(old or [], new)


_KNOWN: Final[Mapping[str, Reducer]] = {
    **{name: _grown(getattr(operator, name)) for name in ("add", "or_", "concat", "iadd", "mul")},
    **dict.fromkeys(("add_messages", "_add_messages", "delta:_messages_delta_reducer"), _messages),
}
"""Reducers by their names."""


def overlaid(
    values: Mapping[str, Any],
    writes: Iterable[tuple[str, Any]],
    reducers: Mapping[str, Any] = REDUCERS,
) -> dict[str, Any]:
    """Return a state after writes, applied by their reducers."""
    made = dict(values)
    for channel, value in writes:
        reduce = reducers.get(channel, last)
        if channel == "messages" and isinstance(value, list):
            value = [_with_id(item) for item in value]
        made[channel] = reduce(made.get(channel), value)
    return made


def _with_id(item: Any) -> Any:
    """Give a message without an id a stable temporary one."""
    if not isinstance(item, BaseMessage) or item.id:
        return item
    return item.model_copy(update={"id": f"{PENDING}{getattr(item, 'tool_call_id', '')}"})


def at_path(value: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path.

    Raises:
        LookupError: There is none.
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
    except Exception as error:  # a value's own `__str__` may fail
        return f"its text cannot be made: {type(error).__name__}"


def value_at(state: Mapping[str, Any], path: Path, text: str) -> Any:
    """Return the value at a path of a state; `text` is the path for errors.

    Raises:
        DebugError: There is none.
    """
    try:
        return at_path(state, path)
    except LookupError:
        raise DebugError(f"there is nothing at {text}; there is {listed(state)}") from None


def listed(channels: Iterable[str]) -> str:
    """List channels as paths name them."""
    return ", ".join(write_path((channel,)) for channel in channels)


def value_or_none(state: Any, path: Path) -> Any:
    """Return the value at a path; None if there is none."""
    try:
        return at_path(state, path)
    except LookupError:
        return None
