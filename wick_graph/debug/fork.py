"""Forks: list what a continuation from a moment would execute, and run it on a new branch.

The edits and the policy of a fork are stored with its runs as data, so that any process can
continue it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langgraph.types import Command, Overwrite, StateUpdate

from wick_graph import langgraph_config
from wick_graph.debug.cursor import Cursor, goal_of
from wick_graph.debug.live import PLAIN, LiveRun, Terms
from wick_graph.debug.policy import (
    Decider,
    Edit,
    Mock,
    Policy,
    edit_of,
    kept_decider,
    kept_policy,
    put,
    record_of_fork,
    tool_edits,
    written,
)
from wick_graph.debug.timeline import BranchReader, Timeline
from wick_graph.debug.types import At, Door, Stop
from wick_graph.debug.values import listed, read_path
from wick_graph.debug.view import ViewCache
from wick_graph.errors import DebugError
from wick_graph.foreign.listener import is_agent
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.replay import Tape
from wick_graph.journal.value_store import CUT
from wick_graph.nodes.route import sent_for
from wick_graph.runtime.tool_ledger import ASKED, key_of
from wick_graph.store.ledger import Known, RecordedCalls
from wick_graph.store.saver import SqlSaver

_SAID: Final = 80
"""Characters of a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One execution that a continuation would make, as far as the recording shows."""

    step: int
    node: str
    kind: Literal["node", "model", "tool", "question"]
    name: str
    policy: str
    recorded: bool
    """Whether the recording has an answer, for the same request or arguments."""
    side_effects: bool
    """Whether it calls a tool that is not declared safe to repeat."""
    tokens: int | None
    """Its token usage in the recording."""
    text: str
    edited: bool = False
    """Whether an edit of the fork decides about it, and no policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A prepared fork; nothing has been executed or written."""

    position: str
    branch: int
    """The original branch."""
    new_branch: int
    """The branch that it makes, if no other one is made before."""
    checkpoint: str
    node: str | None
    """The node that runs first."""
    before: tuple[str, ...] = ()
    """The nodes that led there, if the state is edited."""
    policy: Policy
    own_policy: bool = False
    """Whether it keeps its policy; else what `session.policy` is when it runs replaces it."""
    will_execute: list[Planned]
    text: str
    label: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()

    def with_policy(self, policy: Policy) -> Plan:
        """Return the same plan under a policy of its own."""
        planned = [_under(one, policy) for one in self.will_execute]
        text = summary(self.position, self.new_branch, planned)
        return replace(self, policy=policy, own_policy=True, will_execute=planned, text=text)


@dataclass(frozen=True, slots=True)
class Edits:
    """The changes of a fork at its moment; None keeps a part unchanged."""

    state: Mapping[str, Any] | None = None
    request: Mapping[str, Any] | None = None
    response: Any = None
    args: Mapping[str, Any] | None = None
    result: Any = None


class Forker:
    """Prepares forks, executes them, and continues unfinished ones."""

    def __init__(self, cursor: Cursor, run: LiveRun, lock: threading.Condition) -> None:
        self.policy = Policy()
        """The default policy of forks and replays."""
        self._cursor = cursor
        self._run = run
        self._lock = lock

    def fork(self, at: At, edits: Edits, policy: Policy | None, label: str) -> Plan:
        """Prepare a new branch from a moment; see `DebugSession.fork`."""
        with self._lock:
            place = self._cursor.place(at)
            first = self._timeline.entries[self._superstep(place)]
            chosen, position = policy or self.policy, str(self._cursor.position(place))
            answers = [
                *self._model_edits(place, edits.request, edits.response),
                *tool_edits(self._timeline.entries[place], edits.args, edits.result),
            ]
            planned, made = list(self._will_execute(first, chosen, answers)), self._next_branch()
            return Plan(
                position=position,
                branch=self._timeline.branch,
                new_branch=made,
                checkpoint=first.checkpoint or "",
                node=first.node,
                before=tuple(self._before(first)) if edits.state else (),
                policy=chosen,
                own_policy=policy is not None,
                will_execute=planned,
                text=summary(position, made, planned),
                label=label,
                state=self._channels(place, edits.state or {}),
                edits=tuple(answers),
            )

    def _before(self, first: Entry) -> list[str]:
        place = self._timeline.place(first.seq)
        assert place is not None
        return nodes_before(self._views, place)

    def _next_branch(self) -> int:
        branches = [] if self._journal is None else BranchReader(self._journal).branches()
        return 1 + max((branch.number for branch in branches), default=self._timeline.branch)

    def _channels(self, place: int, state: Mapping[str, Any]) -> dict[str, Any]:
        """Turn edits at paths into whole channels."""
        shown = self._views.json.state(self._views.view(place).base) if state else {}
        made: dict[str, Any] = {}
        for text, value in state.items():
            path = read_path(text)
            channel = str(path[0])
            if channel not in shown:
                raise DebugError(f"there is no channel {channel}; there is {listed(shown)}")
            made[channel] = put(made.get(channel, shown[channel]), path[1:], value, text)
        return made

    def _model_edits(
        self, place: int, request: Mapping[str, Any] | None, response: Any
    ) -> Iterator[Edit]:
        if request is None and response is None:
            return
        if request is not None and response is not None:
            raise DebugError("pass `request` or `response`, not both")
        asked = [e for e in self._timeline.of_task(place) if e.what == "model.request"]
        if not asked:
            raise DebugError("this moment has no request; choose a moment model:request")
        given = {"request": request} if response is None else {"response": response}
        yield edit_of({"nth": len(asked), **given})

    def live(
        self, plan: Plan | None, door: Door, timeout: float | None, *, in_place: bool = False
    ) -> Stop:
        """Execute a plan, or continue the thread at its end; see `DebugSession.live`."""
        graph = self._graph()
        self._run.check_free()
        if plan is None:
            config = langgraph_config.with_configurable(None, **self._address())
            if not graph.get_state(config).next:
                raise DebugError(
                    "the thread is finished; run a new input, or fork from a moment of it"
                )
            return self._resume(None, door, timeout)
        address = {**self._address(), langgraph_config.CHECKPOINT_ID: plan.checkpoint}
        own = ""
        if not in_place and self._journal is not None:
            graph, own = own_thread(graph, self._journal, plan.checkpoint)
            address[langgraph_config.THREAD_ID] = own
        if plan.state:
            try:
                made = edit_state(graph, address, plan.state, [*plan.before])
            except DebugError:
                if own:
                    graph.checkpointer.delete_thread(own)
                raise
            address[langgraph_config.CHECKPOINT_ID] = made
        tape = None if self._journal is None else Tape(self._journal)
        policy = plan.policy if plan.own_policy else self.policy  # it may have changed since
        decide, record = Decider(policy, tape, plan.edits), record_of_fork(policy, plan.edits)
        terms = Terms(decide, record, "FORK")
        goal = goal_of("step", None)
        return self._run.start(
            None, address, goal, door=door, timeout=timeout, graph=graph, terms=terms
        )

    def _graph(self) -> Any:
        """Return the graph over the store that has the thread."""
        graph, thread_id = self._run.graph(), self._timeline.thread_id
        return graph if thread_id is None else graph_for(graph, self._journal, thread_id)

    def answer(self, value: Any, door: Door, timeout: float | None) -> Stop:
        """Answer an interrupt, and continue; see `DebugSession.answer`."""
        graph, config = (
            self._graph(),
            langgraph_config.with_configurable(None, **self._address()),
        )
        self._run.check_free()
        if not graph.get_state(config).interrupts:
            raise DebugError("the thread waits for no answer; use run or live to go on with it")
        return self._resume(Command(resume=value), door, timeout)

    def _resume(self, value: Any, door: Door, timeout: float | None) -> Stop:
        """Continue at the end of the thread; an unfinished fork keeps its edits and policy.

        Raises:
            DebugError: There is no thread, or it is in a fork without stored edits and policy.
        """
        kept = None if self._journal is None else kept_decider(self._journal)
        terms = PLAIN if kept is None else Terms(*kept, "FORK")
        address, goal = self._address(), goal_of("step", None)
        return self._run.start(
            value,
            address,
            goal,
            door=door,
            timeout=timeout,
            graph=self._graph(),
            terms=terms,
            from_end=True,
        )

    def _address(self) -> dict[str, Any]:
        thread_id = self._timeline.thread_id
        if thread_id is None:
            raise DebugError("there is no thread to go on with; run an input first")
        return {langgraph_config.THREAD_ID: thread_id}

    @property
    def executed(self) -> tuple[int, int]:
        """Numbers of real model and tool calls of the last fork or replay."""
        found = self._run.terms.decide
        return (found.live_models, found.live_tools) if isinstance(found, Decider) else (0, 0)

    # --- the plan of a continuation ---------------------------------------------------------------

    def will_execute(self, at: At = None, policy: Policy | None = None) -> list[Planned]:
        """List what a continuation from a moment would execute, as far as the recording shows.

        At the end of an unfinished thread, list what `live` would execute: the unfinished tasks of
        its step. In an unfinished fork its own policy answers them.

        Raises:
            DebugError: There is no such moment, nothing to continue, or no agent; or the thread is
                in a fork without stored edits and policy.
        """
        with self._lock:
            if at is None and self._is_left():
                kept = None if self._journal is None else kept_policy(self._journal)
                return [one for left in self._left() for one in _planned_pending(left, kept)]
            return list(self._will_execute(at, policy or self.policy))

    def _will_execute(
        self, at: At, policy: Policy, edits: Sequence[Edit] = ()
    ) -> Iterator[Planned]:
        start = self._superstep(self._cursor.place(at))
        places = range(start, self._end(start))
        again, asked = self._visited_again(places), 0
        for place in places:
            entry = self._timeline.entries[place]
            if again.get(entry.task, -1) > place:
                continue
            asked += entry.what == "model.request"
            call = entry.call_id if entry.is_call else None
            nth = asked if entry.what == "model.request" else None
            edit = next(
                (e for e in edits if e.spec.get("call", e.spec.get("nth")) == (call or nth)), None
            )
            for one in self._planned(place, policy):
                yield one if edit is None else _edited(one, edit)

    def _end(self, start: int) -> int:
        """Return the place after the last moment that a continuation from a place repeats.

        It ends with its run; if that was left or failed, with the run that continued it.
        """
        entries = self._timeline.entries
        modes = {} if self._journal is None else {r.number: r.mode for r in self._journal.runs()}
        for place in range(start, len(entries)):
            if entries[place].what == "run.enter" and place > start:
                before = [e for e in entries[start:place] if e.run == entries[place - 1].run]
                asks = any(self._asks(e) for e in before)
                if asks or modes.get(entries[place].run) not in ("resume", "answer"):
                    return place
        return len(entries)

    def _asks(self, entry: Entry) -> bool:
        """Return whether a question is asked again: no recorded result answers its call."""
        if entry.what != "interrupt.raise":
            return False
        task = [e for e in self._timeline.entries if e.task == entry.task and e.is_call]
        called = {e.call_id for e in task if e.seq < entry.seq and e.what == "tool.call"}
        ended = (e.call_id for e in self._timeline.entries if e.what == "tool.exit")
        return not called & set(ended)

    def _is_left(self) -> bool:
        """Return whether the cursor is at the end of a recording with an unfinished run."""
        at_the_end = 0 <= self._cursor.at == self._cursor.last
        return at_the_end and self._run.joined is None and self._timeline.thread_id is not None

    def _left(self) -> list[PendingTask]:
        graph = self._graph()
        address, store = self._address(), graph.checkpointer
        state = graph.get_state(langgraph_config.with_configurable(None, **address))
        if not state.next:
            raise DebugError("nothing follows here that could be run; choose an earlier moment")
        thread_id = address[langgraph_config.THREAD_ID]
        if not is_agent(graph):
            return [_foreign_task(task) for task in state.tasks if task.result is None]
        ledger = store.recorded_calls(thread_id) if isinstance(store, SqlSaver) else None
        return list(pending_tasks(state, self._timeline.entries, graph.spec, ledger))

    def _visited_again(self, places: range) -> dict[str | None, int]:
        """Return where each task last began: a continued run begins its tasks again."""
        entries = self._timeline.entries
        begins = {entries[p].task: p for p in places if entries[p].what == "node.enter"}
        return {task: place for task, place in begins.items() if task is not None}

    def _planned(self, place: int, policy: Policy) -> Iterator[Planned]:
        entry = self._timeline.entries[place]
        step, node = entry.step, entry.node or ""
        if entry.what == "node.enter":
            yield Planned(
                step=step,
                node=node,
                kind="node",
                name=node,
                policy="live",
                recorded=False,
                side_effects=False,
                tokens=None,
                text=f"node {node}: its code and its hooks are run",
            )
        elif entry.what == "model.request":
            yield Planned(
                step=step,
                node=node,
                kind="model",
                name=entry.name,
                policy=_word(policy.model),
                recorded=True,
                side_effects=False,
                tokens=self._tokens_of(place),
                text=_model_text(entry.name, policy),
            )
        elif entry.is_call:
            choice = policy.tool(entry.name)
            effects = self._views.view(place).details.get("replay") != "safe"
            yield Planned(
                step=step,
                node=node,
                kind="tool",
                name=entry.name,
                policy=_word(choice),
                recorded=True,
                side_effects=effects,
                tokens=None,
                text=_tool_text(entry.name, effects, policy),
            )

        elif entry.what == "interrupt.raise" and self._asks(entry):
            asked = self._views.view(place).details.get("value") or ()
            said = "; ".join(str(one.get("value"))[:_SAID] for one in asked) or "a question"
            yield Planned(
                step=step,
                node=node,
                kind="question",
                name=node,
                policy="ask",
                recorded=False,
                side_effects=False,
                tokens=None,
                text=f"question in {node}: {said}; the run waits for its answer",
            )

    def _tokens_of(self, place: int) -> int | None:
        asked = self._timeline.entries[place]
        for at in range(place + 1, len(self._timeline)):
            entry = self._timeline.entries[at]
            if entry.what == "model.response" and entry.parent == asked.seq:
                used = self._views.view(at).usage or {}
                return used.get("total_tokens")
        return None

    @property
    def _views(self) -> ViewCache:
        return self._cursor.views

    @property
    def _timeline(self) -> Timeline:
        return self._cursor.views.timeline

    @property
    def _journal(self) -> Journal | None:
        return self._cursor.views.journal

    def _superstep(self, place: int) -> int:
        """Return where the step of a moment began, or where the next one begins."""
        entries = self._timeline.entries
        if not 0 <= place < len(entries):
            raise DebugError("nothing is recorded here that could be continued")
        outer = entries[place].level.partition("/")[0]
        while place and outer and entries[place].name != outer:  # out of the subgraph
            place -= 1
        while place < len(entries) and entries[place].checkpoint is None:
            place += 1
        if place == len(entries) or entries[place].kind == "checkpoint":
            raise DebugError(
                "nothing follows here that could be run again; choose an earlier moment"
            )
        return next(
            (
                self._timeline.place(e.seq) or 0
                for e in reversed(list(self._timeline.superstep(place)))
            ),
            place,
        )


def _planned_pending(left: PendingTask, kept: Policy | None) -> Iterator[Planned]:
    """Yield the executions of a pending task; `kept` is the policy of its fork."""
    shared: dict[str, Any] = {"step": left.step, "node": left.node}
    text = f"node {left.node}: its code and its hooks are run"
    yield Planned(
        **shared,
        policy="live",
        kind="node",
        name=left.node,
        recorded=False,
        side_effects=False,
        tokens=None,
        text=text,
    )
    if left.node in ("model", "tools") and not left.foreign:
        effects = left.node == "tools" and left.replay != "safe"
        word, text = _answer_of_pending(left, effects, kept)
        yield Planned(
            **shared,
            policy=word,
            kind="model" if left.node == "model" else "tool",
            name=left.name,
            recorded=left.recorded,
            side_effects=effects,
            tokens=None,
            text=text,
        )


def _answer_of_pending(left: PendingTask, effects: bool, kept: Policy | None) -> tuple[str, str]:
    """Return the policy of a task's call, and a sentence about it."""
    if kept is not None and not (left.asks or left.recorded):
        choice = kept.model if left.node == "model" else kept.tool(left.name)
        if choice != "live":
            is_model = left.node == "model"
            text = (
                _model_text(left.name, kept) if is_model else _tool_text(left.name, effects, kept)
            )
            return _word(choice), text
    return "live", text_of(left)


