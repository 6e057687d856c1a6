"""Check message chains and callers' inputs before anything is stored."""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
)

from wick_graph.errors import MessageError
from wick_graph.messages.base import (
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    VALID_ROLES,
    changed,
    changed_copy,
    role_of,
)
from wick_graph.messages.content import PICTURES, has_content, is_unicode, picture_problem, text_of
from wick_graph.messages.provider_dicts import from_response_dict

# --- The rules of a well-formed chain; each refusal names the first offender.


_SHOWN_ROLE: Final = 64

_HALF: Final = "content has half a surrogate pair; send valid Unicode text"


def validate(messages: Sequence[BaseMessage]) -> None:
    """Check each message of a chain for a model; an empty chain is well-formed too.

    Raises:
        MessageError: what is wrong with the first message that breaks a rule.
    """
    for index, message in enumerate(messages):
        check_message(index, message)


def validate_user_input(messages: Sequence[BaseMessage], allow_system: bool = True) -> None:
    """Check a caller's input: at least one message, all of roles that a caller may use.

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
    """Check the input of a caller who keeps the conversation, with replies and tool results.

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
            "last; add a user message"
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
    """Validate a growing chain; each call looks only at what is new.

    The rules hold for each message by itself, so one that is at the same place as in the last
    accepted list is not checked again. Hold one validator per chain.
    """

    __slots__ = ("_seen",)

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
    """Tell whether a thread may hold a message; never raises.

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
    """Tell quickly that a common message breaks no rule; False means: check in full."""
    kind = type(message)
    if kind is ToolMessage:
        return bool(message.name and message.tool_call_id)  # type: ignore[attr-defined]  # as below
    if kind is AIMessage:
        calls = message.tool_calls  # type: ignore[attr-defined]  # just looked
        for call in calls:  # no generator: a resumed thread is checked as a whole
            if not (call["id"] and call["name"]):
                return False
        if calls:
            return True
    elif kind is not HumanMessage and kind is not SystemMessage:
        return False
    return type(message.content) is str and message.content != ""


def _role(index: int, message: BaseMessage) -> str:
    if not isinstance(message, BaseMessage):
        raise MessageError(
            f"message[{index}]: a {type(message).__name__} is not a message; "
            "make it with human(), system(), ai(), tool_msg() or from_wick()"
        )
    return role_of(message)


def _check_input(index: int, message: BaseMessage) -> None:
    if not has_content(message):
        raise MessageError(f"message[{index}]: {role_of(message)} message has empty content")


def _check_assistant(index: int, message: BaseMessage) -> None:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    # a call with arguments that are not JSON still gets an answer
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


# --- The forms of a caller's input, read and checked before anything is stored.


UNNAMED: Final = "unnamed"
"""The tool's name in a result without one; the thread knows the real name."""

_FILES: Final = frozenset(
    {"file", "input_file", "media", "document", "audio", "input_audio", "video"}
)

_TYPED: Final = frozenset({"file", "media", "audio", "video"})

_DATA: Final = (
    *("data", "base64", "url", "text", "id", "file_id", "file_uri", "file_url", "file_data"),
    *("source", "content", "file", "input_audio"),
)
"""Keys under which clients write a file's content or address."""

_ROLES: Final = {
    "human": ROLE_USER,
    "ai": ROLE_ASSISTANT,
    "developer": ROLE_SYSTEM,
    **{role: role for role in (ROLE_USER, ROLE_SYSTEM, ROLE_ASSISTANT, ROLE_TOOL)},
}


def read_input(given: Any, *, allow_system: bool = True) -> list[BaseMessage]:
    """Return a user's messages, given as a text, a message, a dict, or a list of these.

    Raises:
        MessageError: the input is none of these, is empty, or has a role of the engine's.
    """
    made = _read(given, (ROLE_USER, ROLE_SYSTEM))
    validate_user_input(made, allow_system=allow_system)
    _check_ids(made)
    _check_blocks(made)
    return made


def read_history(
    given: Any, *, allow_system: bool = True
) -> tuple[list[BaseMessage], tuple[ToolMessage, ...]]:
    """Return the messages of a caller who keeps the conversation, in any form of `read_input`.

    They may include the assistant's and the tools', and may be under the key `messages`, as in a
    LangGraph state; other keys of it are not read here.

    Returns:
        The messages, and the answers among them to calls that none of them makes.

    Raises:
        MessageError: a model could not continue the chain.
    """
    if isinstance(given, Mapping) and "messages" in given:
        given = given["messages"]
    made = _read(given, tuple(dict.fromkeys(_ROLES.values())))
    elsewhere = validate_history(made, allow_system=allow_system)
    _check_ids(made)
    _check_blocks(made)
    made = _named(made)
    wanted = {answer.tool_call_id for answer in elsewhere}
    return made, tuple(m for m in made if isinstance(m, ToolMessage) and m.tool_call_id in wanted)


def with_channels(given: Any, messages: list[BaseMessage]) -> dict[str, Any]:
    """Return the messages of an input as a state, with the other channels that it names."""
    others = given if isinstance(given, Mapping) and "messages" in given else {}
    return {**others, "messages": messages}


def _named(messages: list[BaseMessage]) -> list[BaseMessage]:
    """Return the messages, with the tool's name in each tool result."""
    names: dict[str | None, str] = {}
    out: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, AIMessage):
            calls = (*message.tool_calls, *message.invalid_tool_calls)
            names.update({call["id"]: call["name"] or UNNAMED for call in calls})
        elif isinstance(message, ToolMessage) and not message.name:
            name = names.get(message.tool_call_id, UNNAMED)
            message = changed_copy(message, name=name)
        out.append(message)
    return out


