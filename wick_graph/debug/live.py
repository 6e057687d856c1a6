"""A live run: start or join it, hold it at its moments, change it, leave it, continue it."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple

from langchain_core.messages import ToolMessage

from wick_graph import langgraph_config
from wick_graph.core.bridge import SYNC_BRIDGE
from wick_graph.core.moments import Directive, Listener, Moment
from wick_graph.core.stopping import Stopwatch
from wick_graph.debug.cursor import (
    INVERSE,
    VERBS,
    AtEnd,
    Cursor,
    Goal,
    Landing,
    goal_of,
    until_true,
)
from wick_graph.debug.edits import edited, skipped
from wick_graph.debug.gate import EXIT_HANDLERS, ChildRuns, Decide, Gate, HeldCall, Listing
from wick_graph.debug.policy import FORK
from wick_graph.debug.timeline import BranchReader, Position
from wick_graph.debug.types import Door, How, Mode, Output, Outputs, Reason, Stop
from wick_graph.errors import DebugError
from wick_graph.foreign.copies import open_store
from wick_graph.foreign.held import Call, HeldRun, way_of
from wick_graph.foreign.listener import heard_by, is_agent
from wick_graph.foreign.run import ForeignRun
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.replay import Ask
from wick_graph.journal.tracebacks import message_of
from wick_graph.runtime.context import Run
from wick_graph.store.saver import SqlSaver

_ENDS: Final[dict[str, Reason]] = {
    "failed": "failed",
    "cancelled": "cancelled",
    "interrupted": "interrupt",
}

_KEPT: Final = "the fork's edits and policy are kept for `live`; agent.resume really calls all"

_NOT_KEPT: Final = (
    "the fork's edits and policy are not kept, since they hold a secret, are too large, or nothing "
    "is recorded: fork again from its moment; going on without a fork really calls all"
)

# --- states --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Idle:
    """No run has been joined yet."""


@dataclass(slots=True)
class Running:
    """A run is running; nothing waits for the session."""

    goal: Goal | None
    """Where to stop next; None for breakpoints alone."""
    origin: int
    """The cursor's place at the start."""
    leaving: Literal["", "alone", "keep"] = ""
    """If not empty, nothing stops the run. With `keep` it ends at its next safe place."""
    pause: bool = False
    """Whether to stop at the next possible moment."""
    ending: bool = False
    """Whether calls still wait until the run is asked to end, so that none is made."""
    calls: dict[int, HeldCall] = field(default_factory=dict)
    """The waiting calls."""


@dataclass(slots=True)
class Held:
    """The session has stopped, and the calls of the run wait at their next moments."""

    calls: dict[int, HeldCall] = field(default_factory=dict)
    """The waiting calls, by the numbers of their moments."""
    has_leader: bool = False
    """Whether the session stopped at one of these calls."""


@dataclass(slots=True)
class Ended:
    """The run is over."""

    reason: Reason
    text: str
    reported: bool = True
    """False while the session is still stopped at an earlier moment."""


class Terms(NamedTuple):
    """Terms of a run that the session starts."""

    decide: Decide | None = None
    """Answers calls instead of models and tools."""
    forked: dict[str, Any] | None = None
    """The record of the fork, which its run stores."""
    label: Literal["LIVE", "FORK", "REPLAY"] = "LIVE"
    then: tuple[Callable[[], Any], ...] = ()
    """Make the inputs of further runs, which follow the first."""


PLAIN: Final = Terms()


@dataclass(slots=True)
class Joined:
    """The run that a session is attached to."""

    run: Run
    terms: Terms = PLAIN
    own: bool = False
    """Whether the session started it."""
    has_store: bool = True
    """Whether a store keeps its thread for later."""
    fork_is_kept: bool | None = None
    """Whether its row holds its fork's record; None if it is not a fork."""


