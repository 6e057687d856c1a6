"""Sending: in order within a chat, again after a failure, and given up after eight tries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from wick_graph.errors import DeliveryError, StorageError, WickError
from wick_graph.gateway.channels.protocol import Channel, PublishingChannel
from wick_graph.gateway.channels.split import parts
from wick_graph.gateway.lanes import Lanes, wait_for
from wick_graph.gateway.messages import OutboundMessage
from wick_graph.gateway.schedule import LAST_CHAT
from wick_graph.service.options import log
from wick_graph.store.mailbox import Draft, Mailbox, Row

TRIES: Final = 8
"""Tries to send a message; then it is a dead letter."""

_LIMIT: Final = 4000
"""Characters of one message to a channel that does not run here."""

Buttons = tuple[tuple[str, str], ...]

_SEND_SECONDS: Final = 360.0
"""Seconds after which a try counts as failed, although the channel has not answered."""


def pause_after(tries: int) -> float:
    """Return the seconds after a failed try; all together an outage of ten minutes is survived."""
    return min(3.0 ** (tries - 1), 300.0)


class Delivery:
    """Put messages into the outbox, and send what is there through its channels."""

    def __init__(self, mailbox: Mailbox, channels: Mapping[str, Channel]) -> None:
        self.mailbox, self.channels = mailbox, channels
        self.lanes: Final = Lanes(self._send)
        self.turns: Final[dict[str, str]] = {}
        """The keys of the messages that are answered, by thread."""

    async def say(
        self, key: str, channel: str, chat: str, text: str, buttons: Buttons = ()
    ) -> None:
        """Send a text; the same key sends it once."""
        message = OutboundMessage(channel=channel, chat_id=chat, content=text, buttons=buttons)
        await self.put(key, message)

    async def put(self, key: str, message: OutboundMessage, thread: str = "") -> None:
        """Send a message of a tool or of the gateway; the same key sends it once.

        `thread` is where it is written: the answer of the turn there to the same chat is left out.
        """
        box, turn = self.mailbox, self.turns.get(thread, "")
        for draft in self.drafts(key, message):
            made = await box.run(box.queue, draft, turn=turn)
            self.add([] if made is None else [made])

    def drafts(self, key: str, message: OutboundMessage) -> list[Draft]:
        """Cut a message into rows of the outbox, each as long as its channel takes."""
        channel = self.channels.get(message.channel)
        limit, caption = (_LIMIT, 0) if channel is None else (channel.limit, channel.caption)
        chat = f"{message.channel}:{message.chat_id}"
        made = parts(message, limit, caption)
        return [
            Draft(key=f"{key}/{n}", chat=chat, message=one.to_json()) for n, one in enumerate(made)
        ]

    async def past(self, name: str, chat_id: str, after: int) -> list[tuple[int, OutboundMessage]]:
        """Return what was put for a chat after a row; see `PublishingChannel.past`."""
        found = await self.mailbox.run(self.mailbox.answers, f"{name}:{chat_id}", after)
        return [(one.row, OutboundMessage.from_json(one.message)) for one in found]

    async def owners_chat(self) -> tuple[str, str] | None:
        """Return the channel and the chat in which an owner wrote last."""
        known = await self.mailbox.run(self.mailbox.fact, LAST_CHAT)
        channel, _, chat = str(known or "").partition(":")
        return (channel, chat) if channel else None

    def add(self, messages: Iterable[Row]) -> None:
        """Let messages be sent; known ones are passed over, and those that others send."""
        for one in messages:
            if self.mailbox.may_send(one.chat):
                self.lanes.add(one)

    async def _send(self, rows: list[Row]) -> bool:
        """Send a message, in as many tries as it takes."""
        one: Row | None = rows[0]
        try:
            while one is not None:
                early = one.due - self.mailbox.now
                if early > 0 and one.tries:  # the first try waits for no clock that was set back
                    await wait_for(self.lanes.stopping, early)
                if self.lanes.stopping.is_set():
                    return False
                one = await self._try(one)
        except StorageError as error:
            log.error("a message to %s is not noted as sent: %s", rows[0].chat, error)
            return False
        return True

    async def _try(self, one: Row) -> Row | None:
        """Try to send a message; return it if it is to be tried again."""
        channel = self.channels[str(one.message["channel"])]
        try:
            message = OutboundMessage.from_json(one.message)
            async with asyncio.timeout(_SEND_SECONDS):
                native = await channel.send(message, one.key)
        except Exception as error:  # whatever a platform's library raises
            return await self._failed(one, error)
        await self.mailbox.run(self.mailbox.sent, one, native)
        if isinstance(channel, PublishingChannel):
            channel.publish(message.chat_id)
        return None

    async def _failed(self, one: Row, error: Exception) -> Row | None:
        """Note a failure: tried again later, or when the platform wants."""
        told = str(error) if isinstance(error, WickError) else type(error).__name__
        pause = pause_after(one.tries + 1) * random.uniform(1, 1.2)
        permanent = one.tries + 1 >= TRIES
        if isinstance(error, DeliveryError):
            permanent = permanent or error.permanent
            pause = pause if error.retry_after is None else max(error.retry_after, 0.0)
        due = None if permanent else self.mailbox.now + pause
        await self.mailbox.run(self.mailbox.failed, one, told, due)
        if due is not None:
            return replace(one, tries=one.tries + 1, due=due, error=told)
        log.error("a message to %s is given up: %s", one.chat, told)
        place = await self.owners_chat()
        if place is not None and not one.key.startswith("dead/") and one.chat != ":".join(place):
            text = f"A message to {one.chat} was given up after {one.tries + 1} tries: {told}"
            await self.say(f"dead/{one.key}", *place, text)
        return None