def listed(given: Any) -> list[Any]:
    """Return the items of an input; a pair such as `("user", "Hi")` is one of them."""
    if isinstance(given, tuple) and len(given) == 2 and given[0] in (*_ROLES,):
        return [given]
    return list(given) if isinstance(given, list | tuple) else [given]


def _read(given: Any, roles: Sequence[str]) -> list[BaseMessage]:
    return [_message(i, item, roles) for i, item in enumerate(listed(given))]


def _message(i: int, item: Any, roles: Sequence[str]) -> BaseMessage:
    if isinstance(item, str):
        return HumanMessage(item)
    if isinstance(item, RemoveMessage):
        raise MessageError(
            f"message[{i}]: an input removes no message; change the past with agent.graph"
        )
    if isinstance(item, BaseMessage):
        return message_chunk_to_message(item) if isinstance(item, BaseMessageChunk) else item
    if isinstance(item, tuple | list) and len(item) == 2:
        item = {"role": item[0], "content": item[1]}
    if isinstance(item, Mapping) and "role" not in item:
        item = _with_role(item)
    if isinstance(item, Mapping) and "role" in item and ("content" in item or "tool_calls" in item):
        return _from_dict(i, item, roles)
    kind = "nothing" if item is None else f"a {type(item).__name__}"
    raise MessageError(
        f"message[{i}]: {kind} is not a message; "
        "give a text, a message, or a dict with role and content"
    )


def _with_role(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return LangChain's dict of a message, as `model_dump` or `dumpd` writes it, with a role."""
    kwargs = item.get("kwargs")
    if item.get("lc") == 1 and isinstance(kwargs, Mapping):
        item = {"content": "", **kwargs}
    return {**item, "role": item["type"]} if "type" in item else item


def _from_dict(i: int, item: Mapping[str, Any], roles: Sequence[str]) -> BaseMessage:
    """Read a dict; only role and content of a user's dict count."""
    if not isinstance(item["role"], str):
        raise MessageError(f"message[{i}]: role must be a text, such as {ROLE_USER!r}")
    role, content = _ROLES.get(item["role"], item["role"]), item.get("content")
    if role not in roles:
        allowed = " or ".join(f'"{name}"' for name in roles)
        raise MessageError(f'message[{i}]: role "{role}" not allowed (must be {allowed})')
    asks = role == ROLE_ASSISTANT and bool(item.get("tool_calls"))
    content = "" if content is None and asks else content
    if not isinstance(content, str | list):
        raise MessageError(f"message[{i}]: content must be a text, or a list of blocks")
    for n, block in enumerate(content if isinstance(content, list) else ()):
        if (wrong := _wrong_block(block)) is not None:
            raise MessageError(f"message[{i}].content[{n}]: {wrong}")
    try:
        if role in (ROLE_USER, ROLE_SYSTEM):
            return convert_to_messages([{"role": role, "content": content}])[0]
        return _answer(item, role, content)
    except MessageError as error:
        raise MessageError(f"message[{i}]: {error}") from None
    except (ValueError, TypeError) as error:
        raise MessageError(f"message[{i}]: {str(error).splitlines()[0]}") from None


def _answer(item: Mapping[str, Any], role: str, content: Any) -> BaseMessage:
    """Read an assistant's or a tool's message."""
    if role == ROLE_TOOL:
        fields = {
            key: item[key] for key in ("tool_call_id", "name", "id", "status") if item.get(key)
        }
        return ToolMessage(**{"content": content, "tool_call_id": "", **fields})
    for place, call in enumerate(item.get("tool_calls") or ()):
        if not isinstance(call, Mapping) or not call.get("id"):
            raise MessageError(f"tool_calls[{place}]: missing ID")
    fields = {key: item[key] for key in ("tool_calls", "name", "id") if item.get(key)}
    return from_response_dict({"role": role, "content": content, **fields})


def _check_ids(messages: Sequence[BaseMessage]) -> None:
    """Refuse an id that two messages share: the later one would replace the other."""
    places: dict[str, int] = {}
    for i, message in enumerate(messages):
        if message.id is not None and places.setdefault(message.id, i) != i:
            raise MessageError(
                f"message[{i}]: it has the id of message[{places[message.id]}]; "
                "leave the id out, or give each message its own"
            )


def _check_blocks(messages: Sequence[BaseMessage]) -> None:
    """Refuse what no provider takes: once stored, it would fail every later call."""
    for i, message in enumerate(messages):
        content = message.content if isinstance(message.content, list) else ()
        for n, block in enumerate(content):
            if (wrong := _wrong_block(block)) is not None:
                raise MessageError(f"message[{i}].content[{n}]: {wrong}")


def _wrong_block(block: Any) -> str | None:
    if isinstance(block, str):
        return None
    if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
        return "a block is a text, or an object with a type"
    if block["type"] == "text" and not isinstance(block.get("text"), str):
        return "a block of type text needs a text"
    if block["type"] in PICTURES:
        return picture_problem(dict(block))
    return _file_problem(block["type"], block) if block["type"] in _FILES else None


def _file_problem(kind: str, block: Mapping[str, Any]) -> str | None:
    """Say why no provider reads a file, a sound or a film, or None."""
    held = block.get(kind) if kind == "input_audio" else block
    if not _is_data(held):
        return f"a block of type {kind} needs its data or an address"
    data = block.get("base64") or block.get("data")
    if data is None or kind not in _TYPED:
        return None
    if not isinstance(block.get("mime_type"), str):
        return f"a block of type {kind} with data needs a mime_type"
    try:
        binascii.a2b_base64(data, strict_mode=isinstance(data, str))
    except (TypeError, ValueError):
        return f"the data of a block of type {kind} is not base64"
    return None


def _is_data(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_is_data(value.get(key)) for key in _DATA)
    return bool(value) and isinstance(value, str | bytes | list)
