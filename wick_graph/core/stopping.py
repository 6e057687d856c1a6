"""Stop a run: cancellation, deadlines, and clocks that pause while a debugger holds the run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from wick_graph.errors import RunCancelled

# --- Asking a run to stop: by whoever cancels it, by its deadline, or because it lost its
# thread.
#
# A run has one `Stop`. Whoever asks may be in any thread; the first one who asks says why. What is
# under way in the run (a model call, a tool, a run inside of a tool) registers how it is ended.


LOST: Final = "lost"
"""Why a run stops whose thread another one has taken over."""


class Stop:
    """Whether a run is to stop, and why; asked once, from any thread."""

    __slots__ = ("_ends", "_lock", "because", "text", "waits")

    def __init__(self) -> None:
        self.because: str = ""
        """`cancelled`, `limit` or `lost`; empty while the run goes on."""
        self.text = ""
        """Why, in a sentence."""
        self.waits = False
        """Somebody may ask: what blocks is to be waited for, not called, so that it can be left."""
        self._ends: list[Callable[[], Any]] = []
        self._lock = threading.Lock()

    def ask(self, because: str, text: str) -> bool:
        """Ask the run to stop; False if it was asked before."""
        with self._lock:
            if self.because:
                return False
            self.because, self.text = because, text
            ends, self._ends = self._ends, []
        for end in ends:
            end()
        return True

    def check(self) -> None:
        """Go on, if nobody has asked to stop.

        Raises:
            RunCancelled: Somebody has.
        """
        if self.because:
            raise RunCancelled

    @contextmanager
    def ending(self, end: Callable[[], Any]) -> Iterator[None]:
        """Call `end` when the run is asked to stop within the block, or was asked before."""
        with self._lock:
            asked = bool(self.because)
            if not asked:
                self._ends.append(end)
        if asked:
            end()
        try:
            yield
        finally:
            with self._lock:
                if end in self._ends:
                    self._ends.remove(end)


CURRENT: Final[ContextVar[Stop | None]] = ContextVar("wick_stop", default=None)
"""The stop of the run that the running code works for; a run inside of it stops with it."""

PART: Final[ContextVar[bool]] = ContextVar("wick_part", default=False)
"""The running code was begun by a run, and outlives it: that one answers for what it does."""


# --- Time that can stand still: while a debugger holds a run, its deadlines do not come nearer.


T = TypeVar("T")

TICK: Final = 0.05
"""Seconds after which a clock that stands still is looked at again."""


class Stopwatch:
    """A clock that somebody can hold; safe in any thread."""

    __slots__ = ("_held_since", "_lock", "_lost")

    def __init__(self) -> None:
        self._lost = 0.0
        self._held_since: float | None = None
        self._lock = threading.Lock()

    def hold(self) -> None:
        """Stop the clock; nothing happens if it stands still."""
        with self._lock:
            if self._held_since is None:
                self._held_since = time.monotonic()

    def go(self) -> None:
        """Let the clock go on; nothing happens if it does."""
        with self._lock:
            if self._held_since is not None:
                self._lost += time.monotonic() - self._held_since
                self._held_since = None

    def wait(self, left: float) -> float:
        """Return after how long to look again at what has so much time left."""
        return max(left, 0.0 if self._held_since is None else TICK)

    def now(self) -> float:
        """Return seconds that only grow while the clock is not held."""
        with self._lock:
            here = time.monotonic() if self._held_since is None else self._held_since
            return here - self._lost


WATCH: Final[ContextVar[Stopwatch | None]] = ContextVar("wick_watch", default=None)
"""The clock of the run that the running code works for; None where nobody can hold it."""


def alarm(seconds: float, ring: Callable[..., Any], *args: Any) -> Callable[[], None]:
    """Call a function in a thread of its own after so long; return what takes the alarm back.

    The time counts by the run's clock, so it stands still while a debugger holds the run.
    """
    watch = WATCH.get()
    quiet = threading.Event()
    if watch is None:
        timer = threading.Timer(max(seconds, 0), ring, args)
        timer.daemon = True
        timer.start()
        return timer.cancel

    def wait() -> None:
        until = watch.now() + seconds
        while (left := until - watch.now()) > 0:
            if quiet.wait(watch.wait(left)):
                return
        if not quiet.is_set():
            ring(*args)

    threading.Thread(target=wait, name="wick-alarm", daemon=True).start()
    return quiet.set


@contextmanager
def pausable(limit: asyncio.Timeout, seconds: float | None) -> Iterator[None]:
    """Let a time limit follow the run's clock, where that can be held."""
    watch = WATCH.get()
    if watch is None or seconds is None:
        yield
        return
    loop, until = asyncio.get_running_loop(), watch.now() + seconds
    handles: list[asyncio.TimerHandle] = []

    def look() -> None:
        left = until - watch.now()
        if left <= 0:
            limit.reschedule(loop.time())
        else:
            handles[:] = [loop.call_later(watch.wait(left), look)]

    limit.reschedule(None)
    look()
    try:
        yield
    finally:
        for handle in handles:
            handle.cancel()


def within(wait: Callable[[float], T], is_over: Callable[[], bool], seconds: float) -> T:
    """Wait for something, at most so long by the run's clock.

    Args:
        wait: Waits for so many seconds, then raises `TimeoutError`.
        is_over: Says that an error is its own, and not that of waiting too long.
        seconds: How long it may take.

    Raises:
        TimeoutError: It took longer.
    """
    watch = WATCH.get()
    if watch is None:
        return wait(seconds)
    until = watch.now() + seconds
    while True:
        try:
            return wait(watch.wait(until - watch.now()))
        except TimeoutError:
            if is_over() or until - watch.now() <= 0:
                raise
