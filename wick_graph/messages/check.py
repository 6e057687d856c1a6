"""The rules of a well-formed chain; every text of a refusal names the first offender."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from wick_graph.errors import MessageError
from wick_graph.messages.content import has_content, is_unicode, text_of
from wick_graph.messages.prefix import changed
from wick_graph.messages.roles import (
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    VALID_ROLES,
    role_of,
)

_SHOWN_ROLE: Final = 64
_HALF: Final = "content has half a surrogate pair; send valid Unicode text"


def validate(messages: Sequence[BaseMessage]) -> None:
    """Check each message of a chain that is about to be sent to a model; none is well-formed too.

    Raises:
        MessageError: what is wrong with the first message that breaks a rule.
    """
    for index, message in enumerate(messages):
        check_message(index, message)


def validate_user_input(messages: Sequence[BaseMessage], allow_system: bool = True) -> None:
    """Check what a caller sends: at least one message, all by roles that a caller may have.

    Raises:
        MessageError: what is wrong with the first message that breaks a rule.
    """
    if not messages:
        raise MessageError("messages must not be empty")
    allowed = (ROLE_USER, ROLE_SYSTEM) if allow_system else (ROLE_USER,)
    for index, message in enumerate(messages):
        role = _role(index, message)
        if role not in allowed:
            names = " or ".join(f'"{name}"' for name in allowed)
            raise MessageError(
                f"message[{index}]: role {_quoted(role)} not allowed (must be {names})"
            )
        if not has_content(message):
            raise MessageError(f"message[{index}]: content must not be empty")
        if not is_unicode(text_of(message)):
            raise MessageError(f"message[{index}]: {_HALF}")


def validate_history(
    messages: Sequence[BaseMessage], allow_system: bool = True
) -> tuple[ToolMessage, ...]:
    """Check what a caller sends who keeps the conversation: replies and results of tools too.

    Returns:
        Answers to calls that no message here makes: the thread must know them.

    Raises:
        MessageError: what is wrong with the first message that breaks a rule.
    """
    if not messages:
        raise MessageError("messages must not be empty")
    asked: set[str] = set()
    answered: set[str] = set()
    elsewhere: list[ToolMessage] = []
    for index, message in enumerate(messages):
        if not isinstance(message, AIMessage | ToolMessage):
            _check_said(index, message, allow_system)
        elif isinstance(message, AIMessage):
            _check_assistant(index, message)
            calls = {
                call["id"] or "" for call in (*message.tool_calls, *message.invalid_tool_calls)
            }
            asked, answered = asked | calls, answered - calls
        elif not _call_id(message):
            raise MessageError(f"message[{index}]: tool message missing tool_call_id")
        elif message.tool_call_id in answered:
            raise MessageError(
                f"message[{index}]: the call {_quoted(message.tool_call_id)} is answered twice"
            )
        else:
            answered.add(message.tool_call_id)
            elsewhere += [message] if message.tool_call_id not in asked else []
        if not is_unicode(text_of(message)):
            raise MessageError(f"message[{index}]: {_HALF}")
    if isinstance(messages[-1], AIMessage) and not (messages[-1].tool_calls):
        raise MessageError(
            f"message[{len(messages) - 1}]: there is nothing to answer, since the assistant spoke "
            "last; add what the user says"
        )
    return tuple(elsewhere)


def _check_said(index: int, message: BaseMessage, allow_system: bool) -> None:
    """Check a message that is neither a reply nor a tool's result."""
    role = _role(index, message)
    allowed = (ROLE_USER, *((ROLE_SYSTEM,) if allow_system else ()), ROLE_ASSISTANT, ROLE_TOOL)
    if role not in allowed[:-2]:
        names = " or ".join(f'"{name}"' for name in allowed)
        raise MessageError(f"message[{index}]: role {_quoted(role)} not allowed (must be {names})")
    if not has_content(message):
        raise MessageError(f"message[{index}]: content must not be empty")


