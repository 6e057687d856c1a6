"""Live runs: started, changed while they are held, left, and gone on with."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final, Literal

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from wick_graph import keys
from wick_graph.debug.attached import PLAIN, Attached, Under
from wick_graph.debug.edits import edited, skipped
from wick_graph.debug.gate import EXIT_HANDLERS, Held
from wick_graph.debug.moves import Goal, goal_of
from wick_graph.debug.timeline import BranchReader
from wick_graph.debug.types import Output, Stop
from wick_graph.drive import ENGINE_LOOP
from wick_graph.errors import DebugError
from wick_graph.messages.inputs import read_history
from wick_graph.moments import Directive
from wick_graph.runtime import Run

Door = Literal["sync", "async"]
How = Literal["continue", "keep", "abort"]
_KEPT: Final = "the fork's edits and policy are kept for `live`; agent.resume really calls all"
_NOT_KEPT: Final = (
    "the fork's edits and policy are not kept, since they hold a secret, are too large, or nothing "
    "is recorded: fork again from its moment; going on without a fork really calls all"
)


class Living(Attached):
    """Runs agents, and says what held calls go on with."""

    def run(
        self,
        input: Any,
        *,
        thread_id: str | None = None,
        door: Door = "sync",
        stop_on_entry: bool = True,
        timeout: float | None = None,
    ) -> Stop:
        """Answer an input in a thread of its own, and return at the first stop.

        Raises:
            DebugError: The session has no agent, or a run goes on.
            MessageError: The input is refused.
        """
        self._refuse_file()
        messages, answers = read_history(input)
        value = {"messages": messages}
        thread = thread_id or self.thread_id or f"debug_{threading.get_ident()}_{id(self)}"
        goal = goal_of("step" if stop_on_entry else "cont", None)
        return self._started(value, {keys.THREAD_ID: thread}, door, goal, timeout, answers=answers)

    def answer(self, value: Any, *, door: Door = "sync", timeout: float | None = None) -> Stop:
        """Answer what an interrupt asks, and let the thread go on to the next stop; see `run`.

        Raises:
            DebugError: The thread asks nothing, the session has no agent, or a run goes on.
        """
        if self.thread_id is not None:
            config = keys.with_configurable(None, **{keys.THREAD_ID: self.thread_id})
            if not self._graph().get_state(config).interrupts:
                raise DebugError("the thread waits for no answer; use run or live to go on with it")
        return self._go_on(Command(resume=value), door, timeout)

    def _go_on(self, given: Any, door: Door, timeout: float | None, under: Under = PLAIN) -> Stop:
        self._refuse_file()
        if self.thread_id is None:
            raise DebugError("there is no thread to go on with; run an input first")
        self._at = len(self._timeline) - 1
        goal = goal_of("step", None)
        address = {keys.THREAD_ID: self.thread_id}
        return self._started(given, address, door, goal, timeout, under=under)

    def _started(
        self,
        value: Any,
        address: dict[str, Any],
        door: Door,
        goal: Goal,
        timeout: float | None,
        graph: Any = None,
        under: Under = PLAIN,
        answers: tuple[ToolMessage, ...] = (),
    ) -> Stop:
        graph = graph if graph is not None else self._graph()
        run = Run(thread_id=address[keys.THREAD_ID], answers=answers)
        run.debugger = self
        config = keys.with_configurable(None, **address, **{keys.RUN: run})
        with self._cond:
            if self._run is not None:
                raise DebugError("a run goes on in this session; end it first")
            work = threading.Thread(
                target=self._work, args=(graph, value, config, door), name="wick-debug", daemon=True
            )
            self._origin, self.result, self.error = self._at, None, None
            EXIT_HANDLERS.add(self)
            work.start()  # it says of nothing before this lock is free
            self._run, self._own, self._goal, self._state = run, True, goal, "running"
            self._under = under
            self._free = self.keeping = self._pause = False
            return self._await(timeout)

    def _work(self, graph: Any, value: Any, config: Any, door: Door) -> None:
        run: Run = keys.configurable(config)[keys.RUN]
        try:
            if door == "async":
                self.result = ENGINE_LOOP.submit(graph.ainvoke(value, config)).result()
            else:
                self.result = graph.invoke(value, config)
        except BaseException as error:  # the session tells of it, whatever it was
            self.error = error
        with self._cond:
            try:
                self._reload()
            except Exception as error:  # whoever waits for the run's end is told of it all the same
                self.banners.append(f"what the run recorded cannot be read: {error}")
            self._over(run.stopped or ("failed" if self.error is not None else "done"))
            self._own = False
            if self.error is not None:
                text = str(self.error) or type(self.error).__name__
                self._end_told("cancelled" if run.stopped == "cancelled" else "failed", text)

    def _reload(self) -> None:
        """Read the recording of a run that is over, in the place of its live moments."""
        if self.journal is None or self._run is None or self._run.journal is None:
            return
        here, was, path = self.here, [e.seq for e in self._timeline.entries], self._path[:]
        self._look_at(BranchReader(self.journal).timeline(self._run.journal.run.branch))
        place = None if here is None else self._timeline.place(here.seq)
        self._at = place if place is not None else len(self._timeline) - 1
        if was == [entry.seq for entry in self._timeline.entries]:
            self._path = path

    def _graph(self) -> Any:
        if self.agent is None:
            raise DebugError("this session has no agent that could run; open it with agent=…")
        return getattr(self.agent, "graph", self.agent)

    # --- at a gate -------------------------------------------------------------------------------

    def edit(self, target: str, value: Any) -> str:
        """Change what the held moment goes on with, and say what will happen.

        Args:
            target: `args`, `result`, `response`, `request.system`, `request.messages`,
                `request.settings`, or `writes.CHANNEL`.
            value: JSON-like data; messages in wick's form.

        Raises:
            DebugError: Nothing waits at the cursor, or the moment has no such part.
            MessageError: A message is refused.
        """
        with self._cond:
            held = self._here_held()
            held.directive, told = edited(held, target, value)
            held.decided = True
            return told

    def skip(self, value: Any = None) -> str:
        """Have the held tool or model call not made, with this as its result; see `edit`."""
        with self._cond:
            held = self._here_held()
            held.directive, told = skipped(held, value)
            held.decided = True
            return told

    def accept(self, choice: Any, *, timeout: float | None = None) -> Stop:
        """Decide about the call at a stop `ask` or `divergence`, and go on.

        Args:
            choice: `recorded`, `live`, or a `Mock` with the value to take.
            timeout: Seconds to wait for the next stop.

        Raises:
            DebugError: Nothing is asked here, or there is nothing recorded.
        """
        with self._cond:
            held = self._here_held()
            held.directive, held.decided = self._chosen(held, choice), True
            self._release(goal_of("cont", self.here))
            return self._await(timeout)

    def abort(
        self, reason: str = "stopped in the debugger", *, timeout: float | None = None
    ) -> Stop:
        """End the run here: it counts as cancelled, and its thread can be used again.

        Raises:
            DebugError: No run goes on, or it takes longer than `timeout` to end.
        """
        with self._cond:
            run = self._going("ended")
            self._free, self._state, self._goal = True, "running", None
        run.stop.ask("cancelled", reason)  # before anything is let go: what is held is not to run
        with self._cond:
            if self._run is run:
                self._release(None)
            return self._await_end(run, timeout)

    def detach(self, how: How = "keep", *, timeout: float | None = None) -> Stop | None:
        """Leave the run: let it go on alone, keep it for later, or end it.

        What is kept stands in the store between two calls, nothing is lost, and any process can
        go on with it (`live`). Only edits that were not gone on with are not kept.

        Raises:
            DebugError: No run goes on, it has no store to be kept in, or it takes longer than
                `timeout` to come to a place where it can be left.
        """
        if how == "abort":
            return self.abort(timeout=timeout)
        with self._cond:
            run = self._going("left")
            if how == "keep" and not self._has_store:
                raise DebugError("this run has no store to be kept in; continue it, or abort it")
            self.keeping = how == "keep"
            self._free = how == "continue"
            if self.keeping:
                self._tell_of_edits()
            self._release(None)
            return None if self._free else self._await_end(run, timeout)

    def _going(self, what: str) -> Run:
        if self._run is None:
            raise DebugError(f"no run goes on that could be {what}")
        return self._run

    def _await_end(self, run: Run, timeout: float | None) -> Stop:
        """Wait until a run is over, wherever else it may stop in passing."""
        if not self._cond.wait_for(lambda: self._run is not run, timeout):
            raise DebugError(f"the run has not ended after {timeout:g} s; a call is under way")
        assert self.last_stop is not None
        return self.last_stop

    def _tell_of_edits(self) -> None:
        for seq, held in self._held.items():
            if held.decided:
                self._say(Output(seq, "note", f"what was decided at #{seq} is not kept"))
        if self._is_kept is not None:
            text = _KEPT if self._is_kept else _NOT_KEPT
            self._say(Output(0 if self.here is None else self.here.seq, "note", text))

    def leave(self, timeout: float | None = None) -> None:
        """Hold no run any more: one of the session's own is kept, one of others goes on.

        Where its own has no store to be kept in, it is ended.
        """
        with self._cond:
            if self._run is None:
                return
            how: How = "continue"
            if self._own:
                how = "keep" if self._has_store else "abort"
        with suppress(DebugError):  # it ended meanwhile
            self.detach(how, timeout=timeout)

    def _chosen(self, held: Held, choice: Any) -> Directive:
        """Return what a decision about a call comes to."""
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

    def _anew(self, held: Held) -> Directive:
        anew = getattr(self._under.decide, "anew", None)
        made: Directive = anew(held.moment) if anew and held.entry.kind == "tool" else None
        return made

    def _here_held(self) -> Held:
        here = self.here
        held = None if here is None else self._held.get(here.seq)
        if held is None:
            raise DebugError("no code waits at this moment; fork from it instead")
        return held
