"""The roles of messages, their copies, ids, times and tool names."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import compress, count
from operator import is_not, length_hint
from typing import Any, Final, Self, SupportsIndex, TypeVar
from uuid import uuid4

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from wick_graph.errors import MessageError

# --- Roles: the four that a model reads, the seven that a thread may hold.


ROLE_SYSTEM: Final = "system"

ROLE_USER: Final = "user"

ROLE_ASSISTANT: Final = "assistant"

ROLE_TOOL: Final = "tool"

ROLE_ERROR: Final = "error"

ROLE_AGENT_CALL: Final = "agent_call"

ROLE_AGENT_RESPONSE: Final = "agent_response"

LLM_ROLES: Final = frozenset({ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL})
"""Roles that a model reads."""

RECORD_ROLES: Final = frozenset({ROLE_ERROR, ROLE_AGENT_CALL, ROLE_AGENT_RESPONSE})
"""Roles that a thread keeps as a `ChatMessage` and that are lowered for a model."""

VALID_ROLES: Final = LLM_ROLES | RECORD_ROLES
"""Roles that a thread may hold."""

_ROLE_OF_CLASS: Final[dict[type[BaseMessage], str]] = {
    HumanMessage: ROLE_USER,
    AIMessage: ROLE_ASSISTANT,
    SystemMessage: ROLE_SYSTEM,
    ToolMessage: ROLE_TOOL,
}


def role_of(message: BaseMessage) -> str:
    """Return the role of any LangChain message.

    A `ChatMessage` has the role that it names, known or not; a class without a role here
    (`RemoveMessage`, `FunctionMessage`) has its LangChain type.
    """
    role = _ROLE_OF_CLASS.get(type(message))
    if role is not None:
        return role
    if isinstance(message, ChatMessage):
        return message.role
    for base, name in _ROLE_OF_CLASS.items():
        if isinstance(message, base):
            return name
    return message.type


def valid_role(role: object) -> bool:
    """Tell whether a model reads this role."""
    return isinstance(role, str) and role in LLM_ROLES


def user_input_role(role: object) -> bool:
    """Tell whether a caller may send this role; the others would let them forge replies."""
    return role in (ROLE_USER, ROLE_SYSTEM)


# --- What is new in a list since the last call, at the speed of C.


def changed(seen: list[Any], now: Sequence[Any]) -> list[int]:
    """Return the positions at which `now` and `seen` do not hold the same object.

    The same object counts as an unchanged message: a chain grows by appending, and a change of
    a message makes a copy.
    """
    return [*exchanged(seen, now), *range(len(seen), len(now))]


def exchanged(seen: list[Any], now: Sequence[Any]) -> list[int]:
    """Return the positions that both have and at which they do not hold the same object."""
    found: list[int] = []
    old, new, size = iter(seen), iter(now), len(seen)
    while any(map(is_not, old, new)):  # half the cost of making a number for each position
        found.append(size - length_hint(old) - 1)
    return found


class PrefixTexts:
    """Tell of a growing chain whether it holds plain texts only; each call looks at what is new.

    Hold one per chain.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: list[BaseMessage] = []
        """The start of the last chain, up to the first message with blocks; never changed: calls
        in several threads may share it."""

    def hold(self, messages: list[BaseMessage]) -> bool:
        """Return whether the content of every message is a text."""
        for at in changed(self._seen, messages):
            if type(messages[at].content) is not str:
                self._seen = messages[:at]
                return False
        self._seen = messages[:]
        return True


# --- Copies of messages and data: this package never changes a message that it receives.


M = TypeVar("M", bound=BaseMessage)

_SHARED: Final = frozenset({"artifact"})

