"""The state of a thread: its channels, how writes combine, which updates are allowed."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langgraph.channels.base import BaseChannel
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.channels.topic import Topic
from langgraph.types import Command
from typing_extensions import TypedDict, get_type_hints, is_typeddict

from wick_graph.constants import TODO_STATUSES, TOO_DEEP
from wick_graph.core.request import MessageView
from wick_graph.errors import ConfigError, MessageError
from wick_graph.messages.base import dated, owned
from wick_graph.messages.content import is_deep, is_unicode, text_of
from wick_graph.messages.lowering import lower
from wick_graph.messages.validation import listed, validate
from wick_graph.types import MessageList

# --- Reducers of the state's channels: pure functions, each O(new).
#
# LangGraph applies the writes of a superstep in task order, and a reply's tool calls are tasks in
# call order. So "the last write wins" means the last call of the reply.


T = TypeVar("T")

_log: Final = logging.getLogger("wick_graph")

REMOVE_ALL = "__remove_all__"
"""The id with which `RemoveMessage` empties the list, LangGraph's own convention."""


def last(_old: T, new: T) -> T:
    """Keep the newest write."""
    return new


def merge(old: Mapping[str, T] | None, new: Mapping[str, T] | None) -> dict[str, T]:
    """Merge two mappings; new values win."""
    return {**(old or {}), **(new or {})}


def add_numbers(old: Mapping[str, int] | None, new: Mapping[str, int] | None) -> dict[str, int]:
    """Add counters by key."""
    total = dict(old or {})
    for key, value in (new or {}).items():
        total[key] = total.get(key, 0) + value
    return total


def tally(old: Mapping[str, int] | None, new: Mapping[str, int | None] | None) -> dict[str, int]:
    """Add counters by key; None resets a key to zero first."""
    total = dict(old or {})
    for key, value in (new or {}).items():
        total[key] = 0 if value is None else total.get(key, 0) + value
    return total


def folding(
    reducers: Mapping[str, Callable[[Any, Any], Any]],
) -> Callable[[Any, Any], dict[str, Any]]:
    """Make the channel's reducer: each field by its own rule, else the newest write wins.

    A rule is third-party code: it gets copies, which it may change in place or keep.
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


def reduce_messages(left: Any, right: Any) -> MessageList:
    """Append, replace by id, remove, and file tool messages behind their calls.

    Takes what LangGraph's `add_messages` takes. A message without an id gets one. A message without
    a time gets that of the message it replaces, or now. A removal of an unknown id does nothing.
    Tool messages follow the assistant message with their calls, in call order, whenever they
    arrive; a second answer to the same call replaces the first.
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
    """Return the message that the same write removed before it added it again."""
    at = before.find(message_id)
    return None if at is None else before[at]


def _private_copy(left: Any) -> MessageList:
    if type(left) is MessageList:
        return MessageList(left, left.places)
    # An `Overwrite` has left messages without ids. The store knows a message as it was, so one that
    # gets an id is another one: in place, the thread would never keep it.
    return MessageList(
        m.model_copy(update={"id": str(uuid.uuid4())}) if m.id is None else m for m in _coerce(left)
    )


def _coerce(value: Any) -> list[BaseMessage]:
    if value is None:
        return []
    items = listed(value)
    if [item for item in items if not isinstance(item, BaseMessage)]:  # quicker than `all`
        items = convert_to_messages(items)
    return [message_chunk_to_message(m) if isinstance(m, BaseMessageChunk) else m for m in items]


def read_messages(value: Any) -> list[BaseMessage]:
    """Return the messages of an input, in any form that `add_messages` takes."""
    plain = isinstance(value, list) and all(
        isinstance(item, BaseMessage) and not isinstance(item, BaseMessageChunk) for item in value
    )
    return value if plain else _coerce(value)


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


# --- The state of a thread: the channels of the graph, each with its reducer.
#
# It holds only data. The tool registry, the listener, the clock and caches belong to the run
# (`wick_graph.runtime.context`), and each process creates its own.


# Written out, not through `typing.TypedDict`: LangGraph and pydantic read these annotations at
# run time, and `typing_extensions` gives the same answer on every supported Python.


class Todo(TypedDict):
    """One entry of the agent's todo list."""

    id: str
    title: str
    status: Literal["pending", "in_progress", "done"]


