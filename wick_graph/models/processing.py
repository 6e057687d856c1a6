"""An agent's own processors around its model: last before the provider, and first after it.

What a processor leaves as it was stays the very message, with all that has no place in a
dictionary: content blocks, signatures, usage and metadata.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    SystemMessage,
)

from wick_graph.errors import MessageError
from wick_graph.messages import (
    RECORD_ROLES,
    Processors,
    from_response_dict,
    process_for_llm,
    process_llm_response,
    role_of,
    to_llm_dict,
)
from wick_graph.messages.copies import changed_copy, private
from wick_graph.messages.lowering import labelled
from wick_graph.models.merge import merge_chunks
from wick_graph.request import ModelRequest, Section, shown

SOURCE = "processor"
"""Whose a system prompt is that a processor changed."""


class Processing:
    """Applies an agent's processors in one run; what was processed once is not processed again."""

    def __init__(self, processors: Processors) -> None:
        self._inbound, self._outbound = processors.inbound, processors.outbound
        self._done: dict[int, tuple[BaseMessage, BaseMessage]] = {}

    def outgoing(self, request: ModelRequest) -> ModelRequest:
        """Return the request with each message as the output processor makes it.

        Raises:
            MessageError: The processor returned no dictionary of a message.
        """
        if self._outbound is process_for_llm:
            return request
        given = shown(request)
        made = [self._once(message) for message in given]
        if any(new is not old for new, old in zip(made, given, strict=True)):
            request = request.with_messages(made)
        text = request.system_text
        if text and (said := self._out(SystemMessage(text)).text) != text:
            request = request.replace_system(Section(said, SOURCE))
        return request

    def rendered(self, record: ChatMessage) -> BaseMessage:
        """Return what a model reads of a record of another agent."""
        return labelled(record) if self._outbound is process_for_llm else self._out(record)

    def incoming(self, reply: AIMessage) -> AIMessage:
        """Return a reply as the input processor makes it.

        Raises:
            MessageError: The processor returned something else than an assistant's message.
        """
        if self._inbound is process_llm_response:
            return reply
        if isinstance(reply, AIMessageChunk):
            reply = merge_chunks([reply])
        before = to_llm_dict(reply)
        try:
            made = from_response_dict(copy.deepcopy(before), self._inbound)
        except TypeError as error:
            raise MessageError(f"the input processor: {error}") from None
        if not isinstance(made, AIMessage):
            raise MessageError(
                f"the input processor made a {role_of(made)} message of a reply; "
                "return one of the role assistant"
            )
        after = to_llm_dict(made)
        notes = made.additional_kwargs
        reply = _merged(reply, made, before, after)
        return changed_copy(reply, additional_kwargs={**reply.additional_kwargs, **notes})

    def _once(self, message: BaseMessage) -> BaseMessage:
        if role_of(message) in RECORD_ROLES:
            return message  # whether a model reads it at all is seen from the chain
        known = self._done.get(id(message))
        if known is None:
            known = self._done[id(message)] = message, self._out(message)
        return known[1]

    def _out(self, message: BaseMessage) -> BaseMessage:
        before, after = to_llm_dict(message), self._outbound(private(message))
        if not isinstance(after, Mapping):
            raise MessageError(
                f"the output processor returned a {type(after).__name__}; return a dictionary"
            )
        if role_of(message) not in RECORD_ROLES and after == before:
            return message
        made = from_response_dict({"role": before["role"], **after})
        if type(made) is type(message):
            merged: BaseMessage = _merged(message, made, before, after)
            return merged
        return changed_copy(made, id=message.id)


def _merged(old: Any, new: BaseMessage, before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
    """Return a message with what a processor changed of it, and the rest as it was."""
    changes: dict[str, Any] = {}
    for name in ("content", "name"):
        if after.get(name) != before.get(name):
            changes[name] = getattr(new, name)
    if isinstance(new, AIMessage) and after.get("tool_calls") != before.get("tool_calls"):
        changes |= {"tool_calls": new.tool_calls, "invalid_tool_calls": new.invalid_tool_calls}
    return changed_copy(old, **changes) if changes else old
