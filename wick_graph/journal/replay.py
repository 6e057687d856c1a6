"""Replay a recorded run: the journal answers all model and tool calls.

Hooks, routing and reducers run as they are now. If the present code makes a request that was not
recorded, the replay ends there and shows the difference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, cast

from langchain_core.messages import AIMessage
from langgraph.types import Command, interrupt

from wick_graph import langgraph_config
from wick_graph.core.moments import Directive, Moment, Skip
from wick_graph.core.request import ModelRequest
from wick_graph.errors import ReplayError
from wick_graph.journal.cassette import Cassette, Runs, each_of
from wick_graph.journal.entry import Entry, RunRecord
from wick_graph.journal.journal import Journal
from wick_graph.journal.reconstruct import RecordedCall, call_key
from wick_graph.messages import ToolResult
from wick_graph.runtime.context import Run
from wick_graph.store.saver import SqlSaver

STREAMED: Final = "a streamed model has no recorded answer; run it live, or let its node invoke it"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a recorded call asked until it was left; all but the last visit's had answers."""

    questions: tuple[Any, ...]

    def again(self) -> NoReturn:
        """Ask it again, in the call's place.

        Raises:
            GraphInterrupt: It waits for the answer.
            ReplayError: The answers that the replay got are others than the recorded ones.
        """
        for question in self.questions:
            interrupt(question)
        raise ReplayError("the replay has more answers than the recording; it asks something else")


class Tape:
    """Recorded answers to model requests and tool calls."""

    def __init__(self, journal: Journal, run: Runs = None, *, asks: bool = False) -> None:
        """Read them; with `asks`, a call that asked before it ended asks again."""
        self.cassette = Cassette.of(journal, run)
        self.model_calls = 0
        """Number of answered requests."""
        self.tool_calls = 0
        """Number of answered tool calls."""
        self._results: dict[bytes, list[RecordedCall]] = {}
        for call in (call for one in each_of(run) for call in journal.results(one)):
            self._results.setdefault(call.key, []).append(call)
        self._asks: dict[bytes, list[Ask]] = {}
        for one in (one for it in each_of(run) for one in journal.questions(it) if asks):
            before = self._asks.setdefault(one.key, [])
            before.append(Ask((*(before[-1].questions if before else ()), *one.values)))
        self._lock = threading.Lock()

    def reply(self, moment: Moment) -> AIMessage:
        """Return the recorded reply to a `model.request`.

        Raises:
            ReplayError: It was not recorded.
        """
        request: ModelRequest = moment.data["request"]
        tools = [] if request.withheld else [tool.schema for tool in moment.data["tools"]]
        reply = self.cassette.answer(moment.data["messages"], tools, request.settings)
        self.model_calls += 1
        return reply

    def result(self, moment: Moment) -> ToolResult | Ask:
        """Return the recorded result of a `tool.call`, or what it asked first.

        Raises:
            ReplayError: It was not recorded.
        """
        args = moment.data["args"]
        key = call_key(moment.call_id or "", moment.name, args)
        with self._lock:
            if asks := self._asks.get(key):
                return asks.pop(0)
            held = self._results.get(key)
            if held:
                self.tool_calls += 1
                return (held.pop(0) if len(held) > 1 else held[0]).result
        known = [c for calls in self._results.values() for c in calls if c.name == moment.name]
        seen = f"; recorded were {[c.args for c in known[:5]]}" if known else ""
        raise ReplayError(
            f"the recording has no result for {moment.name}({args}), call {moment.call_id}{seen}"
        )


class ReplayListener(Tape):
    """A listener that answers each model request and each tool call from a recording."""

    active = True
    tokens = False

    def record(self, moment: Moment) -> None:
        """Ignore the moment."""

    async def at(self, moment: Moment) -> Directive:
        """Answer a model or tool call from the recording.

        Raises:
            ReplayError: It was not recorded.
        """
        if moment.kind == "model" and moment.phase == "request":
            return Skip(self.reply(moment))
        if moment.is_call:
            result = self.result(moment)
            return result.again() if isinstance(result, Ask) else Skip(result)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Result of a replay."""

    run_id: str
    values: Mapping[str, Any]
    """The graph's output."""
    model_calls: int
    """Number of requests answered from the recording."""
    tool_calls: int
    journal: Journal = field(repr=False)
    """The replay's own journal, to compare with the recording."""


Play = Callable[[Any, Any, str, "ReplayListener", Any], tuple[str, Mapping[str, Any]]]
"""Runs a graph with an input, a thread, a listener, a context; returns the run and its output."""


def _played(
    graph: Any, given: Any, thread_id: str, listener: ReplayListener, context: Any
) -> tuple[str, Mapping[str, Any]]:
    own = Run(thread_id=thread_id, listener=listener)
    config = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: thread_id, langgraph_config.RUN: own}
    )
    return own.run_id, graph.invoke(given, config, context=context)


