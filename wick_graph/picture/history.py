"""Lay a thread over its graph: path, tokens, errors and measured times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from wick_graph import langgraph_config
from wick_graph.core.usage import Usage, usage_of
from wick_graph.engine.graph import AgentGraph
from wick_graph.engine.thread_turn import engine_store
from wick_graph.errors import ConfigError, StorageError, ThreadNotFoundError
from wick_graph.journal import Entry, Journal, RunRecord
from wick_graph.picture.model import NOTHING, Edge, LayerKey, RunOverlay, Tally
from wick_graph.picture.read import ids_of, subagents_of
from wick_graph.runtime.context import AgentSpec
from wick_graph.store.checkpoint_list import sharing

# --- Measured times from a thread's journal, separately for each node, tool and hook.


WHOLE_STEPS: Final = "times are those of whole steps"

_PARALLEL: Final = "times of parallel calls are added up"


def measured(overlay: RunOverlay, saver: Any, steps: Collection[str]) -> RunOverlay:
    """Add the journal's measured times, if it recorded all of the steps, and count its calls.

    A call that a hook answered, or turned into one of another tool, did not run the tool it names.

    Args:
        overlay: The overlay from the checkpoints.
        saver: The store of the thread; only a `SqlSaver` keeps journals.
        steps: The first checkpoints of the steps on the thread's path.
    """
    if engine_store(saver) is None or not steps:
        return overlay
    try:
        entries = [e for e in Journal(saver, overlay.thread_id).moments() if e.checkpoint in steps]
    except StorageError:
        return overlay
    if {entry.checkpoint for entry in entries if entry.what == "node.exit"} != set(steps):
        return overlay
    nodes = _added(overlay.nodes, _measured_seconds(entries, "node"))
    notes = [_PARALLEL if note == WHOLE_STEPS else note for note in overlay.notes]
    seconds = sum(tally.seconds or 0.0 for tally in nodes.values())
    return replace(
        overlay,
        total=replace(overlay.total, seconds=seconds),
        nodes=nodes,
        tools=_called(entries),
        layers=_layers(entries),
        notes=tuple(notes),
    )


def _measured_seconds(entries: list[Entry], kind: str) -> dict[str, float]:
    """Sum the durations of each node's visits, or of each tool's calls."""
    found: dict[str, float] = {}
    for entry in entries:
        if entry.kind == kind and entry.phase == "exit" and entry.duration_us is not None:
            found[entry.name] = found.get(entry.name, 0.0) + entry.duration_us / 1e6
    return found


def _called(entries: list[Entry]) -> dict[str, Tally]:
    """Count the calls of each tool that ran to their end, with their times and errors."""
    found: dict[str, Tally] = {}
    open_: dict[tuple[str | None, str | None], str] = {}
    for entry in entries:
        key = entry.task, entry.call_id
        if entry.is_call:
            open_[key] = entry.name
        elif entry.kind != "tool" or not entry.is_end or entry.phase == "return" or entry.is_left:
            continue
        else:
            name = open_.pop(key, None)
            took = None if entry.duration_us is None else entry.duration_us / 1e6
            tally = Tally(int(name is not None), took, errors=int(entry.fails))
            name = name or entry.name
            found[name] = found.get(name, NOTHING) + tally
    return dict(sorted(found.items()))


def _added(tallies: Any, seconds: dict[str, float]) -> dict[str, Tally]:
    return {name: replace(tally, seconds=seconds.get(name)) for name, tally in tallies.items()}


def _layers(entries: list[Entry]) -> dict[LayerKey, Tally]:
    found: dict[LayerKey, Tally] = {}
    for entry in entries:
        if entry.kind != "hook" or not entry.is_end or entry.hook_phase is None:
            continue
        key = (entry.hook_phase, entry.name)
        took = None if entry.duration_us is None else entry.duration_us / 1e6
        tally = Tally(1, took, errors=int(entry.phase == "error"))
        found[key] = found.get(key, NOTHING) + tally
    return found


# --- Lay a thread over its graph from its checkpoints: the path, tokens and errors.
#
# A checkpoint has the tasks of a superstep, their writes and its end. Only a journal, if any, has
# the duration of each of several parallel tasks, and the work of hooks.


MAX_STEPS: Final = 2_000
"""Limit of read checkpoints, the newest ones."""

_DEPTH: Final = 6
"""Depth of the search for messages in a task's writes."""

