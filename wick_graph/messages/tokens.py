"""Estimate token counts: a quarter of the characters, without a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage
from langchain_core.messages.utils import count_tokens_approximately

from wick_graph.constants import CHARS_PER_TOKEN
from wick_graph.errors import MessageError
from wick_graph.messages.base import changed, metadata_of
from wick_graph.messages.build import RAW_ARGS_KEY
from wick_graph.messages.content import json_text, text_of

ENGINE_KEY: Final = "wick"
"""The key in `response_metadata` that marks a reply which the engine got from a model."""


def estimate_tokens(messages: Sequence[BaseMessage]) -> int:
    """Estimate the tokens of a chain, in code points divided by four, rounded down per part.

    The parts are each message's text and each tool call's arguments as the model wrote them. If
    these are lost, a reply that the engine got from a model counts its arguments as compact JSON.
    """
    return sum(map(message_tokens, messages))


def message_tokens(message: BaseMessage) -> int:
    """Estimate the tokens of one message."""
    total = len(text_of(message)) // CHARS_PER_TOKEN
    if isinstance(message, AIMessage) and message.tool_calls:
        total += sum(_call_tokens(message, call) for call in message.tool_calls)
    return total


def sent_tokens(message: BaseMessage) -> int:
    """Estimate what a message costs to send: as `message_tokens`, images and the like included."""
    if isinstance(message, ChatMessage) and "tool_call_id" in metadata_of(message):
        return 0  # the record of a call is not sent: the call and its result are
    if isinstance(message.content, str):
        return message_tokens(message)
    return max(message_tokens(message), count_tokens_approximately([message]))


class PrefixEstimate:
    """Estimate a growing chain; each call counts only what is new.

    Hold one per chain. `count` estimates one message.
    """

    __slots__ = ("_costs", "_count", "_seen", "_total")

    def __init__(self, count: Callable[[BaseMessage], int] = message_tokens) -> None:
        self._count = count
        self._seen: list[BaseMessage] = []
        self._costs: list[int] = []
        self._total = 0

    def tokens(self, messages: Sequence[BaseMessage]) -> int:
        """Estimate a chain as `estimate_tokens` does."""
        dropped = self._costs[len(messages) :]
        self._total -= sum(dropped)
        del self._costs[len(messages) :]
        for index in changed(self._seen, messages):
            cost = self._count(messages[index])
            if index < len(self._costs):
                self._total -= self._costs[index]
                self._costs[index] = cost
            else:
                self._costs.append(cost)
            self._total += cost
        self._seen = list(messages)
        return self._total


def _call_tokens(message: AIMessage, call: Any) -> int:
    recorded = message.additional_kwargs.get(RAW_ARGS_KEY)
    raw = recorded.get(call["id"]) if isinstance(recorded, dict) else None
    if isinstance(raw, str):
        return len(raw) // CHARS_PER_TOKEN
    if ENGINE_KEY not in message.response_metadata:
        return 0
    try:
        text = json_text(call["args"])
    except MessageError:
        text = str(call["args"])
    return len(text) // CHARS_PER_TOKEN