class AgentInput(TypedDict, total=False):
    """Input of the graph: new messages, and initial lists."""

    messages: Annotated[list[AnyMessage], reduce_messages]
    todos: Annotated[list[Todo], last]
    files: Annotated[dict[str, Any], merge]
    origin: Annotated[dict[str, Any], last]
    """Where the conversation is held: channel, chat, sender. Sub-agents get their parent's."""


class AgentOutput(TypedDict, total=False):
    """Output of `graph.invoke`."""

    messages: Annotated[list[AnyMessage], reduce_messages]
    todos: Annotated[list[Todo], last]
    files: Annotated[dict[str, Any], merge]
    summary: Annotated[dict[str, Any], last]
    usage: Annotated[dict[str, int], add_numbers]
    cost: Annotated[dict[str, int], tally]
    """Money, if a hook counts it: of the thread, and of the run under keys with `run_`."""
    iteration: Annotated[int, last]
    stop_reason: Annotated[str, last]
    output: Annotated[Any, last]
    """What a typed agent gave: the name of the type, and its data; or its failed attempts."""


class AgentState(AgentOutput, total=False):
    """All channels. `request` lives for one step: `modify_request` passes it to `model`."""

    origin: Annotated[dict[str, Any], last]
    memory: Annotated[dict[str, Any], last]
    """Text that a hook loaded once for the run, by source."""
    skills: Annotated[list[dict[str, Any]], last]
    """Catalogue entries that a hook loaded."""
    middleware: Annotated[dict[str, Any], merge]
    """State of LangChain middleware, by field name."""
    seen: Annotated[dict[str, str], merge]
    """Digests of file contents that the model has read, by path."""
    to_parent: Annotated[list[dict[str, Any]], Topic(dict)]
    """Commands of tools for the graph around this one; they live for one step, too."""
    request: Annotated[dict[str, Any], EphemeralValue]
    """The overlay: how the next request differs from the thread (`wick_graph.core.request`)."""


Update = dict[str, Any]
"""A node's or a hook's writes, by channel."""

INPUTS: Final = tuple(AgentInput.__annotations__)
"""Channels that an input may name."""

OUTPUTS: Final = frozenset(AgentOutput.__annotations__)
"""Channels that an output has."""

WRITABLE: Final = frozenset(AgentState.__annotations__)
"""Channels that an update by a hook or a tool may name."""


@cache
def reducers() -> Mapping[str, Callable[[Any, Any], Any]]:
    """Return the reducers of the engine's channels."""
    hints = get_type_hints(AgentState, include_extras=True)
    marks = ((name, get_args(hint)[-1:]) for name, hint in hints.items())
    return {name: mark[0] for name, mark in marks if mark and not _is_channel(mark[0])}


LASTING: Final = tuple(
    name for name in AgentState.__annotations__ if name not in ("request", "to_parent")
)
"""Channels that tools can read: all but those that live for one step, which are gone by then."""


# --- An agent's own channels.


