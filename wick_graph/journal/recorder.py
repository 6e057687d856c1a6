"""The journal as a listener of a run: it numbers moments and writes their pages."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from typing import Any, Final

from wick_graph.core.moments import Directive, JournalLevel, Moment, Place, Take
from wick_graph.journal.encode import FieldEncoder, MutationGuard
from wick_graph.journal.page_format import (
    CALL,
    ENDS,
    EVENT,
    KINDS,
    NODES,
    OPENS,
    TOOL,
    Frame,
    PageEntry,
    Visit,
    pack_about,
    pack_page,
    place_row,
)
from wick_graph.journal.value_store import ValueStore
from wick_graph.store.dialect import Database
from wick_graph.store.journal_rows import Batch, JournalRows, RunRow

# --- Encode moments as entries of a page, and nest them.


Fields = dict[str, Any]

_LOST: Final = {"k": ["event", "not recorded"]}

_UNNAMED: Final = frozenset({"node", "interrupt", "route"})
"""Kinds with the same name as their place."""

_KEYS: Final = {kind: f"{kind[0]}.{kind[1]}" for kind in KINDS}


@dataclass(slots=True)
class BranchCounters:
    """Counters of a branch's node visits."""

    steps: int = 0
    """Visits of nodes."""
    visits: dict[str, int] = field(default_factory=dict)
    """Visits of each node."""

    def enter(self, node: str) -> tuple[int, int]:
        """Count a visit; return its number among all, and among those of its node."""
        self.steps += 1
        self.visits[node] = visit = self.visits.get(node, 0) + 1
        return self.steps, visit


@dataclass(frozen=True, slots=True)
class Plan:
    """How to encode moments of a kind and phase."""

    key: str
    ends: str | None
    """The kind that it ends."""
    opens: bool
    named: bool


_PLANS: Final = {
    kind: Plan(_KEYS[kind], ENDS.get(kind), kind in OPENS, kind[0] not in _UNNAMED)
    for kind in KINDS
}


