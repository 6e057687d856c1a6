"""`DebugSession`: inspect and control one recording or one live run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Self

from langgraph.pregel import Pregel

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
from wick_graph.engine.agent import Agent
from wick_graph.engine.graph import AgentGraph
from wick_graph.errors import DebugError
from wick_graph.foreign.listener import heard_by, is_agent
from wick_graph.foreign.run import shape_of
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.replay import Tape, begun, chain_of, latest, value_of
from wick_graph.journal.value_store import is_secret_name
from wick_graph.messages.validation import read_history, with_channels


class DebugSession:
    """Step through an agent's run, forwards and backwards.

        with DebugSession.open(agent, "th_…") as session:
            session.add("break tool:* if error")
            print(session.cont().text, session.why("messages[-1].content"))

    Moves in the past execute nothing. `inspect` reads moments, `breakpoints` has the breakpoints,
    `outputs` the lines of log points. All methods are thread-safe.
    """

    def __init__(
        self, agent: Any = None, *, store: Any = None, thread_id: str | None = None
    ) -> None:
        """Begin without a recording; the first run gives the session its thread, or makes this one.

        `agent` is an agent or any LangGraph graph; `store` is for the recording of a graph without
        an `SqlSaver`, by default `checkpoints/recorded.db`.
        """
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
        self._run.store = store
        self._cursor.timeline.thread_id = thread_id
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
        """Open a thread; a recording begins at its first moment.

        Args:
            source: An agent, a store, a journal, a database's URL, or a `.wickrun` file.
            thread_id: The thread; a journal and a file have their own.
            agent: The agent for forks, replays, and continued runs.
            branch: The branch; the latest by default.

        Raises:
            DebugError: The source cannot be debugged, or the thread id is missing.
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
        if (shape := session._cursor.views.shape) is not None:
            session.breakpoints.outline = shape
        return session

    def close(self) -> None:
        """Leave the running run, and close what `open` opened.

        A run that the session started is kept, so that any process can continue it; without a store
        it is ended. A run that others started continues without the session.
        """
        try:
            self._run.leave()
        finally:
            close, self._close = self._close, lambda: None
            close()
            self._run.close_copies()
            if self.replayed is not None:
                self.replayed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- where the session is --------------------------------------------------------------------

    @property
    def agent(self) -> Any:
        """The agent for runs, if one was given; it may be set later."""
        return self._run.agent

    @agent.setter
    def agent(self, agent: Any) -> None:
        self._run.agent = agent
        graph = getattr(agent, "graph", agent)
        if isinstance(graph, Pregel) and not is_agent(graph):
            self.breakpoints.outline = shape = shape_of(graph)
            self._cursor.views.json.look_like(shape["channels"], shape["empty"])
        elif agent is not None:
            self.breakpoints.outline = agent
        if isinstance(agent, Agent | AgentGraph):
            self._cursor.views.json.reducers = agent.spec.state.reducers

    @property
    def context(self) -> Any:
        """The context for the session's runs, if its agent needs one; no recording has it."""
        return self._run.context

    @context.setter
    def context(self, context: Any) -> None:
        self._run.context = context

    @property
    def hides(self) -> bool:
        """Whether texts under names of secrets are hidden; for faces of other people."""
        return self._cursor.views.json.hides is not None

    @hides.setter
    def hides(self, hides: bool) -> None:
        self._cursor.views.json.hides = is_secret_name if hides else None

    @property
    def journal(self) -> Journal | None:
        """The record of the thread's runs, if it has one."""
        return self._cursor.views.journal

    @property
    def thread_id(self) -> str | None:
        """The id of the thread; None before its first run."""
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
        """The cursor's position as text."""
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
        """The last stop of the session."""
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
        """Numbers of real model and tool calls of the last fork or replay."""
        return self._forker.executed

    @property
    def policy(self) -> Policy:
        """The default policy of forks and replays."""
        return self._forker.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._forker.policy = policy

    # --- moving ----------------------------------------------------------------------------------

    def verb(self, name: str, *, timeout: float | None = None) -> Stop:
        """Move by a verb's name or abbreviation, of `VERBS`: `n`, `reverse-next`, `next_error`.

        Raises:
            DebugError: There is no such verb, or the next stop takes longer than `timeout` seconds,
                and the run continues. All moves raise this.
        """
        return self._run.verb(name, timeout)

    def step(self, timeout: float | None = None) -> Stop:
        """Go to the next moment, at any depth."""
        return self._run.verb("step", timeout)

    def next(self, timeout: float | None = None) -> Stop:
        """Go to the next moment that is not deeper."""
        return self._run.verb("next", timeout)

    def finish(self, timeout: float | None = None) -> Stop:
        """Continue to the end of the moment's frame."""
        return self._run.verb("finish", timeout)

    def nextnode(self, timeout: float | None = None) -> Stop:
        """Go to the next entry of a node."""
        return self._run.verb("nextnode", timeout)

    def turn(self, timeout: float | None = None) -> Stop:
        """Go to the next request to a model."""
        return self._run.verb("turn", timeout)

    def cont(self, timeout: float | None = None) -> Stop:
        """Continue to the next stop."""
        return self._run.verb("cont", timeout)

    def until(self, text: str, timeout: float | None = None) -> Stop:
        """Continue to a position, or until an expression is true.

        Raises:
            DebugError: There is no such position.
            ExpressionError: It is not an expression.
        """
        return self._run.until("until", text, timeout)

    def reverse_step(self) -> Stop:
        """Go back to the previous moment."""
        return self._run.verb("reverse_step")

    def reverse_next(self) -> Stop:
        """Go back to the previous moment that is not deeper."""
        return self._run.verb("reverse_next")

    def reverse_finish(self) -> Stop:
        """Go back to before the entry of the moment's frame."""
        return self._run.verb("reverse_finish")

    def prevnode(self) -> Stop:
        """Go back to the last entry of a node."""
        return self._run.verb("prevnode")

    def prevturn(self) -> Stop:
        """Go back to the last request to a model."""
        return self._run.verb("prevturn")

    def reverse_cont(self) -> Stop:
        """Go back to the previous stop."""
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
        """Switch to another branch; the cursor keeps a shared moment, else it goes to the end.

        Raises:
            DebugError: There is no such branch, or a run is running on this one.
        """
        return self._run.choose(branch)

    # --- looking ---------------------------------------------------------------------------------

    def add(self, spec: str) -> Breakpoint:
        """Set a breakpoint as it is written: `break tool:bash if args.command == "ls"`.

        Raises:
            DebugError: It is not a breakpoint.
            ExpressionError: Its condition is not an expression.
        """
        return self.breakpoints.add(spec)

    def value(self, expression: str, at: At = None) -> Any:
        """Return the value of an expression at a moment.

        Raises:
            ExpressionError: It is not an expression, or has no value there.
        """
        return self.inspect.value(expression, at)

    def request(self, at: At = None) -> RequestView:
        """Return the request to the model at a moment: its own, the last before, or the next one.

        Raises:
            DebugError: No model was called.
            StorageError: Its data is gone.
        """
        return self.inspect.request(at)

    def why(self, path: str, at: At = None) -> list[Cause]:
        """List the causes of a value in the state, the nearest first.

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
        """Answer an input in a new Python thread, and return at the first stop.

        Raises:
            DebugError: The session has no agent, or a run is running.
            MessageError: The input is invalid.
        """
        self._run.check_free()
        thread = thread_id or self.thread_id or f"debug_{threading.get_ident()}_{id(self)}"
        if is_agent(self._run.graph()):
            messages, answers = read_history(input)
            given = with_channels(input, messages)
        else:
            given = {"messages": [("user", input)]} if isinstance(input, str) else input
            answers = ()
        return self._run.start(
            given,
            {langgraph_config.THREAD_ID: thread},
            goal_of("step" if stop_on_entry else "cont", None),
            door=door,
            timeout=timeout,
            answers=answers,
        )

    def answer(self, value: Any, *, door: Door = "sync", timeout: float | None = None) -> Stop:
        """Answer an interrupt, and continue the thread to the next stop; see `run`.

        Raises:
            DebugError: The thread asks nothing, the session has no agent, or a run is running.
        """
        return self._forker.answer(value, door, timeout)

    def live(
        self,
        plan: Plan | None = None,
        *,
        door: Door = "sync",
        timeout: float | None = None,
        in_place: bool = False,
    ) -> Stop:
        """Execute a prepared fork, or continue the thread at its end; return at the first stop.

        A fork runs in a copy of the thread, which the session then shows, unless it is `in_place`.
        Without a policy of its own it has the `session.policy` of this call.
        An unfinished fork continues with its own policy and edits, in any process.

        Raises:
            DebugError: The session has no agent, the thread is finished, or it is in a fork without
                stored edits and policy.
        """
        return self._forker.live(plan, door, timeout, in_place=in_place)

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
            at: The moment; its step runs again.
            state: Channels, or paths in them, and their new values.
            request: `system`, `messages` or `settings` of the request at the moment.
            response: The model's reply, instead of a model call.
            args: The arguments of the call at the moment.
            result: The result of the call at the moment, instead of the call.
            policy: The policy for the other calls; by default what `session.policy` is when the
                fork runs.
            label: A word for people.

        Raises:
            DebugError: Nothing can continue from there, or the moment has no such part.
        """
        edits = Edits(state, request, response, args, result)
        return self._forker.fork(at, edits, policy, label)

    def will_execute(self, at: At = None, policy: Policy | None = None) -> list[Planned]:
        """List what a continuation from a moment would execute, as far as the recording shows.

        At the end of an unfinished thread, list what `live` would execute: the unfinished tasks of
        its step. In an unfinished fork its own policy answers them.

        Raises:
            DebugError: There is no such moment, nothing to continue, or no agent; or the thread is
                in a fork without stored edits and policy.
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
        """Replay a recorded run in memory: the recording answers models and tools.

        By default it is the cursor's run, with the runs that it continued. `replayed` is the
        session of the new run; `compare` shows both side by side. If the present code makes an
        unrecorded request, that session stops with `divergence`.

        Raises:
            DebugError: The session has no agent, or no journal.
            ReplayError: The run did not begin with an input, or its beginning is gone.
        """
        journal, here = self.journal, self.here
        if journal is None:
            raise DebugError("without a journal there is nothing to replay")
        if run is None and here is not None and here.run:
            run = here.run
        chain = chain_of(journal, journal.run(run) if run is not None else latest(journal))
        saver = begun(journal, chain[0])
        graph = self._run.graph() if agent is None else getattr(agent, "graph", agent)
        graph = graph.copy({"checkpointer": saver})
        child = DebugSession(agent or self.agent)
        child._close, child.context = saver.close, self.context
        self.replayed = child
        tape = Tape(journal, [record.number for record in chain], asks=True)
        decide = Decider(policy or Policy.of_replay(), tape)
        then = tuple(partial(value_of, journal, record, graph) for record in chain[1:])
        return child._run.start(
            None,
            {langgraph_config.THREAD_ID: journal.thread_id},
            goal_of("cont", None),
            door=door,
            timeout=timeout,
            graph=graph,
            terms=Terms(decide, label="REPLAY", then=then),
        )

    # --- control of a running or held run --------------------------------------------------------

    def pause(self) -> bool:
        """Ask the running run to stop at its next moment; return False if there is none.

        It never blocks, so a signal handler may call it.
        """
        return self._run.pause()

    def wait(self, timeout: float | None = None) -> Stop:
        """Wait until the running run is held or has ended.

        Raises:
            DebugError: It takes longer than `timeout`.
        """
        return self._run.wait(timeout)

    def wait_for_run(self, timeout: float | None = None) -> Stop:
        """Wait until a run that others start with this session is held or has ended.

        Raises:
            DebugError: There was none within `timeout`.
        """
        return self._run.wait_for_run(timeout)

    def on_stop(self, fn: Callable[[Stop], Any]) -> Callable[[Stop], Any]:
        """Call a function at each stop; it returns a verb, or None to continue.

        It may be `def` or `async def`, and runs in the run itself, so it must not wait for the run.
        """
        return self._run.on_stop(fn)

    def edit(self, target: str, value: Any) -> str:
        """Change the held moment, and return a sentence on the effect.

        Args:
            target: `args`, `result`, `response`, `request.system`, `request.messages`,
                `request.settings`, or `writes.CHANNEL`.
            value: JSON-like data; messages in wick's form.

        Raises:
            DebugError: Nothing waits at the cursor, or the moment has no such part.
            MessageError: A message is invalid.
        """
        return self._run.edit(target, value)

    def skip(self, value: Any = None) -> str:
        """Skip the held tool or model call, and use this as its result; see `edit`."""
        return self._run.skip(value)

    def accept(self, choice: Any, *, timeout: float | None = None) -> Stop:
        """Decide about the call at a stop `ask` or `divergence`, and continue.

        Args:
            choice: `recorded`, `live`, or a `Mock` with the value to use.
            timeout: Seconds to wait for the next stop.

        Raises:
            DebugError: There is no question here, or no recorded answer.
        """
        return self._run.accept(choice, timeout)

    def abort(
        self, reason: str = "stopped in the debugger", *, timeout: float | None = None
    ) -> Stop:
        """End the run here: it counts as cancelled, and its thread can be used again.

        Raises:
            DebugError: No run is running, or it takes longer than `timeout` to end.
        """
        return self._run.abort(reason, timeout)

    def detach(
        self, how: How = "keep", *, timeout: float | None = None, note: str = ""
    ) -> Stop | None:
        """Leave the run: let it continue alone, keep it for later, or end it.

        A kept run waits in the store between two calls, and any process can continue it (`live`);
        no call is made twice. Only pending edits of the held moment are lost. A note goes into the
        record of a held run.

        Raises:
            DebugError: No run is running, it has no store, or it takes longer than `timeout` to
                reach a place where it can be left.
        """
        return self._run.detach(how, timeout, note)

    def attach(
        self, run: Any, io: Any, spec: Any, journal: Listener | None, saver: Any
    ) -> Listener:
        """Attach to a starting run; the engine calls this.

        Raises:
            DebugError: The session is busy with another run.
        """
        return self._run.attach(run, io, spec, journal, saver)


def hears(session: DebugSession) -> AbstractContextManager[None]:
    """Hold runs of any LangGraph graph that others start in the block, one at a time.

    `wait_for_run` waits for one. An agent's runs need no block: pass the session as `debug`.
    """
    return heard_by(session._run)
