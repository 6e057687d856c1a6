"""Runs of an agent that are made at random, and what can be seen of them.

`case_of` makes a case from a source of chance; `seen` runs it on LangGraph's own loop or on ours,
and returns what users, hooks, callbacks and the database got. Names that differ from run to run are
numbered in the order in which they appear, so two runs of one case must be equal.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from threading import Thread
from typing import Any, Final

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.config import get_config, get_stream_writer
from langgraph.errors import ParentCommand
from langgraph.func import task
from langgraph.graph import END, START, StateGraph
from langgraph.pregel import _executor
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Interrupt, interrupt

from wick_graph import Agent, BaseHook, SqlSaver, tool
from wick_graph.core.state import AgentState
from wick_graph.engine import pinned
from wick_graph.errors import ThreadNotFoundError
from wick_graph.hooks import ApprovalHook, Approve
from wick_graph.journal import Journal
from wick_graph.store import commit_policy, transactions, worker

ALL: Final = slice(None)
TOOLS: Final = ("look", "keep", "ask", "boom", "nap", "nest", "deep", "tell", "leave", "pay")
PLACES: Final = ("model", "tool", "before_agent", "modify_request", "wrap_tool_call")
FAULTS: Final = ("error", "cancel", "cancel and wait", "cancelled", "interrupt", "bubble")
KINDS: Final = ("say", "say", "say", "go on", "answer", "update", "fork", "fork and say")


@dataclass(frozen=True)
class Turn:
    """One call of a graph."""

    kind: str
    replies: tuple[tuple[str, ...], ...]
    """The model's replies: the tools that each calls; none ends the turn."""
    door: str = "invoke"
    """`invoke`, `stream`, or `agent`: its own stream of events."""
    modes: Any = "updates"
    options: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    ear: bool = False
    fault: tuple[str, int, str] | None = None
    """Where it happens, at which visit, and what."""


@dataclass(frozen=True)
class Case:
    """Turns of one thread."""

    turns: tuple[Turn, ...]
    is_async: bool = True
    stored: bool = True
    spied: bool = False
    approved: bool = False
    journal: str = "steps"
    below: bool = False
    """The agent is a node of another graph."""
    long_term: bool = False


def case_of(chance: Random) -> Case:
    """Make a case."""

    def often(part: float) -> bool:
        return chance.random() < part

    is_async, stored = often(0.6), often(0.85)
    turns = tuple(
        _turn_of(chance, is_async, "say" if not at or not stored else chance.choice(KINDS))
        for at in range(chance.choice((1, 1, 2, 3)))
    )
    return Case(
        turns,
        is_async=is_async,
        stored=stored,
        spied=often(0.3),
        approved=stored and often(0.2),
        journal=chance.choice(("steps", "off")),
        below=often(0.05),
        long_term=often(0.1),
    )


def _turn_of(chance: Random, is_async: bool, kind: str) -> Turn:
    def often(part: float) -> bool:
        return chance.random() < part

    def reply() -> tuple[str, ...]:
        return tuple(chance.choice(TOOLS) for _ in range(chance.choice((1, 1, 1, 2, 3))))

    replies = tuple(reply() for _ in range(chance.choice((0, 1, 1, 2, 3))))
    modes: Any = chance.choice(
        ("updates", "values", ["updates", "values"], "custom", ["custom", "updates"])
    )
    if often(0.1):
        modes = chance.choice(("debug", "messages", ["tasks", "values"], "checkpoints"))
    options: dict[str, Any] = {}
    if often(0.1):
        options[chance.choice(("interrupt_before", "interrupt_after"))] = [
            chance.choice(("model", "tools", "modify_request"))
        ]
    if often(0.15):
        options["durability"] = chance.choice(("sync", "async" if is_async else "sync", "exit"))
    return Turn(
        kind,
        replies,
        door=chance.choice(("invoke", "invoke", "stream", "agent")),
        modes=modes,
        options=options,
        limit=chance.choice((2, 4, 5, 7)) if often(0.08) else None,
        ear=often(0.1),
        fault=(chance.choice(PLACES), chance.choice((1, 1, 2, 3)), chance.choice(FAULTS))
        if often(0.4)
        else None,
    )


