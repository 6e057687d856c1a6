"""A model's reply as it came: what the engine adds when it keeps the reply is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage

from wick_graph.journal.fingerprint import packed

_FIELDS = (
    *("content", "tool_calls", "invalid_tool_calls"),
    *("additional_kwargs", "response_metadata", "usage_metadata"),
)


def essence(reply: AIMessage) -> bytes:
    """Encode what came from the model."""
    return packed(parts_of(reply))


def parts_of(reply: AIMessage) -> dict[str, Any]:
    """Return what came from the model, without the engine's mark."""
    parts = {name: getattr(reply, name) for name in _FIELDS}
    if "wick" in reply.response_metadata:
        own = {key: value for key, value in reply.response_metadata.items() if key != "wick"}
        parts["response_metadata"] = own
    return parts


def reply_of(parts: Mapping[str, Any], message_id: str | None = None) -> AIMessage:
    """Make a reply of its parts again."""
    return AIMessage(**{name: parts[name] for name in _FIELDS if name in parts}, id=message_id)
