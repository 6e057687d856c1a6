"""Messages as JSON: the wick form for HTTP and exports, and complete records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from wick_graph.errors import MessageError
from wick_graph.messages import build
from wick_graph.messages.base import (
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    is_named_by_engine,
    role_of,
)
from wick_graph.messages.build import RAW_ARGS_KEY
from wick_graph.messages.calls import ToolCall
from wick_graph.messages.chain import Messages
from wick_graph.messages.content import fresh, json_text, parse_json, reason_of, text_of

# --- The wick form of messages, for HTTP and exports: `role, content, tool_calls, …` as JSON.


_KEYS: Final = ("role", "content", "tool_calls", "tool_call_id", "name")


def to_wick(message: BaseMessage) -> dict[str, Any]:
    """Return a message's wick form: role and content, then the other fields that are not empty.

    Content blocks become their text. A call with invalid JSON arguments has empty ones. The form
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
    """Make a message from its wick form; absent or null content is empty.

    Only the shape is checked: an unknown role makes a `ChatMessage`, which validation refuses.

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
    """Make a chain from a list in wick form.

    Raises:
        MessageError: what is wrong with the first malformed message, after `message[<index>]`.
    """
    if not isinstance(data, list):
        raise MessageError(f"messages are a {type(data).__name__}; give a list of messages")
    return Messages(_indexed(index, item) for index, item in enumerate(data))


def dumps(messages: Iterable[BaseMessage], *, indent: int | None = None) -> str:
    """Write messages as a JSON list in wick form, the keys always in the same order.

    Raises:
        MessageError: a call's arguments hold something that JSON cannot express.
    """
    return json_text(messages_to_wick(messages), indent=indent)


def loads(text: str | bytes) -> Messages:
    """Read a JSON list in wick form.

    Raises:
        MessageError: the text is not a JSON list, or a message is malformed.
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


# --- Records: all data of a message, for all seven roles.


_CLASSES: Final[dict[str, type[BaseMessage]]] = {
    ROLE_USER: HumanMessage,
    ROLE_ASSISTANT: AIMessage,
    ROLE_SYSTEM: SystemMessage,
    ROLE_TOOL: ToolMessage,
}

_COMMON_KEYS: Final = ("id", "name", "additional_kwargs", "response_metadata")

_OWN_KEYS: Final[dict[str, tuple[str, ...]]] = {
    ROLE_ASSISTANT: ("tool_calls", "invalid_tool_calls", "usage_metadata"),
    ROLE_TOOL: ("tool_call_id", "status"),
}


def to_record(message: BaseMessage) -> dict[str, Any]:
    """Return a copy of all data of a message; `from_record` is the inverse.

    A record leaves out a tool's artifact and arguments as the model wrote them.
    """
    role = role_of(message)
    data: dict[str, Any] = {"role": role, "content": fresh(message.content)}
    for key in (*_OWN_KEYS.get(role, ()), *_COMMON_KEYS):
        value = fresh(getattr(message, key, None))
        if value is not None and value != {} and value != []:
            data[key] = value
    _drop_raw_args(data)
    for call in data.get("tool_calls", ()):
        call.pop("type", None)
    if message.model_extra:
        data["extra"] = fresh(dict(message.model_extra))
    return data


def from_record(data: Mapping[str, Any]) -> BaseMessage:
    """Make the message that a record describes.

    Raises:
        MessageError: what is wrong with the record's shape.
    """
    if not isinstance(data, Mapping):
        raise MessageError(f"a record is a {type(data).__name__}; give an object")
    role = data.get("role")
    if not isinstance(role, str):
        raise MessageError("a record has no role; give one of the seven as a text")
    _check_record_keys(role, data)
    kind = _CLASSES.get(role, ChatMessage)
    values = {key: fresh(value) for key, value in data.items() if key not in ("role", "extra")}
    values.update(fresh(data.get("extra") or {}))
    if kind is ChatMessage:
        values["role"] = role
    if kind is ToolMessage:
        values.setdefault("tool_call_id", "")
    try:
        return kind(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise MessageError(
            f"a record of role {role[:64]} is malformed: {reason_of(error)}"
        ) from error


def _check_record_keys(role: str, data: Mapping[str, Any]) -> None:
    known = ("role", "content", *_OWN_KEYS.get(role, ()), *_COMMON_KEYS, "extra")
    for key in data:
        if key not in known:
            raise MessageError(
                f"unknown key {str(key)[:64]!r} in a record of role {role[:64]}; "
                f"known are {', '.join(known)}"
            )
    if not isinstance(data.get("content"), (str, list)):
        raise MessageError("a record has no content; give a text or a list of blocks")


def _drop_raw_args(data: dict[str, Any]) -> None:
    notes = data.get("additional_kwargs", {})
    if notes.pop(RAW_ARGS_KEY, None) is not None and not notes:
        del data["additional_kwargs"]