_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Types with immutable values."""

_PLAIN: Final = frozenset({dict, list})

_set: Final = object.__setattr__


def copy_message(message: M, **changes: Any) -> M:
    """Return a copy with other values, which keeps the id unless `id` is among the changes.

    The copy shares nothing mutable with the original except a tool's artifact, which belongs to
    the program and may not be copyable. The changes are not validated.
    """
    fields = type(message).model_fields
    own = {
        name: copy.deepcopy(value)
        for name, value in message.__dict__.items()
        if name in fields and name not in _SHARED and isinstance(value, (list, dict))
    }
    return message.model_copy(update={**own, **changes})


def changed_copy(message: M, **changes: Any) -> M:
    """Return a shallow copy with other values; it shares the rest with the original.

    The same as pydantic's `model_copy(update=changes)` for declared fields, at a fifth of its cost.
    """
    if message.__pydantic_private__ is not None:
        return message.model_copy(update=changes)
    made = message.__class__.__new__(message.__class__)
    extra = message.__pydantic_extra__
    _set(made, "__dict__", {**message.__dict__, **changes})
    _set(made, "__pydantic_extra__", None if extra is None else extra.copy())
    _set(made, "__pydantic_fields_set__", {*message.__pydantic_fields_set__, *changes})
    _set(made, "__pydantic_private__", None)
    return made


def private(message: M, **changes: Any) -> M:
    """Return a copy with other values that shares nothing mutable with message or changes."""
    if message.__pydantic_private__ is not None:
        return message.model_copy(update=changes).model_copy(deep=True)
    made = message.__class__.__new__(message.__class__)
    extra = message.__pydantic_extra__
    fields = {**message.__dict__, **changes}
    for name, value in fields.items():
        kind = type(value)
        if kind not in _ATOMS:
            fields[name] = owned(value) if kind not in _PLAIN or value else kind()
    _set(made, "__dict__", fields)
    _set(made, "__pydantic_extra__", None if extra is None else owned(extra))
    _set(made, "__pydantic_fields_set__", {*message.__pydantic_fields_set__, *changes})
    _set(made, "__pydantic_private__", None)
    return made


def owned(value: Any) -> Any:
    """Return a copy of data that shares nothing mutable with it.

    A subclass of `list` or `dict` becomes a plain one. An object that cannot be copied is shared.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, dict):
        fields = dict(value.items())
        for key, item in fields.items():  # no call for an atom: histories are long
            if type(item) not in _ATOMS:
                fields[key] = owned(item)
        return fields
    if isinstance(value, list):
        return [item if type(item) in _ATOMS else owned(item) for item in value]
    if kind is tuple:
        return tuple([owned(item) for item in value])
    if isinstance(value, BaseMessage):
        return private(value)
    try:
        return copy.deepcopy(value)
    except Exception:  # whatever a foreign class raises; no store could keep it either
        return value


class Lent(list[M]):
    """A list of messages for code that may change it: who asks for a message gets a copy of it.

    Each copy is made once, when it is first asked for, so a long history costs what is read of it.
    Code in C that reads a list past its methods sees the messages themselves.
    """

    __slots__ = ("_lent",)

    def __init__(self, messages: Iterable[M] = ()) -> None:
        super().__init__(messages)
        self._lent: bytearray | None = bytearray(b"\1") * len(self)
        """By position, whether the message is still another's; None if none is."""

    def _own(self) -> Self:
        """Copy all messages that are not copied yet."""
        lent, self._lent = self._lent, None
        if lent is not None:
            for at in compress(count(), lent):
                super().__setitem__(at, private(super().__getitem__(at)))
        return self

    def __getitem__(self, index: Any) -> Any:
        if self._lent is not None:
            if isinstance(index, slice):
                for at in range(*index.indices(len(self))):
                    self[at]
            else:
                at = index.__index__()
                at += len(self) if at < 0 else 0
                if 0 <= at < len(self) and self._lent[at]:
                    self._lent[at] = 0
                    super().__setitem__(at, private(super().__getitem__(at)))
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[M]:
        return super().__iter__() if self._lent is None else self._each()

    def _each(self) -> Iterator[M]:
        at = 0
        while at < len(self):
            yield self[at]
            at += 1

    def __reversed__(self) -> Iterator[M]:
        return iter([self[at] for at in range(len(self) - 1, -1, -1)])

    def __add__(self, other: Any) -> Any:
        return list(self._own()) + list(other) if isinstance(other, list) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return list(other) + list(self._own()) if isinstance(other, list) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> list[M]:
        return list(self._own()) * times

    __rmul__ = __mul__

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self._own()),)

    def copy(self) -> list[M]:
        """Return a plain list of the copies."""
        return list(self._own())


def _owning(name: str) -> Any:
    change = getattr(list, name)

    def method(self: Lent[Any], *args: Any, **kwargs: Any) -> Any:
        return change(self._own(), *args, **kwargs)

    method.__name__ = name
    method.__doc__ = change.__doc__
    return method


for _name in (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "extend", "insert"),
    *("pop", "remove", "clear", "sort", "reverse"),
):
    setattr(Lent, _name, _owning(_name))  # what changes the list needs its own messages first


