"""The cursor over a recording: its place, and the next place at which a verb stops.

Moves execute nothing, and the cursor knows no live run. `depth` is a moment's depth in the frames
of its node visit. Among parallel visits, `next` and `finish` stay in their own until it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from wick_graph.debug.breakpoints import BreakpointSet, Hit
from wick_graph.debug.timeline import Position, Timeline
from wick_graph.debug.types import At, Reason
from wick_graph.debug.view import Names, View, ViewCache
from wick_graph.errors import DebugError, ExpressionError
from wick_graph.expressions import compile_expression
from wick_graph.journal.entry import GAP, Entry
from wick_graph.journal.journal import Journal

_STEPS_BACK: Final = 1_000
"""Limit of moves that can be undone."""

_BACK: Final[dict[str, str]] = {
    "step": "reverse_step",
    "next": "reverse_next",
    "finish": "reverse_finish",
    "nextnode": "prevnode",
    "turn": "prevturn",
    "cont": "reverse_cont",
    "until": "reverse_until",
    "next_error": "prev_error",
}

INVERSE: Final = {**_BACK, **{back: there for there, back in _BACK.items()}}
"""Each verb and its inverse."""

BACKWARDS: Final = frozenset(_BACK.values())

VERBS: Final[dict[str, str]] = {
    **{name: name for name in INVERSE},
    **{name.replace("_", "-"): name for name in INVERSE},
    **{"s": "step", "n": "next", "fin": "finish", "f": "finish", "nn": "nextnode", "tu": "turn"},
    **{"t": "turn", "c": "cont", "continue": "cont", "pn": "prevnode", "pt": "prevturn"},
    **{"rs": "reverse_step", "rn": "reverse_next", "rf": "reverse_finish", "rc": "reverse_cont"},
    **{"reverse-continue": "reverse_cont", "reverse_continue": "reverse_cont"},
    **{"first": "first", "last": "last", "pause": "pause", "out": "finish", "over": "next"},
    **{"ru": "reverse_until", "u": "until"},
}
"""Names for `DebugSession.verb`, gdb's and its abbreviations included, with their verbs."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of a verb."""

    verb: str
    fits: Callable[[Entry], bool]
    test: Callable[[View], bool] | None = None
    """Second check on the view of a moment, if `fits` alone cannot decide."""
    text: str = ""

    @property
    def backwards(self) -> bool:
        """Whether it searches towards the beginning."""
        return self.verb in BACKWARDS

    @property
    def reason(self) -> Reason:
        """The reason of a stop at this goal."""
        return "step" if self.test is None else "until"

    def reached(self, view: View) -> bool:
        """Return whether a moment meets the goal."""
        return self.fits(view.entry) and (self.test is None or self.test(view))


class Landing(NamedTuple):
    """The end of a move, where the cursor is now."""

    reason: Reason
    text: str = ""
    breakpoint: int | None = None
    """The breakpoint that stopped it."""
    moved: bool = True


@dataclass(frozen=True, slots=True)
class AtEnd:
    """No recorded moment in this direction meets the goal; the cursor has not moved."""

    goal: Goal


