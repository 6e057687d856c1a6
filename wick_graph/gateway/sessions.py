"""Sessions: which thread a chat continues, and what a person may command."""

from __future__ import annotations

import re
import secrets
from typing import Final

from wick_graph.gateway.messages import InboundMessage
from wick_graph.store.mailbox import Mailbox, hashed
from wick_graph.types import THREAD_ID_PATTERN

COMMANDS: Final = {
    "/new": "start a new conversation; the old one stays in the store",
    "/stop": "stop what is going on here",
    "/status": "show the agent, its thread, and what waits",
    "/compact": "summarise the old part of this conversation",
    "/approve": "CODE: allow the call that waits",
    "/deny": "CODE: refuse the call that waits",
    "/help": "list these commands",
}

AT_ONCE: Final = frozenset({"/stop", "/status", "/help", "/approve", "/deny"})
"""Commands that do not wait for the turn before them."""

_HASHED: Final = re.compile(r"[^:]*:h[0-9a-f]{40}(\.[0-9a-f]*)?")

_LONGEST: Final = 100


def thread_of(key: str, tag: str = "") -> str:
    """Return the thread of a session; no two sessions share one.

    It is the key where that is a legal thread id, else its channel and a hash. A key that looks
    like such a hash is hashed, too: a sender may choose it.
    """
    ends = f".{tag}" if tag else ""
    if len(key) <= _LONGEST and THREAD_ID_PATTERN.fullmatch(key) and not _HASHED.fullmatch(key):
        return f"{key}{ends}"
    channel = re.sub(r"[^A-Za-z0-9_-]", "", key.partition(":")[0])[:32] or "chat"
    return f"{channel}:h{hashed(key)[:40]}{ends}"


def command_of(message: InboundMessage) -> tuple[str, str]:
    """Return the command that a person's message begins with, and the rest; empty for none.

    `/new@name`, as groups write it, is `/new`. A pressed button says its code.
    """
    text = str(message.metadata.get("button") or message.content)
    if message.channel == "system":
        return "", ""
    word, _, rest = text.strip().partition(" ")
    name = word.partition("@")[0].lower()
    return (name, rest.strip()) if name in COMMANDS else ("", "")


class Sessions:
    """The present threads of sessions."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._known: dict[str, str] = {}

    async def thread(self, key: str) -> str:
        """Return the thread that a session continues."""
        if key not in self._known:
            fact = await self._mailbox.run(self._mailbox.fact, _name(key))
            if len(self._known) >= 10_000:
                self._known.clear()
            self._known[key] = thread_of(key) if fact is None else str(fact["thread"])
        return self._known[key]

    async def renew(self, key: str, by: str) -> str:
        """Let a session continue a new thread, and return it; the old one stays as it is.

        The same message renews a session once.
        """

        def change(fact: dict[str, str] | None) -> dict[str, str]:
            if fact is not None and fact.get("by") == by:
                return fact
            return {"key": key, "thread": thread_of(key, secrets.token_hex(6)), "by": by}

        fact = await self._mailbox.run(self._mailbox.change_fact, _name(key), change)
        self._known[key] = str(fact["thread"])
        return self._known[key]


def _name(key: str) -> str:
    return f"session/{hashed(key)}"
