"""The gate: the port that lets a session hold a run at every moment of it, without a restart.

All of a run's parallel calls stop: each is held at its own next moment while the session stands.
Nothing is run again when they go on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from langgraph.errors import GraphInterrupt

from wick_graph.debug.listing import Listing
from wick_graph.drive import Leaves
from wick_graph.errors import WickError
from wick_graph.journal.entry import Entry
from wick_graph.moments import Directive, Moment
from wick_graph.runtime import Run

if TYPE_CHECKING:
    from wick_graph.debug.attached import Attached

HOLDS: Final = frozenset(
    {"run.enter", "node.enter", "node.exit", "hook.enter", "hook.exit"}
    | {"model.request", "model.response", "tool.enter", "tool.call", "tool.return", "tool.exit"}
)
"""Moments at which a run can be held; at any other it is held at the next of these."""
_CALLED: Final = frozenset({"model.response", "tool.return", "tool.exit"})


@dataclass(frozen=True, slots=True)
class Question:
    """A call about which a person is to decide."""

    reason: Literal["ask", "divergence"]
    text: str
    recorded: Directive = None
    """What the recording has for it, if anything."""


Decide = Callable[[Moment], Directive | Question]


@dataclass(slots=True)
class Held:
    """One call that is held."""

    entry: Entry
    moment: Moment
    run: Run
    question: Question | None
    go: Future[None] = field(default_factory=Future)
    directive: Directive = None
    """What it goes on with."""
    decided: bool = False
    """Somebody has said what becomes of it."""
    leads: bool = False
    """It is what the session stopped at."""

    @property
    def is_open(self) -> bool:
        """Whether a person is still to decide."""
        return self.question is not None and not self.decided

    def release(self) -> None:
        """Let it go on."""
        with suppress(InvalidStateError):  # it goes on already, or its task was cancelled
            self.go.set_result(None)


class Gate:
    """Listens to one run for a session."""

    active = True
    holds = True

    def __init__(
        self,
        session: Attached,
        run: Run,
        io: Leaves,
        journal: Any,
        listing: Listing,
        decide: Decide | None,
    ) -> None:
        self.run = run
        self.journal = journal
        self.tokens = False
        self._session = session
        self._io = io
        self._listing = listing
        self._decide = decide
        self._called: set[str] = set()
        self._waiting: dict[int, Held] = {}
        self._lock = threading.RLock()

    def record(self, moment: Moment) -> None:
        """Have the moment numbered by the journal, then show it to the session."""
        with self._lock:
            if self.journal is not None:
                self.journal.record(moment)
            entry = self._listing.entry(moment)
            if entry is None:
                return
            held = self._holdable(entry, moment) if entry.what in HOLDS else None
            if entry.what in _CALLED and entry.task:
                self._called.add(entry.task)
            self._session.heard(entry, moment, held)

    def _holdable(self, entry: Entry, moment: Moment) -> Held:
        decided = None if self._decide is None else self._decide(moment)
        if isinstance(decided, Question):
            held = Held(entry, moment, self.run, decided)
        else:
            held = Held(entry, moment, self.run, None, directive=decided)
        self._waiting[entry.seq] = held
        return held

    async def at(self, moment: Moment) -> Directive:
        """Hold as long as the session stands."""
        held = self._waiting.pop(moment.seq, None)
        if held is None:
            return None
        if self._session.is_held(held):
            await self._flush()
            await self._wait(held)
        entry = held.entry
        if self._session.keeping and self._is_safe(entry):
            raise GraphInterrupt(())
        if entry.what == "tool.call" and entry.task:
            self._called.add(entry.task)
        return held.directive

    async def _wait(self, held: Held) -> None:
        with self.run.stop.ending(held.release):
            try:
                await self._call_back(held)
                await self._io.either(held.go.result, lambda: asyncio.wrap_future(held.go))
            finally:
                self._session.gone(held)
        self.run.stop.check()

    async def _call_back(self, held: Held) -> None:
        """Ask a function of the user's how to go on, where there is one."""
        back = self._session.stop_callback
        if back is None or not held.leads:
            return
        fn, is_async = back
        stop = self._session.last_stop
        try:
            while stop is not None:
                verb = await self._io.call(fn, is_async, stop)
                stop = self._session.command(str(verb or "continue"))
        except BaseException:  # nobody else will say how the calls beside this one go on
            self._session.let_go()
            raise

    async def _flush(self) -> None:
        """Commit what was recorded, so that everybody can look at it."""
        journal = self.journal
        if journal is not None:
            with suppress(WickError):  # a lost lease is told of where it is used
                await self._io.either(journal.flush, journal.aflush)

    def _is_safe(self, entry: Entry) -> bool:
        """Say whether nothing is run twice if the visit of the node begins anew."""
        if entry.kind == "run" or entry.what == "node.exit":
            return False
        return entry.task not in self._called
