"""From moments to the entries of a page: what is written of each, and how it hangs together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from wick_graph.journal.facts import Facts, Maker
from wick_graph.journal.frames import CALL, TOOL, Frame, Visit, place_row
from wick_graph.journal.layout import ENDS, EVENT, KINDS, NODES, OPENS, Entry
from wick_graph.moments import Moment, Place

Fields = dict[str, Any]

_LOST: Final = {"k": ["event", "not recorded"]}
_UNNAMED: Final = frozenset({"node", "interrupt", "route"})
"""Kinds that the place names."""
_KEYS: Final = {kind: f"{kind[0]}.{kind[1]}" for kind in KINDS}


@dataclass(slots=True)
class Counters:
    """How far a branch has come."""

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
    """How moments of a kind and phase are written down."""

    code: int
    key: str
    ends: str | None
    """What it ends."""
    opens: bool
    make: Maker | None
    named: bool


class Writer:
    """Encodes the moments of one run, in their order."""

    def __init__(self, facts: Facts, counters: Counters, started_ns: int) -> None:
        self.facts = facts
        self.counters = counters
        self._started = started_ns
        self._visits: dict[str, Visit] = {}
        self._checkpoint = ""
        self._run = Visit([])
        self._plans = {
            kind: Plan(
                code,
                _KEYS[kind],
                ENDS.get(kind),
                kind in OPENS,
                facts.makers.get(kind),
                kind[0] not in _UNNAMED,
            )
            for kind, code in KINDS.items()
        }
        self.page = 0
        """The page that is being filled, by its first moment; 0 before one is begun."""
        self.places: list[list[Any]] = []
        self.entries: list[Entry] = []

    def begin(self, first: int) -> None:
        """Begin a page."""
        self.page, self.places, self.entries = first, [], []

    def add(self, moment: Moment, taken: Any) -> None:
        """Write a moment down; `taken` is what could have changed since it happened."""
        plan = self._plans.get((moment.kind, moment.phase)) or _UNKNOWN
        place = moment.place
        visit = self._run if place is None else self._visits.get(place.task) or self._visit(place)
        visit.taken = taken
        at = (moment.at_ns - self._started) // 1000
        frames = visit.frames
        if plan.ends is None:
            around = frames[-1] if frames else self._around(visit)
            depth, up = (around.depth + 1, moment.seq - around.seq) if around else (0, 0)
            frame = Frame(moment.seq, plan.key, depth, at)
            fields = plan.make(moment, visit, frame) if plan.make is not None else {}
            if plan.opens:
                frames.append(frame)
        else:
            frame = _left(frames, plan.ends) or Frame(moment.seq, plan.ends, 0, at)
            depth, up = frame.depth, moment.seq - frame.seq
            fields = plan.make(moment, visit, frame) if plan.make is not None else {}
            fields["d"] = at - frame.at
            if frames:
                frames[-1].inner = frame.inner
        self._append(plan, moment, visit, [plan.code, at, up, depth], fields)

    def gap(self, moment: Moment) -> None:
        """Write down that something happened, where more could not be said."""
        self.entries.append([EVENT, (moment.at_ns - self._started) // 1000, 0, 0, 0, None, _LOST])

    def count_chunk(self, moment: Moment) -> None:
        """Count a piece of a reply that is streamed."""
        if moment.place is not None and (visit := self._visits.get(moment.place.task)):
            visit.chunks.append((moment.at_ns - self._started) // 1000)

    def _around(self, visit: Visit) -> Frame | None:
        """Return the run's own frame, for what is outermost in a node."""
        return self._run.frames[-1] if self._run.frames and visit is not self._run else None

    def _append(
        self, plan: Plan, moment: Moment, visit: Visit, entry: Entry, fields: Fields
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
        """Leave out what the place or the run says already."""
        if kind == "hook":
            return self.facts.hooks.get(name, name)
        if kind == "tool":
            return None if place and place[TOOL] == name else name
        return None if name in ("", self.facts.names.get(kind)) else name

    def _visit(self, place: Place) -> Visit:
        if place.checkpoint != self._checkpoint:  # what ran before has come to its end
            self._checkpoint = place.checkpoint
            self._visits = {k: v for k, v in self._visits.items() if v.frames}
        step, number = self.counters.enter(place.node)
        node = NODES.get(place.node, place.node)
        made = self._visits[place.task] = Visit(place_row(place, node, step, number))
        return made


def _left(frames: list[Frame], opener: str) -> Frame | None:
    """Take the frame that a closing moment ends, and those that nothing has ended inside of it."""
    for at in range(len(frames) - 1, -1, -1):
        if frames[at].kind == opener:
            frame = frames[at]
            del frames[at:]
            return frame
    return None


_UNKNOWN: Final = Plan(EVENT, "event.event", None, False, None, True)