class Cursor:
    """A place in a recording, and the moves to it."""

    def __init__(self, views: ViewCache, breakpoints: BreakpointSet) -> None:
        self.views = views
        self.timeline = views.timeline
        """The moments of the cursor's branch."""
        self.breakpoints = breakpoints
        self.at = 0 if len(views.timeline) else -1
        self._path: list[tuple[int, Goal, int]] = []
        """Moves that can be undone: origin, verb, destination."""
        self._stops = breakpoints.version
        """The breakpoints' version at the time of these moves."""

    @property
    def here(self) -> Entry | None:
        """The moment of the cursor."""
        entries, at = self.timeline.entries, self.at  # another thread may replace both
        return entries[at] if 0 <= at < len(entries) else None

    @property
    def last(self) -> int:
        """The place of the last moment, -1 if there is none."""
        return len(self.timeline) - 1

    # --- the recording ---------------------------------------------------------------------------

    def look_at(self, journal: Journal | None, timeline: Timeline) -> None:
        """Replace the recording."""
        self.views, self.timeline = ViewCache(journal, timeline, self.views.json), timeline
        self._path.clear()
        self.at = min(self.at, self.last)

    def follow(self, journal: Journal, timeline: Timeline) -> None:
        """Switch to the branch of a starting run, to its end if the cursor has a place."""
        was = self.at
        self.look_at(journal, timeline)
        self.at = min(was, self.last) if was < 0 else self.last

    def reload(self, timeline: Timeline) -> None:
        """Replace the live moments of a finished run by its recording."""
        here, was, path = self.here, [entry.seq for entry in self.timeline.entries], self._path[:]
        self.look_at(self.views.journal, timeline)
        place = None if here is None else timeline.place(here.seq)
        self.at = self.last if place is None else place
        if was == [entry.seq for entry in timeline.entries]:
            self._path = path

    # --- places ----------------------------------------------------------------------------------

    def view(self, at: At | int = None) -> View:
        """Return the view of a moment.

        Raises:
            DebugError: There is none.
        """
        place = at if isinstance(at, int) else self.place(at)
        if not 0 <= place < len(self.timeline):
            raise DebugError("nothing is recorded here")
        return self.views.view(place)

    def place(self, at: At) -> int:
        """Return the place of a moment in the timeline.

        Raises:
            DebugError: It is on another branch, or of another thread.
        """
        if at is None:
            return self.at
        branch, thread_id = self.timeline.branch, self.timeline.thread_id
        if isinstance(at, Entry):
            place = self.timeline.place(at.seq)
            if place is None:
                raise DebugError(f"moment #{at.seq} is not on branch b{branch}")
            return place
        wanted = Position.read(at)
        if wanted.thread not in (None, thread_id):
            raise DebugError(f"this session is about thread {thread_id}, not {wanted.thread}")
        if wanted.branch not in (None, branch):
            raise DebugError(f"the cursor is on branch b{branch}; choose b{wanted.branch} first")
        return self.timeline.find(wanted)

    def position(self, place: int | None = None) -> Position:
        """Return the position of a place, by default the cursor's."""
        place, timeline = self.at if place is None else place, self.timeline
        if 0 <= place < len(timeline.entries):
            return timeline.position(place)
        return Position(timeline.thread_id, timeline.branch, seq=0)

    # --- moving ----------------------------------------------------------------------------------

    def move(self, goal: Goal) -> Landing | AtEnd:
        """Move to the next recorded moment at a goal or a breakpoint."""
        if self._takes_back(goal):
            return self.land(self._path.pop()[0], "step", "back where it came from")
        found = self._scan(goal)
        if found is None:
            return AtEnd(goal)
        place, hit = found
        self.remember(self.at, goal, place)
        if hit is None:
            return self.land(place, goal.reason)
        reason, text = self.breakpoints.stop_for(hit)
        return self.land(place, reason, text, hit.breakpoint.number)

    def land(
        self, place: int, reason: Reason, text: str = "", breakpoint: int | None = None
    ) -> Landing:
        """Set the cursor's place."""
        moved, self.at = place != self.at, place
        return Landing(reason, text, breakpoint, moved)

    def jump(self, at: At) -> Landing:
        """Move to a position; earlier moves can no longer be undone.

        Raises:
            DebugError: There is no such position.
        """
        place = self.place(at)
        self._path.clear()
        return self.land(place, "goto")

    def go_to_edge(self, goal: Goal) -> Landing:
        """Stop at the edge of the recording, if no moment meets the goal."""
        if goal.verb in ("next_error", "prev_error"):
            text = "no more errors are recorded in this direction"
            return self.land(self.at, "start" if goal.backwards else "end", text)
        edge = min(0, self.last) if goal.backwards else self.last
        if edge != self.at:
            self.remember(self.at, goal, edge)
        text = f"{'beginning' if goal.backwards else 'end'} of the recording"
        if goal.text:
            text = f"{goal.text} was true at no moment; {text}"
        return self.land(edge, "start" if goal.backwards else "end", text)

    def remember(self, before: int, goal: Goal, place: int) -> None:
        """Remember a move, so that its inverse returns exactly to its origin."""
        if before < 0:  # there is no place before the first moment
            return
        if self._stops != self.breakpoints.version:
            self._forget()
        path = self._path
        path.append((before, goal, place))
        if len(path) > _STEPS_BACK:
            del path[0]

    def _takes_back(self, goal: Goal) -> bool:
        if self._stops != self.breakpoints.version:
            self._forget()
        if not self._path:
            return False
        _, came, place = self._path[-1]
        return place == self.at and INVERSE[came.verb] == goal.verb and came.text == goal.text

    def _forget(self) -> None:
        """Forget the moves: with other breakpoints, a move back may stop elsewhere."""
        self._stops = self.breakpoints.version
        self._path.clear()

    def _scan(self, goal: Goal) -> tuple[int, Hit | None] | None:
        """Find the first place at a goal or a breakpoint; log points write on the way."""
        at, forwards = self.at, not goal.backwards
        places = range(at + 1, len(self.timeline.entries)) if forwards else range(at - 1, -1, -1)
        views, check = self.views, self.breakpoints.check
        for place in places:
            view = views.view(place)
            hit = check(view, forwards)
            if hit is not None or (goal.fits(view.entry) and (not goal.test or goal.test(view))):
                return place, hit
        return None


