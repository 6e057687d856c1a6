"""A mailbox in a real file, what a gateway's `receive` does with it, and a clock that tests set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from wick_graph import Agent
from wick_graph.gateway.messages import InboundMessage
from wick_graph.store import SqlSaver


def receiver(saver: SqlSaver) -> Callable[[InboundMessage], Any]:
    box = saver.mailbox

    async def receive(message: InboundMessage) -> None:
        key = message.native_id
        assert key
        await box.run(box.receive, f"system/{key}", message.key, message.to_json())

    return receive


def taken(saver: SqlSaver) -> list[InboundMessage]:
    """What was received, the oldest first."""
    rows = saver.mailbox.inbox(limit=10_000)
    return [InboundMessage.from_json(row.message) for row in reversed(rows)]


def at(text: str) -> float:
    """A moment as seconds, of a text with its zone."""
    return datetime.fromisoformat(text).timestamp()


def finder(**agents: Agent) -> Callable[[str, Mapping[str, Any]], Awaitable[Agent]]:
    """What finds agents by name, for any origin."""

    async def find(name: str, origin: Mapping[str, Any]) -> Agent:
        return agents[name]

    return find


class Clock:
    """A clock that waiting moves."""

    def __init__(self, start: float) -> None:
        self.now = start
        self.end = start
        self.done = asyncio.Event()

    def __call__(self) -> float:
        return self.now

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Let the time pass at once; at the end of the test wait for the event."""
        if self.now + seconds > self.end:
            self.now = self.end
            self.done.set()
            await event.wait()
        elif not event.is_set():
            self.now += seconds