_LAST: Final = "__end__"

_ANSWERS_ITSELF: Final = frozenset({"model", "before_agent"})
"""An agent's nodes that answer calls without running them."""


def overlay_of(graph: Any, thread_id: str, *, limit: int = MAX_STEPS) -> RunOverlay:
    """Read a thread's path to its present head.

    Args:
        graph: The compiled graph, with the checkpointer that holds the thread.
        thread_id: The thread.
        limit: Checkpoints to read, the newest ones.

    Raises:
        ConfigError: The graph has no checkpointer.
        ThreadNotFoundError: The thread has no checkpoint.
    """
    if not getattr(graph, "checkpointer", None):
        raise ConfigError("this graph keeps no threads; compile it with a checkpointer")
    config = langgraph_config.with_configurable(None, **{langgraph_config.THREAD_ID: thread_id})
    with sharing():
        steps = _path(_step(found) for found in graph.get_state_history(config, limit=limit))
    if not steps:
        raise ThreadNotFoundError(f"there is no checkpoint of a thread {thread_id}")
    drawn = graph.get_graph()
    spec = graph.spec if isinstance(graph, AgentGraph) else None
    reader = _Reader(ids_of(drawn.nodes), _givers(spec))
    for edge in drawn.edges:
        reader.follow(edge.source, edge.target, bool(edge.conditional))
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        reader.read(step, following)
    made = reader.overlay(thread_id, steps, cut=steps[0].parent is not None)
    return measured(made, graph.checkpointer, reader.worked)


def _givers(spec: AgentSpec | None) -> frozenset[str]:
    """Return the tools that delegate to sub-agents."""
    below = subagents_of(spec) if spec is not None else []
    return frozenset(tool for _, tools in below for tool in tools)


@dataclass(frozen=True, slots=True)
class _Task:
    name: str
    finished: bool
    failed: bool
    waits: bool
    usage: Usage
    answers: tuple[ToolMessage, ...]
    asked: Mapping[str, Any]
    """The agent in a call's arguments, by call id."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One checkpoint, with the tasks that ran from it."""

    id: str
    parent: str | None
    source: str
    run_id: str | None
    made: datetime | None
    tasks: tuple[_Task, ...]
    stop_reason: str


def _step(found: Any) -> _Step:
    metadata = found.metadata or {}
    parent = langgraph_config.configurable(found.parent_config).get(langgraph_config.CHECKPOINT_ID)
    values = found.values if isinstance(found.values, Mapping) else {}
    return _Step(
        id=str(langgraph_config.configurable(found.config).get(langgraph_config.CHECKPOINT_ID)),
        parent=None if parent is None else str(parent),
        source=str(metadata.get("source", "")),
        run_id=metadata.get("run_id"),
        made=_moment(found.created_at),
        tasks=tuple(_task(task) for task in found.tasks),
        stop_reason=str(values.get("stop_reason") or ""),
    )


