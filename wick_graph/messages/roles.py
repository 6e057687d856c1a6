"""Roles: the four that a model reads, the seven that a thread may hold."""

from __future__ import annotations

from typing import Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

ROLE_SYSTEM: Final = "system"
ROLE_USER: Final = "user"
ROLE_ASSISTANT: Final = "assistant"
ROLE_TOOL: Final = "tool"
ROLE_ERROR: Final = "error"
ROLE_AGENT_CALL: Final = "agent_call"
ROLE_AGENT_RESPONSE: Final = "agent_response"

LLM_ROLES: Final = frozenset({ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL})
"""What a model may be sent."""

RECORD_ROLES: Final = frozenset({ROLE_ERROR, ROLE_AGENT_CALL, ROLE_AGENT_RESPONSE})
"""What is kept in a thread as a `ChatMessage` and lowered before a model reads it."""

VALID_ROLES: Final = LLM_ROLES | RECORD_ROLES
"""What a thread may hold."""

_ROLE_OF_CLASS: Final[dict[type[BaseMessage], str]] = {
    HumanMessage: ROLE_USER,
    AIMessage: ROLE_ASSISTANT,
    SystemMessage: ROLE_SYSTEM,
    ToolMessage: ROLE_TOOL,
}


def role_of(message: BaseMessage) -> str:
    """Return the role of any LangChain message.

    A `ChatMessage` has the role that it names, known or not; a class that has no role of ours
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
    """Tell whether a model may be sent this role."""
    return isinstance(role, str) and role in LLM_ROLES


def user_input_role(role: object) -> bool:
    """Tell whether a caller may send this role; the others would let them forge replies."""
    return role in (ROLE_USER, ROLE_SYSTEM)