def _edited(one: Planned, edit: Edit) -> Planned:
    """Return an execution as an edit of its call changes it."""
    what = {"args": "other arguments", "request": "another request"}
    changed = next((text for name, text in what.items() if name in edit.spec), None)
    if changed is None:
        word, text = "mock", "answered with a given value"
    else:
        word, text = "live", f"really {'asked' if one.kind == 'model' else 'called'} with {changed}"
    effects = "; it has side effects" if one.side_effects else ""
    return replace(one, policy=word, text=f"{one.kind} {one.name}: {text}{effects}", edited=True)


def _under(one: Planned, policy: Policy) -> Planned:
    """Return an execution as it is under a policy, which decides about models and tools alone."""
    if one.edited:
        return one
    if one.kind == "model":
        return replace(one, policy=_word(policy.model), text=_model_text(one.name, policy))
    if one.kind == "tool":
        text = _tool_text(one.name, one.side_effects, policy)
        return replace(one, policy=_word(policy.tool(one.name)), text=text)
    return one


def _model_text(name: str, policy: Policy) -> str:
    return f"model {name}: {_said(policy.model, policy.missing_model)}"


def _tool_text(name: str, effects: bool, policy: Policy) -> str:
    said = _said(policy.tool(name), policy.missing if effects else "live")
    return f"tool {name}: {said}" + ("; it has side effects" if effects else "")