# --- What the runs meet.


class World:
    """What the model, the tools and the hooks of one run of a case share."""

    def __init__(self, case: Case, flushed: bool) -> None:
        self.case, self.flushed = case, flushed
        self.turn = case.turns[0]
        self.replies: list[tuple[tuple[str, ...], ...]] = []
        self.visits: dict[str, int] = {}
        self.notes: list[Any] = []
        self.running: asyncio.Task[Any] | None = None

    def begin(self, turn: Turn) -> None:
        self.turn, self.visits = turn, {}

    def visit(self, place: str) -> bool:
        """Let a fault happen; return whether an async caller is to wait now."""
        self.visits[place] = self.visits.get(place, 0) + 1
        if self.turn.fault is None or self.turn.fault[:2] != (place, self.visits[place]):
            return False
        what = self.turn.fault[2]
        if what == "kill":
            die(flushed=self.flushed)
        if what == "error":
            raise ValueError(f"{place} fails")
        if what == "cancelled":
            raise asyncio.CancelledError
        if what == "interrupt":
            interrupt({"at": place})
        if what == "bubble":
            raise ParentCommand(Command(graph=Command.PARENT, update={}))
        if what.startswith("cancel") and self.running is not None:
            self.running.cancel()
            return what == "cancel and wait"
        return False


