"""Work in order: one message of a chat at a time, several chats at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

from wick_graph.store.mailbox import Row


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event, at most so long."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


class Lanes:
    """Hand over the messages of each chat in order, and those of different chats at once.

    Args:
        work: Handles messages of one chat, one unless they are joined. False leaves the rest of
            the chat to the next look at the mailbox, which finds them in order.
        joins: Whether a message is handled together with the one before it.
        parallel: Chats at once; None for all.
    """

    def __init__(
        self,
        work: Callable[[list[Row]], Awaitable[bool]],
        *,
        joins: Callable[[Row, Row], bool] = lambda one, after: False,
        parallel: int | None = None,
    ) -> None:
        self._work, self._joins = work, joins
        self._places = asyncio.Semaphore(parallel or 1_000_000)
        self._chats: dict[str, deque[Row]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self.known: Final[set[int]] = set()
        """Rows that wait or are being handled here."""
        self.stopping: Final = asyncio.Event()

    def has(self, rows: Iterable[int]) -> bool:
        """Return whether all these messages wait or are being handled here."""
        return self.known.issuperset(rows)

    def add(self, one: Row) -> bool:
        """Add a message; a known one is passed over. Return whether it waits behind others."""
        if one.row in self.known or self.stopping.is_set():
            return False
        self.known.add(one.row)
        self._chats.setdefault(one.chat, deque()).append(one)
        if one.chat in self._workers:
            return True
        self._workers[one.chat] = asyncio.create_task(self._run(one.chat))
        return False

    async def stop(self, seconds: float | None) -> None:
        """Begin nothing more; give what goes on some seconds, then cancel it."""
        self.stopping.set()
        if not (workers := [*self._workers.values()]):
            return
        _, late = await asyncio.wait(workers, timeout=seconds)
        for worker in late:
            worker.cancel()
        if late:
            await asyncio.wait(late)

    async def _run(self, name: str) -> None:
        chat, rows = self._chats[name], list[Row]()
        try:
            while chat:
                async with self._places:
                    if self.stopping.is_set():
                        break
                    rows = [chat.popleft()]
                    while chat and self._joins(rows[0], chat[0]):
                        rows.append(chat.popleft())
                    if not await self._work(rows):
                        break
                    self.known.difference_update(one.row for one in rows)
        finally:
            self.known.difference_update(one.row for one in (*rows, *chat))
            del self._chats[name], self._workers[name]