# --- verbs ---------------------------------------------------------------------------------------


def goal_of(verb: str, here: Entry | None) -> Goal:
    """Return the goal of a verb from a moment; None is before the first one."""
    return Goal(verb, _MAKERS[verb](verb, here))


def until_true(verb: str, text: str) -> Goal:
    """Return the goal that an expression is true.

    Raises:
        ExpressionError: It is not an expression.
    """
    expression = compile_expression(text)

    def holds(view: View) -> bool:
        try:
            return bool(expression.evaluate(Names(view)))
        except ExpressionError:  # one of its names is unknown at this moment
            return False

    return Goal(verb, lambda entry: True, test=holds, text=text)


def _any(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return lambda entry: True


def _never(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return lambda entry: False


def _over(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return _within(here, 0, backwards=verb in BACKWARDS)


def _out(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return _within(here, -1, backwards=verb in BACKWARDS)


def _within(here: Entry | None, more: int, *, backwards: bool) -> Callable[[Entry], bool]:
    """Accept moments at most as deep: in the same visit until it ends, anywhere after it."""
    if here is None:
        return lambda entry: True
    # The moments of the run itself are beside its nodes: `next` goes from there to the first node.
    depth = max(here.depth, 1) + more
    task, checkpoint = here.task, here.checkpoint
    edges = ("node.enter",) if backwards else ("node.exit", "node.error")
    outside = task is None or here.what in edges or depth < 1

    def fits(entry: Entry) -> bool:
        if entry.kind == GAP:
            return True
        if outside or entry.task == task or entry.checkpoint != checkpoint:
            return entry.depth <= depth
        return False

    return fits


def _node(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return lambda entry: entry.what == "node.enter" or entry.kind == "checkpoint"


def _turn(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return lambda entry: entry.what == "model.request"


def _error(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return lambda entry: entry.is_bad


_MAKERS: Final[dict[str, Callable[[str, Entry | None], Callable[[Entry], bool]]]] = {
    **dict.fromkeys(("step", "reverse_step"), _any),
    **dict.fromkeys(("next", "reverse_next"), _over),
    **dict.fromkeys(("finish", "reverse_finish"), _out),
    **dict.fromkeys(("nextnode", "prevnode"), _node),
    **dict.fromkeys(("turn", "prevturn"), _turn),
    **dict.fromkeys(("cont", "reverse_cont"), _never),
    **dict.fromkeys(("next_error", "prev_error"), _error),
}