def _word(choice: Any) -> str:
    return "mock" if isinstance(choice, Mock) else str(choice)


def _said(choice: Any, missing: str) -> str:
    if isinstance(choice, Mock):
        return "answered with a given value"
    if choice != "recorded":
        return {"live": "really called", "ask": "you are asked"}[choice]
    other = {"live": "is really called", "ask": "you are asked", "stop": "it stops there"}[missing]
    return f"answered from the recording; if it is asked something else, {other}"


def summary(position: str, branch: int, planned: list[Planned]) -> str:
    """Summarise in a line what a fork would execute."""
    count = {kind: sum(p.kind == kind for p in planned) for kind in ("node", "model", "tool")}
    words = ", ".join(dict.fromkeys(f"{p.name}={p.policy}" for p in planned if p.kind != "node"))
    parts = ", ".join(f"{n} {kind}{'s' * (n != 1)}" for kind, n in count.items())
    return f"branch b{branch} from {position}: {parts} would execute" + (
        f": {words}" if words else ""
    )


# --- pending tasks of an interrupted step --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTask:
    """A task that still has to run, or to run again."""

    node: str
    step: int
    """Its step if it has begun, else 0."""
    name: str
    """The tool of its call, or its model; empty for other nodes."""
    asks: bool
    """Whether it waits for an answer."""
    known: Known | None
    """What the ledger says of its call; None for a call that runs as a new one."""
    under_way: bool
    """Whether its call has begun without a known end."""
    replay: str
    foreign: bool = False
    """Whether it is one of another graph: only its node is known."""

    @property
    def recorded(self) -> bool:
        """Whether its call has ended: the result is kept, and the call is not repeated."""
        return self.known == "done"


