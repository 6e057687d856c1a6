"""Turns in order: one at a time in a chat, several chats at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from wick_graph.config.gateway import Busy
from wick_graph.service.options import log
from wick_graph.store.mailbox import Received

Handle = Callable[[list[Received]], Awaitable[None]]
"""Answers messages of one chat; several only if they were collected."""

_RETRY: Final = (0.5, 2.0, 10.0, 30.0)
"""Seconds until a message is handled again after its handling failed: the store was away."""


class Dispatcher:
    """Hand over the messages of each chat in order, and those of different chats at once.

    Args:
        handle: Answers messages; an error is logged, and they are handed over again.
        busy: What happens to a message that comes during a turn of its chat.
        interrupt: Asks the turn of a message's chat to stop.
        parallel: Chats that are answered at once.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        busy: Callable[[Received], Busy],
        interrupt: Callable[[Received], Awaitable[None]],
        parallel: int,
    ) -> None:
        self._handle, self._busy, self._interrupt = handle, busy, interrupt
        self._places = asyncio.Semaphore(parallel)
        self._chats: dict[str, deque[Received]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._known: set[int] = set()
        """Rows that wait or are being answered here."""
        self._stopping = False

    @property
    def active(self) -> int:
        """How many messages wait or are being answered."""
        return len(self._known)

    async def add(self, one: Received) -> None:
        """Let a message be answered; a known one is passed over."""
        if one.row in self._known or self._stopping:
            return
        self._known.add(one.row)
        chat = self._chats.setdefault(one.chat, deque())
        chat.append(one)
        if one.chat not in self._workers:
            self._workers[one.chat] = asyncio.create_task(self._work(one.chat))
        elif self._busy(one) == "interrupt":
            await self._interrupt(one)

    async def stop(self, seconds: float | None) -> None:
        """Take no more messages; give turns some seconds, then cancel them."""
        self._stopping = True
        for chat in self._chats.values():
            chat.clear()
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
            while chat:
                async with self._places:
                    rows = _next(chat, self._busy)
                    if rows and not await self._answer(rows):
                        break  # the next look at the inbox finds them, in order
        finally:
            self._known.difference_update(one.row for one in chat)
            del self._chats[name], self._workers[name]

    async def _answer(self, rows: list[Received]) -> bool:
        try:
            for pause in (*_RETRY, None):
                try:
                    await self._handle(rows)
                    return True
                except Exception as error:
                    log.error("a message of %s was not answered: %s", rows[0].chat, error)
                    if pause is not None:
                        await asyncio.sleep(pause)
            return False
        finally:
            self._known.difference_update(one.row for one in rows)


def _next(chat: deque[Received], busy: Callable[[Received], Busy]) -> list[Received]:
    """Take the messages of the next turn: one, or all that wait and may be joined."""
    rows: list[Received] = []
    with suppress(IndexError):
        rows.append(chat.popleft())
        while busy(rows[0]) == busy(chat[0]) == "collect":
            rows.append(chat.popleft())
    return rows