class Writer:
    """Encodes the moments of one run, in order."""

    def __init__(self, encoder: FieldEncoder, counters: BranchCounters, started_ns: int) -> None:
        self.encoder = encoder
        self.counters = counters
        self._started = started_ns
        self._visits: dict[str, Visit] = {}
        self._checkpoint = ""
        self._run = Visit([])
        self.page = 0
        """The first moment of the open page; 0 before there is one."""
        self.places: list[list[Any]] = []
        self.entries: list[PageEntry] = []

    def begin(self, first: int) -> None:
        """Begin a page."""
        self.page, self.places, self.entries = first, [], []

    def add(self, moment: Moment, taken: Any) -> None:
        """Encode a moment; `taken` is its early copy of data that hooks may have changed."""
        kind = moment.kind, moment.phase
        plan, make = _PLANS.get(kind) or _UNKNOWN, self.encoder.makers.get(kind)
        place = moment.place
        visit = self._run if place is None else self._visits.get(place.task) or self._visit(place)
        visit.taken = taken
        at = (moment.at_ns - self._started) // 1000
        frames = visit.frames
        if plan.ends is None:
            around = _of_call(frames, moment.call_id) or self._around(visit)
            depth, up = (around.depth + 1, moment.seq - around.seq) if around else (0, 0)
            frame = Frame(moment.seq, plan.key, depth, at, call=moment.call_id)
            fields = make(self.encoder, moment, visit, frame) if make is not None else {}
            if plan.opens:
                frames.append(frame)
        else:
            left = _left(frames, plan.ends, moment.call_id)
            frame = left or Frame(moment.seq, plan.ends, 0, at)
            depth, up = frame.depth, moment.seq - frame.seq
            fields = make(self.encoder, moment, visit, frame) if make is not None else {}
            fields["d"] = at - frame.at
            if (around := _of_call(frames, moment.call_id)) is not None:
                around.inner = frame.inner
        self._append(plan, moment, visit, [KINDS.get(kind, EVENT), at, up, depth], fields)

    def gap(self, moment: Moment) -> None:
        """Record a moment that could not be encoded."""
        self.entries.append([EVENT, (moment.at_ns - self._started) // 1000, 0, 0, 0, None, _LOST])

    def count_chunk(self, moment: Moment) -> None:
        """Count a piece of a streamed reply, or all that its moment is going to count."""
        if moment.place is not None and (visit := self._visits.get(moment.place.task)):
            at = (moment.at_ns - self._started) // 1000
            visit.chunks.append((at, moment.data.get("count", _ONE)))

    def _around(self, visit: Visit) -> Frame | None:
        """Return the frame around what is outermost in a node: the outer node's, or the run's."""
        outer = self._visits.get(visit.within) if visit.within else None
        if outer is not None and outer.frames:
            return outer.frames[-1]
        return self._run.frames[-1] if self._run.frames and visit is not self._run else None

    def _append(
        self, plan: Plan, moment: Moment, visit: Visit, entry: PageEntry, fields: Fields
    ) -> None:
        if plan is _UNKNOWN:
            fields["k"] = [moment.kind, moment.phase]
        call, place = moment.call_id, visit.place
        if visit is self._run:
            entry.append(0)
            if call is not None:
                fields["i"] = call
        else:
            if visit.page != self.page:
                visit.page = self.page
                self.places.append(place)
                visit.index = len(self.places)  # 0 is no place
            entry.append(visit.index)
            if call is not None and place[CALL] != call:
                fields["i"] = call
        name = moment.name if plan.named else None
        if name is not None:
            name = self._shortened(moment.kind, name, place)
        if fields:
            entry += (name, fields)
        elif name is not None:
            entry.append(name)
        self.entries.append(entry)

    def _shortened(self, kind: str, name: str, place: list[Any]) -> Any:
        """Return None for a name that the place or the run implies."""
        if kind == "hook":
            return self.encoder.hooks.get(name, name)
        if kind == "tool":
            return None if place and place[TOOL] == name else name
        return None if name in ("", self.encoder.names.get(kind)) else name

    def _visit(self, place: Place) -> Visit:
        if place.checkpoint != self._checkpoint:  # the previous ones have ended
            self._checkpoint = place.checkpoint
            self._visits = {k: v for k, v in self._visits.items() if v.frames}
        step, number = self.counters.enter(place.node)
        node = NODES.get(place.node, place.node)
        row = place_row(place, node, step, number)
        made = self._visits[place.task] = Visit(row, within=place.within)
        return made


def _of_call(frames: list[Frame], call: str | None) -> Frame | None:
    """Return the innermost frame, not one of a call beside this one."""
    for frame in reversed(frames):
        if call is None or frame.call in (None, call):
            return frame
    return None


def _left(frames: list[Frame], opener: str, call: str | None) -> Frame | None:
    """Remove the frame that a closing moment ends, and the open frames inside it.

    The frames of calls beside it stay.
    """
    for at in range(len(frames) - 1, -1, -1):
        frame = frames[at]
        if frame.kind == opener and (call is None or frame.call in (None, call)):
            beside = [f for f in frames[at + 1 :] if call and f.call not in (None, call)]
            frames[at:] = beside
            return frame
    return None


_ONE: Final = [1]

_UNKNOWN: Final = Plan("event.event", None, False, True)


# --- The journal as a listener: it numbers moments, and its pages join the run's own commits.
#
# The journal makes no commits of its own during a run. The store calls `along` in each transaction
# under the run's lease: a step's checkpoint, a tool call's intent, its result, the end of the run.
# So moments are committed together with their subject, without additional commits.


_log: Final = logging.getLogger(__name__)

_ENDS: Final = {("run", "exit"), ("run", "error")}


class JournalListener:
    """Records one run of a thread."""

    active = True
    tokens = False
    holds = False

    def __init__(
        self,
        rows: JournalRows,
        thread: int,
        *,
        level: JournalLevel,
        writer: Writer,
        values: ValueStore,
        run: RunRow,
        about: dict[str, Any],
        last: int,
        before: Batch | None = None,
        guard: MutationGuard | None = None,
    ) -> None:
        self._rows = rows
        self._thread = thread
        self._full = level == "full"
        self._writer = writer
        self._values = values
        self._run = run
        self._about = about
        self._last = last
        self._before = before
        """The previous run's unwritten rest: its closing moments, and its row."""
        self._guard = guard or MutationGuard()
        self._dirty = True
        """Whether the run's row must be written."""
        self._waiting: list[tuple[Moment, Any]] = []
        self._lock = threading.Lock()

    @property
    def last(self) -> int:
        """The number of the last moment."""
        return self._last

    def continue_keys(self, last: Any) -> Any:
        """Compute the keys of requests on from those of the thread's last run, if there are any."""
        encoder = self._writer.encoder
        if last is not None and last.continues(encoder.keys):
            encoder.keys = last
        return encoder.keys

    def row(self) -> RunRow:
        """Return the run's row as it will be written."""
        return replace(self._run, body=pack_about(self._about))

    def counters(self) -> BranchCounters:
        """Return the branch's counters at the start of the run."""
        return BranchCounters(self._about["steps"], dict(self._about["visits"]))

    def keep(self, name: str, value: Any) -> bool:
        """Keep data with the run's row from the next commit on; return whether it is kept.

        Data with a secret, too large data and unserialisable data is not kept.
        """
        with self._lock:
            whole = self._values.holds_whole(value)
            self._about[name] = self._values.keep(value) if whole else b""
            self._dirty = True
        return whole

    @property
    def run(self) -> RunRow:
        """The run's row."""
        return self._run

    def record(self, moment: Moment) -> None:
        """Number a moment and keep it until the next commit."""
        piece = moment.phase == "chunk" and moment.kind == "model"
        if piece and not moment.data["chunk"].content:  # of a call, which the reply has whole
            return
        with self._lock:
            if not piece or self._full:
                self._last += 1
                moment.seq = self._last
            self._waiting.append((moment, self._guard.of_moment(moment)))

    def pieces(self, name: str, place: Place | None) -> Take | None:
        """Return what counts the pieces of a reply; None at the level `full`."""
        if self._full:
            return None
        count: list[int] = []

        def take(chunk: Any, text: str | None, _: str) -> None:
            if not (text or chunk.content):  # of a call, which the reply has whole
                return
            if count:
                count[0] += 1
                return
            count.append(1)
            moment = Moment("model", "chunk", name, {"count": count}, place=place)
            with self._lock:
                self._waiting.append((moment, None))

        return take

    async def at(self, moment: Moment) -> Directive:
        """Continue."""
        return None

    def along(self, db: Database) -> None:
        """Write the new moments, in the caller's transaction."""
        if not self._waiting and not self._dirty:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, []
            batch = self._batch(waiting)
        self.write_before(db)
        self._rows.write(db, self._thread, batch)

    def write_before(self, db: Database) -> None:
        """Write the rest of the previous run, once."""
        before, self._before = self._before, None
        if before is not None:
            self._rows.write(db, self._thread, before)

    def write(self, db: Database, waiting: list[tuple[Moment, Any]], last: int) -> int:
        """Number moments from `last` on and write them; return the number of the last one."""
        for moment, _ in waiting:
            if moment.phase != "chunk" or self._full:
                last += 1
                moment.seq = last
        self._last = last
        self._rows.write(db, self._thread, self._batch(waiting))
        return last

    def flush(self) -> None:
        """Commit the recorded moments now, for a debugger that holds the run."""
        self._rows.flush(self.along)

    async def aflush(self) -> None:
        """Do `flush` in the store's thread."""
        await self._rows.aflush(self.along)

    def _batch(self, waiting: list[tuple[Moment, Any]]) -> Batch:
        writer, batch = self._writer, Batch()
        first = next((moment.seq for moment, _ in waiting if moment.seq), 0)
        writer.begin(first)
        for moment, taken in waiting:
            self._write(moment, taken)
        if writer.entries:
            content = pack_page(self._run.number, first, writer.places, writer.entries)
            batch.page = first + len(writer.entries) - 1, content
        batch.blobs = self._values.take()
        if len(seen := self._values.mask.seen) > len(self._about.get("secrets", ())):
            self._about["secrets"], self._dirty = [*seen], True
        if self._dirty:
            self._run.body = pack_about(self._about)
            batch.run, self._dirty = self._run, False
        writer.begin(0)
        return batch

    def _write(self, moment: Moment, taken: Any) -> None:
        """Encode a moment; an error of the journal is logged, and never ends a run."""
        if moment.phase == "chunk" and moment.kind == "model":
            self._writer.count_chunk(moment)
        if not moment.seq:
            return
        try:
            self._writer.add(moment, taken)
        except Exception:
            _log.exception("a moment was not recorded: %s %s", moment.kind, moment.phase)
            self._writer.gap(moment)
        if (moment.kind, moment.phase) in _ENDS:
            self._close(moment)

    def _close(self, moment: Moment) -> None:
        counters = self._writer.counters
        self._about |= moment.data.get("about") or {}
        self._about |= {
            "last": moment.seq,
            "steps": counters.steps,
            "visits": counters.visits,
            "stopped": moment.data.get("stopped_because") or "done",
        }
        self._run.status = "failed" if moment.phase == "error" else "ended"
        self._run.ended = self._rows.now()
        self._dirty = True
