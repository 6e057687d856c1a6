"""The journal as a listener of a run: it numbers moments and writes their pages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from wick_graph.core.moments import Directive, JournalLevel, Moment, Place, Take
from wick_graph.journal.encode import COPIED, MAKERS, FieldEncoder, Maker, MutationGuard
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
)
from wick_graph.journal.value_store import ValueStore
from wick_graph.store.dialect import Database
from wick_graph.store.journal_rows import Batch, JournalRows, RunRow
from wick_graph.store.row_format import pack_id

# --- Encode moments as entries of a page, and nest them.


Fields = dict[str, Any]

_LOST: Final = {"k": ["event", "not recorded"]}

_UNNAMED: Final = frozenset({"node", "interrupt", "route"})
"""Kinds with the same name as their place."""


@dataclass(slots=True)
class BranchCounters:
    """Counters of a branch's node visits."""

    steps: int = 0
    """Visits of nodes."""
    visits: dict[str, int] = field(default_factory=dict)
    """Visits of each node."""


class Plan(NamedTuple):
    """How to encode moments of a kind and phase."""

    make: Maker | None
    """What encodes their fields."""
    code: int
    """Their number in a page."""
    key: str
    ends: str | None
    """The kind that it ends."""
    opens: bool
    named: bool


Plans = dict[tuple[str, str], Plan]


def plans_of(makers: Mapping[tuple[str, str], Maker]) -> Plans:
    """Return how to encode moments of each kind and phase, with these makers of their fields."""
    made = {}
    for kind, code in KINDS.items():
        key, named = f"{kind[0]}.{kind[1]}", kind[0] not in _UNNAMED
        made[kind] = Plan(makers.get(kind), code, key, ENDS.get(kind), kind in OPENS, named)
    return made


PLANS: Final = plans_of(MAKERS)


def _kind_of(_: FieldEncoder, moment: Moment, visit: Visit, frame: Frame) -> Fields:
    return {"k": [moment.kind, moment.phase]}


_UNKNOWN: Final = Plan(_kind_of, EVENT, "event.event", None, False, True)


