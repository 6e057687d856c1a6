"""Constructors: one for each kind of message, and messages that record failures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, ParamSpec, TypeVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from pydantic import ValidationError

from wick_graph.errors import MessageError
from wick_graph.messages.base import (
    RECORD_ROLES,
    ROLE_AGENT_CALL,
    ROLE_AGENT_RESPONSE,
    ROLE_ASSISTANT,
    ROLE_ERROR,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    TIMESTAMP_KEY,
    as_utc,
    new_message_id,
    sanitise_tool_name,
)
from wick_graph.messages.calls import ToolCall
from wick_graph.messages.content import Content, clean_text, fresh, reason_of

# --- Constructors, one per kind of message.


RAW_ARGS_KEY = "raw_args"
"""Where `additional_kwargs` holds each call's arguments as the model wrote them, by call id."""

M = TypeVar("M", bound=BaseMessage)

AnyCall = ToolCall | Mapping[str, Any]
"""A call in any form that `ToolCall.of` reads."""


def human(content: Content, *, id: str | None = None, name: str | None = None) -> HumanMessage:
    """Make a user message.

    Raises:
        MessageError: a part has the wrong type.
    """
    return _make(HumanMessage, content=fresh(content), id=id, name=name)


def system(content: Content, *, id: str | None = None, name: str | None = None) -> SystemMessage:
    """Make a system message.

    Raises:
        MessageError: a part has the wrong type.
    """
    return _make(SystemMessage, content=fresh(content), id=id, name=name)


def ai(
    content: Content = "",
    *tool_calls: AnyCall,
    id: str | None = None,
    name: str | None = None,
) -> AIMessage:
    """Make an assistant message with its tool calls.

    Raises:
        MessageError: a call has a wrong shape, or a part the wrong type.
    """
    calls = [ToolCall.of(call) for call in tool_calls]
    raw = {call.id: call.raw_args for call in calls if call.raw_args}
    return _make(
        AIMessage,
        content=fresh(content),
        tool_calls=[call.to_langchain() for call in calls],
        additional_kwargs={RAW_ARGS_KEY: raw} if raw else {},
        id=id,
        name=name,
    )


def tool_msg(
    tool_call_id: str, name: str, output: Content, *, id: str | None = None
) -> ToolMessage:
    """Make the message that answers a tool call.

    Raises:
        MessageError: a part has the wrong type.
    """
    return _make(ToolMessage, content=fresh(output), tool_call_id=tool_call_id, name=name, id=id)


def message(
    role: str,
    content: Content | None = "",
    *,
    name: str | None = None,
    message_id: str | None = None,
    tool_calls: Iterable[AnyCall] | None = None,
    tool_call_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    timestamp: datetime | str | None = None,
) -> BaseMessage:
    """Make a message of any role, with an id and a time of creation.

    `metadata` and the time (UTC) go into `additional_kwargs`, which no model reads. Tool names, in
    calls and in results, lose a leading `functions.` and the characters that providers refuse. An
    unknown role makes a `ChatMessage`, which validation refuses.

    Raises:
        MessageError: calls on a role other than assistant, a call's id on a role that answers
            no call, or a part of the wrong shape.
    """
    if not isinstance(role, str):
        raise MessageError(f"a role is a {type(role).__name__}; give a text")
    if tool_calls and role != ROLE_ASSISTANT:
        raise MessageError(f"a message of role {role} has tool_calls; only an assistant has them")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise MessageError(f"metadata are a {type(metadata).__name__}; give an object")
    notes = dict(metadata or {})
    if tool_call_id is not None and role in RECORD_ROLES:
        notes["tool_call_id"] = tool_call_id
    elif tool_call_id is not None and role != ROLE_TOOL:
        raise MessageError(f"a message of role {role} has a tool_call_id; only an answer has one")
    said: Content = "" if content is None else content
    made_id = message_id or new_message_id()
    made: BaseMessage
    if role == ROLE_ASSISTANT:
        made = ai(said, *map(_sanitised, tool_calls or ()), id=made_id, name=name)
    elif role == ROLE_TOOL:
        answers, name = (
            tool_call_id or "",
            sanitise_tool_name(name) if isinstance(name, str) else name,
        )
        made = _make(ToolMessage, content=fresh(said), tool_call_id=answers, id=made_id, name=name)
    elif role == ROLE_USER:
        made = human(said, id=made_id, name=name)
    elif role == ROLE_SYSTEM:
        made = system(said, id=made_id, name=name)
    else:
        made = _make(ChatMessage, role=role, content=fresh(said), id=made_id, name=name)
    _note(made, notes, as_utc(timestamp))
    return made