def replay(
    agent: Any,
    journal: Journal,
    run: int | str | None = None,
    *,
    context: Any = None,
    play: Play = _played,
) -> Replayed:
    """Replay a recorded run in a thread of its own, in memory.

    A run that continued another one is replayed with those before it, from the input on, with
    their recorded answers. `agent` is an `Agent`, or its graph; its model may be any, since it is
    not called. `run` is a number or an id; by default it is the thread's latest run. `context` is
    for an agent with a context schema: no recording has it. `play` runs graphs of another kind.

    Raises:
        ReplayError: The run did not begin with an input, its beginning is gone, or a request or
            call was not recorded.
    """
    chain = chain_of(journal, journal.run(run) if run is not None else latest(journal))
    saver = begun(journal, chain[0])
    graph = getattr(agent, "graph", agent).copy({"checkpointer": saver})
    listener = ReplayListener(journal, [record.number for record in chain], asks=True)
    run_id, values = "", cast("Mapping[str, Any]", {})
    for record in chain:
        given = value_of(journal, record, graph)
        run_id, values = play(graph, given, journal.thread_id, listener, context)
    return Replayed(
        run_id=run_id,
        values=values,
        model_calls=listener.model_calls,
        tool_calls=listener.tool_calls,
        journal=Journal(saver, journal.thread_id),
    )


def chain_of(journal: Journal, record: RunRecord) -> list[RunRecord]:
    """Return a run with those that it continued, from the one that began with an input.

    Raises:
        ReplayError: The first one is gone, or the thread was edited in between.
    """
    before = [one for one in journal.runs() if one.number < record.number]
    chain = [record]
    while chain[0].mode in ("answer", "resume"):
        found = [one for one in before if one.number < chain[0].number]
        if not found or found[-1].branch != record.branch:
            raise ReplayError(
                f"run {record.number} goes on where an earlier one stopped, and that one is gone"
            )
        chain.insert(0, found[-1])
    if chain[0].mode != "input":
        raise ReplayError(f"run {record.number} goes on from an edit; choose a run of an input")
    return chain


def value_of(journal: Journal, record: RunRecord, graph: Any) -> Any:
    """Return what a run of a chain is given: the recorded answer, or None to go on.

    Raises:
        ReplayError: It answers what the replay does not ask.
    """
    if record.mode != "answer":
        return None
    given = next(journal.moments(record.number, "interrupt.answer"), None)
    answer = None if given is None else journal.details(given).get("value")
    config = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: journal.thread_id}
    )
    now = graph.get_state(config).interrupts
    if not now:
        raise ReplayError(f"the replay asks nothing where run {record.number} answers")
    then = [
        one
        for entry in journal.moments(kind="interrupt.raise")
        if entry.seq < record.first
        for one in journal.details(entry).get("value") or ()
    ]
    ids = {one["id"]: one for one in then}
    if not isinstance(answer, Mapping) or not answer or not set(answer) <= set(ids):
        return Command(resume=_decision(answer))
    made = {}
    for at, (known, said) in enumerate(answer.items()):
        same = [one for one in now if one.id not in made and one.value == ids[known]["value"]]
        made[(same or now[at : at + 1] or now[-1:])[0].id] = _decision(said)
    return Command(resume=made)


def _decision(answer: Any) -> Any:
    """Return an answer without what the recording added to it, which binds it to its own call."""
    if isinstance(answer, Mapping) and "call" in answer and "at" in answer:
        return {name: said for name, said in answer.items() if name not in ("at", "call", "hash")}
    return answer


def latest(journal: Journal) -> RunRecord:
    """Return a thread's latest run.

    Raises:
        ReplayError: It has no journal.
    """
    runs = journal.runs()
    if not runs:
        raise ReplayError(f"thread {journal.thread_id!r} has no journal; nothing can be replayed")
    return runs[-1]


def begun(journal: Journal, record: RunRecord) -> SqlSaver:
    """Return an in-memory store with the thread as it was when the run began.

    Raises:
        ReplayError: The run's first checkpoint is gone.
    """
    first = _first_visit(journal, record)
    saved = None if first is None or first.checkpoint is None else journal.saved(first.checkpoint)
    if saved is None:
        raise ReplayError(
            f"run {record.number} cannot be replayed: the checkpoint that it began from is gone"
        )
    saver = SqlSaver.from_url("sqlite://")
    saver.serde = journal.rows.codec
    config: Any = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: journal.thread_id, langgraph_config.CHECKPOINT_NS: ""}
    )
    metadata: Any = {"source": "input", "step": saved.metadata.get("step", 0), "parents": {}}
    checkpoint = saved.checkpoint
    saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])
    return saver


def _first_visit(journal: Journal, record: RunRecord) -> Entry | None:
    return next(journal.moments(record.number, "node.enter", limit=1), None)
