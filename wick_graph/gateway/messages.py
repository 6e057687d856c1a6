"""What channels bring and take: messages, and the sessions that they belong to."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from wick_graph.store.mailbox import Mailbox, hashed
from wick_graph.types import THREAD_ID_PATTERN

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
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in data.items() if value or name in _ALWAYS}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Undo `to_json`; unknown fields are dropped."""
        given = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        return cls(**given | lists)


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


FALLBACK: Final = "cli:local"
"""The chat of a message for the owner's last chat while there is none: the terminal's own."""


def own_message(
    kind: str,
    native_id: str,
    content: str,
    *,
    sender: str,
    chat: str = "",
    session: str = "",
    **about: Any,
) -> InboundMessage:
    """Make a message of the channel `system`: what the gateway asks by itself.

    `chat` is the `channel:chat_id` that gets the answer. It and the session are by default those of
    the `origin` in the metadata. Metadata that is empty is left out.
    """
    origin = about.get("origin") or {}
    place = f"{origin['channel']}:{origin.get('chat_id')}" if origin.get("channel") else FALLBACK
    kept = {key: value for key, value in about.items() if value}
    return InboundMessage(
        channel="system",
        sender_id=sender,
        chat_id=chat or place,
        content=content,
        session_key=session or str(origin.get("session") or ""),
        metadata={"native_id": native_id, "kind": kind, **kept},
    )


# --- Sessions: which thread a chat continues, and what a person may command.


COMMANDS: Final = {
    "/new": "start a new conversation; the old one stays in the store",
    "/stop": "stop what is going on here",
    "/status": "show the agent, its thread, and what waits",
    "/compact": "summarise the old part of this conversation",
    "/approve": "CODE: allow the call that waits",
    "/deny": "CODE: refuse the call that waits",
    "/help": "list these commands",
}

DECISIONS: Final = frozenset({"/approve", "/deny"})

AT_ONCE: Final = frozenset({"/stop", "/status", "/help", *DECISIONS})
"""Commands that do not wait for the turn before them."""

_TAKEN: Final = re.compile(r"[^:]*:h[0-9a-f]{40}(?:\.[0-9a-f]*)?|.*\.[0-9a-f]{12}", re.DOTALL)
"""What threads of hashed keys and of renewed sessions look like."""

_LONGEST: Final = 100


def thread_of(key: str, tag: str = "") -> str:
    """Return the thread of a session; no two sessions share one.

    It is the key where that is a legal thread id, else its channel and a hash. A key that looks
    like the thread of another session is hashed, too: a sender may choose it.
    """
    ends = f".{tag}" if tag else ""
    if len(key) <= _LONGEST and THREAD_ID_PATTERN.fullmatch(key) and not _TAKEN.fullmatch(key):
        return f"{key}{ends}"
    channel = re.sub(r"[^A-Za-z0-9_-]", "", key.partition(":")[0])[:64] or "chat"
    return f"{channel}:h{hashed(key)[:40]}{ends}"


def command_of(message: InboundMessage) -> tuple[str, str]:
    """Return the command that a person's message begins with, and the rest; empty for none.

    `/new@name`, as groups write it, is `/new`. A pressed button says its code. What is forwarded
    was written by someone else.
    """
    text = str(message.metadata.get("button") or message.content)
    if message.channel == "system" or message.metadata.get("forwarded"):
        return "", ""
    word, _, rest = text.strip().partition(" ")
    name = word.partition("@")[0].lower()
    return (name, rest.strip()) if name in COMMANDS else ("", "")


class Sessions:
    """The present threads of sessions, which all processes share."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    async def thread(self, key: str) -> str:
        """Return the thread that a session continues."""
        fact = await self._mailbox.run(self._mailbox.fact, f"session/{hashed(key)}")
        return thread_of(key) if fact is None else str(fact["thread"])

    async def held(self, key: str) -> Mapping[str, Any]:
        """Return the origin of the conversation that was renewed last; empty for none."""
        fact = await self._mailbox.run(self._mailbox.fact, f"session/{hashed(key)}")
        return (fact or {}).get("origin") or {}

    async def renew(self, key: str, by: str, origin: Mapping[str, Any] | None = None) -> str:
        """Let a session continue a new thread, and return it; the old one stays as it is.

        The same message renews a session once. `origin` says where it is held.
        """

        def change(fact: dict[str, Any] | None) -> dict[str, Any]:
            if fact is not None and fact.get("by") == by:
                return fact
            return {
                "key": key,
                "thread": thread_of(key, secrets.token_hex(6)),
                "by": by,
                "origin": origin,
            }

        box, name = self._mailbox, f"session/{hashed(key)}"
        return str((await box.run(box.change_fact, name, change))["thread"])
