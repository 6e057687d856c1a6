"""The cursor over a recording: where it stands, and how it finds the next place to stop at.

Moving never executes anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from wick_graph.debug.breakpoints import Breakpoint, Hit
from wick_graph.debug.moves import INVERSE, Goal
from wick_graph.debug.timeline import Branch, BranchReader, Position, Timeline
from wick_graph.debug.types import Mode, Output, Reason, Stop
from wick_graph.debug.values import JsonView
from wick_graph.debug.view import View, ViewCache
from wick_graph.errors import DebugError
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.show import line_from

_STEPS_BACK: Final = 1_000
"""Moves that can be taken back."""
_OUTPUTS: Final = 10_000
"""BranchReader of output that are kept."""
_KINDS: Final[dict[str, Reason]] = {"break": "breakpoint", "watch": "watch", "catch": "catch"}
At = str | Entry | None
"""A moment: a position's text, the moment itself, or None for where the cursor stands."""


class Cursor:
    """A place in a recording."""

    def __init__(self, journal: Journal | None, timeline: Timeline, agent: Any = None) -> None:
        self.agent = agent
        """The agent that may run, if one was given."""
        self.journal = journal
        self.banners: list[str] = []
        """What is to be known of the recording, one sentence each."""
        self.outputs: list[Output] = []
        """What log points said, and notes of the session."""
        self.last_stop: Stop | None = None
        self._timeline = timeline
        self._json = JsonView()
        self._views = ViewCache(journal, timeline, self._json)
        self._at = 0 if len(timeline) else -1
        self._path: list[tuple[int, Goal, int]] = []
        """The moves that brought the cursor here: from where, by which verb, to where."""
        self._breaks: dict[int, Breakpoint] = {}
        self._numbers = count(1)
        self._told: list[Callable[[Output], Any]] = []
        self._cond = threading.Condition(threading.RLock())

    @property
    def thread_id(self) -> str | None:
        """The thread that is looked at; None before its first run."""
        return self._timeline.thread_id

    @property
    def branch(self) -> int:
        """The branch that the cursor is on."""
        return self._timeline.branch

    @property
    def here(self) -> Entry | None:
        """The moment of the cursor."""
        return self._timeline.entries[self._at] if 0 <= self._at < len(self._timeline) else None

    @property
    def position(self) -> Position:
        """The cursor's place, as it is written."""
        return self._position(self._at)

    @property
    def mode(self) -> Mode:
        """Whether code runs, waits, or is over."""
        return "PAST"

    def moments(self, kind: str | None = None) -> list[Entry]:
        """List the moments of the branch, all or those of a kind such as `tool` or `tool.exit`."""
        with self._cond:
            return [e for e in self._timeline.entries if kind is None or kind in (e.kind, e.what)]

    def locate(self, text: str) -> Entry:
        """Return the moment at a position.

        Raises:
            DebugError: There is none.
        """
        return self._timeline.entries[self._place(text)]

    def line(self, entry: Entry) -> str:
        """Return one line of text for a moment."""
        with self._cond:
            place = self._timeline.place(entry.seq)
            if place is not None:
                return line_from(entry, self._views.view(place).told)
        return line_from(entry, {} if self.journal is None else self.journal.details(entry))

    def on_output(self, tell: Callable[[Output], Any]) -> None:
        """Have a function told of each line of output as it comes."""
        self._told.append(tell)

    # --- branches --------------------------------------------------------------------------------

    def branches(self) -> list[Branch]:
        """List the branches of the thread, the oldest first."""
        return [] if self.journal is None else BranchReader(self.journal).branches()

    def choose(self, branch: int) -> Stop:
        """Look at another branch; the cursor stays where the two are one, or goes to its end.

        Raises:
            DebugError: There is no such branch.
        """
        if self.journal is None:
            raise DebugError("this thread has one branch alone")
        with self._cond:
            here = self.here
            self._look_at(BranchReader(self.journal).timeline(branch))
            place = None if here is None else self._timeline.place(here.seq)
            return self._stand(len(self._timeline) - 1 if place is None else place, "goto", "")

    def _look_at(self, timeline: Timeline) -> None:
        """Take another recording in the place of this one."""
        self._timeline = timeline
        self._views = ViewCache(self.journal, timeline, self._json)
        self._path.clear()
        self._at = min(self._at, len(timeline) - 1)

    # --- moving ----------------------------------------------------------------------------------

    def _move(self, goal: Goal, timeout: float | None) -> Stop:
        with self._cond:
            if self._path and self._path[-1][2] == self._at:
                before, came, _ = self._path[-1]
                if INVERSE[came.verb] == goal.verb and came.text == goal.text:
                    self._path.pop()
                    return self._stand(before, "step", "back where it came from")
            found = self._scan(goal, self._at)
            if found is not None:
                return self._arrive(goal, *found)
            return self._at_the_end(goal, timeout)

    def _at_the_end(self, goal: Goal, timeout: float | None) -> Stop:
        """Stop where nothing more is recorded; a live run goes on from there instead."""
        last = len(self._timeline) - 1
        edge = min(0, last) if goal.backwards else last
        if goal.verb in ("next_error", "prev_error"):
            edge = self._at
        before, self._at = self._at, edge
        if edge != before:
            self._pushed(before, goal, edge)
        way = "start" if goal.backwards else "end"
        text = f"{way if way == 'end' else 'beginning'} of the recording"
        if goal.text:
            text = f"{goal.text} was true at no moment; {text}"
        if goal.verb in ("next_error", "prev_error"):
            text = "no more errors are recorded in this direction"
        return self._said(way, text, moved=edge != before)  # type: ignore[arg-type]  # two reasons

    def _arrive(self, goal: Goal, place: int, hit: Hit | None) -> Stop:
        self._pushed(self._at, goal, place)
        if hit is not None:
            return self._hit(place, hit)
        return self._stand(place, "until" if goal.test is not None else "step", "")

    def _hit(self, place: int, hit: Hit) -> Stop:
        reason, text = self._reason(hit)
        return self._stand(place, reason, text, breakpoint=hit.breakpoint.number)

    def _reason(self, hit: Hit) -> tuple[Reason, str]:
        """Say why a breakpoint stops; one that stops only once is gone with that."""
        found = hit.breakpoint
        if found.temporary:
            self._breaks.pop(found.number, None)
        word = _KINDS.get(found.kind, "breakpoint")
        text = f"{word} {found.number}, {found.location}"
        if hit.problem:
            return "condition-error", f"{text}: {hit.problem}"
        return word, text

    def _scan(self, goal: Goal, start: int) -> tuple[int, Hit | None] | None:
        """Find the first place that a goal or a breakpoint fits; log points speak on the way."""
        places: Sequence[int] = range(start + 1, len(self._timeline))
        if goal.backwards:
            places = range(start - 1, -1, -1)
        for place in places:
            view = self._views.view(place)
            hit = self._stopped_by(view, forwards=not goal.backwards) if goal.stops else None
            if hit is not None or self._fits(goal, view):
                return place, hit
        return None

    def _fits(self, goal: Goal, view: View) -> bool:
        return goal.fits(view.entry) and (goal.test is None or goal.test(view))

    def _stopped_by(self, view: View, *, forwards: bool) -> Hit | None:
        """Ask every breakpoint, so that each counts its hits; the first that stops decides."""
        stopped: Hit | None = None
        for found in list(self._breaks.values()):
            if found.kind == "log" and not forwards:
                continue
            hit = found.check(view, counts=forwards)
            if hit is None:
                continue
            if found.kind == "log" and not hit.problem:
                self._say(Output(view.entry.seq, "log", found.said(view)))
            elif stopped is None:
                stopped = hit
        return stopped

    def _stand(
        self, place: int, reason: Reason, text: str, *, breakpoint: int | None = None
    ) -> Stop:
        """Put the cursor somewhere and say so."""
        moved, self._at = place != self._at, place
        return self._said(reason, text, breakpoint=breakpoint, moved=moved)

    def _said(
        self, reason: Reason, text: str, *, breakpoint: int | None = None, moved: bool = True
    ) -> Stop:
        self.last_stop = Stop(
            reason=reason,
            entry=self.here,
            position=str(self.position),
            mode=self.mode,
            breakpoint=breakpoint,
            text=text,
            moved=moved,
        )
        self._cond.notify_all()
        return self.last_stop

    def _paused(self) -> Stop:
        raise DebugError("nothing runs that could be paused")

    def _pushed(self, before: int, goal: Goal, place: int) -> None:
        if before < 0:  # nothing stands before the first moment that could be gone back to
            return
        self._path.append((before, goal, place))
        del self._path[:-_STEPS_BACK]

    def _say(self, output: Output) -> None:
        self.outputs.append(output)
        del self.outputs[:-_OUTPUTS]
        for tell in self._told:
            tell(output)

    # --- places ----------------------------------------------------------------------------------

    def _view(self, at: At | int = None) -> View:
        """Return the view of a moment.

        Raises:
            DebugError: There is none.
        """
        place = at if isinstance(at, int) else self._place(at)
        if not 0 <= place < len(self._timeline):
            raise DebugError("nothing is recorded here")
        return self._views.view(place)

    def _place(self, at: At) -> int:
        if at is None:
            return self._at
        if isinstance(at, Entry):
            place = self._timeline.place(at.seq)
            if place is None:
                raise DebugError(f"moment #{at.seq} is not on branch b{self.branch}")
            return place
        wanted = Position.read(at)
        if wanted.thread not in (None, self.thread_id):
            raise DebugError(f"this session is about thread {self.thread_id}, not {wanted.thread}")
        if wanted.branch not in (None, self.branch):
            raise DebugError(
                f"the cursor is on branch b{self.branch}; choose b{wanted.branch} first"
            )
        return self._timeline.find(wanted)

    def _position(self, place: int) -> Position:
        if not 0 <= place < len(self._timeline):
            return Position(self.thread_id, self.branch, seq=0)
        return self._timeline.position(place)