class LiveRun:
    """The debugger that the engine calls; it attaches to one run after the other.

    It decides where a run stops, and turns each move into a stop. All methods are thread-safe.
    """

    holds = True

    def __init__(self, cursor: Cursor, lock: threading.Condition, outputs: Outputs) -> None:
        self.state: Idle | Running | Held | Ended = Idle()
        self.joined: Joined | None = None
        """The running or held run; None between two runs."""
        self.agent: Any = None
        """The agent for runs, if one was given."""
        self.context: Any = None
        """The context for runs, which no recording has."""
        self.read_only = ""
        """Why nothing runs in the recording's thread; empty if runs may."""
        self.store: Any = None
        """The store, or the URL, for recordings of graphs without an `SqlSaver`."""
        self.copies: SqlSaver | None = None
        """The same, open."""
        self.waits = False
        """Whether the thread waits in its store between two steps, and can be continued."""
        self.clock = Stopwatch()
        """The clock of the runs' deadlines; it pauses while they are held."""
        self.below = ChildRuns(self)
        """Debugger of the run's child runs: its sub-agents."""
        self.terms = PLAIN
        """The terms of the last run that the session started."""
        self.result: Any = None
        """The graph's output of the last run that the session started."""
        self.error: BaseException | None = None
        """The error that ended the last run that the session started, if one did."""
        self.last_stop: Stop | None = None
        self.banners: list[str] = []
        """Notes for users on the recording, one sentence each."""
        self.callback: tuple[Callable[..., Any], bool] | None = None
        """The function of `on_stop`, and whether it is async."""
        self._unseen_end = False
        """Whether a run that others started has ended since the last wait."""
        self.note = ""
        """Why the session let its run go, for the record; empty if that is no news."""
        self._cursor = cursor
        self._lock = lock
        self._outputs = outputs

    @property
    def held(self) -> bool:
        """Whether code waits for the session."""
        return isinstance(self.state, Held)

    @property
    def keeping(self) -> bool:
        """Whether the run must end at its next safe place, to be continued later."""
        state = self.state  # another thread may replace it
        return isinstance(state, Running) and state.leaving == "keep"

    @property
    def mode(self) -> Mode:
        """Whether code runs, waits, or is over."""
        state = self.state
        if isinstance(state, Running):
            return "LIVE running"
        if isinstance(state, Held):
            here = self._cursor.here
            if here is not None and here.seq < min(state.calls, default=0):
                return "PAST"
            label = "LIVE" if self.joined is None else self.joined.terms.label
            return "LIVE stopped (volatile)" if label == "LIVE" else label
        if self.waits and self._cursor.at == self._cursor.last:
            return "LIVE stopped (durable)"
        return "PAST"

    # --- called by the engine --------------------------------------------------------------------

    def attach(self, run: Run, bridge: Any, spec: Any, journal: Any, saver: Any) -> Listener:
        """Attach to a starting run; the engine calls this.

        Raises:
            DebugError: The session is busy with another run.
        """
        with self._lock:
            joined = self.joined
            if joined is None:
                joined = Joined(run)
            elif joined.run is not run:
                raise DebugError("this session holds another run; make a session for each")
            terms, timeline = joined.terms, self._cursor.timeline
            if terms.forked is not None:
                joined.fork_is_kept = journal is not None and journal.keep(FORK, terms.forked)
            last = journal.last if journal is not None else 0
            if journal is None and len(timeline):
                last = timeline.entries[-1].seq
            listing = Listing(run, journal, spec.name, last)
            if journal is not None and isinstance(saver, SqlSaver):
                self._show_branch(Journal(saver, run.thread_id or ""), listing)
            else:
                timeline.thread_id = run.thread_id
            EXIT_HANDLERS.add(self)
            joined.has_store = saver is not None
            self.joined, self.waits = joined, False
            if not isinstance(self.state, Running):
                self.state = Running(goal_of("step", None), self._cursor.at)
            return Gate(self, run, bridge, journal, listing, terms.decide)

    def _show_branch(self, journal: Journal, listing: Listing) -> None:
        """Show the earlier moments of the run's branch."""
        reader = BranchReader(journal)
        reader.runs.append(listing.record)
        self._cursor.follow(journal, reader.timeline(listing.record.branch))

    def gate(self, heard: HeldRun, store: SqlSaver) -> Gate | None:
        """Attach to a starting run of a LangGraph graph; its seams call this."""
        with self._lock:
            joined = self.joined
            if joined is not None and joined.run.journal is not None:
                return None  # another run goes on
            run = Run() if joined is None else joined.run
            run.run_id, run.thread_id = heard.run_id, heard.thread_id
            run.journal = heard.journal.begin()
            gate = self.attach(run, SYNC_BRIDGE, heard, run.journal, store)
            assert isinstance(gate, Gate)
            assert self.joined is not None
            gate.journal, gate.is_foreign = heard.journal, True
            self.joined.has_store = heard.has_saver
            return gate

    def keep(self, run: ForeignRun, saver: Any) -> SqlSaver:
        """Return the store for the recording of a run of a LangGraph graph; its seams call this.

        Raises:
            StorageError: The store of copies cannot be opened.
        """
        journal = self._cursor.views.journal
        if isinstance(saver, SqlSaver):
            return saver
        if self.copies is None and journal is not None:
            return journal.saver
        self.copies = self.copies or open_store(self.store)
        return self.copies

    def close_copies(self) -> None:
        """Close the store of copies, if this opened it."""
        copies, self.copies = self.copies, None
        if copies is not None and not isinstance(self.store, SqlSaver):
            copies.close()

    def tell(self, problem: str) -> None:
        """Note that a run could not be recorded."""
        self.banners += [problem] if problem not in self.banners else []

    def saw(self, checkpoint: str, values: Mapping[str, Any]) -> None:
        """Note the values of a checkpoint that may not be stored yet."""
        found = SimpleNamespace(checkpoint={"channel_values": values}, pending_writes=())
        with self._lock:
            self._cursor.views.keep(checkpoint, found)

    def heard(self, entry: Entry, moment: Moment, held: HeldCall | None) -> None:
        """Add a moment to the recording, and decide whether the run stops there.

        Moments come in order, one at a time. `held` is the call that can be held here. If there is
        none, the running calls are held at their next moments.
        """
        with self._lock:
            place = self._cursor.timeline.add(entry)
            self._cursor.views.live[entry.seq] = moment
            if isinstance(self.state, Running) and not self.state.leaving:
                found = self._judged(self.state, place, held)
                if found is not None:
                    self._hold(self.state, place, found)
            state = self.state
            waits = isinstance(state, Held) or (isinstance(state, Running) and state.ending)
            if held is not None and waits:
                self._calls[entry.seq] = held
            if _ends_run(entry) and self.joined is not None and not self.joined.own:
                self._end(str(moment.data.get("stopped_because") or "done"))

    def should_hold(self, held: HeldCall) -> bool:
        """Return whether a call must wait; the first that does leads."""
        with self._lock:
            if self._calls.get(held.entry.seq) is not held:
                return False
            if isinstance(self.state, Held) and not self.state.has_leader:
                held.leads = self.state.has_leader = True
            return True

    def gone(self, held: HeldCall) -> None:
        """Forget a released call."""
        with self._lock:
            self._calls.pop(held.entry.seq, None)

    def release_all(self) -> None:
        """Release the run, because the function of `on_stop` failed."""
        with self._lock:
            self._go_on(None, "alone")

    def command(self, verb: str) -> Stop | None:
        """Move without waiting for the run; return None if it continues."""
        if verb.startswith("until "):
            return self.until("until", verb[len("until ") :], 0)
        return self.verb(verb, 0)

    @property
    def _calls(self) -> dict[int, HeldCall]:
        return self.state.calls if isinstance(self.state, Running | Held) else {}

    # --- where a run stops -----------------------------------------------------------------------

    def _judged(self, state: Running, place: int, held: HeldCall | None) -> Landing | None:
        try:
            return self._judge(state, place, held)
        except Exception as error:  # an error of the debugger must not end the run
            text = f"it cannot be said whether to stop here: {type(error).__name__}: {error}"
            return Landing("condition-error", text)

    def _judge(self, state: Running, place: int, held: HeldCall | None) -> Landing | None:
        view, breakpoints = self._cursor.views.view(place), self._cursor.breakpoints
        hit = breakpoints.check(view, True)
        if held is not None and held.question is not None:
            return Landing(held.question.reason, held.question.text)
        if state.pause and held is not None:
            return Landing("pause", "paused")
        if hit is not None:
            reason, text = breakpoints.stop_for(hit)
            return Landing(reason, text, hit.breakpoint.number)
        if state.goal is not None and state.goal.reached(view) and not _ends_run(view.entry):
            return Landing("entry" if view.entry.what == "run.enter" else state.goal.reason)
        return None

    def _hold(self, state: Running, place: int, found: Landing) -> None:
        self.state = Held()
        self.clock.hold()
        if state.goal is not None:
            self._cursor.remember(state.origin, state.goal, place)
        self._report(self._cursor.land(place, found.reason, found.text, found.breakpoint))

    def _report(self, landing: Landing) -> Stop:
        """Report a stop, and wake all waiters."""
        reason, text, breakpoint, moved = landing
        cursor = self._cursor
        self.last_stop = stop = Stop(
            reason=reason,
            entry=cursor.here,
            position=str(cursor.position()),
            mode=self.mode,
            breakpoint=breakpoint,
            text=text,
            moved=moved,
        )
        self._lock.notify_all()
        return stop

    # --- moving ----------------------------------------------------------------------------------

    def verb(self, name: str, timeout: float | None = None) -> Stop:
        """Move by a verb's name or abbreviation; see `DebugSession.verb`."""
        verb = VERBS.get(name, "")
        if verb in INVERSE and not verb.endswith("until"):
            with self._lock:
                return self._move(goal_of(verb, self._cursor.here), timeout)
        if verb in ("first", "last"):
            return self.goto(f"@{verb}")
        if verb != "pause":
            raise DebugError(f"{name[:40]!r} is no verb; write one of {', '.join(sorted(VERBS))}")
        with self._lock:
            if not self.pause():
                raise DebugError("nothing runs that could be paused")
            return self._await(None)

    def until(self, verb: str, text: str, timeout: float | None = None) -> Stop:
        """Move to a position, or to where an expression is true; see `DebugSession.until`."""
        if text.lstrip().startswith(("@", "#")):
            return self.goto(text)
        goal = until_true(verb, text)
        with self._lock:
            return self._move(goal, timeout)

    def goto(self, text: str) -> Stop:
        """Go to a position; see `DebugSession.goto`."""
        branch = Position.read(text).branch
        with self._lock:
            if branch not in (None, self._cursor.timeline.branch):
                self.choose(branch or 0)
            return self._report(self._cursor.jump(text))

    def choose(self, branch: int) -> Stop:
        """Look at another branch; see `DebugSession.choose`."""
        with self._lock:
            cursor = self._cursor
            own, here = cursor.timeline.branch, cursor.here
            if self.joined is not None:
                if branch == own:
                    return self._report(cursor.land(cursor.at, "goto"))
                raise DebugError(
                    f"a run goes on on branch b{own}; leave it or end it first, "
                    f"or look at b{branch} in a session of its own"
                )
            journal = cursor.views.journal
            if journal is None:
                raise DebugError("this thread has one branch alone")
            cursor.look_at(journal, BranchReader(journal).timeline(branch))
            place = None if here is None else cursor.timeline.place(here.seq)
            return self._report(cursor.land(cursor.last if place is None else place, "goto"))

    def _move(self, goal: Goal, timeout: float | None) -> Stop:
        found = self._cursor.move(goal)
        if isinstance(found, AtEnd):
            return self._at_the_end(goal, timeout)
        ended = isinstance(self.state, Ended) and found.breakpoint is None
        if ended and self._cursor.at == self._cursor.last:
            return self._report_end() or self._report(found)
        return self._report(found)

    def _at_the_end(self, goal: Goal, timeout: float | None) -> Stop:
        """Continue a live run from the end of its recording; without one, stop there."""
        if goal.backwards:
            return self._report(self._cursor.go_to_edge(goal))
        if self.joined is None or goal.verb == "next_error":
            return self._report_end() or self._report(self._cursor.go_to_edge(goal))
        self._go_on(goal)
        return self._await(timeout)

    def _report_end(self) -> Stop | None:
        """Report how a run ended while the session was at an earlier moment; None if reported."""
        end = self.state
        if not isinstance(end, Ended) or end.reported:
            return None
        end.reported = True
        return self._report(self._cursor.land(self._cursor.last, end.reason, end.text))

    def _go_on(self, goal: Goal | None, leaving: Literal["", "alone", "keep"] = "") -> None:
        """Release all held calls, until the goal is reached.

        A call with a question stops before any goal.
        """
        state, here = self.state, self._cursor.at
        if self.joined is None:
            return
        if isinstance(state, Running):  # another thread has released it
            state.goal, state.origin = goal, here
            state.leaving = leaving or state.leaving
            return
        asked = [held for held in self._calls.values() if held.is_open]
        if goal is not None and asked:
            self._ask(min(asked, key=lambda held: held.entry.seq))
            return
        calls = self._calls
        self.state = Running(goal, here, leaving)
        self._release(calls)

    def _release(self, calls: dict[int, HeldCall]) -> None:
        self.clock.go()
        self.below.release()
        for held in list(calls.values()):
            held.release()

    def _ask(self, held: HeldCall) -> None:
        place, question = self._cursor.timeline.place(held.entry.seq), held.question
        if place is not None and question is not None:
            self._report(self._cursor.land(place, question.reason, question.text))

    def _await(self, timeout: float | None) -> Stop:
        """Wait until the run is held again or has ended.

        Raises:
            DebugError: It takes longer than `timeout`; the run continues.
        """
        if timeout == 0:
            return None  # type: ignore[return-value]  # for `command` alone, which says so
        if not self._lock.wait_for(lambda: not isinstance(self.state, Running), timeout):
            raise DebugError(f"the run goes on after {timeout:g} s; pause it, or wait longer")
        assert self.last_stop is not None
        self._unseen_end = False
        return self.last_stop

    def pause(self) -> bool:
        """Ask a running run to stop; see `DebugSession.pause`. Takes no lock."""
        state = self.state
        if not isinstance(state, Running):
            return False
        state.pause = True
        return True

    def wait(self, timeout: float | None = None) -> Stop:
        """Wait until a running run is held or has ended; see `DebugSession.wait`."""
        with self._lock:
            return self._await(timeout if timeout != 0 else 0.001)

    def wait_for_run(self, timeout: float | None = None) -> Stop:
        """Wait for a run that others start; see `DebugSession.wait_for_run`."""
        with self._lock:
            if not self._lock.wait_for(lambda: self.held or self._unseen_end, timeout):
                raise DebugError(f"no run was held within {timeout:g} s")
            self._unseen_end = False
            assert self.last_stop is not None
            return self.last_stop

    def on_stop(self, fn: Callable[[Stop], Any]) -> Callable[[Stop], Any]:
        """Call a function at each stop; see `DebugSession.on_stop`."""
        self.callback = fn, inspect.iscoroutinefunction(fn)
        return fn

    # --- runs of the session's own ---------------------------------------------------------------

    def graph(self) -> Any:
        """Return the graph of the agent.

        Raises:
            DebugError: The session has none.
        """
        if self.agent is None:
            raise DebugError("this session has no agent that could run; open it with agent=…")
        return getattr(self.agent, "graph", self.agent)

    def check_free(self) -> None:
        """Check that a run can start now.

        Raises:
            DebugError: The session is over a file or another store's thread, or a run goes on.
        """
        if self.read_only:
            raise DebugError(self.read_only)
        if self.joined is not None:
            raise DebugError("a run goes on in this session; end it first")

    def start(
        self,
        value: Any,
        address: dict[str, Any],
        goal: Goal,
        *,
        door: Door = "sync",
        timeout: float | None = None,
        graph: Any = None,
        terms: Terms = PLAIN,
        answers: tuple[ToolMessage, ...] = (),
        from_end: bool = False,
    ) -> Stop:
        """Run a graph in a new Python thread, and return at the first stop.

        Args:
            value: The graph's input; None to continue.
            address: The thread, and the checkpoint if it is not the last one.
            goal: Where to stop first.
            door: Whether to call `invoke` or `ainvoke`.
            timeout: Seconds to wait for the stop.
            graph: The graph to run; the agent's by default.
            terms: The terms of the run.
            answers: Results of the calls that the input answers.
            from_end: Whether the cursor goes to the end of the recording first.

        Raises:
            DebugError: The session has no agent, or a run goes on.
        """
        graph = self.graph() if graph is None else graph
        run = Run(thread_id=address[langgraph_config.THREAD_ID], answers=answers)
        run.debugger = self
        own = {langgraph_config.RUN: run} if is_agent(graph) else {}
        config = langgraph_config.with_configurable(None, **address, **own)
        call = way_of(graph, config, door)
        with self._lock:
            self.check_free()
            work = threading.Thread(
                target=self._work,
                args=(run, is_agent(graph), call, value, config),
                name="wick-debug",
                daemon=True,
            )
            EXIT_HANDLERS.add(self)
            work.start()  # it reports nothing before this lock is free
            if from_end:
                self._cursor.at = self._cursor.last
            self.result = self.error = None
            self.joined, self.terms = Joined(run, terms, own=True), terms
            self.state = Running(goal, self._cursor.at)
            return self._await(timeout)

    def _work(self, run: Run, own: bool, call: Call, value: Any, config: Any) -> None:
        result, failed = None, None
        try:
            with nullcontext() if own else heard_by(self):
                more = {} if self.context is None else {"context": self.context}
                result = call(value, config, **more)
                for following in self.terms.then:
                    run, config = self._next(run, config)
                    result = call(following(), config, **more)
        except BaseException as error:  # the session reports any error
            failed = error
        with self._lock:
            self.result, self.error = result, failed
            try:
                self._reload(run)
            except Exception as error:  # the run's end must reach all waiters
                self.banners.append(f"what the run recorded cannot be read: {error}")
            self._end(run.stopped or ("done" if failed is None else "failed"), failed)

    def _next(self, run: Run, config: Any) -> tuple[Run, Any]:
        """Make the next one of several runs."""
        made = Run(thread_id=run.thread_id, debugger=run.debugger)
        with self._lock:
            run.stop.check()
            assert self.joined is not None
            self.joined.run = made
        if langgraph_config.RUN in langgraph_config.configurable(config):
            config = langgraph_config.with_configurable(config, **{langgraph_config.RUN: made})
        return made, config

    def _reload(self, run: Run) -> None:
        """Replace the live moments of a finished run by its recording."""
        journal = self._cursor.views.journal
        if journal is None or run.journal is None or journal.thread_id != run.thread_id:
            return
        self._cursor.reload(BranchReader(journal).timeline(run.journal.run.branch))

    def _end(self, because: str, error: BaseException | None = None) -> None:
        """Mark the run as ended; the cursor stays if the session stopped earlier."""
        state, joined, cursor = self.state, self.joined, self._cursor
        assert joined is not None
        reason, text = _ENDS.get(because, "finished"), f"the run is over: {because}"
        if self.keeping and because == "interrupted":
            reason, self.waits = "durable", True
        if error is not None:
            reason = "cancelled" if because == "cancelled" else "failed"
            text = message_of(error) or type(error).__name__
        calls, in_passing = self._calls, isinstance(state, Held)
        self.joined, self.state = None, Ended(reason, text, reported=not in_passing)
        self._unseen_end |= not joined.own
        self._release(calls)
        if in_passing:
            self._lock.notify_all()
            return
        last = max(cursor.last, 0)
        if isinstance(state, Running) and state.goal is not None and last != state.origin:
            cursor.remember(state.origin, state.goal, last)
        landing = cursor.land(last, reason, text)
        self._report(landing if error is None else landing._replace(moved=True))

    # --- what is held ----------------------------------------------------------------------------

    def edit(self, target: str, value: Any) -> str:
        """Change the held moment; see `DebugSession.edit`."""
        with self._lock:
            held = self._here_held()
            held.directive, text = edited(held, target, value)
            held.decided = True
            return text

    def skip(self, value: Any = None) -> str:
        """Skip the held call; see `DebugSession.skip`."""
        with self._lock:
            held = self._here_held()
            held.directive, text = skipped(held, value)
            held.decided = True
            return text

    def accept(self, choice: Any, timeout: float | None = None) -> Stop:
        """Decide about the call in question, and continue; see `DebugSession.accept`."""
        with self._lock:
            held = self._here_held()
            held.directive, held.decided = self._chosen(held, choice), True
            self._go_on(goal_of("cont", self._cursor.here))
            return self._await(timeout)

    def _chosen(self, held: HeldCall, choice: Any) -> Directive | Ask:
        """Return the directive of a decision about a call."""
        question = held.question
        if question is None:
            raise DebugError("nothing is asked at this moment; continue, or skip it with a value")
        if choice == "live":
            return self._anew(held)
        if choice == "recorded":
            if question.recorded is None:
                raise DebugError("the recording has nothing for this call; give a value, or run it")
            return question.recorded
        return skipped(held, getattr(choice, "value", choice))[0]

    def _anew(self, held: HeldCall) -> Directive:
        anew = getattr(self.terms.decide, "anew", None)
        made: Directive = anew(held.moment) if anew and held.entry.kind == "tool" else None
        return made

    def _here_held(self) -> HeldCall:
        here = self._cursor.here
        held = self.state.calls.get(here.seq) if here and isinstance(self.state, Held) else None
        if held is None:
            raise DebugError("no code waits at this moment; fork from it instead")
        return held

    # --- leaving a run ---------------------------------------------------------------------------

    def abort(self, reason: str, timeout: float | None = None) -> Stop:
        """End the run; see `DebugSession.abort`."""
        with self._lock:
            joined, calls = self._going("ended"), self._calls
            self.state = state = Running(None, self._cursor.at, "alone", ending=True, calls=calls)
        try:
            joined.run.stop.ask("cancelled", reason)  # before a held call goes: it must not run
        finally:
            with self._lock:
                state.ending = False
                if self.joined is joined:
                    self._release(calls)
        with self._lock:
            return self._await_end(joined, timeout)

    def detach(self, how: How, timeout: float | None = None, note: str = "") -> Stop | None:
        """Leave the run; see `DebugSession.detach`."""
        if how == "abort":
            return self.abort("stopped in the debugger", timeout)
        with self._lock:
            joined = self._going("left")
            self.note = note
            if how == "continue":
                self._go_on(None, "alone")
                return None
            if not joined.has_store:
                raise DebugError("this run has no store to be kept in; continue it, or abort it")
            lost = list(self._lost_edits(joined))
            self._go_on(None, "keep")
            for one in lost:
                self._outputs.say(one)
            return self._await_end(joined, timeout)

    def leave(self, timeout: float | None = None) -> None:
        """Release the run: the session's own is kept for later, one of others continues.

        A run of its own without a store is ended.
        """
        with self._lock:
            if self.joined is None:
                return
            how: How = "continue"
            if self.joined.own:
                how = "keep" if self.joined.has_store else "abort"
        with suppress(DebugError):  # it ended meanwhile
            self.detach(how, timeout)

    def _going(self, what: str) -> Joined:
        if self.joined is None:
            raise DebugError(f"no run goes on that could be {what}")
        return self.joined

    def _await_end(self, joined: Joined, timeout: float | None) -> Stop:
        """Wait until a run has ended, and ignore its stops."""
        if not self._lock.wait_for(lambda: self.joined is not joined, timeout):
            raise DebugError(f"the run has not ended after {timeout:g} s; a call is under way")
        assert self.last_stop is not None
        self._unseen_end = False
        return self.last_stop

    def _lost_edits(self, joined: Joined) -> Iterator[Output]:
        """Report decisions that are not kept with a run on leaving."""
        for seq, held in self._calls.items():
            if held.decided:
                yield Output(seq, "note", f"what was decided at #{seq} is not kept")
        if joined.fork_is_kept is not None:
            here = self._cursor.here
            text = _KEPT if joined.fork_is_kept else _NOT_KEPT
            yield Output(0 if here is None else here.seq, "note", text)


def _ends_run(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "run" and entry.is_end
