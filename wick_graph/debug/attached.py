"""A live run as a session sees it: what it records, where it is held, and how it ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from wick_graph.debug.breakpoints import Hit
from wick_graph.debug.comparing import Comparing
from wick_graph.debug.gate import EXIT_HANDLERS, ChildRuns, Decide, Gate, Held, Listing
from wick_graph.debug.kept import FACT
from wick_graph.debug.moves import Goal, goal_of
from wick_graph.debug.timeline import BranchReader, Timeline
from wick_graph.debug.types import Mode, Reason, Stop
from wick_graph.errors import DebugError
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.moments import Moment, Port
from wick_graph.pausing import Stopwatch
from wick_graph.runtime import Run
from wick_graph.store.saver import SqlSaver

_OVER: dict[str, Reason] = {
    "failed": "failed",
    "cancelled": "cancelled",
    "interrupted": "interrupt",
}
Judgement = tuple[int, Reason, str, int | None]
"""The place of a stop, why, a sentence, and the breakpoint."""
Label = Literal["LIVE", "FORK", "REPLAY"]


class Under(NamedTuple):
    """What a run of the session's own goes on under."""

    decide: Decide | None = None
    """What answers its calls in their place."""
    forked: dict[str, Any] | None = None
    """What the fork that is run was made with, as data; its run keeps it."""
    label: Label = "LIVE"


PLAIN: Final = Under()


