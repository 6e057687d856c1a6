"""The engine's only observation point: moments of a run and the listeners that get them.

The engine calls one listener, which has two methods. `record` notes a moment. The engine awaits
`at` where a listener may hold the run, change what comes, or skip it. With `NULL_LISTENER` it calls
neither: each point costs one attribute look-up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

from wick_graph.core.stopping import Stopwatch
from wick_graph.errors import ConfigError
from wick_graph.messages.base import changed_copy

Kind = Literal[
    "run", "node", "hook", "model", "route", "tool", "interrupt", "state", "agent", "event"
]

PASSES: Final = "passes"
"""Key in the data of a moment at which its run cannot be held, though others like it can."""

JournalLevel = Literal["off", "steps", "full"]
"""What a run's journal keeps: nothing, every moment, or the pieces of streamed replies too."""


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Settings of an agent's journal."""

    level: JournalLevel = "steps"
    redact: tuple[str, ...] = ()
    """Regular expressions of further secret texts, beside the known secrets."""

    @classmethod
    def of(cls, given: JournalOptions | str) -> JournalOptions:
        """Make options from a level, or return the given options.

        Raises:
            ConfigError: The level is unknown, or a pattern is not a regular expression.
        """
        made = given if isinstance(given, cls) else cls(level=given)  # type: ignore[arg-type]  # checked below
        if made.level not in get_args(JournalLevel):
            levels = ", ".join(get_args(JournalLevel))
            raise ConfigError(f"journal must be one of {levels}, not {made.level!r}")
        for pattern in made.redact:
            try:
                re.compile(pattern)
            except re.error as problem:
                raise ConfigError(
                    f"the journal's pattern {pattern!r} is no regular expression: {problem}"
                ) from None
        return made


class Place(NamedTuple):
    """The place of a moment in a run: one visit of a node."""

    node: str
    task: str
    """The superstep task that runs the node; the same after a crash."""
    checkpoint: str
    """The checkpoint from which the superstep began."""
    superstep: int
    within: str = ""
    """The task of the surrounding graph, for a node of a subgraph."""


@dataclass(slots=True)
class Moment:
    """One entry of a run's record, in the order in which it happened.

    Only two listeners change a moment, both before any other sees it: `NodeListener` adds the
    place, and the journal adds the number.
    """

    kind: Kind
    phase: str
    """`enter`, `exit`, `error`, or a phase of the kind's own (`request`, `chunk`, …)."""
    name: str = ""
    """The node, hook, model or tool."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Live objects: a listener that keeps them must copy or encode them."""
    call_id: str | None = None
    at_ns: int = field(default_factory=time.monotonic_ns)
    place: Place | None = None
    """The visit of a node that it belongs to; None for a moment of the run itself."""
    seq: int = 0
    """Its number in the thread's journal; 0 without a journal."""

    @property
    def is_call(self) -> bool:
        """Whether a tool is about to run; the nodes of other graphs have no later moment for it."""
        own = self.phase == "enter" and bool(self.data.get("own"))
        return self.kind == "tool" and (self.phase == "call" or own)


@dataclass(frozen=True, slots=True)
class Replace:
    """Go on with another value: a request, arguments, a result."""

    value: Any


@dataclass(frozen=True, slots=True)
class Skip:
    """Skip the operation, and use this as its result."""

    value: Any


@dataclass(frozen=True, slots=True)
class Abort:
    """End the run."""

    reason: str


Directive = Replace | Skip | Abort | None
"""A listener's answer; None continues."""


Take = Callable[[Any, str | None, str], Moment | None]
"""Takes a piece of a reply, its text if it is nothing else, and the reply's id, which such a piece
may lack; returns where the run must wait."""


class Listener(Protocol):
    """Observer of a run's moments.

    A listener with a method `pieces(name, place)` gets no moments `model.chunk` from the engine's
    own model calls: for each call it returns a `Take`, or None if it wants the moments after all.
    """

    @property
    def active(self) -> bool:
        """If False, the engine calls neither method."""

    @property
    def tokens(self) -> bool:
        """If True, replies are streamed, and each piece is a moment `model.chunk`."""

    def record(self, moment: Moment) -> None:
        """Note a moment; never raises into the run."""

    async def at(self, moment: Moment) -> Directive:
        """Hold the run as long as the listener wants, then return how to continue."""


class Debugger(Protocol):
    """Observes runs from outside, and may hold them."""

    @property
    def clock(self) -> Stopwatch | None:
        """The clock of the runs' deadlines, which stops while a run is held."""

    @property
    def below(self) -> Debugger:
        """The debugger of the runs that a run starts: its sub-agents."""

    def attach(
        self, run: Any, bridge: Any, spec: Any, journal: Listener | None, saver: Any
    ) -> Listener:
        """Return the listener of a starting run.

        Args:
            run: The `wick_graph.runtime.context.Run`.
            bridge: The bridge of its driver.
            spec: Its agent.
            journal: The listener that records it, which the returned one must call first; None
                without a journal.
            saver: The store of its thread.
        """


