"""Asking a run to stop: by whoever cancels it, by its deadline, or because it lost its thread.

A run has one `Stop`. Whoever asks may be in any thread; the first one who asks says why. What is
under way in the run (a model call, a tool, a run inside of a tool) registers how it is ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from wick_graph.errors import RunCancelled

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
