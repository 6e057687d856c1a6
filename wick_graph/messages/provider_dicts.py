"""Messages between agents, and providers' dictionaries in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    InvalidToolCall,
    convert_to_openai_messages,
)

from wick_graph.errors import MessageError
from wick_graph.messages.base import (
    MAX_NAME,
    RECORD_ROLES,
    ROLE_ASSISTANT,
    ROLE_TOOL,
    VALID_ROLES,
    as_utc,
    copy_message,
    metadata_of,
    new_call_id,
    new_message_id,
    role_of,
    sanitise_name,
    sanitise_tool_name,
    timestamp_of,
)
from wick_graph.messages.build import message
from wick_graph.messages.calls import ToolCall
from wick_graph.messages.lowering import labelled

M = TypeVar("M", bound=BaseMessage)

LlmDict = dict[str, Any]
"""A message in the form of OpenAI-compatible servers."""

InputProcessor = Callable[[LlmDict], BaseMessage | LlmDict]

OutputProcessor = Callable[[BaseMessage], LlmDict]


def to_llm_dict(source: BaseMessage) -> LlmDict:
    """Return a message as an OpenAI-compatible dictionary, in one of the four roles.

    A record of another agent becomes labelled words of the user. A call with arguments that are
    not a JSON object keeps the text that the model wrote. Ids of messages, metadata and times are
    left out, and names are sanitised. `lower` a whole chain first: it knows what to leave out.

    Raises:
        MessageError: the role is not one of the seven.
    """
    role = role_of(source)
    if role not in VALID_ROLES:
        raise MessageError(
            f'unknown role "{role[:64]}"; a model reads system, user, assistant, tool'
        )
    if isinstance(source, ChatMessage) and role in RECORD_ROLES:
        source = labelled(source)
    made: LlmDict = convert_to_openai_messages(source)
    if isinstance(source, AIMessage):
        _keep_bad_calls(made, source)
    if role != ROLE_TOOL and "name" in made:
        made["name"] = sanitise_name(made["name"])[:MAX_NAME]
    return made


def from_response_dict(
    data: Mapping[str, Any],
    processor: InputProcessor | None = None,
    *,
    default_id: str | None = None,
    default_role: str = ROLE_ASSISTANT,
    default_name: str | None = None,
) -> BaseMessage:
    """Make a message from a provider's dictionary, with an id, a time and sanitised tool names.

    The processor runs first and returns a dictionary or the message itself. A default replaces a
    key that is absent or null. A call with arguments that are not a JSON object goes into
    `invalid_tool_calls`.

    Raises:
        TypeError: the processor returned something else.
        MessageError: a part has the wrong shape.
    """
    processed = processor(dict(data)) if processor is not None else data
    if isinstance(processed, BaseMessage):
        return processed
    if not isinstance(processed, Mapping):
        raise TypeError(
            f"the processor returned a {type(processed).__name__}; return a dict or a message"
        )
    given = {key: value for key, value in processed.items() if value is not None}
    calls, broken = _read_calls(given.get("tool_calls", ()))
    made = message(
        given.get("role", default_role),
        given.get("content", ""),
        name=given.get("name", default_name),
        message_id=given.get("message_id", given.get("id", default_id)),
        tool_calls=calls,
        tool_call_id=given.get("tool_call_id"),
        metadata=given.get("metadata"),
        timestamp=given.get("timestamp"),
    )
    if broken and isinstance(made, AIMessage):
        made.invalid_tool_calls = broken
    return made


def process_llm_response(data: LlmDict) -> BaseMessage:
    """Make an assistant message from a provider's dictionary: the default input processor.

    Raises:
        MessageError: there are neither tool calls nor content, or a part has the wrong shape.
    """
    if "tool_calls" not in data and "content" not in data:
        raise MessageError("a response has neither content nor tool_calls; give one of them")
    return from_response_dict({**data, "role": ROLE_ASSISTANT})


def process_for_llm(source: BaseMessage) -> LlmDict:
    """Return a message as a provider reads it: the default output processor."""
    return to_llm_dict(source)


@dataclass(frozen=True)
class Processors:
    """An agent's conversions: of dictionaries on the way in, of messages on the way out."""

    inbound: InputProcessor = process_llm_response
    outbound: OutputProcessor = process_for_llm


