"""The engine's one window: what happened, and whether to go on.

The compiled wrappers speak to one port with two methods. `record` notes a moment; `at` is
awaited where a listener may want to hold, change or skip what comes. With `NULL_PORT` neither is
reached: each point costs one attribute look-up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, get_args

from wick_graph.core.stopping import Stopwatch
from wick_graph.errors import ConfigError

Kind = Literal["run", "node", "hook", "model", "route", "tool", "interrupt", "event"]

JournalLevel = Literal["off", "steps", "full"]
"""What a run's journal keeps: nothing, every moment, or the pieces of streamed replies too."""


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """How an agent's runs are recorded."""

    level: JournalLevel = "steps"
    redact: tuple[str, ...] = ()
    """Regular expressions of texts that are secret, beside those that are known to be."""

    @classmethod
    def of(cls, given: JournalOptions | str) -> JournalOptions:
        """Take a level, or the options themselves.

        Raises:
            ConfigError: There is no such level, or a pattern is no regular expression.
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


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a run something happens: one visit of a node."""

    node: str
    task: str
    """The superstep task that runs the node; the same after a crash."""
    checkpoint: str
    """What the superstep began from."""
    superstep: int


@dataclass(slots=True)
class Moment:
    """One thing that happened in a run, in the order in which it happened.

    Nobody changes a moment but the port of its node and the journal, each of which fills in what
    it alone knows before anybody else sees it.
    """

    kind: Kind
    phase: str
    """`enter`, `exit`, `error`, or what the kind has of its own (`request`, `chunk`, …)."""
    name: str = ""
    """The node, hook, model or tool."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """References to live objects: a listener that keeps them must copy or encode them."""
    call_id: str | None = None
    at_ns: int = field(default_factory=time.monotonic_ns)
    place: Place | None = None
    """The visit of a node that it belongs to; None for what is about the run."""
    seq: int = 0
    """Its number in the thread's journal; 0 where none is kept."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Go on with another value: a request, arguments, a result."""

    value: Any


@dataclass(frozen=True, slots=True)
class Skip:
    """Do not do it; take this as its result."""

    value: Any


@dataclass(frozen=True, slots=True)
class Abort:
    """End the run here."""

    reason: str


Directive = Replace | Skip | Abort | None
"""What a listener answers; None means: go on."""


class Port(Protocol):
    """What listens to a run."""

    @property
    def active(self) -> bool:
        """False: nobody listens, and neither method is called."""

    @property
    def tokens(self) -> bool:
        """True: replies are streamed, and each piece is a moment `model.chunk`."""

    def record(self, moment: Moment) -> None:
        """Note a moment; never raises into the run."""

    async def at(self, moment: Moment) -> Directive:
        """Hold here as long as the listener wants, then say how to go on."""


class Debugger(Protocol):
    """Who watches runs from outside, and may hold them."""

    @property
    def clock(self) -> Stopwatch | None:
        """The clock of the runs' deadlines, which stands still while one is held."""

    @property
    def below(self) -> Debugger:
        """Who watches the runs that a run begins: its sub-agents."""

    def attach(self, run: Any, io: Any, spec: Any, journal: Port | None, saver: Any) -> Port:
        """Return the port of a run that begins.

        Args:
            run: The `wick_graph.runtime.context.Run`.
            io: The leaves of its driver.
            spec: Its agent.
            journal: What records it; the port that is returned speaks to it first. None where
                nothing is recorded.
            saver: The store of its thread.
        """


DEBUGGER: Final[ContextVar[Debugger | None]] = ContextVar("wick_debugger", default=None)
"""Who watches the runs that are begun in this context."""


class NullPort:
    """Nobody listens."""

    active = False
    tokens = False
    holds = False

    def record(self, moment: Moment) -> None:
        """Ignore the moment."""

    async def at(self, moment: Moment) -> Directive:
        """Go on."""
        return None


NULL_PORT = NullPort()


class Ports:
    """Several listeners: each notes every moment, and each is asked at every stop, in order."""

    active = True

    def __init__(self, ports: Sequence[Port]) -> None:
        self._ports = tuple(ports)
        self.tokens = any(port.tokens for port in ports)

    @property
    def holds(self) -> bool:
        """Whether any of them may hold the run now."""
        return any(holds(port) for port in self._ports)

    @staticmethod
    def of(*ports: Port) -> Port:
        """Return what stands for these: none of them, the one that listens, or a fan-out."""
        active = [port for port in ports if port.active]
        if not active:
            return NULL_PORT
        return active[0] if len(active) == 1 else Ports(active)

    def record(self, moment: Moment) -> None:
        """Tell all of them."""
        for port in self._ports:
            port.record(moment)

    async def at(self, moment: Moment) -> Directive:
        """Wait for all of them; the first that says anything decides."""
        answer: Directive = None
        for port in self._ports:
            said = await port.at(moment) if holds(port) else None
            answer = said if answer is None else answer
        return answer


def holds(port: Port) -> bool:
    """Say whether `at` of a port may hold a run now, or answer; one that does not say so may."""
    return bool(getattr(port, "holds", True))


class NodePort:
    """What one visit of a node speaks to: it says of every moment where it happened."""

    __slots__ = ("_place", "_port", "active", "tokens")

    def __init__(self, port: Port, place: Place) -> None:
        self._port, self._place = port, place
        self.active, self.tokens = port.active, port.tokens

    @property
    def holds(self) -> bool:
        """Whether the listener may hold the run now."""
        return holds(self._port)

    def record(self, moment: Moment) -> None:
        """Pass a moment on."""
        moment.place = self._place
        self._port.record(moment)

    async def at(self, moment: Moment) -> Directive:
        """Hold where the listener wants to."""
        if not self.holds:
            return None
        moment.place = self._place
        return await self._port.at(moment)


async def tell(port: Port, moment: Moment) -> Directive:
    """Note a moment, and hold there as long as the listener wants."""
    port.record(moment)
    return await port.at(moment)
