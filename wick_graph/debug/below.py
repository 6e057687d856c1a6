"""Runs that a debugged run begins, its sub-agents: they stand still while it does."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Protocol

from wick_graph.debug.gate import HOLDS
from wick_graph.drive import Leaves
from wick_graph.moments import Directive, Moment, Port
from wick_graph.pausing import Stopwatch
from wick_graph.runtime import Run


class Above(Protocol):
    """The session of the run above."""

    clock: Stopwatch

    @property
    def held(self) -> bool:
        """Whether the run above is held."""


class Below:
    """Watches the runs below a session's run, which are threads of their own."""

    def __init__(self, session: Above) -> None:
        self.clock = session.clock
        self._session = session
        self._waiting: set[Future[None]] = set()
        self._lock = threading.Lock()

    @property
    def below(self) -> Below:
        """Those further down are held in the same way."""
        return self

    @property
    def waiting(self) -> int:
        """The calls of such runs that wait."""
        return len(self._waiting)

    def attach(self, run: Run, io: Leaves, spec: Any, journal: Any, saver: Any) -> Port:
        """Take part in a run that begins; the engine calls this."""
        return _Gate(self, run, io, journal)

    def hold(self) -> Future[None] | None:
        """Return what to wait for; None where nothing is held."""
        with self._lock:
            if not self._session.held:
                return None
            made: Future[None] = Future()
            self._waiting.add(made)
            return made

    def release(self) -> None:
        """Let all of them go on, now that the run above does."""
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for one in waiting:
            _go(one)


class _Gate:
    """Listens to one run below."""

    active = True
    holds = True
    tokens = False

    def __init__(self, below: Below, run: Run, io: Leaves, journal: Any) -> None:
        self._below, self._run, self._io, self._journal = below, run, io, journal

    def record(self, moment: Moment) -> None:
        """Have the moment recorded in its own thread's journal."""
        if self._journal is not None:
            self._journal.record(moment)

    async def at(self, moment: Moment) -> Directive:
        """Hold as long as the run above is held."""
        waits = self._below.hold() if f"{moment.kind}.{moment.phase}" in HOLDS else None
        if waits is not None:
            with self._run.stop.ending(lambda: _go(waits)):
                await self._io.either(waits.result, lambda: asyncio.wrap_future(waits))
            self._run.stop.check()
        return None


def _go(waits: Future[None]) -> None:
    with suppress(InvalidStateError):  # it goes on already
        waits.set_result(None)
