"""A model's reply as it came: what the engine adds when it keeps the reply is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage

from wick_graph.journal.fingerprint import packed, unpacked
from wick_graph.journal.taking import Reply
from wick_graph.messages.stamps import TIMESTAMP_KEY

_SHARED: Final = (
    *("content", "tool_calls", "invalid_tool_calls"),
    "usage_metadata",
)
_FIELDS: Final = (*_SHARED, "additional_kwargs", "response_metadata")


def parts_of(reply: AIMessage | Reply) -> dict[str, Any]:
    """Return what came from the model, without the engine's mark."""
    held = reply.fields if isinstance(reply, Reply) else reply.__dict__
    parts = {name: held[name] for name in _FIELDS}
    if "wick" in parts["response_metadata"]:
        given = parts["response_metadata"].items()
        parts["response_metadata"] = {key: value for key, value in given if key != "wick"}
    if isinstance(reply, Reply) and reply.calls is not None:
        parts["tool_calls"] = unpacked(reply.calls)
    return parts


def is_kept(reply: Reply, kept: AIMessage) -> bool:
    """Say whether a message of the thread is a reply as it came."""
    own, there = reply.fields, kept.__dict__
    if any(own[name] is not there[name] and own[name] != there[name] for name in _SHARED):
        return False
    if own["additional_kwargs"] != without_time(there["additional_kwargs"]):
        return False
    if reply.calls is not None and reply.calls != packed(kept.tool_calls):
        return False
    same: bool = own["response_metadata"] == parts_of(kept)["response_metadata"]
    return same


def as_it_came(kept: AIMessage) -> AIMessage:
    """Return a reply that a thread keeps, without what the engine added."""
    notes = without_time(kept.additional_kwargs)
    return reply_of({**parts_of(kept), "additional_kwargs": notes}, kept.id)


def without_time(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a message notes beside its time of creation."""
    return {key: value for key, value in notes.items() if key != TIMESTAMP_KEY}


def reply_of(parts: Mapping[str, Any], message_id: str | None = None) -> AIMessage:
    """Make a reply of its parts again."""
    return AIMessage(**{name: parts[name] for name in _FIELDS if name in parts}, id=message_id)
