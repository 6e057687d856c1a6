"""Types shared by the debugger's parts: stops, lines of output, frames, places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from wick_graph.journal.entry import Entry

At = str | Entry | None
"""A moment: a position's text, the moment itself, or None for the cursor's."""

Door = Literal["sync", "async"]
"""How a session calls its graph: by `invoke` or `ainvoke`."""

How = Literal["continue", "keep", "abort"]
"""Effect of `detach` on a run."""

_OUTPUTS: Final = 10_000
"""Limit of kept lines of output."""

When = Literal["at", "before", "after"]
"""Where a request is, seen from a moment: at it, the last before it, or the next one."""

Reason = Literal[
    "entry",
    "step",
    "breakpoint",
    "watch",
    "catch",
    "condition-error",
    "goto",
    "until",
    "pause",
    "end",
    "start",
    "interrupt",
    "divergence",
    "ask",
    "finished",
    "failed",
    "cancelled",
    "durable",
]
"""Why a session stopped."""

Mode = Literal[
    "LIVE running", "LIVE stopped (volatile)", "LIVE stopped (durable)", "PAST", "REPLAY", "FORK"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A stop of a session, with its reason."""

    reason: Reason
    entry: Entry | None
    position: str
    mode: Mode
    breakpoint: int | None = None
    """The breakpoint that stopped it."""
    text: str = ""
    """One line for people."""
    moved: bool = True
    """False if there was nothing more in that direction."""


@dataclass(frozen=True, slots=True)
class Output:
    """A line of output by a log point or the session."""

    seq: int
    kind: Literal["log", "note"]
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the stack at a moment."""

    depth: int
    text: str
    kind: str
    name: str
    seq: int
    """The moment that opened it."""


class Outputs(list[Output]):
    """The newest lines of output, also passed to listeners."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[Callable[[Output], Any]] = []

    def listen(self, listener: Callable[[Output], Any]) -> None:
        """Call a function with each line of output as it comes."""
        self._listeners.append(listener)

    def say(self, output: Output) -> None:
        """Keep a line, and pass it to the listeners."""
        self.append(output)
        del self[:-_OUTPUTS]
        for listener in self._listeners:
            listener(output)
