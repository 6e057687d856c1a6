"""What a scripted model remembers of the calls it got: deep snapshots, safe from later changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from wick_graph.testing.draft import copy_tree


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One call as the model got it."""

    messages: tuple[BaseMessage, ...]
    """The prompt, system messages included."""
    tools: tuple[dict[str, Any], ...] = ()
    """The bound tools in OpenAI's form."""
    tool_choice: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Everything else that was asked for: `temperature`, `stop`, keyword arguments."""
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
    """Copy a message so that no change to the original shows in the copy."""
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
