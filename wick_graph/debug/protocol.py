"""What the debugger's faces for programs say: one typed form for each answer, as JSON.

The page speaks it over HTTP; other faces may speak it over a pipe. `schema` describes all of it.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

from wick_graph.debug.types import Mode, Reason, When
from wick_graph.debug.values import Op

MOST: Final = 500
"""Limit of the items of one answer."""

Verb = Literal[
    "step",
    "next",
    "finish",
    "nextnode",
    "turn",
    "cont",
    "next_error",
    "reverse_step",
    "reverse_next",
    "reverse_finish",
    "prevnode",
    "prevturn",
    "reverse_cont",
    "prev_error",
    "first",
    "last",
]
"""A move over a recording; it executes nothing."""


class Answer(BaseModel):
    """An answer; every value in it is shown: without secrets, and cut to a bounded size."""

    model_config = ConfigDict(extra="forbid")


class MomentRow(Answer):
    """A moment in a list."""

    seq: int
    """Its number; moments are ordered by it alone."""
    run: int
    branch: int
    step: int
    """The visit of a node, from 1; 0 outside of nodes."""
    depth: int
    kind: str
    phase: str
    name: str
    hook_phase: str | None
    node: str | None
    tool: str | None
    call_id: str | None
    status: Literal["ok", "error", "lost"]
    is_left: bool
    """Whether the run was left here to be continued."""
    at_us: int
    """Microseconds since its run began."""
    duration_us: int | None
    error: str | None


class MomentPage(Answer):
    """Moments in order."""

    moments: list[MomentRow]
    last: int
    """The number of the thread's last moment."""


class OverviewAnswer(Answer):
    """The moments of a recording to look at first, by their numbers."""

    last: int
    errors: list[int]
    interrupts: list[int]
    forks: list[int]
    runs: list[int]
    """Where runs began."""


class RunRow(Answer):
    """A run of the thread."""

    number: int
    run_id: str
    branch: int
    mode: str
    status: str
    stopped_because: str | None
    agent: str
    model: str
    level: str
    started: str
    ended: str | None
    first: int
    last: int | None


class RecordingAnswer(Answer):
    """A thread's recording."""

    thread_id: str
    last: int
    """The number of its last moment, 0 without any."""
    runs: list[RunRow]
    notes: list[str]
    """What a reader has to know: lost runs, other code, a missing journal."""


class FrameRow(Answer):
    """One frame of the stack."""

    depth: int
    text: str
    kind: str
    name: str
    seq: int


class MomentAnswer(Answer):
    """A moment with all that is recorded of it."""

    moment: MomentRow
    position: str
    line: str
    facts: dict[str, Any]
    stack: list[FrameRow]
    """The innermost frame first."""
    call: dict[str, Any] | None
    """The tool call that it belongs to."""


class RequestAnswer(Answer):
    """The request of a moment: its own, the last before it, or the next one."""

    seq: int
    position: str
    when: When
    exact: bool
    note: str
    model: str
    purpose: str
    tools: list[str]
    settings: Any
    messages: int
    """How many messages it has; `blame` lists them."""


class PartRow(Answer):
    """One part of a request, and its source."""

    part: str
    index: int
    op: str
    by: str
    seq: int | None
    """The moment at which it was added or dropped."""
    name: str
    value: Any


class BlameAnswer(Answer):
    """The parts of a request, in the order in which the model got them."""

    seq: int
    parts: list[PartRow]
    offset: int
    total: int


class ChangeRow(Answer):
    """One difference between two states."""

    path: str
    op: Op
    before: Any
    after: Any


class DiffAnswer(Answer):
    """The differences that a step made, or between two moments."""

    changes: list[ChangeRow]
    at: int
    """The moment with all of them in its state: `why` knows them there."""


class WriteRow(Answer):
    """A write of the running superstep that the state does not include yet."""

    channel: str
    node: str | None
    seq: int
    value: Any


class WritesAnswer(Answer):
    """The pending writes at a moment."""

    writes: list[WriteRow]


