"""From moments to the entries of a page: what is written of each, and how it hangs together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from wick_graph.journal import layout
from wick_graph.journal.facts import Facts
from wick_graph.journal.frames import CALL, TOOL, Frame, Visit, place_row
from wick_graph.journal.layout import CODES, ENDS, EVENT, NODE_CODES, OPENS, Entry
from wick_graph.moments import Moment, Place

Fields = dict[str, Any]

_LOST: Final = {"k": ["event", "not recorded"]}
_KEYS: Final = {kind: f"{kind[0]}.{kind[1]}" for kind in layout.KINDS}


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


class Writer:
    """Encodes the moments of one run, in their order."""

    def __init__(self, facts: Facts, counters: Counters, started_ns: int) -> None:
        self.facts = facts
        self.counters = counters
        self._started = started_ns
        self._visits: dict[str, Visit] = {}
        self._checkpoint = ""
        self._run = Visit([])
        self.page = 0
        """The page that is being filled, by its first moment; 0 before one is begun."""
        self.places: list[list[Any]] = []
        self.entries: list[Entry] = []

    def begin(self, first: int) -> None:
        """Begin a page."""
        self.page, self.places, self.entries = first, [], []

    def add(self, moment: Moment) -> None:
        """Write a moment down."""
        kind = (moment.kind, moment.phase)
        visit = self._run if moment.place is None else self._visit(moment.place, kind)
        at = (moment.at_ns - self._started) // 1000
        frames = visit.frames
        opener = ENDS.get(kind)
        if opener is None:
            around = frames[-1] if frames else None
            frame = Frame(moment.seq, _KEYS.get(kind, ""), 0, at)
            fields = self._fields(kind, moment, visit, frame)
            if around is None and visit is not self._run and self._run.frames:
                around = self._run.frames[-1]
            frame.depth = 0 if around is None else around.depth + 1
            up = 0 if around is None else moment.seq - around.seq
            if kind in OPENS:
                frames.append(frame)
        else:
            frame = _left(frames, opener) or Frame(moment.seq, opener, 0, at)
            up = moment.seq - frame.seq
            fields = self._fields(kind, moment, visit, frame)
            fields["d"] = at - frame.at
            if frames:
                frames[-1].inner = frame.inner
        self._append(kind, moment, visit, (at, up, frame.depth), fields)

    def gap(self, moment: Moment) -> None:
        """Write down that something happened, where more could not be said."""
        self.entries.append([EVENT, (moment.at_ns - self._started) // 1000, 0, 0, 0, None, _LOST])

    def count_chunk(self, moment: Moment) -> None:
        """Count a piece of a reply that is streamed."""
        if moment.place is not None and (visit := self._visits.get(moment.place.task)):
            visit.chunks.append((moment.at_ns - self._started) // 1000)

    def _fields(self, kind: tuple[str, str], moment: Moment, visit: Visit, frame: Frame) -> Fields:
        make = self.facts.makers.get(kind)
        return {} if make is None else make(moment, visit, frame)

    def _append(
        self,
        kind: tuple[str, str],
        moment: Moment,
        visit: Visit,
        where: tuple[int, int, int],
        fields: Fields,
    ) -> None:
        code = CODES.get(kind, EVENT)
        if code == EVENT:
            fields["k"] = list(kind)
        place = 0 if visit is self._run else self._place(visit)
        call = moment.call_id
        if call is not None and (visit is self._run or visit.place[CALL] != call):
            fields["i"] = call
        name = self._name(kind[0], moment.name, visit)
        entry: Entry = [code, *where, place]
        if fields:
            entry += (name, fields)
        elif name is not None:
            entry.append(name)
        self.entries.append(entry)

    def _place(self, visit: Visit) -> int:
        if visit.page != self.page:
            visit.page = self.page
            self.places.append(visit.place)
            visit.index = len(self.places)  # 0 is no place
        return visit.index

    def _name(self, kind: str, name: str, visit: Visit) -> Any:
        """Leave out what the place or the run says already."""
        if kind in ("node", "interrupt", "route"):
            return None
        if kind == "hook":
            return self.facts.hooks.get(name, name)
        if kind == "tool":
            return None if visit.place and visit.place[TOOL] == name else name
        return None if name == self.facts.names.get(kind) else name

    def _visit(self, place: Place, kind: tuple[str, str]) -> Visit:
        visit = self._visits.get(place.task)
        if visit is not None:
            return visit
        if place.checkpoint != self._checkpoint:  # what ran before has come to its end
            self._checkpoint = place.checkpoint
            self._visits = {k: v for k, v in self._visits.items() if v.frames}
        step, number = self.counters.enter(place.node)
        node = NODE_CODES.get(place.node, place.node)
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


Maker = Callable[[Moment, Visit, Frame], Fields]
Makers = Mapping[tuple[str, str], Maker]