class Attached(Comparing):
    """Takes part in runs."""

    def __init__(self, journal: Journal | None, timeline: Timeline, agent: Any = None) -> None:
        super().__init__(journal, timeline, agent)
        self.clock = Stopwatch()
        """The clock of the runs' deadlines: it stands still while they are held."""
        self.below = ChildRuns(self)
        """Watches the runs that the session's run begins: its sub-agents."""
        self.keeping = False
        """The run is to end at its next safe place, so that any process can go on with it."""
        self.result: Any = None
        """What the last run that the session started gave: the graph's output."""
        self.error: BaseException | None = None
        """What ended the last run that the session started, if an error did."""
        self.stop_callback: tuple[Callable[..., Any], bool] | None = None
        self._close: Callable[[], None] = lambda: None
        self._read_only = False
        self._state: Literal["none", "running", "stopped"] = "none"
        self._goal: Goal | None = None
        self._origin = -1
        self._untold: tuple[Reason, str] | None = None
        """How a run ended while the session stood at one of its last moments."""
        self._unled = False
        """The session has stopped, and nothing that is held has said so yet."""
        self._held: dict[int, Held] = {}
        self._free = False
        self._pause = False
        self._under = PLAIN
        """What the last run that the session started went on under; no other's does."""
        self._is_kept: bool | None = None
        """Whether its run keeps what a fork was made with; None where none goes on."""
        self._own = False
        self._run: Run | None = None
        self._has_store = True
        """The run's thread is in a store, in which it can be kept for later."""
        self._over_alone = 0
        """Runs of others that were over and that nobody has waited for."""
        self._durable = False

    def _refuse_file(self) -> None:
        """Refuse to run something where a file is looked at: its thread may be somebody's.

        Raises:
            DebugError: The session is over a file.
        """
        if self._read_only:
            raise DebugError("this is a file; open the thread's database to run something")

    @property
    def held(self) -> bool:
        """Whether code waits for the session."""
        return self._state == "stopped"

    @property
    def mode(self) -> Mode:
        """Whether code runs, waits, or is over."""
        if self._state == "running":
            return "LIVE running"
        if self._state == "stopped":
            first = min(self._held, default=0)
            here = self.here
            if here is not None and here.seq < first:
                return "PAST"
            label = self._under.label if self._own else "LIVE"
            return "LIVE stopped (volatile)" if label == "LIVE" else label
        if self._durable and self._at == len(self._timeline) - 1:
            return "LIVE stopped (durable)"
        return "PAST"

    # --- what the engine calls -------------------------------------------------------------------

    def attach(self, run: Run, io: Any, spec: Any, journal: Any, saver: Any) -> Port:
        """Take part in a run that begins; the engine calls this.

        Raises:
            DebugError: The session is busy with another run.
        """
        with self._cond:
            if self._run is not None and self._run is not run:
                raise DebugError("this session holds another run; make a session for each")
            last = self._timeline.entries[-1].seq if len(self._timeline) else 0
            under, self._is_kept = self._under if self._own else PLAIN, None
            if under.forked is not None:
                self._is_kept = journal is not None and journal.keep(FACT, under.forked)
            listing = Listing(run, journal, spec.name, last)
            if journal is not None and isinstance(saver, SqlSaver):
                self.journal = Journal(saver, run.thread_id or "")
                self._show_line(listing)
            else:
                self._timeline.thread_id = run.thread_id
            EXIT_HANDLERS.add(self)
            if self._run is None:
                self._free = self.keeping = False
            self._run, self._state, self._has_store = run, "running", saver is not None
            self._untold = None
            self._durable = False
            if self._goal is None:
                self._goal = goal_of("step", None)
            return Gate(self, run, io, journal, listing, under.decide)

    def _show_line(self, listing: Listing) -> None:
        """Show what came before the run on its branch."""
        assert self.journal is not None
        lines = BranchReader(self.journal)
        lines.runs.append(listing.record)
        at = self._at
        self._look_at(lines.timeline(listing.record.branch))
        self._at = min(at, len(self._timeline) - 1) if at < 0 else len(self._timeline) - 1

    def heard(self, entry: Entry, moment: Moment, held: Held | None) -> None:
        """Take a moment into the recording, and decide whether the run stops there.

        Moments come in their order, one at a time. `held` is what can be held at this one; where
        nothing can, whatever goes on is held at its next moment.
        """
        with self._cond:
            place = self._timeline.add(entry)
            self._views.live[entry.seq] = moment
            left = self._free or self.keeping
            if self._state == "running" and not left:
                stop = self._judged(place, held)
                if stop is not None:
                    self._stopped(*stop)
            if held is not None and self._state == "stopped" and not left:
                self._held[entry.seq] = held
            if _ends_run(entry) and not self._own:
                self._over(str(moment.data.get("stopped_because") or "done"))

    def is_held(self, held: Held) -> bool:
        """Say whether a call is to wait; the first that does leads."""
        with self._cond:
            if self._held.get(held.entry.seq) is not held:
                return False
            held.leads, self._unled = self._unled, False
            return True

    def gone(self, held: Held) -> None:
        """Forget a call that goes on."""
        with self._cond:
            self._held.pop(held.entry.seq, None)

    def leave(self, timeout: float | None = None) -> None:
        """Hold no run any more; it goes on without the session."""
        self.let_go()

    def let_go(self) -> None:
        """Hold the run no more: whoever is to say how to go on has failed."""
        with self._cond:
            self._free = True
            self._release(None)

    def command(self, verb: str) -> Stop | None:
        """Move, without waiting for a run that goes on; None where it does."""
        with self._cond:
            if verb.startswith("until "):
                return self._until("until", verb[len("until ") :], 0)
            return self.verb(verb, timeout=0)

    # --- judging ---------------------------------------------------------------------------------

    def _judged(self, place: int, held: Held | None) -> Judgement | None:
        try:
            return self._judge(place, held)
        except Exception as error:  # no mistake of a watcher's ends what is watched
            text = f"it cannot be said whether to stop here: {type(error).__name__}: {error}"
            return place, "condition-error", text, None

    def _judge(self, place: int, held: Held | None) -> Judgement | None:
        view, goal = self._views.view(place), self._goal
        hit = self._stopped_by(view, forwards=True) if self._stops(goal) else None
        if held is not None and held.question is not None:
            return place, held.question.reason, held.question.text, None
        if self._pause and held is not None:
            self._pause = False
            return place, "pause", "paused", None
        if hit is not None:
            reason, text = self._reason(hit)
            return place, reason, text, hit.breakpoint.number
        if goal is not None and self._fits(goal, view) and not _ends_run(view.entry):
            reason = "until" if goal.test is not None else "step"
            return place, "entry" if view.entry.what == "run.enter" else reason, "", None
        return None

    def _stops(self, goal: Goal | None) -> bool:
        return goal is None or goal.stops

    def _stopped(self, place: int, reason: Reason, text: str, breakpoint: int | None) -> None:
        self._state, self._unled = "stopped", True
        self.clock.hold()
        if self._goal is not None:
            self._pushed(self._origin, self._goal, place)
        self._stand(place, reason, text, breakpoint=breakpoint)

    # --- moving ----------------------------------------------------------------------------------

    def _at_the_end(self, goal: Goal, timeout: float | None) -> Stop:
        if goal.backwards or self._run is None or goal.verb == "next_error":
            told, self._untold = None if goal.backwards else self._untold, None
            if told is not None:
                return self._stand(len(self._timeline) - 1, *told)
            return super()._at_the_end(goal, timeout)
        self._release(goal)
        return self._await(timeout)

    def _arrive(self, goal: Goal, place: int, hit: Hit | None) -> Stop:
        stop = super()._arrive(goal, place, hit)
        if self._untold is None or hit is not None or not _ends_run(stop.entry):
            return stop
        told, self._untold = self._untold, None
        return self._stand(place, *told)

    def _release(self, goal: Goal | None) -> None:
        """Let everything that is held go on, until the goal is reached."""
        asked = [held for held in self._held.values() if held.is_open]
        if goal is not None and asked:  # what is asked comes before everything else
            self._ask(min(asked, key=lambda held: held.entry.seq))
            return
        self._goal, self._origin = goal, self._at
        self._state = "running"
        self.clock.go()
        self.below.release()
        for held in list(self._held.values()):
            held.release()
        self._held.clear()

    def _ask(self, held: Held) -> None:
        place, question = self._timeline.place(held.entry.seq), held.question
        if place is not None and question is not None:
            self._stand(place, question.reason, question.text)

    def _await(self, timeout: float | None) -> Stop:
        """Wait until the run is held again, or over.

        Raises:
            DebugError: It takes longer than `timeout`; the run goes on.
        """
        if timeout == 0:
            return None  # type: ignore[return-value]  # for `command` alone, which says so
        if not self._cond.wait_for(lambda: self._state != "running", timeout):
            raise DebugError(f"the run goes on after {timeout:g} s; pause it, or wait longer")
        assert self.last_stop is not None
        self._over_alone = 0
        return self.last_stop

    def pause(self) -> bool:
        """Ask a run that goes on to stop at its next moment; False where none does.

        It waits for nothing, so a signal's handler may call it.
        """
        self._pause = self._state == "running"
        return self._pause

    def _paused(self) -> Stop:
        with self._cond:
            return self._await(None) if self.pause() else super()._paused()

    def choose(self, branch: int) -> Stop:
        """Look at another branch; see `Cursor.choose`.

        Raises:
            DebugError: There is no such branch, or a run goes on on this one.
        """
        with self._cond:
            if self._run is None:
                return super().choose(branch)
            if branch != self.branch:
                raise DebugError(
                    f"a run goes on on branch b{self.branch}; leave it or end it first, "
                    f"or look at b{branch} in a session of its own"
                )
            return self._stand(self._at, "goto", "")

    def wait(self, timeout: float | None = None) -> Stop:
        """Wait until a run that goes on is held, or over.

        Raises:
            DebugError: It takes longer than `timeout`.
        """
        with self._cond:
            return self._await(timeout if timeout != 0 else 0.001)

    def wait_for_run(self, timeout: float | None = None) -> Stop:
        """Wait until a run that somebody else starts with this session is held, or over.

        Raises:
            DebugError: None was within `timeout`.
        """

        def held_or_over() -> bool:
            return self._state == "stopped" or self._over_alone > 0

        with self._cond:
            if not self._cond.wait_for(held_or_over, timeout):
                raise DebugError(f"no run was held within {timeout:g} s")
            self._over_alone = 0
            return self.last_stop or self._said("entry", "")

    def on_stop(self, fn: Callable[[Stop], Any]) -> Callable[[Stop], Any]:
        """Have a function say at each stop how to go on: it returns a verb, None to continue.

        It may be `def` or `async def`, and is called in the run itself, so it must not wait for it.
        """
        self.stop_callback = fn, inspect.iscoroutinefunction(fn)
        return fn

    # --- a run's end -----------------------------------------------------------------------------

    def _over(self, because: str) -> None:
        """Note that a run is over; where it stopped in passing at its end, the cursor stays."""
        keeping, self.keeping = self.keeping, False
        stopped, self._state = self._state == "stopped", "none"
        reason: Reason = _OVER.get(because, "finished")
        if keeping and because == "interrupted":
            reason, self._durable = "durable", True
        text, last = f"the run is over: {because}", max(len(self._timeline) - 1, 0)
        if not stopped and self._goal is not None and last != self._origin:
            self._pushed(self._origin, self._goal, last)
        self._over_alone += not self._own
        self._run, self._goal, self._pause = None, None, False
        self._held.clear()
        self.clock.go()
        self.below.release()
        if stopped:
            self._untold = reason, text
            self._cond.notify_all()
        else:
            self._stand(last, reason, text)

    def _end_told(self, reason: Reason, text: str) -> None:
        """Say better how the run ended; where it stopped in passing, once that is left."""
        if self._untold is not None:
            self._untold = reason, text
        else:
            self._said(reason, text)


def _ends_run(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "run" and entry.is_end
