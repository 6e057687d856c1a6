"""How writes to the state's channels combine: pure functions, each O(what is new).

LangGraph applies the writes of a superstep in task order, and a reply's tool calls are tasks in
call order: so "the last write wins" means the last call of the reply.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
)

from wick_graph.messages.copies import owned
from wick_graph.messages.stamps import dated

T = TypeVar("T")

REMOVE_ALL = "__remove_all__"
"""The id with which `RemoveMessage` empties the list, LangGraph's own convention."""


def last(_old: T, new: T) -> T:
    """Keep the newest write."""
    return new


def merge(old: Mapping[str, T] | None, new: Mapping[str, T] | None) -> dict[str, T]:
    """Lay the new keys over the old ones."""
    return {**(old or {}), **(new or {})}


def add_numbers(old: Mapping[str, int] | None, new: Mapping[str, int] | None) -> dict[str, int]:
    """Add counters by key."""
    total = dict(old or {})
    for key, value in (new or {}).items():
        total[key] = total.get(key, 0) + value
    return total


def tally(old: Mapping[str, int] | None, new: Mapping[str, int | None] | None) -> dict[str, int]:
    """Add counters by key; None starts a key again from zero."""
    total = dict(old or {})
    for key, value in (new or {}).items():
        total[key] = 0 if value is None else total.get(key, 0) + value
    return total


def folding(
    reducers: Mapping[str, Callable[[Any, Any], Any]],
) -> Callable[[Any, Any], dict[str, Any]]:
    """Make the channel's reducer: each field by its own rule, else the newest write stands.

    A rule is somebody else's code: it gets copies, which it may change in place or keep.
    """

    def fold(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
        out = dict(old or {})
        for name, value in (new or {}).items():
            reducer = reducers.get(name)
            known = out.get(name)
            fresh = reducer is None or value is None or known is None
            if not fresh and reducer is not None:
                value = owned(reducer(owned(known), owned(value)))
            out[name] = value
        return out

    return fold


class MessageList(list[BaseMessage]):
    """A list of messages that knows where each id stands.

    Lists that grew from one another share one index. Each relies on it only where the message at
    the indexed position really has that id, so a list on another branch is never misled.
    """

    __slots__ = ("places",)

    places: dict[str, int]
    """Where each id stands, or stood on another branch."""

    def __init__(self, messages: Sequence[BaseMessage] = (), places: dict[str, int] | None = None):
        super().__init__(messages)
        self.places = {} if places is None else places
        if places is None:
            self.reindex()

    def reindex(self) -> None:
        """Give this list an index of its own."""
        self.places = {cast(str, m.id): i for i, m in enumerate(self)}

    def find(self, message_id: str) -> int | None:
        """Return the position of a message, or None."""
        at = self.places.get(message_id)
        if at is not None and at < len(self) and self[at].id == message_id:
            return at
        return None

    def push(self, message: BaseMessage) -> None:
        """Append a message that is not in the list."""
        at, message_id = len(self), cast(str, message.id)
        if self.places.setdefault(message_id, at) != at:
            self.reindex()  # another branch holds this id elsewhere: part from its index
            self.places[message_id] = at
        self.append(message)

    def __reduce__(self) -> tuple[type, tuple[list[BaseMessage]]]:
        return list, (list(self),)


def reduce_messages(left: Any, right: Any) -> MessageList:
    """Append, replace by id, remove, and file tool answers behind the calls they answer.

    Takes what LangGraph's `add_messages` takes. Messages without an id get one, messages without
    a time of creation get that of the message they replace, or now. A removal of an unknown id
    does nothing. A tool message stands behind the assistant message that asked for it, in call
    order, whenever it arrives; a second answer to the same call replaces the first.
    """
    out = gone = _private_copy(left)
    for message in _coerce(right):
        if message.id is None:
            message.id = str(uuid.uuid4())
        if isinstance(message, RemoveMessage):
            out = _remove(out, message.id)
        elif (at := out.find(message.id)) is not None:
            out[at] = dated(message, out[at])
        elif isinstance(message, ToolMessage):
            _file_answer(out, dated(message, _held(gone, message.id)))
        else:
            out.push(dated(message, _held(gone, message.id)))
    return out


def _held(before: MessageList, message_id: str) -> BaseMessage | None:
    """Return the message that a write took out of the list before it put it back."""
    at = before.find(message_id)
    return None if at is None else before[at]


def _private_copy(left: Any) -> MessageList:
    if type(left) is MessageList:
        return MessageList(left, left.places)
    messages = _coerce(left)
    for message in messages:
        if message.id is None:
            message.id = str(uuid.uuid4())
    return MessageList(messages)


def _coerce(value: Any) -> list[BaseMessage]:
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, BaseMessage) for item in items):
        items = convert_to_messages(items)
    return [message_chunk_to_message(m) if isinstance(m, BaseMessageChunk) else m for m in items]


def _remove(out: MessageList, message_id: str) -> MessageList:
    if message_id == REMOVE_ALL:
        return MessageList()
    if out.find(message_id) is None:
        return out
    return MessageList([m for m in out if m.id != message_id])


def _file_answer(out: MessageList, answer: ToolMessage) -> None:
    asked_at = _asker(out, answer.tool_call_id)
    if asked_at is None:
        out.push(answer)
        return
    order = {call.get("id"): i for i, call in enumerate(cast(AIMessage, out[asked_at]).tool_calls)}
    mine, at = order[answer.tool_call_id], asked_at + 1
    while at < len(out) and isinstance(other := out[at], ToolMessage):
        if other.tool_call_id == answer.tool_call_id:
            out[at] = answer
            out.reindex()
            return
        if order.get(other.tool_call_id, -1) > mine:
            break
        at += 1
    if at == len(out):
        out.push(answer)
    else:
        out.insert(at, answer)
        out.reindex()


def _asker(out: MessageList, call_id: str) -> int | None:
    for at in range(len(out) - 1, -1, -1):
        message = out[at]
        if isinstance(message, AIMessage) and any(
            c.get("id") == call_id for c in message.tool_calls
        ):
            return at
    return None