def pending_tasks(
    state: Any, entries: Sequence[Entry], spec: Any, ledger: RecordedCalls | None
) -> Iterator[PendingTask]:
    """Yield the unfinished tasks of a thread's next step; finished ones keep their results.

    The ledger decides which calls run again. A process may be killed between its commits and those
    of the journal, so moments say only when a task began, and that a call was repeatable.

    Args:
        state: LangGraph's `StateSnapshot` of the thread.
        entries: Recorded moments, including those of these tasks.
        spec: The agent to run them.
        ledger: The thread's ledger; None without an engine store.
    """
    calls = _sent_calls(state.values.get("messages") or (), state.tasks)
    tools = spec.toolbox.at(state.values)
    for task in state.tasks:
        call = calls.pop(0) if task.name == "tools" and calls else {}
        if task.result is not None:
            continue
        seen = _last_visit(task.id, entries)
        whats = {entry.what for entry in seen}
        name = next((entry.tool for entry in seen if entry.tool), call.get("name", ""))
        tool, asks, known = tools.get(name), bool(task.interrupts), None
        if call and tool is not None and ledger is not None:
            known = ledger.known(call["key"], name, call["args"], tool.replay, any_args=bool(seen))
            asks = asks or ledger.state(key_of(call["key"])) == ASKED
        cut_off = "tool.call" in whats and "tool.exit" not in whats and not seen[-1].is_left
        replay = "never" if tool is None else tool.replay
        yield PendingTask(
            node=task.name,
            step=seen[0].step if seen else 0,
            name=spec.model.name if task.name == "model" else name,
            asks=asks,
            known=known,
            under_way=known == "again" or (known is None and replay == "safe" and cut_off),
            replay=replay,
        )


