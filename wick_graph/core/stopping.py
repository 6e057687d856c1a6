"""Stop a run: cancellation, deadlines, and clocks that pause while a debugger holds the run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from wick_graph.errors import RunCancelled, ThreadBusyError

# --- Requests to stop a run: by a cancellation, by its deadline, or because it lost its thread.
#
# A run has one `Stop`. A request may come from any thread, and the first one sets the reason. Each
# running part of the run (a model call, a tool, a run inside a tool) registers how it is ended.


LOST: Final = "lost"
"""The reason of a run that lost its thread to another one."""

STOPS: Final = (RunCancelled, ThreadBusyError)
"""What a run that was asked to stop raises; the second also tells that it lost its thread."""


class Stop:
    """The request to stop a run, with its reason; made once, from any thread."""

    __slots__ = ("_ends", "_lock", "because", "text", "waits")

    def __init__(self) -> None:
        self.because: str = ""
        """`cancelled`, `limit` or `lost`; empty while the run goes on."""
        self.text = ""
        """Why, in a sentence."""
        self.waits = False
        """The run can be stopped: blocking calls run in threads that it can abandon."""
        self._ends: list[Callable[[], Any]] = []
        self._lock = threading.Lock()

    def ask(self, because: str, text: str) -> bool:
        """Ask the run to stop; return False if it was asked before."""
        with self._lock:
            if self.because:
                return False
            self.because, self.text = because, text
            ends, self._ends = self._ends, []
        for end in ends:
            end()
        return True

    def check(self) -> None:
        """Raise if the run was asked to stop.

        Raises:
            RunCancelled: It was.
        """
        if self.because:
            raise RunCancelled

    def ending(self, end: Callable[[], Any]) -> AbstractContextManager[None]:
        """Call `end` if the run is asked to stop within the block, or was asked before."""
        return _Ending(self, end)

    def add_end(self, end: Callable[[], Any]) -> None:
        """Call `end` when the run is asked to stop, or now if it was asked before."""
        with self._lock:
            asked = bool(self.because)
            if not asked:
                self._ends.append(end)
        if asked:
            end()

    def remove_end(self, end: Callable[[], Any]) -> None:
        """No longer call `end`."""
        with self._lock:
            if end in self._ends:
                self._ends.remove(end)


class _Ending(AbstractContextManager[None]):
    """The block of `Stop.ending`; a generator would be a tenth of what a node costs around it."""

    __slots__ = ("_end", "_stop")

    def __init__(self, stop: Stop, end: Callable[[], Any]) -> None:
        self._stop, self._end = stop, end

    def __enter__(self) -> None:
        self._stop.add_end(self._end)

    def __exit__(self, *error: object) -> None:
        self._stop.remove_end(self._end)


CURRENT: Final[ContextVar[Stop | None]] = ContextVar("wick_stop", default=None)
"""The stop of the current run; a run inside it stops with it."""

PART: Final[ContextVar[bool]] = ContextVar("wick_part", default=False)
"""The current code was started by a run and outlives it; that run is its suspect in a crash."""


# --- Clocks that can be paused: while a debugger holds a run, its deadlines do not approach.


T = TypeVar("T")

TICK: Final = 0.05
"""Seconds between two looks at a paused clock."""


class Stopwatch:
    """A clock that can be paused; thread-safe."""

    __slots__ = ("_held_since", "_lock", "_lost")

    def __init__(self) -> None:
        self._lost = 0.0
        self._held_since: float | None = None
        self._lock = threading.Lock()

    def hold(self) -> None:
        """Pause the clock; a paused clock stays paused."""
        with self._lock:
            if self._held_since is None:
                self._held_since = time.monotonic()

    def go(self) -> None:
        """Resume the clock; a running clock keeps running."""
        with self._lock:
            if self._held_since is not None:
                self._lost += time.monotonic() - self._held_since
                self._held_since = None

    def wait(self, left: float) -> float:
        """Return how long to wait before the next look, with so much time left."""
        return max(left, 0.0 if self._held_since is None else TICK)

    def now(self) -> float:
        """Return the seconds of this clock, which pause with it."""
        with self._lock:
            here = time.monotonic() if self._held_since is None else self._held_since
            return here - self._lost


WATCH: Final[ContextVar[Stopwatch | None]] = ContextVar("wick_watch", default=None)
"""The clock of the current run; None without a debugger."""


def alarm(seconds: float, ring: Callable[..., Any], *args: Any) -> Callable[[], None]:
    """Call a function in its own thread after so long; return the function that cancels it.

    The time counts by the run's clock, so it pauses while a debugger holds the run.
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
    """Make a time limit follow the run's clock, if that can be paused."""
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
        is_over: Returns whether the awaited call is done, so that the error is its own.
        seconds: The limit.

    Raises:
        TimeoutError: It took longer.
    """
    watch = WATCH.get()
    until = 0.0 if watch is None else watch.now() + seconds
    try:
        while watch is not None:
            try:
                return wait(watch.wait(until - watch.now()))
            except TimeoutError:
                if is_over() or until - watch.now() <= 0:
                    raise
        return wait(seconds)
    finally:
        del wait, is_over  # what is waited for holds its error, and that holds this frame
