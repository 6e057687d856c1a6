"""Records: everything that a message carries as data, of all seven roles."""

from __future__ import annotations

from collections.abc import Mapping
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
from wick_graph.messages.build import RAW_ARGS_KEY
from wick_graph.messages.jsontext import fresh, reason_of
from wick_graph.messages.roles import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL, ROLE_USER, role_of

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
    """Return everything that a message carries as data, a copy; `from_record` is the inverse.

    Not in a record: a tool's artifact, and arguments as the model wrote them.
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
    """Make the message that a record was made of.

    Raises:
        MessageError: what is wrong with the record's shape.
    """
    if not isinstance(data, Mapping):
        raise MessageError(f"a record is a {type(data).__name__}; give an object")
    role = data.get("role")
    if not isinstance(role, str):
        raise MessageError("a record has no role; give one of the seven as a text")
    _check_keys(role, data)
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
            f"a record of role {role[:64]} is misshapen: {reason_of(error)}"
        ) from error


def _check_keys(role: str, data: Mapping[str, Any]) -> None:
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