class Script(BaseChatModel):
    """A model that replies by the number of replies since the last question."""

    world: Any

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.world.visit("model")
        return self._reply(messages)

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kw: Any) -> ChatResult:
        if self.world.visit("model"):
            await asyncio.sleep(0)
        return self._reply(messages)

    def _reply(self, messages: list[BaseMessage]) -> ChatResult:
        asked = [m for m in messages if m.type == "human"]
        at = next(i for i, m in enumerate(reversed(messages)) if m.type == "human")
        replied = sum(m.type == "ai" for m in messages[len(messages) - at :])
        number = int(str(asked[-1].content).rpartition(" ")[2])
        script = self.world.replies[number]
        names = script[replied] if replied < len(script) else ()
        calls: Any = [
            {"name": name, "args": {"n": i}, "id": f"c{number}.{replied}.{i}", "type": "tool_call"}
            for i, name in enumerate(names)
        ]
        message = AIMessage(f"reply {number}.{replied}", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


class Ear(BaseCallbackHandler):
    """A callback handler that writes down what it hears."""

    run_inline = True

    def __init__(self, world: World) -> None:
        self.world = world

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        self._note("chain", kwargs)

    def on_chain_end(self, *args: Any, **kwargs: Any) -> None:
        self.world.notes.append("chain ends")

    def on_chain_error(self, error: BaseException, **kwargs: Any) -> None:
        self.world.notes.append(["chain fails", type(error).__name__])

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self._note("model", kwargs)

    def on_tool_start(self, *args: Any, **kwargs: Any) -> None:
        self._note("tool", kwargs)

    def _note(self, what: str, given: dict[str, Any]) -> None:
        tags = _kinds(given.get("tags"))
        self.world.notes.append([what, given.get("name"), tags, given.get("metadata")])


class SyncSpy(BaseHook):
    """A hook that writes down the config of each node."""

    name = "spy"

    def __init__(self, world: World) -> None:
        self.world = world

    def before_agent(self, state: Any, ctx: Any) -> Any:
        self._note("before_agent")

    def modify_request(self, request: Any, ctx: Any) -> Any:
        self._note("modify_request")
        return request

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        self._note("wrap_tool_call")
        return next(call)

    def _note(self, place: str) -> None:
        with suppress(RuntimeError):
            self.world.notes.append([place, config_seen(get_config())])
        self.world.visit(place)


class Spy(SyncSpy):
    """The same as `async def`."""

    async def before_agent(self, state: Any, ctx: Any) -> Any:
        self._note("before_agent")

    async def modify_request(self, request: Any, ctx: Any) -> Any:
        self._note("modify_request")
        return request

    async def wrap_tool_call(self, call: Any, next: Any) -> Any:
        self._note("wrap_tool_call")
        return await next(call)


def config_seen(config: Any) -> Any:
    """Return what a node can see of its config."""
    conf = dict(config["configurable"])
    runtime = conf.pop("__pregel_runtime")
    pad, read = conf.pop("__pregel_scratchpad"), conf.pop("__pregel_read")
    callbacks = config["callbacks"]
    return {
        "keys": list(config),
        "run_name": config.get("run_name"),
        "tags": _kinds(config.get("tags")),
        "limit": (config.get("recursion_limit"), config.get("max_concurrency")),
        "metadata": list(config["metadata"].items()),
        "callbacks": [
            type(callbacks).__name__,
            [
                plain(value) if isinstance(value, str | dict) else _kinds(value)
                for _, value in sorted(vars(callbacks).items())
            ],
        ],
        "configurable": [
            (k, v if isinstance(v, str | int | dict | None) else type(v).__name__)
            for k, v in conf.items()
            if k != "__wick_run"
        ],
        "pad": (pad.step, pad.stop, list(pad.resume), pad.get_null_resume(False)),
        "runtime": (
            type(runtime).__name__,
            runtime.context,
            type(runtime.store).__name__,
            runtime.previous,
            repr(runtime.server_info),
            runtime.drain_requested,
        ),
        "execution": (
            runtime.execution_info.checkpoint_id,
            runtime.execution_info.checkpoint_ns,
            runtime.execution_info.task_id,
            runtime.execution_info.thread_id,
            runtime.execution_info.run_id,
            runtime.execution_info.node_attempt,
            abs(runtime.execution_info.node_first_attempt_time - time.time()) < 60,
        ),
        "read": [_read(read, fresh) for fresh in (False, True)],
    }


def _kinds(value: Any) -> Any:
    if isinstance(value, list):  # langchain-core merges handlers and tags as sets
        return sorted(one if isinstance(one, str) else type(one).__name__ for one in value)
    return type(value).__name__


def _read(read: Any, fresh: bool) -> Any:
    names = ["messages", "iteration", "stop_reason", "request"]
    return {k: plain(v) for k, v in read(names, fresh).items() if k != "request"}


@task
def twice(n: int) -> int:
    """Double."""
    return 2 * n


@task
async def atwice(n: int) -> int:
    """Double."""
    await asyncio.sleep(0)
    return 2 * n


RUNNING: Final[list[World]] = []
"""The world of the run that is under way."""


@cache
def tools_of(is_async: bool) -> list[Any]:
    """Make the tools, `async def` for the async door."""

    def act(name: str, n: int) -> Any:
        if name == "ask":
            return f"answered {interrupt({'n': n})}"
        if name == "boom":
            raise ValueError(f"boom {n}")
        if name == "tell":
            get_stream_writer()({"told": n})
        if name == "leave":
            return Command(update={"todos": [{"content": f"t{n}", "status": "pending"}]})
        return f"{name} {n}"

    def made(name: str) -> Any:
        def plainly(n: int) -> Any:
            RUNNING[-1].visit("tool")
            if name == "nest":
                return twice(n).result()
            if name == "deep":
                return deep.invoke({"value": n})["value"]
            return act(name, n)

        async def awaited(n: int) -> Any:
            if RUNNING[-1].visit("tool"):
                await asyncio.sleep(0)
            for _ in range(n if name == "nap" else 0):
                await asyncio.sleep(0)
            if name == "nest":
                return await atwice(n)
            if name == "deep":
                return (await deep.ainvoke({"value": n}))["value"]
            return act(name, n)

        fn: Any = awaited if is_async else plainly
        fn.__name__, fn.__doc__ = name, f"Do {name}."
        return tool(replay="never" if name in ("keep", "pay") else "safe")(fn)

    return [made(name) for name in TOOLS]


def _deep() -> Any:
    graph: Any = StateGraph(dict)
    graph.add_node("up", lambda state: {"value": state["value"] + 1})
    graph.add_edge(START, "up")
    graph.add_edge("up", END)
    return graph.compile()


deep: Final = _deep()


# --- One run of a case.


def seen(
    case: Case, *, lean: bool, url: str = "sqlite://", turns: slice = ALL, flushed: bool = False
) -> list[Any]:
    """Run a case on our loop or on LangGraph's own; return what was seen, with names numbered.

    Args:
        case: The case.
        lean: Whether our loop runs.
        url: The store's; its own in memory by default.
        turns: The turns to run; what they find was made by the others, in another process.
        flushed: Whether what is deferred is committed soon; else it waits for another commit.
    """
    before = pinned.switch["lean"]
    pinned.switch["lean"] = lean
    try:
        with (
            deferring(0.01 if flushed else 1_000),
            SqlSaver.from_url(url) if case.stored else nullcontext() as saver,
            warnings.catch_warnings(),
            without_threads(),
        ):
            warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine that LangGraph drops
            warnings.filterwarnings("ignore", message="`durability` has no effect")
            found = _Run(case, saver, flushed).all(turns)
            if saver is not None:
                found += stored(saver)
        return Numbered().all(found)
    finally:
        pinned.switch["lean"] = before


class _Run:
    def __init__(self, case: Case, saver: SqlSaver | None, flushed: bool) -> None:
        self.case, self.saver = case, saver
        self.world = world = World(case, flushed)
        RUNNING[:] = [world]
        spy = Spy if case.is_async else SyncSpy
        hooks: list[Any] = [spy(world)] if case.spied else []
        if case.approved:
            hooks.append(ApprovalHook({"pay": True}))
        made: Any = Agent
        self.agent = made(
            model=Script(world=world),
            tools=tools_of(case.is_async),
            hooks=hooks,
            store=saver or False,
            journal=case.journal,
            max_iterations=6,
            long_term=InMemoryStore() if case.long_term else None,
        )
        self.graph: Any = self.agent.graph
        if case.below:
            outer = StateGraph(AgentState)
            outer.add_node("agent", self.graph)
            outer.add_edge(START, "agent")
            outer.add_edge("agent", END)
            self.graph = outer.compile(checkpointer=saver)
        self.found: list[Any] = []

    def all(self, turns: slice) -> list[Any]:
        for turn in self.case.turns:
            self.world.begin(turn)
            if turn.kind != "go on":
                self.world.replies.append(turn.replies)
            if turn not in self.case.turns[turns]:
                continue
            if self.case.is_async:
                asyncio.run(self._aturn(turn))
            else:
                self._turn(turn)
            self.found.append(["notes", self.world.notes])
            self.world.notes = []
        return self.found

    def _call(self, turn: Turn) -> tuple[Any, Any]:
        config: Any = {"configurable": {"thread_id": "t"}}
        if turn.ear:
            config |= {
                "callbacks": [Ear(self.world)],
                "tags": ["heard"],
                "metadata": {"a": {"b": 1}},
            }
        if turn.limit is not None:
            config["recursion_limit"] = turn.limit
        number = len(self.world.replies) - 1
        # Without an id, the sync door stores it before or after the reducer gives it one.
        known = None if self.case.is_async else f"q{number}"
        given: Any = {"messages": [HumanMessage(f"question {number}", id=known)]}
        if turn.kind == "go on":
            given = None
        elif turn.kind == "answer":
            given = self._answer(config)
        elif turn.kind.startswith("fork") and self.saver is not None:
            past = [one.config for one in self.saver.list(config)]
            if past:
                chosen = past[(len(past) * 2) // 3]["configurable"]
                config["configurable"]["checkpoint_id"] = chosen["checkpoint_id"]
            if turn.kind == "fork":
                given = None
        elif turn.kind == "update":
            said = HumanMessage(f"question {number}")
            with suppress(Exception):
                self.graph.update_state(config, {"messages": [said]}, as_node="before_agent")
            given = None
        return given, config

    def _answer(self, config: Any) -> Any:
        waiting = self.graph.get_state(config).interrupts
        answers = {
            one.id: Approve() if isinstance(one.value, dict) and "n" not in one.value else "yes"
            for one in waiting
        }
        return Command(resume=answers or "nobody asked")

    def _options(self, turn: Turn) -> dict[str, Any]:
        return {k: v for k, v in turn.options.items() if self.saver is not None}

    def _turn(self, turn: Turn) -> None:
        chunks: list[Any] = []
        try:
            given, config = self._call(turn)
            if turn.door == "agent" and turn.kind == "say" and not self.case.below:
                own = {k: v for k, v in config.items() if k != "configurable"}
                chunks += map(
                    event_seen, self.agent.stream(given["messages"], thread_id="t", config=own)
                )
                result: Any = None
            elif turn.door == "stream":
                result = None
                options = self._options(turn)
                for chunk in self.graph.stream(given, config, stream_mode=turn.modes, **options):
                    chunks.append(plain(chunk))
            else:
                result = self.graph.invoke(given, config, **self._options(turn))
        except BaseException as error:
            self.found.append(error_seen(error))
        else:
            self.found.append(["result", plain(result)])
        self.found.append(["chunks", chunks])

    async def _aturn(self, turn: Turn) -> None:
        chunks: list[Any] = []

        async def run() -> Any:
            given, config = self._call(turn)
            if turn.door == "agent" and turn.kind == "say" and not self.case.below:
                own = {k: v for k, v in config.items() if k != "configurable"}
                async for event in self.agent.astream(given["messages"], thread_id="t", config=own):
                    chunks.append(event_seen(event))
                return None
            if turn.door == "stream":
                options = self._options(turn)
                async for chunk in self.graph.astream(
                    given, config, stream_mode=turn.modes, **options
                ):
                    chunks.append(plain(chunk))
                return None
            return await self.graph.ainvoke(given, config, **self._options(turn))

        self.world.running = running = asyncio.ensure_future(run())
        try:
            self.found.append(["result", plain(await running)])
        except BaseException as error:
            self.found.append(error_seen(error))
        self.found.append(["chunks", chunks])


def error_seen(error: BaseException) -> Any:
    """Return what can be seen of an error."""
    cause = error.__cause__
    return [
        "error",
        type(error).__name__,
        str(error),
        list(getattr(error, "__notes__", ())),
        None if cause is None else [type(cause).__name__, str(cause)],
    ]


def event_seen(event: Any) -> Any:
    """Return an event's data without how long it took."""
    data = {k: v for k, v in event.data().items() if not k.endswith(("seconds", "_ms"))}
    return [type(event).__name__, plain(data)]


def stored(saver: SqlSaver) -> list[Any]:
    """Return what a store holds: each checkpoint with its writes, the journal, its rows.

    A message gets its id where it is, when it is applied: whether a write that was stored
    meanwhile has it depends on the time.
    """
    history = []
    for one in saver.list({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}):
        checkpoint: Any = dict(one.checkpoint)
        for name in ("channel_versions", "versions_seen"):
            checkpoint[name] = _ranked(checkpoint[name])
        given = checkpoint["channel_values"].pop("__start__", None)
        writes = without_ids(plain([given, one.pending_writes]))
        history.append([plain([checkpoint, one.metadata, one.config, one.parent_config]), writes])
    moments = []
    with suppress(ThreadNotFoundError):
        for entry in Journal(saver, "t").moments():
            at = entry.task, entry.checkpoint, entry.step
            moments.append([entry.kind, entry.phase, entry.name, entry.node, *at])
    return [["history", history], ["moments", moments], ["rows", rows_of(saver)]]


def without_ids(value: Any) -> Any:
    """Return what `plain` made without the ids of messages."""
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if k != "id" or "type" not in value}
    return [without_ids(one) for one in value] if isinstance(value, list) else value


def _ranked(versions: Any) -> Any:
    if isinstance(versions, dict):
        return {str(key): _ranked(value) for key, value in versions.items()}
    return versions >> 20 if isinstance(versions, int) else versions


def rows_of(saver: SqlSaver) -> Any:
    """Return the number of rows in each table, but for the journal's: time makes its pages."""
    with saver._core.reading("t") as db:
        found = db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        return {
            n: db.execute(f"SELECT count(*) FROM {n}").fetchall()[0][0]
            for (n,) in found
            if n != "moments"
        }


def plain(value: Any) -> Any:
    """Return a value as text, numbers, lists and dicts."""
    if isinstance(value, BaseMessage):
        data = {k: plain(v) for k, v in value.__dict__.items() if v}
        return [type(value).__name__, data]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items() if not str(k).startswith("__wick")}
    if isinstance(value, list | tuple | set | frozenset):
        found = [plain(one) for one in value]
        if found and all(isinstance(one, Interrupt) for one in value):
            found.sort(key=lambda one: _NAME.sub("", repr(one)))  # LangGraph keeps a set
        return found
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, BaseException):
        return [type(value).__name__, str(value)]
    slots = [s for one in type(value).__mro__ for s in getattr(one, "__slots__", ())]
    known = getattr(value, "__dict__", None) or {s: getattr(value, s, None) for s in slots}
    return [type(value).__name__, {str(k): plain(v) for k, v in known.items() if k[0] != "_"}]


