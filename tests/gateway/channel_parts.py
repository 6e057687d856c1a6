"""What the tests of channels share: time that they set, an inbox, and all texts of an error."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable

from wick_graph.gateway.channels.connected import STALLED
from wick_graph.gateway.messages import InboundMessage

LONG = 60.0
"""Seconds that a slow machine may need; no test waits for them."""


class Sleeps:
    """Time that passes only if the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.began: asyncio.Queue[tuple[float, asyncio.Event]] = asyncio.Queue()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        over = asyncio.Event()
        self.began.put_nowait((seconds, over))
        await over.wait()

    async def end(self, wanted: Callable[[float], bool]) -> float:
        """Wait until something sleeps for such a time, and end it."""
        while True:
            seconds, over = await asyncio.wait_for(self.began.get(), LONG)
            if wanted(seconds):
                over.set()
                return seconds


def back_off(seconds: float) -> bool:
    return seconds != STALLED


class Inbox:
    """Takes messages; raises what the test wants instead."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[InboundMessage] = asyncio.Queue()
        self.failures: list[Exception] = []
        self.before: Callable[[], Awaitable[None]] | None = None

    async def __call__(self, message: InboundMessage) -> None:
        if self.before is not None:
            await self.before()
        if self.failures:
            raise self.failures.pop(0)
        self.got.put_nowait(message)

    async def next(self) -> InboundMessage:
        return await asyncio.wait_for(self.got.get(), LONG)


def everything(error: BaseException | None) -> str:
    """All texts of an error, its causes and contexts, shown and hidden."""
    found, seen = "", set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        found += "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
        found += everything(error.__cause__)
        error = error.__context__
    return found
