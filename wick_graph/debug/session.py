"""`DebugSession`: one recording or one live run, and everything that can be asked and done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from wick_graph import langgraph_config
from wick_graph.core.moments import Listener
from wick_graph.debug.breakpoints import Breakpoint, BreakpointSet
from wick_graph.debug.comparison import Comparison
from wick_graph.debug.cursor import Cursor, goal_of
from wick_graph.debug.fork import Edits, Forker, Plan, Planned
from wick_graph.debug.inspector import Inspector, RequestView
from wick_graph.debug.live import LiveRun, Terms
from wick_graph.debug.policy import Decider, Policy
from wick_graph.debug.provenance import Cause
from wick_graph.debug.sources import find
from wick_graph.debug.timeline import Position, Timeline
from wick_graph.debug.types import At, Door, How, Mode, Outputs, Stop
from wick_graph.debug.view import ViewCache
from wick_graph.errors import DebugError
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.replay import Tape, begun, latest
from wick_graph.messages.validation import read_history


class DebugSession:
    """Step through an agent's run, forwards and backwards.

        with DebugSession.open(agent, "th_…") as session:
            session.add("break tool:* if error")
            print(session.cont().text, session.why("messages[-1].content"))

    Moving in the past executes nothing. `inspect` has all questions about a moment, `breakpoints`
    the breakpoints, `outputs` the lines that log points say. Every method may be called from any
    thread.
    """

    def __init__(self, agent: Any = None) -> None:
        """Begin without a past; the first run gives the session its thread."""
        self._lock = lock = threading.Condition(threading.RLock())
        self.outputs = Outputs()
        self.breakpoints = BreakpointSet(lock, self.outputs)
        self._cursor = Cursor(ViewCache(None, Timeline(None, 0, ())), self.breakpoints)
        self.inspect = Inspector(self._cursor, lock)
        self._run = LiveRun(self._cursor, lock, self.outputs)
        self._forker = Forker(self._cursor, self._run, lock)
        self.clock = self._run.clock
        self.below = self._run.below
        self.banners = self._run.banners
        self.replayed: DebugSession | None = None
        """The session of the last replay."""
        self._close: Callable[[], None] = lambda: None
        self.agent = agent

    @classmethod
    def open(
        cls,
        source: Any,
        thread_id: str | None = None,
        *,
        agent: Any = None,
        branch: int | None = None,
    ) -> DebugSession:
        """Look at a thread; a recording begins at its first moment.

        Args:
            source: An agent, a store, a journal, a database's URL, or a `.wickrun` file.
            thread_id: The thread; a journal and a file have their own.
            agent: What may run: for forks, replays, and going on.
            branch: The branch to look at; the latest by default.

        Raises:
            DebugError: The source cannot be debugged, or the thread was not named.
            ThreadNotFoundError: There is no such thread.
            StorageError: The database or file cannot be read.
        """
        found = find(source, thread_id, agent, branch)
        session = cls(found.agent)
        session.banners.extend(found.banners)
        session._close = found.close
        session._run.read_only, session._run.waits = found.read_only, found.waits
        session._cursor.look_at(found.journal, found.timeline)
        session._cursor.at = min(0, session._cursor.last)
        return session

    def close(self) -> None:
        """Leave the run that goes on, and close what `open` opened.

        A run that the session started is kept, so that any process can go on with it; one that has
        no store is ended. A run that others started goes on without the session.
        """
        try:
            self._run.leave()
        finally:
            close, self._close = self._close, lambda: None
            close()
            if self.replayed is not None:
                self.replayed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- where the session is --------------------------------------------------------------------

    @property
    def agent(self) -> Any:
        """The agent that may run, if one was given; it may be set later."""
        return self._run.agent

    @agent.setter
    def agent(self, agent: Any) -> None:
        self._run.agent = agent
        if agent is not None:
            self.breakpoints.outline = agent

    @property
    def journal(self) -> Journal | None:
        """The record of the thread's runs, if it has one."""
        return self._cursor.views.journal

    @property
    def thread_id(self) -> str | None:
        """The thread that is looked at; None before its first run."""
        return self._cursor.timeline.thread_id

    @property
    def branch(self) -> int:
        """The branch that the cursor is on."""
        return self._cursor.timeline.branch

    @property
    def here(self) -> Entry | None:
        """The moment of the cursor."""
        return self._cursor.here

    @property
    def position(self) -> Position:
        """The cursor's place, as it is written."""
        with self._lock:
            return self._cursor.position()

    @property
    def mode(self) -> Mode:
        """Whether code runs, waits, or is over."""
        with self._lock:
            return self._run.mode

    @property
    def held(self) -> bool:
        """Whether code waits for the session."""
        return self._run.held

    @property
    def last_stop(self) -> Stop | None:
        """Where the session stopped last."""
        return self._run.last_stop

    @property
    def result(self) -> Any:
        """The graph's output of the last run that the session started."""
        return self._run.result

    @property
    def error(self) -> BaseException | None:
        """The error that ended the last run that the session started, if one did."""
        return self._run.error

    @property
    def executed(self) -> tuple[int, int]:
        """How many models and tools the last fork or replay really called."""
        return self._forker.executed

    @property
    def policy(self) -> Policy:
        """What answers when recorded ground is gone over again, unless a fork says otherwise."""
        return self._forker.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._forker.policy = policy

    # --- moving ----------------------------------------------------------------------------------

    def verb(self, name: str, *, timeout: float | None = None) -> Stop:
        """Move by a verb's name or abbreviation, of `VERBS`: `n`, `reverse-next`, `next_error`.

        Raises:
            DebugError: There is no such verb, or the next stop takes longer than `timeout` seconds;
                the run goes on then. All moves raise that.
        """
        return self._run.verb(name, timeout)

    def step(self, timeout: float | None = None) -> Stop:
        """Go to the next moment, at any depth."""
        return self._run.verb("step", timeout)

    def next(self, timeout: float | None = None) -> Stop:
        """Go to the next moment that lies no deeper."""
        return self._run.verb("next", timeout)

    def finish(self, timeout: float | None = None) -> Stop:
        """Go on until the frame of the moment is left."""
        return self._run.verb("finish", timeout)

    def nextnode(self, timeout: float | None = None) -> Stop:
        """Go to the next entry of a node."""
        return self._run.verb("nextnode", timeout)

    def turn(self, timeout: float | None = None) -> Stop:
        """Go to the next request to a model."""
        return self._run.verb("turn", timeout)

    def cont(self, timeout: float | None = None) -> Stop:
        """Go on until something stops."""
        return self._run.verb("cont", timeout)

    def until(self, text: str, timeout: float | None = None) -> Stop:
        """Go on to a position, or until an expression is true.

        Raises:
            DebugError: There is no such position.
            ExpressionError: It is no expression.
        """
        return self._run.until("until", text, timeout)

    def reverse_step(self) -> Stop:
        """Go back to the moment before."""
        return self._run.verb("reverse_step")

    def reverse_next(self) -> Stop:
        """Go back to the moment before that lies no deeper."""
        return self._run.verb("reverse_next")

    def reverse_finish(self) -> Stop:
        """Go back to before the frame of the moment was entered."""
        return self._run.verb("reverse_finish")

    def prevnode(self) -> Stop:
        """Go back to the last entry of a node."""
        return self._run.verb("prevnode")

    def prevturn(self) -> Stop:
        """Go back to the last request to a model."""
        return self._run.verb("prevturn")

    def reverse_cont(self) -> Stop:
        """Go back until something stops."""
        return self._run.verb("reverse_cont")

    def reverse_until(self, text: str) -> Stop:
        """Go back to a position, or until an expression is true; raises as `until`."""
        return self._run.until("reverse_until", text)

    def goto(self, text: str) -> Stop:
        """Go to a position, such as `@first`, `@last` or `b1@12`.

        Raises:
            DebugError: There is no such position.
        """
        return self._run.goto(text)

    def choose(self, branch: int) -> Stop:
        """Look at another branch; the cursor stays if it has the moment too, else goes to its end.

        Raises:
            DebugError: There is no such branch, or a run goes on on this one.
        """
        return self._run.choose(branch)

    # --- looking ---------------------------------------------------------------------------------

    def add(self, spec: str) -> Breakpoint:
        """Set a breakpoint as it is written: `break tool:bash if args.command == "ls"`.

        Raises:
            DebugError: It is none.
            ExpressionError: Its condition is no expression.
        """
        return self.breakpoints.add(spec)

    def value(self, expression: str, at: At = None) -> Any:
        """Return the value of an expression at a moment.

        Raises:
            ExpressionError: It is none, or has no value there.
        """
        return self.inspect.value(expression, at)

    def request(self, at: At = None) -> RequestView:
        """Return the request to the model at a moment: its own, the last before, or the next one.

        Raises:
            DebugError: No model was ever asked.
            StorageError: What it was made of is gone.
        """
        return self.inspect.request(at)

    def why(self, path: str, at: At = None) -> list[Cause]:
        """List what is behind a value in the state, the nearest cause first.

        Raises:
            DebugError: There is nothing at the path, or it was written before the recording.
            StorageError: A checkpoint is gone.
        """
        return self.inspect.why(path, at)

    def compare(self, a: int | str | DebugSession, b: int | str | DebugSession) -> Comparison:
        """Compare two branches (numbers), runs (ids), or sessions.

        Raises:
            DebugError: There is no such branch or run.
        """
        one, other = (x.inspect if isinstance(x, DebugSession) else x for x in (a, b))
        return self.inspect.compare(one, other)

    # --- running ---------------------------------------------------------------------------------

    def run(
        self,
        input: Any,
        *,
        thread_id: str | None = None,
        door: Door = "sync",
        stop_on_entry: bool = True,
        timeout: float | None = None,
    ) -> Stop:
        """Answer an input in a Python thread of its own, and return at the first stop.

        Raises:
            DebugError: The session has no agent, or a run goes on.
            MessageError: The input is refused.
        """
        self._run.check_free()
        messages, answers = read_history(input)
        thread = thread_id or self.thread_id or f"debug_{threading.get_ident()}_{id(self)}"
        return self._run.start(
            {"messages": messages},
            {langgraph_config.THREAD_ID: thread},
            goal_of("step" if stop_on_entry else "cont", None),
            door=door,
            timeout=timeout,
            answers=answers,
        )

    def answer(self, value: Any, *, door: Door = "sync", timeout: float | None = None) -> Stop:
        """Answer what an interrupt asks, and let the thread go on to the next stop; see `run`.

        Raises:
            DebugError: The thread asks nothing, the session has no agent, or a run goes on.
        """
        return self._forker.answer(value, door, timeout)

    def live(
        self, plan: Plan | None = None, *, door: Door = "sync", timeout: float | None = None
    ) -> Stop:
        """Execute a prepared fork, or go on at the end of the thread; returns at the first stop.

        A fork that was left is gone on with under its own policy, and with its edits, in any
        process.

        Raises:
            DebugError: The session has no agent, the thread is finished, or it is in a fork that
                was not kept.
        """
        return self._forker.live(plan, door, timeout)

    def fork(
        self,
        at: At = None,
        *,
        state: Mapping[str, Any] | None = None,
        request: Mapping[str, Any] | None = None,
        response: Any = None,
        args: Mapping[str, Any] | None = None,
        result: Any = None,
        policy: Policy | None = None,
        label: str = "",
    ) -> Plan:
        """Prepare a new branch from a moment; `live` executes it, and this branch never changes.

        Args:
            at: The moment; the step that it belongs to is done again.
            state: Channels, or paths in them, and their new values.
            request: `system`, `messages` or `settings` of the request at the moment.
            response: The model's reply, in place of asking it.
            args: The arguments of the call at the moment.
            result: The result of the call at the moment, in place of making it.
            policy: What answers the other calls; `session.policy` by default.
            label: A word for people.

        Raises:
            DebugError: Nothing can be gone on with from there, or the moment has no such part.
        """
        edits = Edits(state, request, response, args, result)
        return self._forker.fork(at, edits, policy, label)

    def will_execute(self, at: At = None, policy: Policy | None = None) -> list[Planned]:
        """List what going on from a moment would execute, as far as the recording tells.

        At the end of a thread that is not finished, that is what `live` would execute: the tasks
        of its step that are not over. In a fork that was left its own policy answers them.

        Raises:
            DebugError: There is no such moment, nothing that could be gone on with, or no agent
                that could do it; or the thread is in a fork that was not kept.
        """
        return self._forker.will_execute(at, policy)

    def replay(
        self,
        policy: Policy | None = None,
        run: int | str | None = None,
        *,
        agent: Any = None,
        door: Door = "sync",
        timeout: float | None = None,
    ) -> Stop:
        """Run a recorded run again in memory: models and tools are answered from the recording.

        By default it is the run that the cursor is in. `replayed` is the session of the new run;
        `compare` shows both side by side. If the code of today asks something else than was
        recorded, that session stops with `divergence`.

        Raises:
            DebugError: The session has no agent, or no journal.
            ReplayError: The run did not begin with an input, or its beginning is gone.
        """
        journal, here = self.journal, self.here
        if journal is None:
            raise DebugError("without a journal there is nothing to replay")
        if run is None and here is not None and here.run:
            run = here.run
        record = journal.run(run) if run is not None else latest(journal)
        if record.mode != "input":
            raise DebugError(
                f"run {record.number} goes on where another one stopped; replay that one"
            )
        saver = begun(journal, record)
        graph = self._run.graph() if agent is None else getattr(agent, "graph", agent)
        child = DebugSession(agent or self.agent)
        child._close = saver.close
        self.replayed = child
        decide = Decider(policy or Policy.of_replay(), Tape(journal, record.number))
        return child._run.start(
            None,
            {langgraph_config.THREAD_ID: journal.thread_id},
            goal_of("cont", None),
            door=door,
            timeout=timeout,
            graph=graph.copy({"checkpointer": saver}),
            terms=Terms(decide, label="REPLAY"),
        )

    # --- while a run goes on or is held ----------------------------------------------------------

    def pause(self) -> bool:
        """Ask a run that goes on to stop at its next moment; False if none does.

        It waits for nothing, so a signal's handler may call it.
        """
        return self._run.pause()

    def wait(self, timeout: float | None = None) -> Stop:
        """Wait until a run that goes on is held, or over.

        Raises:
            DebugError: It takes longer than `timeout`.
        """
        return self._run.wait(timeout)

    def wait_for_run(self, timeout: float | None = None) -> Stop:
        """Wait until a run that others start with this session is held, or over.

        Raises:
            DebugError: None was within `timeout`.
        """
        return self._run.wait_for_run(timeout)

    def on_stop(self, fn: Callable[[Stop], Any]) -> Callable[[Stop], Any]:
        """Call a function at each stop, which returns how to go on: a verb, or None to continue.

        It may be `def` or `async def`, and is called in the run itself, so it must not wait for it.
        """
        return self._run.on_stop(fn)

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
        return self._run.edit(target, value)

    def skip(self, value: Any = None) -> str:
        """Do not make the held tool or model call, and take this as its result; see `edit`."""
        return self._run.skip(value)

    def accept(self, choice: Any, *, timeout: float | None = None) -> Stop:
        """Decide about the call at a stop `ask` or `divergence`, and go on.

        Args:
            choice: `recorded`, `live`, or a `Mock` with the value to take.
            timeout: Seconds to wait for the next stop.

        Raises:
            DebugError: Nothing is asked here, or there is nothing recorded.
        """
        return self._run.accept(choice, timeout)

    def abort(
        self, reason: str = "stopped in the debugger", *, timeout: float | None = None
    ) -> Stop:
        """End the run here: it counts as cancelled, and its thread can be used again.

        Raises:
            DebugError: No run goes on, or it takes longer than `timeout` to end.
        """
        return self._run.abort(reason, timeout)

    def detach(self, how: How = "keep", *, timeout: float | None = None) -> Stop | None:
        """Leave the run: let it go on alone, keep it for later, or end it.

        A run that is kept waits in the store between two calls, and any process can go on with it
        (`live`); no call is made twice. Only edits that were not gone on with are not kept.

        Raises:
            DebugError: No run goes on, it has no store to be kept in, or it takes longer than
                `timeout` to come to a place where it can be left.
        """
        return self._run.detach(how, timeout)

    def attach(
        self, run: Any, io: Any, spec: Any, journal: Listener | None, saver: Any
    ) -> Listener:
        """Take part in a run that begins; the engine calls this.

        Raises:
            DebugError: The session is busy with another run.
        """
        return self._run.attach(run, io, spec, journal, saver)
