"""The gate: the listener through which a session holds a run at any moment, without a restart.

While a session is stopped, each parallel call waits at its own next moment, and so do the calls of
sub-agents. When they continue, no code runs twice.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  # it registers itself, and so before `ExitHandlers`
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from weakref import WeakSet

from langgraph.errors import GraphInterrupt

from wick_graph.core.bridge import Bridge
from wick_graph.core.moments import PASSES, Directive, Listener, Moment
from wick_graph.core.stopping import Stopwatch
from wick_graph.errors import ReplayError, WickError
from wick_graph.journal.entry import Entry, RunRecord, entry_of
from wick_graph.journal.page_format import CALL, PHASE_CODES, TOOL, Frame, PageContent, Visit
from wick_graph.journal.reader import record_of
from wick_graph.journal.recorder import BranchCounters, JournalListener, Writer, plans_of
from wick_graph.journal.replay import STREAMED, Ask
from wick_graph.journal.tracebacks import message_of
from wick_graph.runtime.context import Run

if TYPE_CHECKING:
    from wick_graph.debug.live import LiveRun


_LONGEST: Final = 10.0
"""Seconds that a process exit waits for a run to reach a place where it can be left."""


class RunHolder(Protocol):
    """An object that holds runs."""

    def leave(self, timeout: float | None = None) -> None:
        """Release all runs."""


class ExitHandlers:
    """Objects that may hold runs, and must release them before the process ends."""

    def __init__(self) -> None:
        self._known: WeakSet[RunHolder] = WeakSet()
        self._lock = threading.Lock()
        self._registered = False

    def add(self, holder: RunHolder) -> None:
        """Call an object's `leave` when the process ends."""
        with self._lock:
            self._known.add(holder)
            if self._registered:
                return
            self._registered = True
        # Pools join their threads before `atexit` handlers run, and a held one would never end.
        # Here a later registration runs earlier.
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            register(self._leave)

    def _leave(self) -> None:
        for holder in list(self._known):
            holder.leave(_LONGEST)


EXIT_HANDLERS: Final = ExitHandlers()

_ERROR = 2_000
"""Characters of an error's text."""

Fields = dict[str, Any]


class _BareEncoder:
    """Encodes only the fields of a moment that an entry shows."""

    def __init__(self) -> None:
        self.hooks: dict[str, int] = {}
        self.names: dict[str, str] = {}


class Listing:
    """Numbers and nests the moments of one run as its journal does."""

    def __init__(self, run: Run, journal: JournalListener | None, agent: str, last: int) -> None:
        counters = BranchCounters() if journal is None else journal.counters()
        encoder: Any = _BareEncoder()
        self._last = last
        self._writer: Writer | None = None
        self._encoder, self._counters = encoder, counters
        if journal is None:
            self.record = _record_of(run, agent, last)
        else:
            self.record = record_of(run.thread_id or "", journal.row(), "running")

    def entry(self, moment: Moment) -> Entry | None:
        """Return a moment's entry; None for an unrecorded one, such as a piece of text."""
        if moment.kind == "model" and moment.phase == "chunk" and not moment.seq:
            return None
        if self._writer is None:
            self._writer = Writer(self._encoder, self._counters, moment.at_ns, _PLANS)
        if not moment.seq:
            moment.seq = self._last + 1
        self._last = moment.seq
        writer = self._writer
        writer.begin(moment.seq)
        writer.add(moment, None)
        content = PageContent(self.record.number, moment.seq, writer.places, writer.entries)
        return entry_of(content, 0, self.record)


def _record_of(run: Run, agent: str, last: int) -> RunRecord:
    return RunRecord(
        thread_id=run.thread_id or "",
        number=1,
        run_id=run.run_id,
        branch=0,
        status="running",
        stopped_because=None,
        mode="input",
        started=datetime.now(UTC),
        ended=None,
        agent=agent,
        model=run.model,
        level="off",
        first=last + 1,
        last=None,
        base=None,
        hooks=(),
        graph_hash="",
        code_hash="",
        versions={},
    )


def _of_hook(_: Any, moment: Moment, visit: Visit, frame: Frame) -> Fields:
    fields: Fields = {"p": PHASE_CODES[moment.data["phase"]]}
    if moment.phase == "error":
        fields |= _said(moment.data["value"])
    return fields


