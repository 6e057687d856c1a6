"""Replies of a scripted model: drafts, failures, and the calls that it records.

    ScriptFailure            also AssertionError: a test fails loudly
    ├── UnexpectedModelCall  a call for which the script has no step
    ├── UnconsumedSteps      steps that no call took
    └── ScriptMismatch       a step that does not fit the bound tools

The scripted provider failures carry what the real ones carry (`status_code`, `response`), so
retrying code needs to know nothing of scripts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import httpx
from langchain_core.exceptions import (
    ContextOverflowError,
    ModelConnectionError,
    ModelRateLimitError,
    ModelTimeoutError,
)
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    SystemMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import ToolCall, invalid_tool_call, tool_call, tool_call_chunk

from wick_graph.constants import CHARS_PER_TOKEN


class ScriptFailure(AssertionError):
    """Base of the errors for code and script that disagree."""


class UnexpectedModelCall(ScriptFailure):
    """Report a call for which the script has no step: lane, cursor, nearest step, last messages."""


class UnconsumedSteps(ScriptFailure):
    """Report the steps that were never taken, by lane and number."""


class ScriptMismatch(ScriptFailure):
    """Report a scripted tool call that the bound tools do not accept."""


class ScriptedRateLimit(ModelRateLimitError):
    """Imitate a provider's 429; `response.headers` has `Retry-After` if the script gives it."""

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__("rate limit reached (scripted)")
        self.status_code = 429
        self.retry_after = retry_after
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        request = httpx.Request("POST", "http://scripted.invalid/chat/completions")
        self.response = httpx.Response(429, headers=headers, request=request)


class ScriptedTimeout(ModelTimeoutError, TimeoutError):
    """Imitate a provider that does not answer in time."""


class ScriptedCut(ModelConnectionError, ConnectionError):
    """Imitate a connection that closes in the middle of a reply."""


class ScriptedOverflow(ContextOverflowError):
    """Imitate a provider's refusal of a prompt longer than its context window."""


Content = str | list[str | dict[str, Any]]

_WORD: Final = re.compile(r"\s*\S+|\s+")

_ARGUMENT_TOKEN: Final = re.compile(r"\w+|\W+")


@dataclass(frozen=True, slots=True)
class DraftCall:
    """A tool call as a provider sends it: the arguments are JSON text, good or bad."""

    name: str
    raw: str
    args: Mapping[str, Any] | None = None
    """The parsed arguments; `None` if `raw` must be parsed (and fail)."""
    id: str | None = None

    @classmethod
    def of(cls, name: str, args: Mapping[str, Any], id: str | None = None) -> DraftCall:
        """Make a call with arguments that JSON can express (raises `TypeError` if it cannot)."""
        return cls(name, json.dumps(args, ensure_ascii=False), args, id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """All parts of one reply, each call with its id."""

    id: str | None = None
    content: Content = ""
    pieces: Sequence[str] | None = None
    """The text as it is streamed; by default one piece per word."""
    calls: tuple[DraftCall, ...] = ()
    usage: UsageMetadata
    metadata: Mapping[str, Any] = field(default_factory=dict)
    finish: str | None = None

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
        return self.finish or ("tool_calls" if self.calls else "stop")


def estimate_usage(
    messages: Sequence[BaseMessage], content: Content, calls: Sequence[DraftCall]
) -> UsageMetadata:
    """Estimate the usage of a reply, four characters to a token."""
    read = estimate_tokens(messages)
    written = _tokens(_chars(content) + sum(len(c.name) + len(c.raw) for c in calls))
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def estimate_tokens(messages: Sequence[BaseMessage]) -> int:
    """Estimate the tokens of a prompt, four characters each, without the tools' schemas."""
    chars = 0
    for message in messages:
        content = message.content
        chars += len(content) if isinstance(content, str) else _chars(content)
        if isinstance(message, AIMessage) and message.tool_calls:
            chars += sum(len(c["name"]) + len(str(c["args"])) for c in message.tool_calls)
    return _tokens(chars)


def copy_tree(value: Any) -> Any:
    """Copy nested dictionaries and lists; share anything else."""
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


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One call as the model got it."""

    messages: tuple[BaseMessage, ...]
    """The prompt, system messages included."""
    tools: tuple[dict[str, Any], ...] = ()
    """The bound tools in OpenAI's form."""
    tool_choice: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Everything else in the request: `temperature`, `stop`, keyword arguments."""
    purpose: str = "agent"
    agent: str = ""
    streamed: bool = False
    number: int = 0
    """The place of the call among all calls of this model, from 0."""
    lane: str = ""
    step: int = -1
    """The step that was taken, from 0 in its lane."""

    @cached_property
    def system(self) -> str:
        """The text of all system messages, joined by blank lines."""
        return "\n\n".join(m.text for m in self.messages if isinstance(m, SystemMessage))

    @cached_property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the bound tools, in order."""
        return tuple(tool_name(tool) for tool in self.tools)

    @cached_property
    def last(self) -> BaseMessage | None:
        """The last message of the prompt."""
        return self.messages[-1] if self.messages else None


def freeze(message: BaseMessage) -> BaseMessage:
    """Copy a message so that changes to the original do not show in the copy."""
    copy = message.model_copy()
    values = copy.__dict__
    for name, value in values.items():
        if value and isinstance(value, list | dict):
            values[name] = copy_tree(value)
    return copy


def tool_name(tool: Mapping[str, Any]) -> str:
    """Find a tool's name in OpenAI's form, or in a provider's own."""
    function = tool.get("function")
    named = function if isinstance(function, Mapping) else tool
    return str(named.get("name") or named.get("type") or "")


def tail(messages: Sequence[BaseMessage], count: int = 4) -> str:
    """Show the end of a prompt, one line per message."""
    return "\n".join(f"    {_line(message)}" for message in messages[-count:])


def _line(message: BaseMessage) -> str:
    words = " ".join(message.text.split())
    if isinstance(message, AIMessage) and message.tool_calls:
        words += " " + ", ".join(f"{c['name']}({c['args']})" for c in message.tool_calls)
    return f"{message.type}: {words if len(words) <= 100 else words[:97] + '...'}"
