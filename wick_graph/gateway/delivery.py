"""Sending: in order within a chat, again after a failure, and given up after eight tries."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from wick_graph.errors import DeliveryError, StorageError, WickError
from wick_graph.gateway.channels.protocol import Channel, PublishingChannel
from wick_graph.gateway.channels.split import parts
from wick_graph.gateway.messages import OutboundMessage
from wick_graph.service.options import log
from wick_graph.store.mailbox import Draft, Mailbox, Outgoing

TRIES: Final = 8
"""Tries to send a message; then it is a dead letter."""

_FIRST: Final = 1.0

_LONGEST: Final = 300.0

LAST_CHAT: Final = "last-chat"
"""The key of the fact with the chat in which an owner wrote last."""

_LIMIT: Final = 4000
"""Characters of one message to a channel that does not run here."""

Buttons = tuple[tuple[str, str], ...]

_SEND_SECONDS: Final = 360.0
"""Seconds after which a try counts as failed, although the channel has not answered."""


def pause_after(tries: int, retry_after: float | None = None, spread: float = 0.0) -> float:
    """Return the seconds until the next try: doubled each time, or what the platform wants."""
    waits = min(_FIRST * 2 ** (tries - 1), _LONGEST) * (1 + spread)
    return waits if retry_after is None else max(retry_after, 0.0)


class Delivery:
    """Put messages into the outbox, and send what is there through its channels.

    Args:
        mailbox: Where the outbox is.
        channels: By name.
    """

    def __init__(self, mailbox: Mailbox, channels: Mapping[str, Channel]) -> None:
        self._mailbox, self._channels = mailbox, channels
        self._chats: dict[str, deque[Outgoing]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._known: set[int] = set()
        self._stopping = asyncio.Event()

    # --- the outbox

    async def say(
        self, key: str, channel: str, chat: str, text: str, buttons: Buttons = ()
    ) -> None:
        """Send a text; the same key sends it once."""
        message = OutboundMessage(channel=channel, chat_id=chat, content=text, buttons=buttons)
        await self.put(key, message)

    async def put(self, key: str, message: OutboundMessage, turn: str = "") -> None:
        """Send a message of a tool or of the gateway; the same key sends it once.

        Args:
            key: Its key in the outbox.
            message: The message.
            turn: The run that writes it: an answer of this run to the same chat is left out.
        """
        box = self._mailbox
        for draft in self.drafts(key, message):
            made = await box.run(box.queue, draft, turn=turn)
            self.add([] if made is None else [made])

    def drafts(self, key: str, message: OutboundMessage) -> list[Draft]:
        """Cut a message into rows of the outbox, each as long as its channel takes."""
        channel = self._channels.get(message.channel)
        limit, caption = (_LIMIT, 0) if channel is None else (channel.limit, channel.caption)
        chat = f"{message.channel}:{message.chat_id}"
        made = parts(message, limit, caption)
        return [
            Draft(key=f"{key}/{n}", chat=chat, message=one.to_json()) for n, one in enumerate(made)
        ]

    def channel(self, name: str) -> Channel | None:
        """Return a channel that runs here."""
        return self._channels.get(name)

    async def past(self, name: str, chat_id: str, after: int) -> list[tuple[int, OutboundMessage]]:
        """Return what was put for a chat after a row; see `PublishingChannel.past`."""
        found = await self._mailbox.run(self._mailbox.answers, f"{name}:{chat_id}", after)
        return [(one.row, OutboundMessage.from_json(one.message)) for one in found]

    async def owners_chat(self) -> tuple[str, str] | None:
        """Return the channel and the chat in which an owner wrote last."""
        fact = await self._mailbox.run(self._mailbox.fact, LAST_CHAT)
        return (fact["channel"], fact["chat_id"]) if fact else None

    @property
    def active(self) -> int:
        """How many messages wait to be sent here."""
        return len(self._known)

    def add(self, messages: Iterable[Outgoing]) -> None:
        """Let messages be sent; known ones are passed over, and those of channels elsewhere."""
        for one in messages:
            if (
                one.row in self._known
                or self.channel(_name(one)) is None
                or self._stopping.is_set()
            ):
                continue
            self._known.add(one.row)
            self._chats.setdefault(one.chat, deque()).append(one)
            if one.chat not in self._workers:
                self._workers[one.chat] = asyncio.create_task(self._work(one.chat))

    async def stop(self, seconds: float | None) -> None:
        """Finish the tries that are under way, for some seconds at most; the rest stays stored."""
        self._stopping.set()
        if not (workers := [*self._workers.values()]):
            return
        _, late = await asyncio.wait(workers, timeout=seconds)
        for worker in late:
            worker.cancel()
        if late:
            await asyncio.wait(late)

    async def _work(self, name: str) -> None:
        chat = self._chats[name]
        try:
            while chat and not self._stopping.is_set():
                one = chat.popleft()
                try:
                    again = await self._deliver(one)
                except StorageError as error:  # the next look at the outbox finds them, in order
                    log.error("a message to %s is not noted as sent: %s", name, error)
                    self._known.discard(one.row)
                    break
                if again is not None:
                    chat.appendleft(again)
                else:
                    self._known.discard(one.row)
        finally:
            self._known.difference_update(one.row for one in chat)
            del self._chats[name], self._workers[name]

    async def _deliver(self, one: Outgoing) -> Outgoing | None:
        """Try to send a message; return it if it is to be tried again."""
        if (early := one.due - self._mailbox.now) > 0:
            try:
                await asyncio.wait_for(self._stopping.wait(), early)
            except TimeoutError:
                return one
            return None
        channel = self.channel(_name(one))
        assert channel is not None
        try:
            message = OutboundMessage.from_json(one.message)
            native = await asyncio.wait_for(channel.send(message, one.key), _SEND_SECONDS)
        except Exception as error:  # whatever a platform's library raises
            return await self._failed(one, error)
        await self._mailbox.run(self._mailbox.sent, one, native)
        if isinstance(channel, PublishingChannel):
            channel.publish(message.chat_id)
        return None

    async def _failed(self, one: Outgoing, error: Exception) -> Outgoing | None:
        told = str(error) if isinstance(error, WickError) else type(error).__name__
        tries = one.tries + 1
        known = error if isinstance(error, DeliveryError) else None
        if tries >= TRIES or (known is not None and known.permanent):
            await self._mailbox.run(self._mailbox.failed, one, told, None)
            log.error("a message to %s is given up: %s", one.chat, told)
            await self._tell_owner(one, told)
            return None
        wanted = None if known is None else known.retry_after
        due = self._mailbox.now + pause_after(tries, wanted, random.uniform(0, 0.2))
        await self._mailbox.run(self._mailbox.failed, one, told, due)
        return replace(one, tries=tries, due=due, error=told)

    async def _tell_owner(self, dead: Outgoing, why: str) -> None:
        place = await self.owners_chat()
        if place is None or dead.key.startswith("dead/") or dead.chat == ":".join(place):
            return
        text = f"A message to {dead.chat} was given up after {dead.tries + 1} tries: {why}"
        await self.say(f"dead/{dead.key}", *place, text)


def _name(one: Outgoing) -> str:
    return str(one.message.get("channel"))