class MessageChain:
    """Collect messages that belong together, under the id of the first.

    It holds copies, so that a message can be in several chains, each with its own `chain_id`.
    """

    def __init__(self, initial: BaseMessage) -> None:
        first = copy_message(initial, id=initial.id or new_message_id())
        self.chain_id = str(first.id)
        self.messages: list[BaseMessage] = [first]

    def add_response(self, response: M) -> M:
        """Append a copy that names this chain in its metadata, and return it."""
        notes = {**metadata_of(response), "chain_id": self.chain_id}
        stored = copy_message(response)
        stored.additional_kwargs["metadata"] = notes
        self.messages.append(stored)
        return stored

    def get_chain(self) -> list[BaseMessage]:
        """Return the messages in a new list."""
        return list(self.messages)


def filter_messages(messages: Iterable[BaseMessage], **criteria: Any) -> list[BaseMessage]:
    """Return the messages that meet all criteria, in order and in a new list.

    `role` and `name` compare for equality; `after` and `before` keep messages made later or
    earlier than a time (local if it names no zone) and drop messages without one. Other criteria
    are ignored.
    """
    after, before = criteria.get("after"), criteria.get("before")
    earliest = as_utc(after) if after is not None else None
    latest = as_utc(before) if before is not None else None
    return [
        kept
        for kept in messages
        if ("role" not in criteria or role_of(kept) == criteria["role"])
        and ("name" not in criteria or kept.name == criteria["name"])
        and _made_between(kept, earliest, latest)
    ]


def forward(source: M, **changes: Any) -> M:
    """Return a copy to hand on, with the same id unless `id` is among the changes."""
    return copy_message(source, **changes)


def _made_between(
    candidate: BaseMessage, earliest: datetime | None, latest: datetime | None
) -> bool:
    if earliest is None and latest is None:
        return True
    made = timestamp_of(candidate)
    if made is None:
        return False
    return (earliest is None or made > earliest) and (latest is None or made < latest)


def _keep_bad_calls(made: LlmDict, source: AIMessage) -> None:
    """Put in the arguments as the model wrote them if they are not a JSON object."""
    kept = source.response_metadata.get("raw_args")  # by the engine, by the calls' ids
    raw: Mapping[str, Any] = kept if isinstance(kept, dict) else {}
    for call in made.get("tool_calls", ()) if raw else ():
        if isinstance(text := raw.get(call["id"]), str):
            call["function"]["arguments"] = text
    if source.invalid_tool_calls:
        made["tool_calls"] = [
            *made.get("tool_calls", ()),
            *map(_bad_call, source.invalid_tool_calls),
        ]


def _bad_call(call: InvalidToolCall) -> LlmDict:
    function = {"name": call["name"] or "", "arguments": call["args"] or ""}
    return {"type": "function", "id": call["id"] or "", "function": function}


def _read_calls(calls: Any) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    if not isinstance(calls, (list, tuple)):
        raise MessageError(f"tool_calls is a {type(calls).__name__}; give a list of calls")
    good: list[ToolCall] = []
    broken: list[InvalidToolCall] = []
    taken: set[str] = set()
    for call in calls:
        try:
            read = _ingested(ToolCall.of(call), taken)
        except MessageError as error:
            broken.append(_broken_call(call, error, taken))
        else:
            good.append(read)
    return good, broken


def _ingested(call: ToolCall, taken: set[str]) -> ToolCall:
    """Return a call with a sanitised name, and a new id if it has none or a repeated one."""
    call_id = call.id if call.id and call.id not in taken else new_call_id()
    taken.add(call_id)
    return call.replace(id=call_id, name=sanitise_tool_name(call.name))


def _broken_call(call: Any, error: MessageError, taken: set[str]) -> InvalidToolCall:
    """Return a call with unreadable arguments; refuse what is not a call at all."""
    inner = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("arguments"), str):
        raise error
    shell = {"id": call.get("id"), "name": inner.get("name"), "args": None}
    read = _ingested(ToolCall.of(shell), taken)
    return InvalidToolCall(
        type="invalid_tool_call",
        id=read.id,
        name=read.name,
        args=inner["arguments"],
        error=str(error),
    )
