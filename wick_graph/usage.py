"""Tokens that model calls used: read from a message, added up over calls, runs and threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage


@dataclass(frozen=True, slots=True)
class Usage:
    """Count what model calls used; `a + b` adds two counts."""

    input_tokens: int = 0
    """Everything the model read, cached tokens included."""
    output_tokens: int = 0
    """Everything the model wrote, hidden reasoning included."""
    total_tokens: int = 0
    cache_read: int = 0
    """Part of `input_tokens` that came out of the provider's prompt cache."""
    cache_write: int = 0
    """Part of `input_tokens` that went into the provider's prompt cache."""
    reasoning: int = 0
    """Part of `output_tokens` that the user never sees."""
    calls: int = 0
    """Model calls, also those whose provider reported no tokens."""

    def __add__(self, other: Usage) -> Usage:
        """Add field by field."""
        return Usage(*(getattr(self, name) + getattr(other, name) for name in _NAMES))

    def to_dict(self) -> dict[str, int]:
        """Give all fields, zeros included."""
        return {name: getattr(self, name) for name in _NAMES}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Usage:
        """Read what `to_dict` gave; a missing field is zero and an unknown one is passed over."""
        return cls(**{name: _count(data.get(name)) for name in _NAMES})


_NAMES = tuple(field.name for field in fields(Usage))


def usage_of(message: BaseMessage) -> Usage:
    """Read the tokens of one model call from its reply; any other message used nothing.

    A reply without token counts still counts as a call. Where the provider gives no total,
    it is the sum of what was read and written.
    """
    if not isinstance(message, AIMessage):
        return Usage()
    reported: Mapping[str, Any] = message.usage_metadata or {}
    read = _details(reported, "input_token_details")
    written = _details(reported, "output_token_details")
    input_tokens = _count(reported.get("input_tokens"))
    output_tokens = _count(reported.get("output_tokens"))
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=_count(reported.get("total_tokens")) or input_tokens + output_tokens,
        cache_read=_count(read.get("cache_read")),
        cache_write=sum(_count(read.get(name)) for name in _CACHE_WRITES),
        reasoning=_count(written.get("reasoning")),
        calls=1,
    )


_CACHE_WRITES = (
    "cache_creation",
    # Anthropic's adapter reports these instead of the sum when it knows the cache's life time
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
)


def _details(reported: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = reported.get(name)
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return max(int(value), 0)
