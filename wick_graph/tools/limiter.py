"""A counting limiter that threads and event loops share."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from contextlib import suppress
from typing import Final, Protocol

from wick_graph.errors import ConfigError


class _Waiter(Protocol):
    granted: bool

    def wake(self) -> bool:
        """Hand the permit over; return False if the waiter is gone."""
        ...


class _ThreadWaiter:
    def __init__(self) -> None:
        self.granted = False
        self.event: Final = threading.Event()

    def wake(self) -> bool:
        self.event.set()
        return True


class _LoopWaiter:
    def __init__(self) -> None:
        self.granted = False
        self.loop: Final = asyncio.get_running_loop()
        self.future: Final[asyncio.Future[None]] = self.loop.create_future()

    def wake(self) -> bool:
        try:
            self.loop.call_soon_threadsafe(self._set)
        except RuntimeError:  # the loop was closed while its task was waiting
            return False
        return True

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Limiter:
    """Allow at most `n` holders at once, first come, first served.

    One limiter serves plain threads (`with limiter:`) and any number of event loops
    (`async with limiter:`) at the same time. A cancelled, interrupted or timed-out waiter
    never keeps a permit. In a forked child all permits are free.

    Raises:
        ConfigError: `n` is less than 1.
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ConfigError(f"a limiter needs at least one permit, not {n}")
        self.n: Final = n
        self._free = n
        self._reset()

    def acquire_sync(self, timeout: float | None = None) -> bool:
        """Wait in this thread for a permit; return False after `timeout` seconds without one."""
        with self._lock_here():
            if self._take():
                return True
            waiter = _ThreadWaiter()
            self._waiters.append(waiter)
        arrived = False
        try:
            arrived = waiter.event.wait(timeout)
        finally:
            if not arrived:
                self._give_up(waiter)
        return arrived

    async def acquire(self) -> None:
        """Wait in this event loop for a permit."""
        with self._lock_here():
            if self._take():
                return
            waiter = _LoopWaiter()
            self._waiters.append(waiter)
        try:
            await waiter.future
        except BaseException:
            self._give_up(waiter)
            raise

    def release(self) -> None:
        """Return a permit, to the longest waiter if there is one."""
        with self._lock_here():
            while self._waiters:
                waiter = self._waiters.popleft()
                waiter.granted = waiter.wake()
                if waiter.granted:
                    return
            self._free = min(self._free + 1, self.n)

    def __enter__(self) -> None:
        self.acquire_sync()

    def __exit__(self, *error: object) -> None:
        self.release()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *error: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"Limiter({self.n}, free={self._free}, waiting={len(self._waiters)})"

    def _reset(self) -> None:
        self._pid = os.getpid()
        # Re-entrant: a garbage-collected waiter gives up while the lock may be held.
        self._lock = threading.RLock()
        self._free = self.n
        self._waiters: deque[_Waiter] = deque()

    def _lock_here(self) -> threading.RLock:
        if (
            self._pid != os.getpid()
        ):  # the parent's threads, which hold the others, do not exist here
            self._reset()
        return self._lock

    def _take(self) -> bool:
        if self._free:  # never while others wait: a released permit goes to the queue first
            self._free -= 1
            return True
        return False

    def _give_up(self, waiter: _Waiter) -> None:
        """Leave the queue, or pass on a permit received at the same moment."""
        with self._lock_here():
            if not waiter.granted:
                with suppress(ValueError):
                    self._waiters.remove(waiter)
                return
        self.release()