def check_message(index: int, message: BaseMessage) -> None:
    """Check one message of a chain.

    Raises:
        MessageError: what is wrong with it, after `message[<index>]`.
    """
    role = _role(index, message)
    check = _CHECKS.get(role)
    if check is None:
        raise MessageError(f"message[{index}]: unknown role {_quoted(role)}")
    check(index, message)


class PrefixValidator:
    """Validate a growing chain again and again, looking only at what is new each time.

    The rules hold for each message by itself, so one that stood at the same place in the last
    accepted list is not looked at again. Hold one validator per chain.
    """

    def __init__(self) -> None:
        self._seen: list[BaseMessage] = []

    def check(self, messages: Sequence[BaseMessage]) -> None:
        """Check a chain as `validate` does.

        Raises:
            MessageError: what is wrong with the first message that breaks a rule.
        """
        for index in changed(self._seen, messages):
            if not _is_fine(messages[index]):
                check_message(index, messages[index])
        self._seen = list(messages)


def validate_message(message: object) -> bool:
    """Tell whether a message may be held in a thread; never raises.

    All seven roles may; a tool message needs the id of its call and the tool's name.
    """
    if not isinstance(message, BaseMessage) or role_of(message) not in VALID_ROLES:
        return False
    if role_of(message) != ROLE_TOOL:
        return True
    return bool(_call_id(message)) and bool(message.name)


def validate_tool_response(message: object) -> bool:
    """Tell whether a message is a tool's and its content is JSON; never raises.

    This is advice: plain text is a legal result of a tool.
    """
    if not isinstance(message, BaseMessage) or role_of(message) != ROLE_TOOL:
        return False
    try:
        json.loads(text_of(message))
    except (ValueError, RecursionError):
        return False
    return True


def _is_fine(message: BaseMessage) -> bool:
    """Tell quickly of the messages of most chains that no rule is broken."""
    kind = type(message)
    if kind is ToolMessage:
        return bool(_call_id(message) and message.name)
    if kind is AIMessage:
        calls = message.tool_calls  # type: ignore[attr-defined]  # just looked
        if calls:
            return all(call["id"] and call["name"] for call in calls)
    elif kind is not HumanMessage and kind is not SystemMessage:
        return False
    return type(message.content) is str and message.content != ""


def _role(index: int, message: BaseMessage) -> str:
    if not isinstance(message, BaseMessage):
        raise MessageError(
            f"message[{index}]: a {type(message).__name__} is no message; "
            "make it with human(), system(), ai(), tool_msg() or from_wick()"
        )
    return role_of(message)


def _check_input(index: int, message: BaseMessage) -> None:
    if not has_content(message):
        raise MessageError(f"message[{index}]: {role_of(message)} message has empty content")


def _check_assistant(index: int, message: BaseMessage) -> None:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    # a call whose arguments are no JSON was asked for all the same, and is answered
    attempts = calls or (isinstance(message, AIMessage) and message.invalid_tool_calls)
    if not attempts and not has_content(message):
        raise MessageError(f"message[{index}]: assistant message has no content and no tool calls")
    for place, call in enumerate(calls):
        if not call["id"]:
            raise MessageError(f"message[{index}].tool_calls[{place}]: missing ID")
        if not call["name"]:
            raise MessageError(f"message[{index}].tool_calls[{place}]: missing name")


def _check_tool(index: int, message: BaseMessage) -> None:
    if not _call_id(message):
        raise MessageError(f"message[{index}]: tool message missing tool_call_id")
    if not message.name:
        raise MessageError(f"message[{index}]: tool message missing name")


def _call_id(message: BaseMessage) -> str:
    return message.tool_call_id if isinstance(message, ToolMessage) else ""


def _quoted(role: str) -> str:
    return json.dumps(role[:_SHOWN_ROLE], ensure_ascii=False)


_CHECKS: Final[dict[str, Callable[[int, BaseMessage], None]]] = {
    ROLE_USER: _check_input,
    ROLE_SYSTEM: _check_input,
    ROLE_ASSISTANT: _check_assistant,
    ROLE_TOOL: _check_tool,
}
