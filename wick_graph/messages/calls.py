"""A tool call that a model asked for, and the result that answers it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import ToolCall as LangChainToolCall
from langchain_core.messages import ToolMessage

from wick_graph.errors import MessageError
from wick_graph.messages.base import changed_copy
from wick_graph.messages.content import Content, clean_text, clean_value, fresh, parse_json

ERROR_PREFIX = "Error: "
"""How a model recognises that a tool failed."""


@dataclass(frozen=True)
class ToolCall:
    """Ask for one run of a tool."""

    id: str
    """The model's id; links the call to its result."""
    name: str
    args: dict[str, Any] = field(default_factory=dict)
    raw_args: str = ""
    """The arguments as the model wrote them, for the token estimate; never in any JSON."""
    ctx: Any = field(default=None, repr=False, compare=False)
    """The engine's context for the tool; not part of the call's value."""

    @classmethod
    def of(cls, source: ToolCall | Mapping[str, Any]) -> ToolCall:
        """Read a call from any of its forms; the call shares no data with the source.

        Forms: `{id, name, args}` (also LangChain's), `{id, name, arguments}` with an object or a
        JSON text, and OpenAI's `{id, function: {name, arguments}}`. An absent or null `id`, `name`
        or arguments becomes empty: validation is a step of its own.

        Raises:
            MessageError: a part has the wrong type, or the arguments are not a JSON object.
        """
        if isinstance(source, ToolCall):
            return source
        if not isinstance(source, Mapping):
            raise MessageError(
                f"a tool call is a {type(source).__name__}; give an object with id, name and args"
            )
        inner = source.get("function")
        if inner is None:
            inner = source
        elif not isinstance(inner, Mapping):
            raise MessageError("a tool call's function is not an object; give name and arguments")
        args, raw = _arguments(inner)
        return cls(_text(source, "id"), _text(inner, "name"), args, raw)

    def replace(self, **changes: Any) -> ToolCall:
        """Return a copy with other values."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return `{"id", "name", "args"}`, a copy."""
        return {"id": self.id, "name": self.name, "args": fresh(self.args)}

    def to_langchain(self) -> LangChainToolCall:
        """Return the form that LangChain's `AIMessage` holds, a copy."""
        return LangChainToolCall(
            name=self.name, args=fresh(self.args), id=self.id, type="tool_call"
        )


@dataclass(frozen=True)
class ToolResult:
    """Answer one tool call."""

    tool_call_id: str
    name: str
    output: str
    """What the tool returned, as text."""
    error: str | None = None
    """Why the tool failed, without a prefix; empty counts as none."""
    content: Content | None = None
    """What the model reads instead of `output`: content blocks such as an image."""
    update: Mapping[str, Any] | None = None
    """What the tool writes to the state."""
    artifact: Any = None
    """What the tool gives to the program but not to the model."""

    def replace(self, **changes: Any) -> ToolResult:
        """Return a copy with other values."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, str]:
        """Return `{"tool_call_id", "name", "output"}`, and `"error"` of a tool that failed."""
        result = {"tool_call_id": self.tool_call_id, "name": self.name, "output": self.output}
        if self.error:
            result["error"] = self.error
        return result

    def to_message(self) -> ToolMessage:
        """Return the message that the model reads; it can always be encoded.

        A failure reads `Error: <error>` and has the status `error`, whatever else is set.
        """
        content: Content
        if self.error:
            content = error_text(self.error)
        elif self.content is not None:
            content = self.content
        else:
            content = self.output
        fields: dict[str, Any] = {
            "content": clean_value(content),
            "tool_call_id": self.tool_call_id,
            "name": self.name,
            "status": "error" if self.error else "success",
            "artifact": self.artifact,
        }
        if not all(type(part) is str for part in (content, self.tool_call_id, self.name)):
            return ToolMessage(**fields)
        made = changed_copy(_ANSWER, **fields)  # texts need no check
        made.__dict__ |= {"additional_kwargs": {}, "response_metadata": {}}
        return made


_ANSWER: Final = ToolMessage("", tool_call_id="")


def error_text(error: str) -> str:
    """Return a failure as the model reads it, with the prefix once."""
    return clean_text(error if error.startswith(ERROR_PREFIX) else ERROR_PREFIX + error)


def _text(source: Mapping[str, Any], key: str) -> str:
    value = source.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MessageError(f"a tool call's {key} is a {type(value).__name__}; give a text")
    return value


def _arguments(source: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    if "args" in source:
        return _object(source["args"], "args"), ""
    value = source.get("arguments")
    if not isinstance(value, str):
        return _object(value, "arguments"), ""
    return (_object(parse_json(value), "arguments") if value.strip() else {}), value


def _object(value: Any, key: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise MessageError(f"a tool call's {key} are a {type(value).__name__}; give an object")
    if not all(isinstance(name, str) for name in value):
        raise MessageError(f"a tool call's {key} have a key that is not a text; give texts as keys")
    return {name: fresh(item) for name, item in value.items()}
