"""What channels bring and take: messages, their sessions, and who may be answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Self

INTERNAL: Final = frozenset({"cli", "system", "subagent"})
"""Channels of the gateway itself; no person is reached through `system` and `subagent`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """What messages of both directions have; as JSON, empty optional fields are left out."""

    channel: str
    chat_id: str
    content: str
    media: tuple[str, ...] = ()
    """Absolute paths of stored files."""

    def to_json(self) -> dict[str, Any]:
        """Return the message as data."""
        return {key: data for key, data in asdict(self).items() if data or key in _ALWAYS}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Undo `to_json`; unknown fields are dropped."""
        known = {one.name for one in fields(cls)}.intersection(data)
        return cls(**{key: tuple(v) if type(v := data[key]) is list else v for key in known})


_ALWAYS: Final = frozenset({"channel", "sender_id", "chat_id", "content"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage(_Message):
    """A message from a channel, as seed systems name its fields.

    A channel may put into `metadata`: `native_id` (the platform's id; without one the message
    cannot be recognised when it comes again), `sent` (seconds since 1970), `sender_name`, `group`
    (whether others read the chat), `topic`, `forwarded`, `bot`, `button` (the code of a pressed
    button), `reply_to` (a native id).
    """

    sender_id: str
    """The platform's stable id of the sender; never a name that a person can choose."""
    session_key: str = ""
    """`channel:chat_id[:topic]`, kept exactly."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key of its session."""
        topic = self.metadata.get("topic")
        ends = f":{topic}" if topic else ""
        return self.session_key or f"{self.channel}:{self.chat_id}{ends}"

    @property
    def native_id(self) -> str:
        """The platform's id of the message; empty if it gave none."""
        return str(self.metadata.get("native_id") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundMessage(_Message):
    """A message to a channel."""

    reply_to: str = ""
    """The native id of the message that it answers."""
    buttons: tuple[tuple[str, str], ...] = ()
    """Label and code of buttons below the text; a channel without buttons shows the codes."""


def own_message(
    kind: str, native_id: str, chat: str, content: str, *, sender: str, session: str, **about: Any
) -> InboundMessage:
    """Make a message of the channel `system`: what the gateway asks by itself.

    `chat` is the `channel:chat_id` that gets the answer. Metadata that is empty is left out.
    """
    kept = {key: value for key, value in about.items() if value}
    return InboundMessage(
        channel="system",
        sender_id=sender,
        chat_id=chat,
        content=content,
        session_key=session,
        metadata={"native_id": native_id, "kind": kind, **kept},
    )
