"""The end of the process while runs are held: they are left first, or it would wait for ever."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # it registers itself, and so before `Leavers`
import threading
from typing import Final, Protocol
from weakref import WeakSet

_LONGEST: Final = 10.0
"""Seconds that the end of the process waits for a run to come to a place where it can be left."""


class Leaver(Protocol):
    """What holds runs."""

    def leave(self, timeout: float | None = None) -> None:
        """Hold no run any more."""


class Leavers:
    """Those who may hold a run when the process ends."""

    def __init__(self) -> None:
        self._known: WeakSet[Leaver] = WeakSet()
        self._lock = threading.Lock()
        self._told = False

    def add(self, leaver: Leaver) -> None:
        """Have somebody told when the process ends."""
        with self._lock:
            self._known.add(leaver)
            if self._told:
                return
            self._told = True
        # Pools join their threads before `atexit` is heard, and a held one would never end. Here,
        # what is registered later is called earlier.
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            register(self._leave)

    def _leave(self) -> None:
        for leaver in list(self._known):
            leaver.leave(_LONGEST)


LEAVERS: Final = Leavers()
