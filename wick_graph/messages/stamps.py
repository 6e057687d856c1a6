"""When a message was made, by which agent, and which one it is: in LangChain's own fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, TypeVar
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage

from wick_graph.errors import MessageError
from wick_graph.messages.copies import changed_copy

TIMESTAMP_KEY: Final = "timestamp"
"""Where `additional_kwargs` holds the time of creation, in ISO 8601 and UTC."""


MARK_KEY: Final = "wick"
"""Where `response_metadata` of a reply holds what the engine notes about it."""
NAME_GIVEN: Final = "name_given"
"""In that mark: the reply's name is not the engine's, so the model reads it."""

M = TypeVar("M", bound=BaseMessage)


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


def dated(message: M, like: BaseMessage | None = None) -> M:
    """Return a message that says when it was made: itself, or a copy with a time.

    The time is that of `like`, the message in whose place it comes; else it is now. A removal has
    no time.
    """
    if TIMESTAMP_KEY in message.additional_kwargs or isinstance(message, RemoveMessage):
        return message
    made = None if like is None else like.additional_kwargs.get(TIMESTAMP_KEY)
    return changed_copy(message, additional_kwargs=with_time(message, made))


def with_time(message: BaseMessage, time: str | None = None) -> dict[str, object]:
    """Return a message's `additional_kwargs` with a time; one that is there stays."""
    stamp = datetime.now(UTC).isoformat() if time is None else time
    return {TIMESTAMP_KEY: stamp, **message.additional_kwargs}


def is_named_by_engine(message: BaseMessage) -> bool:
    """Tell whether a reply bears the name of its agent, which no model reads."""
    if not isinstance(message, AIMessage) or message.name is None:
        return False
    mark = message.response_metadata.get(MARK_KEY)
    return isinstance(mark, dict) and NAME_GIVEN not in mark