def _foreign_task(task: Any) -> PendingTask:
    return PendingTask(
        node=task.name,
        step=0,
        name="",
        asks=bool(task.interrupts),
        known=None,
        under_way=False,
        replay="never",
        foreign=True,
    )


def text_of(left: PendingTask) -> str:
    """Describe what a continuation does with a task's call."""
    what = "model" if left.node == "model" else "tool"
    if left.asks:
        return f"{what} {left.name}: waits for an answer, and is run again from its start with it"
    if left.recorded:
        return f"{what} {left.name}: its result is kept, and it is not called again"
    if left.node == "model":
        return f"model {left.name}: really asked"
    if left.known == "unknown":
        return (
            f"tool {left.name}: was under way, and is not called again; "
            "the model reads that its outcome is unknown"
        )
    again = ", once more: it was under way" if left.under_way else ""
    effects = "" if left.replay == "safe" else "; it has side effects"
    return f"tool {left.name}: really called{again}{effects}"


def _last_visit(task: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return the moments of a task's last visit, in order."""
    own = [entry for entry in entries if entry.task == task]
    begins = [at for at, entry in enumerate(own) if entry.what == "node.enter"]
    return own[begins[-1] :] if begins else []


def _sent_calls(messages: Sequence[Any], tasks: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the calls of a step's tasks as `route` sends them, in order: one task for each call.

    Calls that were answered together with the reply have no task. The state already shows those
    that a task has answered.
    """
    results = [task.result for task in tasks if isinstance(task.result, dict)]
    made = [message for result in results for message in result.get("messages") or ()]
    by_task = {message.tool_call_id for message in made if isinstance(message, ToolMessage)}
    answered = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            sent = (sent_for(message, index) for index in range(len(message.tool_calls)))
            return [call for call in sent if call["id"] not in answered - by_task]
    return []


# --- where a fork runs: a thread of its own, with its edits of the state -------------------------


_BEFORE: Final = {
    "before_agent": "__start__",
    "modify_request": "before_agent",
    "model": "modify_request",
    "tools": "model",
}
"""The predecessor of each of an agent's nodes: a state edited there continues with the node."""

_LAST_WRITE: Final = ("LastValue", "EphemeralValue", "AnyValue", "UntrackedValue", "Topic")
"""Kinds of channels with writes that replace what was there."""

_FORK: Final = re.compile(r"-fork\d+$")

_LONGEST: Final = 128
"""Characters of a thread id."""


def graph_for(graph: Any, journal: Journal | None, thread_id: str) -> Any:
    """Return a graph over the store that has a thread: its own, else that of its recording."""
    if is_agent(graph) or journal is None or isinstance(graph.checkpointer, SqlSaver):
        return graph
    config: Any = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: thread_id}
    )
    with suppress(NotImplementedError, RuntimeError):  # a saver for one event loop alone
        if graph.checkpointer and graph.checkpointer.get_tuple(config) is not None:
            return graph
    return graph.copy({"checkpointer": journal.saver})