_NAME: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|\bTask-\d+|\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b|\bth_[0-9a-z]+|lc_run--\S+?(?=['\"/])"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(?:\+00:00|Z)?"
)
_TIME: Final = re.compile(r"\b1[78]\d{8}(?:\.\d+)?(?:e\+\d+)?\b|\b\d+\.\d+(?: s)?\b")


class Numbered:
    """Numbers what differs from run to run, in the order in which it appears."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def all(self, found: list[Any]) -> list[str]:
        return [_TIME.sub("TIME", _NAME.sub(self._one, repr(one))) for one in found]

    def _one(self, match: re.Match[str]) -> str:
        name = match[0]
        if name[0] == "T" or ("T" in name and ":" in name):
            return "TASK" if name[0] == "T" else "DATE"
        return self.known.setdefault(name, f"<{len(self.known)}>")


def die(*, flushed: bool) -> None:
    """Kill this process, after or before what is deferred is written."""
    if flushed:
        time.sleep(0.08)
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def deferring(seconds: float) -> Iterator[None]:
    """Set how long what is deferred may wait."""
    modules: Any = commit_policy, transactions
    before = commit_policy.WAIT_SECONDS
    for module in modules:
        module.WAIT_SECONDS = seconds
    try:
        yield
    finally:
        for module in modules:
            module.WAIT_SECONDS = before


class Inline(Executor):
    """A pool that does all in the caller's thread, but for waiting."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if args and getattr(args[0], "__name__", "") == "wait":
            Thread(target=self._do, args=(future, fn, args, kwargs), daemon=True).start()
        else:
            self._do(future, fn, args, kwargs)
        return future

    def _do(self, future: Future[Any], fn: Any, args: Any, kwargs: Any) -> None:
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)