def error_message(
    error: BaseException | str,
    name: str | None = None,
    *,
    tool_call_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    message_id: str | None = None,
) -> ChatMessage:
    """Make the record of a failure, with `error_type` and the time in its metadata.

    Cancellation, exits and LangGraph's interrupts are not failures: they are raised again.
    """
    if isinstance(error, BaseException):
        if not is_failure(error):
            raise error
        kind, text = type(error).__name__, str(error) or type(error).__name__
    else:
        kind, text = "Error", error
    now = as_utc(None)
    notes = {"error_type": kind, "timestamp": now.isoformat(), **(metadata or {})}
    return _record(ROLE_ERROR, clean_text(text), name, notes, tool_call_id, message_id, now)


def agent_call(
    content: Content,
    name: str,
    *,
    caller: str,
    task_id: str | None = None,
    tool_call_id: str | None = None,
    message_id: str | None = None,
    timestamp: datetime | str | None = None,
) -> ChatMessage:
    """Make the record of one agent's call to another, `name`.

    The task gets a new id if it has none. `tool_call_id` is the caller's own tool call.
    """
    notes = {"caller": caller, "task_id": task_id or new_message_id()}
    made = as_utc(timestamp)
    return _record(ROLE_AGENT_CALL, content, name, notes, tool_call_id, message_id, made)


def agent_response(
    content: Content,
    name: str,
    *,
    task_id: str,
    completion_time: float | None = None,
    tool_call_id: str | None = None,
    message_id: str | None = None,
    timestamp: datetime | str | None = None,
) -> ChatMessage:
    """Make the record of the answer of the agent `name`; `completion_time` is in seconds."""
    notes: dict[str, Any] = {"task_id": task_id}
    if completion_time is not None:
        notes["completion_time"] = completion_time
    made = as_utc(timestamp)
    return _record(ROLE_AGENT_RESPONSE, content, name, notes, tool_call_id, message_id, made)


def is_failure(error: BaseException) -> bool:
    """Tell whether an exception is a failure, not a cancellation, an exit or an interrupt.

    LangGraph's interrupts are recognised by name: this package imports no LangGraph.
    """
    if not isinstance(error, Exception):
        return False
    return all(base.__name__ != "GraphBubbleUp" for base in type(error).__mro__)


def _sanitised(call: AnyCall) -> ToolCall:
    read = ToolCall.of(call)
    return read.replace(name=sanitise_tool_name(read.name))


def _record(
    role: str,
    content: Content,
    name: str | None,
    metadata: dict[str, Any],
    tool_call_id: str | None,
    message_id: str | None,
    timestamp: datetime,
) -> ChatMessage:
    made = _make(
        ChatMessage,
        role=role,
        content=fresh(content),
        name=name,
        id=message_id or new_message_id(),
    )
    call = {} if tool_call_id is None else {"tool_call_id": tool_call_id}
    _note(made, {**metadata, **call}, timestamp)
    return made


def _note(made: BaseMessage, metadata: dict[str, Any], timestamp: datetime) -> None:
    if metadata:
        made.additional_kwargs["metadata"] = fresh(metadata)
    made.additional_kwargs[TIMESTAMP_KEY] = timestamp.isoformat()


def _make(kind: type[M], **values: Any) -> M:
    try:
        return kind(**values)
    except ValidationError as error:
        raise MessageError(f"a {kind.__name__} is malformed: {reason_of(error)}") from error


# --- Failures as messages: an agent that fails, or that is not allowed, answers with a record.


P = ParamSpec("P")

MAX_DEPTH: Final = 5
"""Default depth of a chain of agents that call each other."""

MAX_INTERACTIONS: Final = 10
"""Default number of calls between agents in one turn."""


def errors_as_messages(
    name: str | None = None,
) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
    """Decorate a function, sync or async, so that it returns its failures as error messages.

    Cancellation, exits and LangGraph's interrupts are raised as usual.
    """

    def decorate(function: Callable[P, Any]) -> Callable[P, Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def later(*args: P.args, **kwargs: P.kwargs) -> Any:
                try:
                    return await function(*args, **kwargs)
                except Exception as error:
                    if not is_failure(error):
                        raise
                    return error_message(error, name)

            return later

        @functools.wraps(function)
        def now(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if not is_failure(error):
                    raise
                return error_message(error, name)

        return now

    return decorate


def refuse_agent_call(
    target: str,
    *,
    caller: str,
    known: Collection[str],
    allowed: Collection[str] | None = None,
    depth: int = 0,
    max_depth: int = MAX_DEPTH,
    interactions: int = 0,
    max_interactions: int = MAX_INTERACTIONS,
) -> ChatMessage | None:
    """Return why one agent may not call another, or None if it may.

    Checks in this order: the target is known, is allowed (all are if `allowed` is None), depth is
    left, interactions are left. The counters are those before the call.
    """
    reason = None
    if target not in known:
        reason = f"Target agent '{target}' not found."
    elif allowed is not None and target not in allowed:
        reason = f"Agent '{caller}' is not allowed to call agent '{target}'."
    elif depth >= max_depth:
        reason = f"Maximum invocation depth ({max_depth}) reached."
    elif interactions >= max_interactions:
        reason = f"Maximum interaction count ({max_interactions}) reached."
    return None if reason is None else error_message(reason, caller)