class Writer:
    """Encodes the moments of one run, in order."""

    __slots__ = (
        *("_checkpoint", "_plans", "_run", "_started", "_visits"),
        *("counters", "encoder", "entries", "page", "places"),
    )

    def __init__(
        self,
        encoder: FieldEncoder,
        counters: BranchCounters,
        started_ns: int,
        plans: Plans = PLANS,
    ) -> None:
        self.encoder = encoder
        self._plans = plans
        self.counters = counters
        self._started = started_ns
        self._visits: dict[str, Visit] = {}
        self._checkpoint = ""
        self._run = Visit([])
        """What belongs to no node; its place in a page is 0."""
        self.page = 0
        """The first moment of the open page; 0 before there is one."""
        self.places: list[list[Any]] = []
        self.entries: list[PageEntry] = []

    def begin(self, first: int) -> None:
        """Begin a page."""
        self.page = self._run.page = first
        self.places, self.entries = [], []

    def add(self, moment: Moment, taken: Any) -> None:
        """Encode a moment; `taken` is its early copy of data that hooks may have changed."""
        kind = moment.kind, moment.phase
        make, code, key, ends, opens, named = self._plans.get(kind, _UNKNOWN)
        seq, call, place = moment.seq, moment.call_id, moment.place
        visit = self._run if place is None else self._visits.get(place.task) or self._visit(place)
        visit.taken = taken
        at = (moment.at_ns - self._started) // 1000
        frames = visit.frames
        if ends is None:
            around = (_of_call(frames, call) if frames else None) or self._around(visit)
            if around is None:
                depth = up = 0
            else:
                depth, up = around.depth + 1, seq - around.seq
            frame = Frame(seq, key, depth, at, call)
        else:
            if call is None and frames and frames[-1].kind == ends:
                frame = frames.pop()
            else:
                frame = _left(frames, ends, call) or Frame(seq, ends, 0, at)
            depth, up = frame.depth, seq - frame.seq
        fields: Fields = {} if make is None else make(self.encoder, moment, visit, frame)
        if opens:
            frames.append(frame)
        elif ends is not None:
            fields["d"] = at - frame.at
            if frames and (around := _of_call(frames, call)) is not None:
                around.inner = frame.inner
        if call is not None and not (visit.place and visit.place[CALL] == call):
            fields["i"] = call
        name = self._shortened(moment, visit.place) if named else None
        index = visit.index if visit.page == self.page else self._put(visit)
        entry: PageEntry = [code, at, up, depth, index]
        if fields:
            entry += (name, fields)
        elif name is not None:
            entry.append(name)
        self.entries.append(entry)

    def gap(self, moment: Moment) -> None:
        """Record a moment that could not be encoded."""
        self.entries.append([EVENT, (moment.at_ns - self._started) // 1000, 0, 0, 0, None, _LOST])

    def count_chunk(self, moment: Moment) -> None:
        """Count a piece of a streamed reply, or all that its moment is going to count."""
        if moment.kind != "model":
            return
        if moment.place is not None and (visit := self._visits.get(moment.place.task)):
            at = (moment.at_ns - self._started) // 1000
            if visit.chunks is None:
                visit.chunks = []
            visit.chunks.append((at, moment.data.get("count", _ONE)))

    def _around(self, visit: Visit) -> Frame | None:
        """Return the frame around what is outermost in a node: the outer node's, or the run's."""
        outer = self._visits.get(visit.within) if visit.within else None
        if outer is not None and outer.frames:
            return outer.frames[-1]
        return self._run.frames[-1] if self._run.frames and visit is not self._run else None

    def _put(self, visit: Visit) -> int:
        """Put a visit's place into the open page; return its number there."""
        visit.page = self.page
        self.places.append(visit.place)
        visit.index = len(self.places)  # 0 is no place
        return visit.index

    def _shortened(self, moment: Moment, place: list[Any]) -> Any:
        """Return a moment's name, or None for one that the place or the run implies."""
        kind, name = moment.kind, moment.name
        if kind == "hook":
            return self.encoder.hooks.get(name, name)
        if kind == "tool":
            return None if place and place[TOOL] == name else name
        return None if name in ("", self.encoder.names.get(kind)) else name

    def _visit(self, place: Place) -> Visit:
        node, task, checkpoint, superstep, within = place
        if checkpoint != self._checkpoint:  # the previous ones have ended
            self._checkpoint = checkpoint
            self._visits = {k: v for k, v in self._visits.items() if v.frames}
        counters = self.counters
        counters.steps = step = counters.steps + 1
        counters.visits[node] = number = counters.visits.get(node, 0) + 1
        ids = pack_id(task), pack_id(checkpoint)  # remembered: the store packs them too
        row = [NODES.get(node, node), *ids, superstep, step, number, None, None]
        made = self._visits[task] = Visit(row, within)
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


# --- The journal as a listener: it numbers moments, and its pages join the run's own commits.
#
# The journal makes no commits of its own during a run. The store calls `along` in each transaction
# under the run's lease: a step's checkpoint, a tool call's intent, its result, the end of the run.
# So moments are committed together with their subject, without additional commits.


_log: Final = logging.getLogger(__name__)

_ENDS: Final = ("exit", "error")


class JournalListener:
    """Records one run of a thread."""

    __slots__ = (
        *("_about", "_before", "_dirty", "_full", "_guard", "_last", "_lock", "_rows", "_run"),
        *("_thread", "_values", "_waiting", "_writer", "__weakref__"),
    )
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
        self._waiting: list[Any] = []
        """Moment, its early copy, moment, …: hundreds of runs have some that wait."""
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
        taken = None
        if moment.kind in COPIED:
            if moment.kind == "model" and moment.phase == "chunk":
                if not moment.data["chunk"].content:  # of a call, which the reply has whole
                    return
                if not self._full:  # it is only counted
                    with self._lock:
                        self._waiting += (moment, None)
                    return
            taken = self._guard.of_moment(moment)
        with self._lock:
            self._last = moment.seq = self._last + 1
            self._waiting += (moment, taken)

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
                self._waiting += (moment, None)

        return take

    async def at(self, moment: Moment) -> Directive:
        """Continue."""
        return None

    def along(self, db: Database) -> None:
        """Write the new moments, in the caller's transaction."""
        is_new = self._waiting or self._dirty
        if not is_new and self._before is None and not self._rows.is_unsure:
            return
        batches = self._take_before()
        if is_new:
            with self._lock:
                waiting, self._waiting = self._waiting, []
                batches.append(self._batch(waiting))
        self._rows.write(db, self._thread, *batches)

    def write_before(self, db: Database) -> None:
        """Write the rest of the previous run, once."""
        self._rows.write(db, self._thread, *self._take_before())

    def _take_before(self) -> list[Batch]:
        before, self._before = self._before, None
        return [] if before is None else [before]

    def write(self, db: Database, thread: int, waiting: list[Any], last: int) -> int:
        """Number moments from `last` on and write them; return the number of the last one.

        `thread` is the thread's number now: the transaction that made the thread may have failed.
        `waiting` is moment, its early copy, moment, …
        """
        for moment in waiting[::2]:
            if moment.phase != "chunk" or self._full:
                last += 1
                moment.seq = last
        self._last = last
        self._rows.write(db, thread, self._batch(waiting))
        return last

    def flush(self) -> None:
        """Commit the recorded moments now, for a debugger that holds the run."""
        self._rows.flush(self.along)

    async def aflush(self) -> None:
        """Do `flush` in the store's thread."""
        await self._rows.aflush(self.along)

    def _batch(self, waiting: list[Any]) -> Batch:
        writer, batch = self._writer, Batch()
        first = next(filter(None, [moment.seq for moment in waiting[::2]]), 0)
        writer.begin(first)
        for moment, taken in zip(waiting[::2], waiting[1::2], strict=True):
            if moment.phase == "chunk":
                writer.count_chunk(moment)
                if not moment.seq:
                    continue
            try:
                writer.add(moment, taken)
            except Exception:  # an error of the journal never ends a run
                _log.exception("a moment was not recorded: %s %s", moment.kind, moment.phase)
                writer.gap(moment)
            if moment.kind == "run" and moment.phase in _ENDS:
                self._close(moment)
        if writer.entries:
            content = pack_page(self._run.number, first, writer.places, writer.entries)
            batch.page, batch.first = (first + len(writer.entries) - 1, content), first
        batch.blobs = self._values.take()
        if len(seen := self._values.mask.seen) > len(self._about.get("secrets", ())):
            self._about["secrets"], self._dirty = [*seen], True
        if self._dirty:
            self._run.body = pack_about(self._about)
            batch.run, self._dirty = self._run, False
        writer.begin(0)
        return batch

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