def own_thread(graph: Any, journal: Journal, checkpoint: str) -> tuple[Any, str]:
    """Copy a thread for a fork; return a graph over its store, and the copy's id.

    Raises:
        DebugError: A value at the checkpoint is recorded as text alone.
    """
    store = graph.checkpointer if is_agent(graph) else journal.saver
    if not isinstance(store, SqlSaver):
        raise DebugError("this agent's store keeps no copies; fork with in_place")
    if store is not graph.checkpointer:
        _check_whole(journal, checkpoint)
        graph = graph.copy({"checkpointer": store})
    base, number = _FORK.sub("", journal.thread_id), 1
    while store.threads.look(name := f"{base[: _LONGEST - 8]}-fork{number}") is not None:
        number += 1
    store.threads.fork(journal.thread_id, name)
    return graph, name


def _check_whole(journal: Journal, checkpoint: str) -> None:
    saved = journal.saved(checkpoint)
    values = {} if saved is None else saved.checkpoint["channel_values"]
    for name, value in values.items():
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, Mapping) and CUT in item for item in items):
            raise DebugError(
                f"the recording has {name} as text alone, since its class is no data; fork with "
                "in_place, or give the graph an SqlSaver"
            )


def edit_state(
    graph: Any, address: Mapping[str, Any], state: Mapping[str, Any], before: list[str]
) -> str:
    """Write channels at a checkpoint, so that the same nodes follow; return the new checkpoint.

    `before` are the nodes that led to these.

    Raises:
        DebugError: The graph refuses the values.
    """
    config = langgraph_config.with_configurable(None, **address)
    wanted = set(graph.get_state(config).next)
    made: Any = config
    try:
        values = written(state)
        if not is_agent(graph):
            values = {name: _whole(graph.channels.get(name), one) for name, one in values.items()}
        for goto in ((), sorted(wanted)):
            given: Any = values
            if goto:  # a `Command` led there, not an edge
                given = Command(update=values, goto=goto)
            updates = [StateUpdate(given, before[0])]
            updates += [StateUpdate(None, node) for node in before[1:]]
            made = graph.bulk_update_state(config, [updates])
            if graph.get_state(made).next or not wanted:
                break
    except Exception as error:  # reducers get what a person wrote
        raise DebugError(f"the graph refuses this state: {error}") from error
    return str(langgraph_config.configurable(made)[langgraph_config.CHECKPOINT_ID])