def metadata_of(message: BaseMessage) -> dict[str, Any]:
    """Return a copy of a message's metadata; empty if it has none."""
    metadata = message.additional_kwargs.get("metadata")
    return copy.deepcopy(metadata) if isinstance(metadata, dict) else {}


# --- A message's time, agent and id, in LangChain's own fields.


TIMESTAMP_KEY: Final = "timestamp"
"""Where `additional_kwargs` holds the time of creation, in ISO 8601 and UTC."""

MARK_KEY: Final = "wick"

PARTIAL: Final = "partial"
"""In the mark of a reply that was cut off: the text is what its reader got."""
"""Where `response_metadata` of a reply holds what the engine notes about it."""

NAME_GIVEN: Final = "name_given"
"""In that mark: the engine did not give the reply's name, so the model reads it."""


def new_message_id() -> str:
    """Make an id for a message, a random UUID."""
    return str(uuid4())


def new_call_id() -> str:
    """Make an id for a tool call without one: `call_` and 12 hex digits."""
    return f"call_{uuid4().hex[:12]}"


def as_utc(time: datetime | str | None) -> datetime:
    """Return a time in UTC: now if none is given; a time without a zone counts as local.

    Raises:
        MessageError: the text is not an ISO 8601 time.
    """
    if time is None:
        return datetime.now(UTC)
    try:
        parsed = datetime.fromisoformat(time) if isinstance(time, str) else time
        return parsed.astimezone(UTC)
    except (ValueError, OverflowError, AttributeError) as error:
        raise MessageError(
            f'"{str(time)[:64]}" is not a time; write it as 2026-01-31T12:00:00+00:00'
        ) from error


def timestamp_of(message: BaseMessage) -> datetime | None:
    """Return when a message was made, in UTC, or None if it holds no valid time."""
    stamp = message.additional_kwargs.get(TIMESTAMP_KEY)
    if not isinstance(stamp, str):
        return None
    try:
        return as_utc(stamp)
    except MessageError:
        return None


def dated(message: M, like: BaseMessage | None = None) -> M:
    """Return a message with its time of creation: itself, or a copy with a time.

    The time is that of `like`, the message that it replaces, else now. A removal has no time.
    """
    if TIMESTAMP_KEY in message.additional_kwargs or isinstance(message, RemoveMessage):
        return message
    made = None if like is None else like.additional_kwargs.get(TIMESTAMP_KEY)
    return changed_copy(message, additional_kwargs=with_time(message, made))


def with_time(message: BaseMessage, time: str | None = None) -> dict[str, object]:
    """Return a message's `additional_kwargs` with a time; an existing one stays."""
    stamp = datetime.now(UTC).isoformat() if time is None else time
    return {TIMESTAMP_KEY: stamp, **message.additional_kwargs}


def is_named_by_engine(message: BaseMessage) -> bool:
    """Tell whether a reply bears the name of its agent, which no model reads."""
    if message.name is None:
        return False
    mark = message.response_metadata.get(MARK_KEY)
    return isinstance(mark, dict) and NAME_GIVEN not in mark and isinstance(message, AIMessage)


def is_partial(message: BaseMessage) -> bool:
    """Tell whether a message is the part of a reply that its reader got before a cancellation."""
    mark = message.response_metadata.get(MARK_KEY)
    return isinstance(message, AIMessage) and isinstance(mark, dict) and mark.get(PARTIAL) is True


# --- Tool names as every provider accepts them.


MAX_NAME: Final = 64
"""Characters of a name that every provider takes."""

_PREFIX: Final = "functions."

_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_-]")

_LONGEST: Final = 64

_PORTABLE: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


def sanitise_tool_name(name: str) -> str:
    """Return a tool's name without a leading `functions.`, with `_` for each refused character.

    It makes the name in the store, in look-ups and in answers.
    """
    return sanitise_name(name.removeprefix(_PREFIX))


def sanitise_name(name: str) -> str:
    """Return a name in which each character but `a-z A-Z 0-9 _ -` is a `_`."""
    return _REFUSED.sub("_", name)


def portable_tool_name(name: str) -> str:
    """Return a tool's name as every provider takes it: the first character is a letter or `_`."""
    if _PORTABLE.fullmatch(name):
        return name
    made = sanitise_tool_name(name)
    return (made if made[:1].isalpha() or made[:1] == "_" else f"_{made}")[:_LONGEST]
