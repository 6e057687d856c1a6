"""The wick form of messages, for HTTP and exports: `role, content, tool_calls, …` as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, ToolMessage

from wick_graph.errors import MessageError
from wick_graph.messages import build
from wick_graph.messages.calls import ToolCall
from wick_graph.messages.chain import Messages
from wick_graph.messages.content import text_of
from wick_graph.messages.jsontext import json_text, parse_json
from wick_graph.messages.roles import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL, ROLE_USER, role_of
from wick_graph.messages.stamps import is_named_by_engine

_KEYS: Final = ("role", "content", "tool_calls", "tool_call_id", "name")


def to_wick(message: BaseMessage) -> dict[str, Any]:
    """Return a message's wick form: role and content, then what is not empty of the rest.

    Content blocks become their text. A call whose arguments were no JSON has none here. The form
    has no ids of messages, no metadata, no arguments as the model wrote them, and no name of the
    agent that replied.
    """
    data: dict[str, Any] = {"role": role_of(message), "content": text_of(message)}
    if isinstance(message, AIMessage):
        calls = [ToolCall.of(call).to_dict() for call in message.tool_calls]
        calls += [
            {"id": bad["id"] or "", "name": bad["name"] or "", "args": {}}
            for bad in message.invalid_tool_calls
        ]
        if calls:
            data["tool_calls"] = calls
    elif isinstance(message, ToolMessage) and message.tool_call_id:
        data["tool_call_id"] = message.tool_call_id
    if message.name and not is_named_by_engine(message):
        data["name"] = message.name
    return data


def from_wick(data: Mapping[str, Any]) -> BaseMessage:
    """Make a message of its wick form; content that is absent or null is empty.

    Only the shape is checked: a role nobody knows makes a `ChatMessage`, which validation refuses.

    Raises:
        MessageError: what is wrong with the shape.
    """
    _check_keys(data)
    role = _text(data, "role")
    content = _text(data, "content")
    call_id = _text(data, "tool_call_id")
    name = _text(data, "name") or None
    calls = _calls(data)
    if calls and role != ROLE_ASSISTANT:
        raise MessageError(f'a "{role[:64]}" message has tool_calls; only "assistant" has them')
    if call_id and role != ROLE_TOOL:
        raise MessageError(f'a "{role[:64]}" message has a tool_call_id; only "tool" has one')
    if role == ROLE_ASSISTANT:
        return build.ai(content, *calls, name=name)
    if role == ROLE_TOOL:
        return ToolMessage(content=content, tool_call_id=call_id, name=name)
    if role == ROLE_USER:
        return build.human(content, name=name)
    if role == ROLE_SYSTEM:
        return build.system(content, name=name)
    return ChatMessage(role=role, content=content, name=name)


def messages_to_wick(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    """Return the wick form of several messages."""
    return [to_wick(message) for message in messages]


def messages_from_wick(data: Any) -> Messages:
    """Make a chain of a list in wick form.

    Raises:
        MessageError: what is wrong with the first misshapen message, after `message[<index>]`.
    """
    if not isinstance(data, list):
        raise MessageError(f"messages are a {type(data).__name__}; give a list of messages")
    return Messages(_indexed(index, item) for index, item in enumerate(data))


def dumps(messages: Iterable[BaseMessage], *, indent: int | None = None) -> str:
    """Write messages as a JSON list in wick form, the keys always in the same order.

    Raises:
        MessageError: a call's arguments hold something that JSON has no form for.
    """
    return json_text(messages_to_wick(messages), indent=indent)


def loads(text: str | bytes) -> Messages:
    """Read a JSON list in wick form.

    Raises:
        MessageError: the text is no JSON list, or what is wrong with the first misshapen message.
    """
    return messages_from_wick(parse_json(text))


def _indexed(index: int, item: Any) -> BaseMessage:
    try:
        return from_wick(item)
    except MessageError as error:
        raise MessageError(f"message[{index}]: {error}") from error


def _check_keys(data: Mapping[str, Any]) -> None:
    if not isinstance(data, Mapping):
        raise MessageError(
            f"a message is a {type(data).__name__}; give an object with role and content"
        )
    if data.get("role") is None:
        raise MessageError("a message has no role; give one of system, user, assistant, tool")
    for key in data:
        if key not in _KEYS:
            raise MessageError(
                f"unknown key {str(key)[:64]!r} in a message; known are {', '.join(_KEYS)}"
            )


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MessageError(f"{key} is a {type(value).__name__}; give a text")
    return value


def _calls(data: Mapping[str, Any]) -> list[Any]:
    calls = data.get("tool_calls")
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise MessageError(f"tool_calls is a {type(calls).__name__}; give a list of calls")
    return calls