def _whole(channel: Any, value: Any) -> Any:
    """Return the write that makes a value the channel's whole one."""
    if type(channel).__name__ in _LAST_WRITE:
        return value
    if isinstance(value, list) and value and isinstance(value[0], RemoveMessage):
        value = value[1:]  # `Overwrite` removes the old ones
    return Overwrite(value)


def nodes_before(views: ViewCache, place: int) -> list[str]:
    """Return the nodes that led to those of the superstep at a place, where it begins."""
    timeline, journal = views.timeline, views.journal
    first = timeline.entries[place]
    if views.shape is None or journal is None:
        return [_BEFORE.get(first.node or "", "__start__")]
    begins = {run.first for run in journal.runs() if run.mode == "input"}
    ended: list[Entry] = []
    for entry in reversed(timeline.entries[:place]):
        if entry.seq in begins or (ended and entry.checkpoint not in (None, ended[0].checkpoint)):
            break
        if entry.what == "node.exit" and not entry.level:
            ended.append(entry)
    step = timeline.entries[place:]
    entered = {e.node for e in step if (e.what, e.checkpoint) == ("node.enter", first.checkpoint)}
    told = [(entry, journal.details(entry)) for entry in reversed(ended)]
    led = [e for e, said in told if entered & {*said.get("goto", ()), *said.get("sends", ())}]
    found = led or ended[:1]  # the last one of those that an edge waited for
    return list(dict.fromkeys(entry.name for entry in found)) or ["__start__"]
