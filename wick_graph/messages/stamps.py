"""When a message was made and which one it is: ids and times in LangChain's own fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from langchain_core.messages import BaseMessage

from wick_graph.errors import MessageError

TIMESTAMP_KEY: Final = "timestamp"
"""Where `additional_kwargs` holds the time of creation, in ISO 8601 and UTC."""


def new_message_id() -> str:
    """Make an id for a message, a random UUID."""
    return str(uuid4())


def new_call_id() -> str:
    """Make an id for a tool call of a model that gave none: `call_` and 12 hex digits."""
    return f"call_{uuid4().hex[:12]}"


def as_utc(moment: datetime | str | None) -> datetime:
    """Return a moment in UTC: now if none is given, local time if it names no zone.

    Raises:
        MessageError: the text is no ISO 8601 time.
    """
    if moment is None:
        return datetime.now(UTC)
    try:
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        return parsed.astimezone(UTC)
    except (ValueError, OverflowError, AttributeError) as error:
        raise MessageError(
            f'"{str(moment)[:64]}" is no time; write it as 2026-01-31T12:00:00+00:00'
        ) from error


def timestamp_of(message: BaseMessage) -> datetime | None:
    """Return when a message was made, in UTC, if it says so legibly."""
    stamp = message.additional_kwargs.get(TIMESTAMP_KEY)
    if not isinstance(stamp, str):
        return None
    try:
        return as_utc(stamp)
    except MessageError:
        return None