def _moment(written: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(written)
    except (TypeError, ValueError):
        return None


def _task(task: Any) -> _Task:
    messages = tuple(_messages(task.result))
    reported = task.result.get("usage") if isinstance(task.result, Mapping) else None
    if isinstance(reported, Mapping) and "input_tokens" in reported:
        usage = Usage.from_dict(reported)
    else:
        usage = Usage()
        for message in messages:
            usage += usage_of(message) if isinstance(message, AIMessage) else Usage()
    return _Task(
        name=task.name,
        finished=task.result is not None,
        failed=task.error is not None,
        waits=bool(task.interrupts),
        usage=usage,
        answers=tuple(m for m in messages if isinstance(m, ToolMessage)),
        asked={
            str(call["id"]): call["args"].get("agent")
            for message in messages
            if isinstance(message, AIMessage)
            for call in message.tool_calls
        },
    )


def _messages(value: Any, depth: int = _DEPTH) -> Iterator[BaseMessage]:
    if isinstance(value, BaseMessage):
        yield value
    elif depth and isinstance(value, Mapping):
        for inner in value.values():
            yield from _messages(inner, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for inner in value:
            yield from _messages(inner, depth - 1)


def _path(found: Iterator[_Step]) -> list[_Step]:
    """Follow the parents from the newest checkpoint; abandoned branches are not included."""
    by_id = {step.id: step for step in found}
    newest = next(iter(by_id), None)
    path = []
    while newest is not None and newest in by_id:
        step = by_id.pop(newest)
        path.append(step)
        newest = step.parent
    return path[::-1]


@dataclass(slots=True)
class _Reader:
    """Sums up the steps."""

    ids: Mapping[str, str]
    givers: frozenset[str] = frozenset()
    """The tools that delegate to sub-agents."""
    asked: dict[str, Any] = field(default_factory=dict)
    ways: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)
    """Targets of each node's edges, and whether a decision selects them."""
    nodes: dict[str, Tally] = field(default_factory=dict)
    tools: dict[str, Tally] = field(default_factory=dict)
    edges: Counter[Edge] = field(default_factory=Counter)
    path: list[str] = field(default_factory=list)
    total: Tally = NOTHING
    worked: set[str] = field(default_factory=set)
    """The first checkpoints of finished steps."""
    waiting: set[Edge] = field(default_factory=set)
    """Edges with a finished source, and a target that still waits for other nodes."""

    def follow(self, source: str, target: str, conditional: bool) -> None:
        """Add an edge of the graph."""
        self.ways.setdefault(source, []).append((target, conditional))

    def read(self, step: _Step, following: _Step | None) -> None:
        """Add the tasks of a step."""
        ran = _ran(step, following)
        if any(task.finished for task in ran) and step.source != "input":
            self.worked.add(step.id)
        names = dict.fromkeys(task.name for task in ran)
        if ran and step.source != "input":  # the input step is not work of the graph
            seconds = _step_seconds(step, following)
            self.total += Tally(1, seconds)
            for name in names:
                self._add(name, Tally(0, seconds))
        for task in ran:
            self._count(task)
        if following is not None and following.source == "loop":
            done = [name for name in names if any(t.name == name and t.finished for t in ran)]
            self._went(done, {task.name for task in following.tasks})

    def _count(self, task: _Task) -> None:
        errors = int(task.failed) + sum(m.status == "error" for m in task.answers)
        tally = Tally(1, None, task.usage.input_tokens, task.usage.output_tokens, errors)
        self._add(task.name, tally)
        self.total += replace(tally, visits=0)
        self.path.append(self._id(task.name))
        called = task.name not in _ANSWERS_ITSELF
        for message in task.answers:
            name = message.name or "tool"
            failed = int(message.status == "error")
            self.tools[name] = self.tools.get(name, NOTHING) + Tally(int(called), errors=failed)
            agent = self.asked.get(message.tool_call_id)
            if called and name in self.givers and isinstance(agent, str):
                self._add(f"agent:{agent}", Tally(1, errors=failed))
                self._take(task.name, f"agent:{agent}")
        self.asked |= task.asked

    def _id(self, name: str) -> str:
        return self.ids.get(name, name)

    def _add(self, name: str, tally: Tally) -> None:
        self.nodes[self._id(name)] = self.nodes.get(self._id(name), NOTHING) + tally

    def _went(self, names: Sequence[str], following: set[str]) -> None:
        """Count the edges between two steps."""
        for edge in sorted(edge for edge in self.waiting if edge[1] in following):
            self.waiting.discard(edge)
            self._take(*edge)
        for name in names:
            ways = self.ways.get(name, ())
            taken = [target for target, _ in ways if target in following]
            held = [target for target, decided in ways if not decided and target not in following]
            if not taken and not held:
                taken = [target for target, _ in ways if target == _LAST]
            for target in taken:
                self._take(name, target)
            for target in held:
                if target == _LAST:
                    self._take(name, target)
                else:
                    self.waiting.add((name, target))

    def _take(self, source: str, target: str) -> None:
        self.edges[self._id(source), self._id(target)] += 1
        if target == _LAST:
            self._add(target, Tally(1))
            self.path.append(self._id(target))

    def overlay(self, thread_id: str, steps: Sequence[_Step], *, cut: bool) -> RunOverlay:
        """Return the overlay."""
        last = steps[-1]
        notes = [WHOLE_STEPS]
        if cut:
            notes.append(f"only the last {len(steps):,} checkpoints were read")
        return RunOverlay(
            thread_id=thread_id,
            status=_status(last),
            total=self.total,
            nodes=self.nodes,
            edges={edge: Tally(times) for edge, times in sorted(self.edges.items())},
            tools=dict(sorted(self.tools.items())),
            path=tuple(self.path),
            at=tuple(dict.fromkeys(self._id(task.name) for task in last.tasks)),
            notes=tuple(notes),
        )


def _ran(step: _Step, following: _Step | None) -> list[_Task]:
    """List the tasks that ran on this path, without results of another branch."""
    ran = [task for task in step.tasks if task.finished or task.failed]
    if following is None or following.source == "loop":
        return ran
    left_open = len(ran) < len(step.tasks) or any(task.failed for task in ran)
    return ran if following.source == "input" and left_open else []


def _step_seconds(step: _Step, following: _Step | None) -> float | None:
    """Return a step's duration, without pauses between runs and waits for answers."""
    if following is None or step.made is None or following.made is None:
        return None
    same_run = step.run_id is None or step.run_id == following.run_id
    if not same_run or following.source != "loop" or any(task.waits for task in step.tasks):
        return None
    return max((following.made - step.made).total_seconds(), 0.0)


def _status(last: _Step) -> str:
    if not last.tasks:
        return last.stop_reason or "done"
    if any(task.failed for task in last.tasks):
        return "failed"
    return "interrupted" if any(task.waits for task in last.tasks) else "not finished"


# --- Lay the recorded runs of a graph that is no agent's over it: from their moments alone.


def recorded_overlay(graph: Any, journal: Journal) -> RunOverlay:
    """Read the runs on the path to the thread's last one; each task and each use of an edge counts.

    Args:
        graph: The compiled graph.
        journal: The journal of a thread with a recorded run.

    Raises:
        StorageError: It cannot be read.
    """
    drawn = graph.get_graph()
    runs = _runs_of_path(journal)
    reader = _MomentReader(journal, ids_of(drawn.nodes))
    for edge in drawn.edges:
        if not edge.conditional:
            reader.ways.setdefault(edge.source, []).append(edge.target)
    entries = [entry for run in runs for entry in journal.moments(run.number)]
    fresh = {run.number for run in runs if run.mode == "input"}
    for entry in entries:
        reader.read(entry, fresh)
    tools, nodes = _measured_seconds(entries, "tool"), _measured_seconds(entries, "node")
    cut = len(runs) < len(journal.runs())
    last = runs[-1]
    return RunOverlay(
        thread_id=journal.thread_id,
        status=last.stopped_because or last.status,
        total=replace(reader.total, seconds=sum(nodes.get(name, 0.0) for name in reader.nodes)),
        nodes=_added(reader.nodes, nodes),
        edges={edge: Tally(times) for edge, times in sorted(reader.edges.items())},
        layers=_layers(entries),
        tools=_added(dict(sorted(reader.tools.items())), tools),
        path=tuple(reader.path),
        at=tuple(reader.open.values()),
        notes=(_PARALLEL, *(["runs on other branches are not counted"] if cut else [])),
    )


def _runs_of_path(journal: Journal) -> list[RunRecord]:
    """List the runs that led to the last one, which begin where the one before ended."""
    left = journal.runs()
    path = [left.pop()]
    while left:
        run = left.pop()
        if path[0].base is not None and run.end == path[0].base:
            path.insert(0, run)
    return path


@dataclass(slots=True)
class _MomentReader:
    """Sums up the moments."""

    journal: Journal
    ids: Mapping[str, str]
    ways: dict[str, list[str]] = field(default_factory=dict)
    """Targets of each node's edges without a decision."""
    nodes: dict[str, Tally] = field(default_factory=dict)
    tools: dict[str, Tally] = field(default_factory=dict)
    edges: Counter[Edge] = field(default_factory=Counter)
    path: list[str] = field(default_factory=list)
    total: Tally = NOTHING
    open: dict[str | None, str] = field(default_factory=dict)
    """By task, the nodes that have not finished."""
    _steps: set[tuple[int, int | None]] = field(default_factory=set)
    _began: dict[int, int | None] = field(default_factory=dict)
    """By run, its first superstep."""
    _waiting: set[Edge] = field(default_factory=set)

    def read(self, entry: Entry, fresh: Collection[int]) -> None:
        """Add a moment; `fresh` are the runs that began with an input."""
        own = entry.kind == "node" and not entry.level
        if own and entry.phase == "enter":
            self._entered(entry, fresh)
        elif own and entry.phase == "exit":
            self._left(entry)
        elif own and entry.phase == "error":
            self._add(entry.name, Tally(errors=int(entry.status == "error")))
        elif entry.what == "run.enter":
            self.open.clear()
            if entry.run in fresh:
                self._step("__start__")
        elif entry.what == "route.taken" and not entry.level:
            ends = _LAST in entry.fields.get("q", ())
            self._take(entry.node or "", [_LAST] if ends else [])
        elif entry.what == "model.response":
            used = self.journal.details(entry).get("usage", {})  # none if its data is gone
            tokens = Tally(0, None, used.get("input_tokens", 0), used.get("output_tokens", 0))
            self._add((entry.node or "").partition("/")[0], tokens)
        elif entry.what in ("tool.exit", "tool.error"):
            failed = entry.phase == "error" or bool(entry.fields.get("z"))
            self.tools[entry.name] = self.tools.get(entry.name, NOTHING) + Tally(1, errors=failed)

    def _entered(self, entry: Entry, fresh: Collection[int]) -> None:
        name, began = entry.name, self._began.setdefault(entry.run, entry.superstep)
        if entry.run in fresh and entry.superstep == began:
            self._take("__start__", [name])
        for edge in sorted(edge for edge in self._waiting if edge[1] == name):
            self._waiting.discard(edge)
            self._take(edge[0], [name])
        if (entry.run, entry.superstep) not in self._steps:
            self._steps.add((entry.run, entry.superstep))
            self.total += Tally(1)
        self.open[entry.task] = self.ids.get(name, name)
        self._step(name)

    def _left(self, entry: Entry) -> None:
        self.open.pop(entry.task, None)
        goto = [*entry.fields.get("g", ()), *entry.fields.get("s", ())]
        still = [one for one in self.ways.get(entry.name, ()) if one not in goto]
        self._waiting |= {(entry.name, one) for one in still if one != _LAST}
        self._take(entry.name, [*goto, *(one for one in still if one == _LAST)])

    def _take(self, source: str, targets: Sequence[str]) -> None:
        for target in targets:
            self.edges[self.ids.get(source, source), self.ids.get(target, target)] += 1
            if target == _LAST:
                self._step(target)

    def _step(self, name: str) -> None:
        self._add(name, Tally(1))
        self.path.append(self.ids.get(name, name))

    def _add(self, name: str, tally: Tally) -> None:
        at = self.ids.get(name, name)
        self.nodes[at] = self.nodes.get(at, NOTHING) + tally
        self.total += replace(tally, visits=0, seconds=None)
