"""Sending: in order within a chat, again after a failure, and given up after eight tries."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from wick_graph.errors import DeliveryError, StorageError, WickError
from wick_graph.gateway.channels.protocol import Channel
from wick_graph.gateway.messages import OutboundMessage
from wick_graph.service.options import log
from wick_graph.store.mailbox import Mailbox, Outgoing

TRIES: Final = 8
"""Tries to send a message; then it is a dead letter."""

_FIRST: Final = 1.0

_LONGEST: Final = 300.0

_SEND_SECONDS: Final = 60.0
"""Seconds after which a try counts as failed, although the channel has not answered."""


def pause_after(tries: int, retry_after: float | None = None, spread: float = 0.0) -> float:
    """Return the seconds until the next try: doubled each time, or what the platform wants."""
    waits = min(_FIRST * 2 ** (tries - 1), _LONGEST) * (1 + spread)
    return waits if retry_after is None else max(retry_after, 0.0)


class Delivery:
    """Send what is in the outbox through its channels.

    Args:
        mailbox: Where it is.
        channels: By name.
        sent: Called with the channel and the chat of a message that was sent.
        dead: Called with a message that is given up.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        channels: Mapping[str, Channel],
        sent: Callable[[Channel, str], None],
        dead: Callable[[Outgoing, str], Awaitable[None]],
    ) -> None:
        self._mailbox, self._channels = mailbox, channels
        self._sent, self._dead = sent, dead
        self._chats: dict[str, deque[Outgoing]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._known: set[int] = set()
        self._stopping = asyncio.Event()

    @property
    def active(self) -> int:
        """How many messages wait to be sent here."""
        return len(self._known)

    def add(self, messages: Iterable[Outgoing]) -> None:
        """Let messages be sent; known ones are passed over, and those of channels elsewhere."""
        for one in messages:
            if one.row in self._known or self._channel(one) is None or self._stopping.is_set():
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

    def _channel(self, one: Outgoing) -> Channel | None:
        return self._channels.get(str(one.message.get("channel")))

    async def _work(self, name: str) -> None:
        chat = self._chats[name]
        try:
            while chat and not self._stopping.is_set():
                one = chat.popleft()
                try:
                    again = await self._deliver(one)
                except StorageError as error:  # a later look at the outbox finds the message
                    log.error("a message to %s is not noted as sent: %s", name, error)
                    again = None
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
        channel = self._channel(one)
        assert channel is not None
        try:
            message = OutboundMessage.from_json(one.message)
            native = await asyncio.wait_for(channel.send(message, one.key), _SEND_SECONDS)
        except Exception as error:  # whatever a platform's library raises
            return await self._failed(one, error)
        await self._mailbox.run(self._mailbox.sent, one, native)
        self._sent(channel, message.chat_id)
        return None

    async def _failed(self, one: Outgoing, error: Exception) -> Outgoing | None:
        told = str(error) if isinstance(error, WickError) else type(error).__name__
        tries = one.tries + 1
        known = error if isinstance(error, DeliveryError) else None
        if tries >= TRIES or (known is not None and known.permanent):
            await self._mailbox.run(self._mailbox.failed, one, told, None)
            log.error("a message to %s is given up: %s", one.chat, told)
            await self._dead(one, told)
            return None
        wanted = None if known is None else known.retry_after
        due = self._mailbox.now + pause_after(tries, wanted, random.uniform(0, 0.2))
        await self._mailbox.run(self._mailbox.failed, one, told, due)
        return replace(one, tries=tries, due=due, error=told)