def _of_call(_: Any, moment: Moment, visit: Visit, frame: Frame) -> Fields:
    if moment.data.get("own"):  # of another graph: its nodes may make several
        return {"a": b""}
    visit.place[CALL], visit.place[TOOL] = moment.call_id, moment.name
    return {}


def _of_route(_: Any, moment: Moment, visit: Visit, frame: Frame) -> Fields:
    return {"q": moment.data["chosen"]} if "chosen" in moment.data else {}


def _of_result(_: Any, moment: Moment, visit: Visit, frame: Frame) -> Fields:
    return {"z": True} if moment.data["result"].error else {}


def _of_error(_: Any, moment: Moment, visit: Visit, frame: Frame) -> Fields:
    return _said(moment.data.get("error"))


def _said(error: Any) -> Fields:
    return {} if error is None else {"e": [type(error).__name__, message_of(error)[:_ERROR]]}


_PLANS: Final = plans_of(
    {
        ("hook", "enter"): _of_hook,
        ("hook", "exit"): _of_hook,
        ("hook", "error"): _of_hook,
        ("tool", "enter"): _of_call,
        ("node", "retry"): _of_error,
        ("route", "taken"): _of_route,
        ("tool", "exit"): _of_result,
        ("tool", "error"): _of_error,
        ("node", "error"): _of_error,
        ("model", "error"): _of_error,
        ("model", "retry"): _of_error,
        ("model", "fallback"): _of_error,
        ("run", "error"): _of_error,
    }
)


HOLDS: Final = frozenset(
    {"run.enter", "node.enter", "node.exit", "hook.enter", "hook.exit"}
    | {"model.request", "model.response", "tool.enter", "tool.call", "tool.return", "tool.exit"}
)
"""Moments at which a run can be held; a stop elsewhere holds it at the next of these."""

_CALLED: Final = frozenset({"model.response", "tool.return", "tool.exit"})


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for a person's decision."""

    reason: Literal["ask", "divergence"]
    text: str
    recorded: Directive | Ask = None
    """Its recorded answer, if any."""


Decide = Callable[[Moment], Directive | Ask | Question]


@dataclass(slots=True)
class HeldCall:
    """One held call."""

    entry: Entry
    moment: Moment
    run: Run
    question: Question | None
    go: Future[None] = field(default_factory=Future)
    directive: Directive | Ask = None
    """The directive to continue with."""
    decided: bool = False
    """Whether a person has decided."""
    leads: bool = False
    """Whether the session stopped at this call."""

    @property
    def is_open(self) -> bool:
        """Whether it waits for a person's decision."""
        return self.question is not None and not self.decided

    def release(self) -> None:
        """Release it."""
        with suppress(InvalidStateError):  # already released, or its task was cancelled
            self.go.set_result(None)