@contextmanager
def without_threads() -> Iterator[None]:
    """Let stores and LangGraph work in the caller's thread, so that chance orders nothing."""
    loops: Any = _executor
    give, pool = worker.Worker.give, loops.get_executor_for_config

    def at_once(self: Any, work: Any, future: Any, *, long: bool = False) -> None:
        job = worker._Job(work, future.get_loop(), future, long)
        worker._run(job)
        job.loop.call_soon(worker._resolve, [job])

    worker.Worker.give = at_once  # type: ignore[method-assign]
    loops.get_executor_for_config = lambda config: Inline()
    try:
        yield
    finally:
        loops.get_executor_for_config = pool
        worker.Worker.give = give  # type: ignore[method-assign]


def killed_case(seed: int) -> Case:
    """Make a case of two turns: the first one's process is killed, the second one goes on."""
    chance = Random(seed)
    fault = chance.choice(PLACES), chance.choice((1, 1, 2)), "kill"
    case = case_of(chance)
    first = replace(case.turns[0], fault=fault, options={}, limit=None)
    return replace(case, turns=(first, Turn("go on", ())), stored=True, spied=True, below=False)


def main(argv: list[str]) -> None:
    """Run the first turn of a case, and be killed: SEED URL on|off flushed|waiting."""
    seed, url, lean, state = argv
    case = killed_case(int(seed))
    seen(case, lean=lean == "on", url=url, turns=slice(0, 1), flushed=state == "flushed")


if __name__ == "__main__":
    main(sys.argv[1:])
