"""Moments and runs as read from the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from wick_graph.journal.page_format import (
    AT,
    CALL,
    DEPTH,
    ENDS,
    EVENT,
    FIELDS,
    KIND_OF,
    NAME,
    NODE_OF,
    PHASE_OF,
    PLACE,
    TOOL,
    UP,
    PageContent,
)
from wick_graph.journal.value_store import Mark
from wick_graph.store.row_format import unpack_id

_LEFT: Final = ("GraphInterrupt", "GraphBubbleUp")

_SIGNALS: Final = (*_LEFT, "CancelledError", "RunCancelled")
"""Prefixes of errors that only signal: they end a run that is left or cancelled."""

GAP: Final = "gap"
"""The kind of an entry for missing, damaged or unknown moments."""

UNKNOWN: Final = "unknown"
"""The phase of a gap for a moment with a number of a later release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of a thread in its journal."""

    thread_id: str
    number: int
    """Counted from 1 in its thread."""
    run_id: str
    branch: int
    """0, and one more for each fork."""
    status: str
    """`running`, `ended`, `failed`, or `lost` with its process."""
    stopped_because: str | None
    mode: str
    """`input`, `answer`, `resume` or `update`."""
    started: datetime
    ended: datetime | None
    agent: str
    model: str
    level: str
    first: int
    """Its first moment."""
    last: int | None
    """Its last moment; None while it runs."""
    base: str | None
    """The checkpoint that it began from."""
    hooks: tuple[str, ...]
    graph_hash: str
    code_hash: str
    versions: Mapping[str, str]
    shape: Mapping[str, Any] = field(default_factory=dict)
    """Of a graph that is not an agent's: `channels` with the kind of each, `nodes`, `lacks`."""
    end: str | None = None
    """The last checkpoint of such a run."""
    damaged: bool = False
    """Its row is damaged; most fields are unknown."""
    redact: tuple[str, ...] = ()
    """Patterns of hidden texts."""
    secrets: tuple[Mark, ...] = ()
    """Marks of the known secrets that are in the thread's state unhidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One recorded moment."""

    thread_id: str
    seq: int
    run: int
    run_id: str
    branch: int
    kind: str
    phase: str
    name: str
    """The node, hook, model or tool."""
    hook_phase: str | None
    node: str | None
    task: str | None
    checkpoint: str | None
    """The checkpoint from which its node's superstep began."""
    superstep: int | None
    step: int
    """Number of the node's visit among all visits of its branch, from 1; 0 outside of nodes."""
    visit: int
    """Number of the visit among those of its node."""
    call_id: str | None
    tool: str | None
    """The tool of its call."""
    parent: int | None
    """The moment around it, or the one that it ends."""
    depth: int
    at: datetime
    at_us: int
    """Microseconds since the run began, by the monotonic clock."""
    duration_us: int | None
    """Duration in microseconds, for moments that end something."""
    error: str | None
    """Class and text of the error."""
    fields: Mapping[str, Any] = field(repr=False, default_factory=dict)
    """Further fields in the journal's own form; `Journal.details` reads them."""

    @property
    def what(self) -> str:
        """Kind and phase."""
        return f"{self.kind}.{self.phase}"

    @property
    def is_call(self) -> bool:
        """Whether a tool is about to run; the nodes of other graphs have no later moment for it."""
        own = self.phase == "enter" and "a" in self.fields
        return self.kind == "tool" and (self.phase == "call" or own)

    @property
    def level(self) -> str:
        """The nodes around its own: empty for a node of the outermost graph."""
        return (self.node or "").rpartition("/")[0]

    @property
    def is_end(self) -> bool:
        """Whether it ends what its parent began."""
        return (self.kind, self.phase) in ENDS or self.phase == "lost"

    @property
    def status(self) -> str:
        """`ok`, `error`, or `lost`."""
        if self.phase == "lost" or self.kind == GAP:
            return "lost"
        failed = self.error is not None or bool(self.fields.get("z"))
        return "error" if failed else "ok"

    @property
    def is_left(self) -> bool:
        """Whether the run was left here to be continued: for later, or waiting for an answer."""
        return self.status == "error" and (self.error or "").startswith(_LEFT)

    @property
    def fails(self) -> bool:
        """Whether it is an error, and the run was neither left nor cancelled."""
        return self.status == "error" and not (self.error or "").startswith(_SIGNALS)

    @property
    def is_bad(self) -> bool:
        """Whether it is an error, or its outcome is unknown."""
        return self.fails or self.status == "lost"