class Gate:
    """Listens to one run for a session."""

    active = True
    holds = True
    is_foreign = False
    """Whether its nodes are not the engine's: code of theirs may have run at any moment in one."""

    def __init__(
        self,
        session: LiveRun,
        run: Run,
        bridge: Bridge,
        journal: Any,
        listing: Listing,
        decide: Decide | None,
    ) -> None:
        self.run = run
        self.journal = journal
        self.tokens = False
        self._session = session
        self._bridge = bridge
        self._listing = listing
        self._decide = decide
        self._called: set[str] = set()
        self._waiting: dict[int, HeldCall] = {}
        self._lock = threading.RLock()

    def record(self, moment: Moment) -> None:
        """Pass a moment to the journal, which numbers it, then to the session."""
        with self._lock:
            if self.journal is not None:
                self.journal.record(moment)
            entry = self._listing.entry(moment)
            if entry is None:
                return
            holds = entry.what in HOLDS and PASSES not in moment.data
            held = self._holdable(entry, moment) if holds else None
            if entry.what in _CALLED and entry.task:
                self._called.add(entry.task)
            self._session.heard(entry, moment, held)

    def _holdable(self, entry: Entry, moment: Moment) -> HeldCall:
        decided = None if self._decide is None else self._decide(moment)
        if isinstance(decided, Question):
            held = HeldCall(entry, moment, self.run, decided)
        else:
            held = HeldCall(entry, moment, self.run, None, directive=decided)
        self._waiting[entry.seq] = held
        return held

    async def at(self, moment: Moment, bridge: Bridge | None = None) -> Directive:
        """Wait as long as the session is stopped; `bridge` is that of the caller, if it differs."""
        held = self._waiting.pop(moment.seq, None)
        if held is None:
            return None
        if self._session.should_hold(held):
            bridge = bridge or self._bridge
            await self._flush(bridge)
            await self._wait(held, bridge)
        entry = held.entry
        if self._session.keeping and self._is_safe(entry):
            raise GraphInterrupt(())
        if entry.what == "tool.call" and entry.task:
            self._called.add(entry.task)
        return held.directive.again() if isinstance(held.directive, Ask) else held.directive

    def passed(self, moment: Moment) -> None:
        """Refuse a streamed request that a recording should answer, before it is sent.

        Raises:
            ReplayError: It should be answered.
        """
        if self._decide is not None and self._decide(moment) is not None:
            raise ReplayError(STREAMED)

    async def _wait(self, held: HeldCall, bridge: Bridge) -> None:
        with self.run.stop.ending(held.release):
            try:
                await self._call_back(held, bridge)
                await bridge.call(lambda: held.go.result(), lambda: asyncio.wrap_future(held.go))
            finally:
                self._session.gone(held)
        self.run.stop.check()
        if held.leads and self._session.note:
            self.record(Moment("event", "released", self._session.note, place=held.moment.place))

    async def _call_back(self, held: HeldCall, bridge: Bridge) -> None:
        """Call the function of `on_stop`, if any, until the run continues."""
        back = self._session.callback
        if back is None or not held.leads:
            return
        fn, is_async = back
        stop = self._session.last_stop
        try:
            while stop is not None:
                verb = await bridge.call_user(fn, is_async, stop)
                stop = self._session.command(str(verb or "continue"))
        except BaseException:  # nothing else releases the parallel calls
            self._session.release_all()
            raise

    async def _flush(self, bridge: Bridge) -> None:
        """Commit the recorded moments, so that other processes can read them."""
        journal = self.journal
        if journal is not None:
            with suppress(WickError):  # the next use of a lost lease raises
                await bridge.call(journal.flush, journal.aflush)

    def _is_safe(self, entry: Entry) -> bool:
        """Return whether the node's visit can begin again without running anything twice."""
        if entry.kind == "run" or entry.what == "node.exit":
            return False
        if self.is_foreign:  # its code has run since
            return entry.what == "node.enter" and not entry.level
        return entry.task not in self._called


class HoldingSession(Protocol):
    """The session of the parent run."""

    clock: Stopwatch

    @property
    def held(self) -> bool:
        """Whether the parent run is held."""


class ChildRuns:
    """Debugger of the child runs of a session's run, which have threads of their own."""

    def __init__(self, session: HoldingSession) -> None:
        self.clock = session.clock
        self._session = session
        self._waiting: set[Future[None]] = set()
        self._lock = threading.Lock()

    @property
    def below(self) -> ChildRuns:
        """The debugger of their own child runs: the same."""
        return self

    @property
    def waiting(self) -> int:
        """Number of waiting calls in child runs."""
        return len(self._waiting)

    def attach(self, run: Run, bridge: Bridge, spec: Any, journal: Any, saver: Any) -> Listener:
        """Attach to a starting run; the engine calls this."""
        return _ChildGate(self, run, bridge, journal)

    def hold(self) -> Future[None] | None:
        """Return a future to wait for; None if the parent run is not held."""
        with self._lock:
            if not self._session.held:
                return None
            made: Future[None] = Future()
            self._waiting.add(made)
            return made

    def release(self) -> None:
        """Release all of them, after the parent run."""
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for one in waiting:
            _go(one)


class _ChildGate:
    """Listens to one child run."""

    active = True
    holds = True
    tokens = False

    def __init__(self, below: ChildRuns, run: Run, bridge: Bridge, journal: Any) -> None:
        self._below, self._run, self._bridge, self._journal = below, run, bridge, journal

    def record(self, moment: Moment) -> None:
        """Pass a moment to the journal of its own thread."""
        if self._journal is not None:
            self._journal.record(moment)

    async def at(self, moment: Moment) -> Directive:
        """Hold the run as long as the parent run is held."""
        waits = self._below.hold() if f"{moment.kind}.{moment.phase}" in HOLDS else None
        if waits is not None:
            with self._run.stop.ending(lambda: _go(waits)):
                await self._bridge.call(lambda: waits.result(), lambda: asyncio.wrap_future(waits))
            self._run.stop.check()
        return None


def _go(waits: Future[None]) -> None:
    with suppress(InvalidStateError):  # already released
        waits.set_result(None)