@dataclass(frozen=True, slots=True)
class StateSchema:
    """The channels that an agent has besides the engine's."""

    hints: Mapping[str, Any]
    """By name, each a type with its reducer."""

    @classmethod
    def of(cls, schema: Any) -> StateSchema:
        """Read the argument of an agent, a `TypedDict` or None.

        Raises:
            ConfigError: It is something else, or would replace a channel of the engine.
        """
        if schema is None:
            return cls({})
        if not is_typeddict(schema):
            raise ConfigError(f"state_schema takes a TypedDict, not {schema!r:.80}")
        hints = get_type_hints(schema, include_extras=True)
        for name in hints:
            if name in WRITABLE or name.startswith(("__", "branch:")):
                raise ConfigError(
                    f"state_schema: the channel {name} is the engine's; give yours another name"
                )
        return cls({name: _reduced(hint) for name, hint in hints.items()})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the channels."""
        return tuple(self.hints)

    @property
    def reduced(self) -> frozenset[str]:
        """The names of the channels that do not simply keep the last value."""
        marks = ((name, get_args(hint)[-1]) for name, hint in self.hints.items())
        return frozenset(name for name, mark in marks if mark is not last)

    @property
    def reducers(self) -> dict[str, Callable[[Any, Any], Any]]:
        """The reducers of all channels that have one; an own one takes a first write as it is."""

        def first(reduce: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
            return lambda old, new: new if old is None else reduce(old, new)

        marks = ((name, get_args(hint)[-1]) for name, hint in self.hints.items())
        own = {name: first(mark) for name, mark in marks if not _is_channel(mark)}
        return {**reducers(), **own}

    def over(self, channels: Any) -> Any:
        """Return a schema of the engine with these channels; itself without any."""
        if not self.hints:
            return channels
        hints = {**get_type_hints(channels, include_extras=True), **self.hints}
        return TypedDict(channels.__name__, hints, total=False)  # type: ignore[operator]  # made by name


def _reduced(hint: Any) -> Any:
    """Return a type with its reducer or channel; the last write wins if it names none."""
    while get_origin(hint) in (NotRequired, Required):
        (hint,) = get_args(hint)
    mark = get_args(hint)[-1] if get_origin(hint) is Annotated else None
    return hint if callable(mark) or _is_channel(mark) else Annotated[hint, last]


def _is_channel(mark: Any) -> bool:
    return issubclass(mark if isinstance(mark, type) else type(mark), BaseChannel)


# --- The check of updates from outside the engine: from hooks, tools and callers.
#
# A value of the wrong kind would break the thread: every later step would fail on it.


def private_update(update: Mapping[str, Any]) -> dict[str, Any]:
    """Return an update as plain data that only the thread holds.

    Its author may then change the original, and the thread does not change with it.
    """
    return {name: _private(value) for name, value in update.items()}


def _private(value: Any) -> Any:
    return list(value) if isinstance(value, MessageView) else owned(value)


def problem(update: Mapping[str, Any], own: Collection[str] = ()) -> str | None:
    """Return in one sentence why an update is invalid, or None; `own` are the agent's channels."""
    for name, value in update.items():
        if name not in WRITABLE and name not in own:
            known = ", ".join(sorted({*WRITABLE, *own}))
            return f"the state has no channel {name!r}; it has {known}"
        check = _CHECKS.get(name)
        found = check(value) if check is not None else None
        if found is not None:
            return f"{name}: {found}"
    return None


def read_input(input: Any, own: Collection[str] = ()) -> Any:
    """Return an input with its messages as objects; drop keys that name no input, with a warning.

    Raises:
        MessageError: It is invalid, and nothing is stored. Names the message by its index in the
            input, or the channel.
    """
    if input is None or isinstance(input, Command):
        _refuse(dict(input._update_as_tuples()) if input else {}, own)
        return input
    if not isinstance(input, Mapping):
        raise MessageError(
            f"the input must be a mapping with messages, not a {type(input).__name__}"
        )
    known = {key: value for key, value in input.items() if key in INPUTS or key in own}
    if len(known) < len(input):
        unknown = [key for key in input if key not in OUTPUTS]
        if not known:
            _refuse(input, own)
        if unknown:  # other keys come with the output of an agent
            _log.warning(
                "dropped from the input: %s; an agent takes %s",
                ", ".join(f"{key!r:.40}" for key in unknown[:20]),
                ", ".join((*INPUTS, *own)),
            )
        input = known
    _refuse(input, own)
    if (given := input.get("messages")) is not None and (made := read_messages(given)) is not given:
        input = {**input, "messages": made}
    return input


def _refuse(update: Mapping[str, Any], own: Collection[str]) -> None:
    """Refuse an invalid update from a caller."""
    wrong = problem({key: value for key, value in update.items() if value is not None}, own)
    if wrong is not None:  # the error of a message needs no channel name before it
        of_message = wrong.startswith("messages: message[")
        raise MessageError(wrong.removeprefix("messages: ") if of_message else wrong)


def message_problem(value: Any) -> str | None:
    """Return why a value is not a valid list of messages, or None."""
    given = listed(value)
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
    """Return whether a message, or the dict of one, is nested too deeply."""
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


def _commands(value: Any) -> str | None:
    good = isinstance(value, list) and all(
        isinstance(one, Mapping) and one.keys() == {"goto", "update"} for one in value
    )
    return None if good else "it takes commands of tools alone"


def _output(value: Any) -> str | None:
    return None if value is None else _mapping(value)


_CHECKS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "messages": message_problem,
    "todos": _todos,
    "files": _mapping,
    "usage": _counts,
    "iteration": _number,
    "stop_reason": _text,
    "origin": _mapping,
    "memory": _mapping,
    "middleware": _mapping,
    "skills": _list,
    "to_parent": _commands,
    "output": _output,
}