DEBUGGER: Final[ContextVar[Debugger | None]] = ContextVar("wick_debugger", default=None)
"""The debugger of runs that start in this context."""

EVERYWHERE: Final[list[Debugger]] = []
"""The debuggers of runs that start anywhere in this process; the last one is asked."""


def debugger_here() -> Debugger | None:
    """Return the debugger of a run that starts here: the context's own, or the process's."""
    here = DEBUGGER.get()
    return here if here is not None or not EVERYWHERE else EVERYWHERE[-1]


class NullListener:
    """A listener that ignores everything."""

    active = False
    tokens = False
    holds = False

    def record(self, moment: Moment) -> None:
        """Ignore the moment."""

    async def at(self, moment: Moment) -> Directive:
        """Continue."""
        return None


NULL_LISTENER = NullListener()


class Listeners:
    """Several listeners: each records every moment, and each may hold the run, in order."""

    active = True

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)
        self.tokens = any(listener.tokens for listener in listeners)

    @property
    def holds(self) -> bool:
        """Whether any of them may hold the run now."""
        return any(holds(listener) for listener in self._listeners)

    @staticmethod
    def of(*listeners: Listener) -> Listener:
        """Combine the active listeners: none, the only one, or a fan-out."""
        active = [listener for listener in listeners if listener.active]
        if not active:
            return NULL_LISTENER
        return active[0] if len(active) == 1 else Listeners(active)

    @staticmethod
    def without(listener: Listener, one: Any) -> Listener:
        """Return the listener without one of those that it may combine."""
        found = listener._listeners if isinstance(listener, Listeners) else (listener,)
        return Listeners.of(*(each for each in found if each is not one))

    def pieces(self, name: str, place: Place | None) -> Take | None:
        """Return what gives a piece to all of them; None if one of them wants moments."""
        made = [pieces_of(listener, name, place) for listener in self._listeners]
        takes = [take for take in made if take is not None]
        if len(takes) < len(made):
            return None

        def take(chunk: Any, text: str | None, reply: str) -> Moment | None:
            waits = None
            for one in takes:
                waits = one(chunk, text, reply) or waits
            return waits

        return take

    def record(self, moment: Moment) -> None:
        """Pass a moment to all of them."""
        for listener in self._listeners:
            listener.record(moment)

    async def at(self, moment: Moment) -> Directive:
        """Wait for all of them; the first answer decides."""
        answer: Directive = None
        for listener in self._listeners:
            said = await listener.at(moment) if holds(listener) else None
            answer = said if answer is None else answer
        return answer


def holds(listener: Listener) -> bool:
    """Return whether `at` of a listener may hold a run or answer; without `holds` it may."""
    return bool(getattr(listener, "holds", True))


class NodeListener:
    """Listener for one visit of a node: adds the place to every moment."""

    __slots__ = ("_listener", "_place", "active", "tokens")

    def __init__(self, listener: Listener, place: Place) -> None:
        self._listener, self._place = listener, place
        self.active, self.tokens = listener.active, listener.tokens

    @property
    def holds(self) -> bool:
        """Whether the listener may hold the run now."""
        return holds(self._listener)

    def pieces(self, name: str, place: Place | None = None) -> Take | None:
        """Return what takes the pieces of a reply in this visit."""
        return pieces_of(self._listener, name, self._place)

    def record(self, moment: Moment) -> None:
        """Add the place to a moment, and pass it on."""
        moment.place = self._place
        self._listener.record(moment)

    async def at(self, moment: Moment) -> Directive:
        """Hold the run if the listener wants to."""
        if not holds(self._listener):
            return None
        moment.place = self._place
        return await self._listener.at(moment)


def pieces_of(listener: Listener, name: str, place: Place | None) -> Take | None:
    """Return what takes the pieces of a model's reply; None if the listener wants moments."""
    made: Callable[[str, Place | None], Take | None] | None = getattr(listener, "pieces", None)
    return None if made is None else made(name, place)


def taker(listener: Listener, name: str) -> Take:
    """Return what takes the pieces of a reply; a moment is made only for who wants it."""
    made = pieces_of(listener, name, None)
    if made is not None:
        return made

    def take(chunk: Any, text: str | None, reply: str) -> Moment | None:
        moment = moment_of(chunk, name, reply)
        listener.record(moment)
        return moment if holds(listener) else None

    return take


def moment_of(chunk: Any, name: str, reply: str, place: Place | None = None) -> Moment:
    """Return the moment of a piece, which gets the reply's id: a model may keep its own."""
    named = chunk if chunk.id == reply else changed_copy(chunk, id=reply)
    return Moment("model", "chunk", name, {"chunk": named}, place=place)


def notify(listener: Listener, moment: Moment) -> Awaitable[Directive]:
    """Record a moment; to await the result holds the run there as long as the listener wants."""
    listener.record(moment)
    return listener.at(moment)
