"""What the parts of the debugger give each other: stops, lines of output, frames, places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wick_graph.journal.entry import Entry

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
"""Why a session stands where it does."""
Mode = Literal[
    "LIVE running", "LIVE stopped (volatile)", "LIVE stopped (durable)", "PAST", "REPLAY", "FORK"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where a session stands, and why."""

    reason: Reason
    entry: Entry | None
    position: str
    mode: Mode
    breakpoint: int | None = None
    """The breakpoint that stopped it."""
    text: str = ""
    """One line for people."""
    moved: bool = True
    """False where there was nothing more in that direction."""


@dataclass(frozen=True, slots=True)
class Output:
    """A line that a log point or the session itself said."""

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