def entry_of(content: PageContent, at: int, run: RunRecord) -> Entry:
    """Decode one entry of a page; a gap if it holds a number of a later release."""
    raw = content.entries[at]
    seq, at_us = content.first + at, raw[AT]
    fields: Mapping[str, Any] = raw[FIELDS] if len(raw) > FIELDS else {}
    place = content.places[raw[PLACE] - 1] if raw[PLACE] else None
    name = raw[NAME] if len(raw) > NAME else None
    date = datetime.fromtimestamp(run.started.timestamp() + at_us / 1e6, UTC)
    try:
        kind, phase = KIND_OF[raw[0]]
        if kind == "event":  # its fields hold its kind, or the kind that it closes
            kind, phase = fields["k"] if raw[0] == EVENT else (fields["k"][0], "lost")
        hook_phase = PHASE_OF[fields["p"]] if kind == "hook" and "p" in fields else None
        node = None if place is None else place[0]
        node = NODE_OF[node] if isinstance(node, int) else node
    except KeyError:
        return gap_of(run.thread_id, seq, seq, UNKNOWN, date)
    error = fields.get("e")
    if error is not None and error[0] in _LEFT:
        error = error[:1]  # earlier releases kept the question as text, with its secret fields
    return Entry(
        thread_id=run.thread_id,
        seq=seq,
        run=run.number,
        run_id=run.run_id,
        branch=run.branch,
        kind=kind,
        phase=phase,
        name=_name(kind, name, place, node, run),
        hook_phase=hook_phase,
        node=node,
        task=None if place is None else unpack_id(place[1]),
        checkpoint=None if place is None else unpack_id(place[2]),
        superstep=None if place is None else place[3],
        step=0 if place is None else place[4],
        visit=0 if place is None else place[5],
        call_id=fields.get("i") or (place[CALL] if place is not None else None),
        tool=None if place is None else place[TOOL],
        parent=seq - raw[UP] if raw[UP] else None,
        depth=raw[DEPTH],
        at=date,
        at_us=at_us,
        duration_us=fields.get("d"),
        error=None if error is None else ": ".join(part for part in error if part),
        fields=fields,
    )


def gap_of(thread_id: str, first: int, last: int, why: str, at: datetime) -> Entry:
    """Make the entry for moments that cannot be read."""
    count = "1 moment is" if first == last else f"{last - first + 1} moments are"
    remedy = "; a later release of wick_graph wrote it: upgrade" if why == UNKNOWN else ""
    return Entry(
        thread_id=thread_id,
        seq=last,
        run=0,
        run_id="",
        branch=0,
        kind=GAP,
        phase=why,
        name="",
        hook_phase=None,
        node=None,
        task=None,
        checkpoint=None,
        superstep=None,
        step=0,
        visit=0,
        call_id=None,
        tool=None,
        parent=None,
        depth=0,
        at=at,
        at_us=0,
        duration_us=None,
        error=f"{count} {why} here, from {first}{remedy}",
        fields={"first": first},
    )


def _name(kind: str, name: Any, place: list[Any] | None, node: str | None, run: RunRecord) -> str:
    if kind == "hook" and isinstance(name, int):
        return run.hooks[name] if name < len(run.hooks) else f"hook {name}"
    if name is not None:
        return str(name)
    if kind == "tool":
        return str(place[TOOL]) if place is not None and place[TOOL] else ""
    if kind == "route":
        return "route"
    return {"node": node, "interrupt": node, "model": run.model, "run": run.agent}.get(kind) or ""
