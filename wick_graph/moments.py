"""The engine's one window: what happened, and whether to go on.

The compiled wrappers speak to one port with two methods. `record` notes a moment; `at` is
awaited where a listener may want to hold, change or skip what comes. With `NULL_PORT` neither is
reached: each point costs one attribute look-up.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Kind = Literal["run", "node", "hook", "model", "route", "tool", "interrupt", "event"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened in a run, in the order in which it happened."""

    kind: Kind
    phase: str
    """`enter`, `exit`, `error`, or what the kind has of its own (`request`, `chunk`, …)."""
    name: str = ""
    """The node, hook, model or tool."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """References to live objects: a listener that keeps them must copy or encode them."""
    call_id: str | None = None
    at_ns: int = field(default_factory=time.monotonic_ns)


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

    active: bool
    """False: nobody listens, and neither method is called."""
    tokens: bool
    """True: replies are streamed, and each piece is a moment `model.chunk`."""

    def record(self, moment: Moment) -> None:
        """Note a moment; never raises into the run."""

    async def at(self, moment: Moment) -> Directive:
        """Hold here as long as the listener wants, then say how to go on."""


class NullPort:
    """Nobody listens."""

    active = False
    tokens = False

    def record(self, moment: Moment) -> None:
        """Ignore the moment."""

    async def at(self, moment: Moment) -> Directive:
        """Go on."""
        return None


NULL_PORT = NullPort()
