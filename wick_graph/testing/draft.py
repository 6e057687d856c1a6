"""A reply before it becomes messages: the same draft gives the whole message and its chunks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, InvalidToolCall
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import (
    ToolCall,
    invalid_tool_call,
    tool_call,
    tool_call_chunk,
)

from wick_graph.constants import CHARS_PER_TOKEN

Content = str | list[str | dict[str, Any]]

_WORD: Final = re.compile(r"\s*\S+|\s+")
_ARGUMENT_TOKEN: Final = re.compile(r"\w+|\W+")


@dataclass(frozen=True, slots=True)
class DraftCall:
    """A tool call as a provider sends it: the arguments are JSON text, good or bad."""

    name: str
    raw: str
    args: Mapping[str, Any] | None = None
    """The parsed arguments; `None` where `raw` is meant to be parsed (and to fail)."""
    id: str | None = None

    @classmethod
    def of(cls, name: str, args: Mapping[str, Any], id: str | None = None) -> DraftCall:
        """Make a call with arguments that JSON can say (raises `TypeError` if it cannot)."""
        return cls(name, json.dumps(args, ensure_ascii=False), args, id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Everything of one reply, each call with its id."""

    id: str | None = None
    content: Content = ""
    pieces: Sequence[str] | None = None
    """The text as it is streamed; by default one piece per word."""
    calls: tuple[DraftCall, ...] = ()
    usage: UsageMetadata
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def message(self) -> AIMessage:
        """Build the reply in one piece; broken arguments become invalid tool calls."""
        good: list[ToolCall] = []
        bad: list[InvalidToolCall] = []
        for call in self.calls:
            args, error = _parse(call)
            if args is None:
                bad.append(
                    invalid_tool_call(name=call.name, args=call.raw, id=call.id, error=error)
                )
            else:
                good.append(tool_call(name=call.name, args=args, id=call.id))
        return AIMessage(
            content=copy_tree(self.content),
            id=self.id,
            tool_calls=good,
            invalid_tool_calls=bad,
            usage_metadata=self.usage,
            response_metadata={**self.metadata, "finish_reason": self._finish_reason()},
        )

    def chunks(self) -> Iterator[AIMessageChunk]:
        """Build the reply token by token.

        The metadata comes with the first chunk, usage and finish reason with the last; a call's
        name and id come first, then its arguments in pieces, all with the call's index.
        """
        head = dict(self.metadata)
        for part in self._parts():
            yield AIMessageChunk(**part, id=self.id, response_metadata=head)
            head = {}
        yield AIMessageChunk(
            content="",
            id=self.id,
            usage_metadata=self.usage,
            response_metadata={**head, "finish_reason": self._finish_reason()},
            chunk_position="last",
        )

    def _parts(self) -> Iterator[dict[str, Any]]:
        if isinstance(self.content, str):
            for piece in self.pieces or _WORD.findall(self.content):
                yield {"content": piece}
        elif self.content:
            yield {"content": copy_tree(self.content)}
        for index, call in enumerate(self.calls):
            first = tool_call_chunk(name=call.name, args="", id=call.id, index=index)
            yield {"content": "", "tool_call_chunks": [first]}
            for piece in _ARGUMENT_TOKEN.findall(call.raw):
                more = tool_call_chunk(args=piece, index=index)
                yield {"content": "", "tool_call_chunks": [more]}

    def _finish_reason(self) -> str:
        return "tool_calls" if self.calls else "stop"


def estimate_usage(
    messages: Sequence[BaseMessage], content: Content, calls: Sequence[DraftCall]
) -> UsageMetadata:
    """Estimate the usage of a reply, four characters to a token."""
    read = estimate_tokens(messages)
    written = _tokens(_chars(content) + sum(len(c.name) + len(c.raw) for c in calls))
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def estimate_tokens(messages: Sequence[BaseMessage]) -> int:
    """Estimate what a prompt costs, four characters to a token, without the tools' schemas."""
    chars = 0
    for message in messages:
        content = message.content
        chars += len(content) if isinstance(content, str) else _chars(content)
        if isinstance(message, AIMessage) and message.tool_calls:
            chars += sum(len(c["name"]) + len(str(c["args"])) for c in message.tool_calls)
    return _tokens(chars)


def copy_tree(value: Any) -> Any:
    """Copy nested dictionaries and lists; anything else is shared."""
    if isinstance(value, dict):
        return {key: copy_tree(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_tree(item) for item in value]
    return value


def _parse(call: DraftCall) -> tuple[dict[str, Any] | None, str | None]:
    if call.args is not None:
        return copy_tree(dict(call.args)), None
    try:
        parsed = json.loads(call.raw)
    except json.JSONDecodeError as error:
        return None, f"the arguments of {call.name} are not valid JSON: {error}"
    if isinstance(parsed, dict):
        return parsed, None
    return None, f"the arguments of {call.name} are not a JSON object"


def _chars(content: Content) -> int:
    return len(content) if isinstance(content, str) else sum(len(str(block)) for block in content)


def _tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)