class CauseRow(Answer):
    """One link of the chain behind a value."""

    position: str
    seq: int
    text: str
    by: str
    thread_id: str
    """The thread of `position` and `seq`, if it is another one; else empty."""


class WhyAnswer(Answer):
    """The causes of a value, the nearest first."""

    path: str
    causes: list[CauseRow]


class RouteAnswer(Answer):
    """A decision of the router: the moment's own, the last before, or the next one."""

    seq: int
    position: str
    chosen: str
    reason: str
    candidates: list[Any]
    calls: int
    """Tool calls of the reply."""


class TokenRow(Answer):
    """The usage of one model call, and the total so far."""

    position: str
    model: str
    input: int
    output: int
    total: int


class TokensAnswer(Answer):
    """The usage of the model calls of a branch: the last ones."""

    rows: list[TokenRow]
    total: int


class ValueAnswer(Answer):
    """The state at a moment, or the value at a path in it."""

    path: str
    value: Any
    offset: int
    total: int | None
    """Number of all items of a list or an object."""


class PlannedRow(Answer):
    """One execution that a fork from a moment would make."""

    step: int
    node: str
    kind: Literal["node", "model", "tool", "question"]
    name: str
    policy: str
    recorded: bool
    side_effects: bool
    tokens: int | None
    text: str
    edited: bool = False


class PreviewAnswer(Answer):
    """What a fork from a moment would execute; nothing has been executed."""

    at: int
    will_execute: list[PlannedRow]
    total: int


class StopAnswer(Answer):
    """Where a move ended."""

    reason: Reason
    seq: int | None
    position: str
    mode: Mode
    text: str
    moved: bool
    breakpoint: int | None


class BreakpointRow(Answer):
    """A breakpoint of a session."""

    number: int
    spec: str
    hits: int


class SessionAnswer(Answer):
    """A session: a cursor over a recording or a held run, with breakpoints."""

    session: str
    thread_id: str
    """The thread that it shows: of a fork, the copy; of a sub-agent, its own."""
    seq: int | None
    position: str
    mode: Mode
    held: bool
    """Whether code waits for the session."""
    executes: bool
    """Whether the next move forwards executes something."""
    executed: tuple[int, int]
    """Real calls of models and of tools in the last fork."""
    breakpoints: list[BreakpointRow]


class ConsoleAnswer(Answer):
    """The reply to a command of the debugger."""

    lines: list[str]
    error: str
    """Why the command was refused, or empty."""
    running: bool
    """Whether it still goes on; ask again."""
    stop: StopAnswer | None
    plan: list[PlannedRow]
    """What `live` would execute; empty unless a fork is prepared."""
    session: SessionAnswer


class CompareRow(Answer):
    """One visit of a node in two runs."""

    node: str
    visit: int
    a: str | None
    b: str | None
    same: bool
    part: str


class CompareAnswer(Answer):
    """Two runs side by side, visit by visit."""

    first: str | None
    """The first difference; None if there is none."""
    rows: list[CompareRow]
    total: int
    tokens: tuple[int, int]
    seconds: tuple[float, float]


class BlobAnswer(Answer):
    """A piece of a text that was cut."""

    hash: str
    offset: int
    text: str
    total: int
    """Characters of the whole text."""


class Hit(Answer):
    """A moment that a search found."""

    seq: int
    line: str


ANSWERS: Final[tuple[type[Answer], ...]] = (
    *(MomentPage, RecordingAnswer, MomentAnswer, RequestAnswer, BlameAnswer, DiffAnswer),
    *(WritesAnswer, WhyAnswer, ValueAnswer, PreviewAnswer, StopAnswer, SessionAnswer),
    *(BlobAnswer, Hit, ConsoleAnswer, CompareAnswer, OverviewAnswer, RouteAnswer, TokensAnswer),
)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all answers."""
    _, made = models_json_schema([(one, "serialization") for one in ANSWERS])
    return made
