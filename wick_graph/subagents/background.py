"""Background tasks of sub-agents: start, list, await, cancel."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Protocol, Self
from weakref import WeakValueDictionary

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from wick_graph import langgraph_config
from wick_graph.core.bridge import ENGINE_LOOP
from wick_graph.core.context import ContextSchema
from wick_graph.core.redaction import REDACTOR
from wick_graph.core.request import ModelRequest, peek, position
from wick_graph.core.stopping import PART
from wick_graph.engine.graph import ChainStep
from wick_graph.engine.result import spent_tokens
from wick_graph.errors import ConfigError, RunCancelled, ThreadBusyError, ToolError, WickError
from wick_graph.hooks.protocol import BaseHook, HookContext
from wick_graph.messages import ToolResult
from wick_graph.runtime.context import run_of
from wick_graph.store import SqlSaver, ThreadInfo
from wick_graph.subagents import delegate
from wick_graph.subagents.delegate import MAX_DEPTH, Subagent, adopted, brought, counted
from wick_graph.tools.function_tool import FuncTool
from wick_graph.tools.protocol import ToolContext

if TYPE_CHECKING:
    from wick_graph.engine.agent import Agent
    from wick_graph.engine.result import Result


# --- The tasks that a conversation has started, read from its messages.


START: Final = "start_async_task"

UPDATE: Final = "update_async_task"

IN_BLOCK: Final = 10
"""Tasks of one status that a request mentions."""

_KNOWN: Final = 100

_WIDTH: Final = 100

_log: Final = logging.getLogger(__name__)

_HEADING: Final = "## Background tasks"

_GUIDE: Final = (
    "Read an output with check_async_task or await_async_tasks. Do not start again what is under "
    "way, and do not answer the user from a task that has not ended."
)


@dataclass(frozen=True, slots=True)
class Note:
    """Further instructions for a started task."""

    id: str
    text: str
    origin: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Where the conversation was held when they were given, and by whom."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task, as recorded in the conversation."""

    id: str
    agent: str
    text: str
    notes: tuple[Note, ...] = field(default=(), compare=False)
    origin: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Where the conversation was held when it was started, and by whom: a later turn may have
    another sender with other rights."""


def tasks_in(messages: Iterable[BaseMessage]) -> list[Task]:
    """Read the tasks that a conversation has started, the newest hundred."""
    asked: dict[str, Mapping[str, Any]] = {}
    found: dict[str, Task] = {}
    for message in messages:
        if isinstance(message, AIMessage):
            asked = {call["id"] or "": call["args"] for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and message.name in (START, UPDATE):
            with suppress(ValueError, KeyError, TypeError):  # it reports an error, not a task
                kept = message.artifact if isinstance(message.artifact, Mapping) else {}
                origin = kept.get("origin") or {}
                _read(asked[message.tool_call_id], json.loads(message.text), found, origin)
    return list(found.values())[-_KNOWN:]


def _read(
    args: Mapping[str, Any],
    said: Mapping[str, Any],
    found: dict[str, Task],
    origin: Mapping[str, Any],
) -> None:
    """Add what a call's result says about tasks."""
    task_id = said["task_id"]
    if "agent" in said:
        found[task_id] = Task(task_id, args["agent"], args["task"], origin=origin)
    elif said["accepted"]:
        task = found[task_id]
        note = Note(said["update_id"], args["instructions"], origin)
        found[task_id] = replace(task, notes=(*task.notes, note))


def block(statuses: Sequence[tuple[Task, str]]) -> str:
    """Describe the status of tasks for the model, the newest ten of each status."""
    lines = [_HEADING]
    for status in dict.fromkeys(status for _, status in statuses):
        of_it = [task for task, its in statuses if its == status]
        lines += [
            f"- {status}: {task.id} ({task.agent}) {_short(task.text)}"
            for task in of_it[-IN_BLOCK:]
        ]
        if len(of_it) > IN_BLOCK:
            lines.append(f"- {status}: {len(of_it) - IN_BLOCK} older; list_async_tasks lists them")
    return "\n".join([*lines, _GUIDE])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


# --- The tools for background tasks, as the model sees them.


@dataclass(frozen=True, slots=True)
class _Row:
    verb: str
    name: str
    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...]


_TEXT: Final = {"type": "string", "minLength": 1}

_ONE: Final = {"task_id": {"type": "string", "description": "As start_async_task gave it"}}

_AWAITED: Final = {
    "task_ids": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "mode": {"type": "string", "enum": ["all", "any"]},
    "max_wait_seconds": {"type": "number", "exclusiveMinimum": 0},
}

_ROWS: Final = (
    _Row(
        "start",
        START,
        "Let another agent work on a task while you go on. It knows nothing of this conversation. "
        "Await or check the task later.",
        {"agent": {}, "task": {**_TEXT, "description": "The whole task"}},
        ("agent", "task"),
    ),
    _Row(
        "check",
        "check_async_task",
        "Report the status of a task, and its output.",
        _ONE,
        ("task_id",),
    ),
    _Row(
        "update",
        UPDATE,
        "Give a task that is under way more instructions. Its agent reads them when it has "
        "answered the earlier ones, and its last answer counts.",
        {**_ONE, "instructions": _TEXT},
        ("task_id", "instructions"),
    ),
    _Row("list", "list_async_tasks", "List the tasks that you have started.", {}, ()),
    _Row(
        "wait",
        "await_async_tasks",
        "Wait for tasks to end: for all of them, or for any.",
        _AWAITED,
        ("task_ids",),
    ),
    _Row("cancel", "cancel_async_task", "End a task.", _ONE, ("task_id",)),
)


def tools_for(
    descriptions: Mapping[str, str], doing: Mapping[str, Callable[..., Any]]
) -> tuple[FuncTool[..., Any], ...]:
    """Make the tools.

    Args:
        descriptions: What each agent is good for.
        doing: The functions by the tool's verb: `start`, `check` and so on.
    """
    listed = "\n".join(f"- {name}: {text}" for name, text in descriptions.items())
    who = {"type": "string", "enum": list(descriptions), "description": "Who is to do it"}
    made = []
    for row in _ROWS:
        known = {"agent": who} if "agent" in row.properties else {}
        schema = {
            "type": "object",
            "properties": {**row.properties, **known},
            "required": list(row.required),
        }
        text = f"{row.description}\n{listed}" if known else row.description
        # replay: a repeated call finds its task
        made.append(
            FuncTool(
                row.name,
                text,
                schema,
                doing[row.verb],
                agents=descriptions if known else None,
                replay="safe",
                timeout=None,
            )
        )
    return tuple(made)


# --- Background tasks: start, check, await, cancel.
#
# A task's id is the id of its child thread, derived from the ledger key of the call that started
# it. The conversation lists the tasks, and the store knows their status. So nothing is lost with
# the process, and a task that a crash stopped continues when it is next checked. A task outlives
# the run that started it.


MAX_TASKS: Final = 16
"""Concurrent tasks of one thread."""

MAX_NOTES: Final = 8
"""Further instructions that one task accepts."""

WAIT_SECONDS: Final = 600

LONGEST_WAIT_SECONDS: Final = 1_800

_CLOSE_SECONDS: Final = 10.0

_LOOK_SECONDS: Final = 2.0

CANCELLED: Final = "Task cancelled during execution"

_OVER: Final = frozenset({"done", "error", "cancelled"})

_ENDS: Final = frozenset({*_OVER, "waiting"})


@dataclass(frozen=True, slots=True)
class Home:
    """What a task needs from the run that started it."""

    by: str
    """The agent that started it."""
    thread_id: str | None
    """The conversation that started it."""
    path: tuple[str, ...]
    """The agents from the user's own (exclusive) down to the task's."""
    rules: Mapping[str, Any]
    """The approval rules that bind it, as part of its config."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A task that was started, as data that another process can go on with."""

    task: Task
    home: Home

    def to_json(self) -> dict[str, Any]:
        """Return it as data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Undo `to_json`."""
        task, home = data["task"], data["home"]
        notes = tuple(Note(**note) for note in task["notes"])
        return cls(Task(**{**task, "notes": notes}), Home(**{**home, "path": tuple(home["path"])}))


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """A task that has ended, or that waits for an answer."""

    begun: Begun
    status: str
    """`done`, `error`, `cancelled` or `waiting`."""
    text: str
    """The answer, the error, or the questions."""
    question: str = ""
    """The id of the first question, if it waits."""
    tokens: int = 0
    """What it cost, once it is done."""


class Watcher(Protocol):
    """Hears of the tasks of a process. Both methods may be called again for the same task."""

    async def began(self, begun: Begun) -> None:
        """Keep a task; it starts, or gets more instructions, when this returns."""
        ...

    async def ended(self, end: TaskEnd) -> None:
        """Announce the end of a task."""
        ...


class Background(BaseHook):
    """Add tools for background tasks, and show the model the status of its tasks.

    Args:
        agents: Sub-agents by the names that the model sees; their store must be a database.
        max_depth: How many levels deep tasks may be delegated.

    Raises:
        ConfigError: There is no agent, or one has no description.
    """

    name = "background"
    phases = ("modify_request",)

    def __init__(self, agents: Mapping[str, Subagent], *, max_depth: int = MAX_DEPTH) -> None:
        if not agents or any(not one.description.strip() for one in agents.values()):
            raise ConfigError("background tasks need at least one agent, each with a description")
        self._agents: Final = dict(agents)
        self._depth: Final = max_depth
        self.watcher: Watcher | None = None
        """Hears of the tasks' beginnings and ends; a host sets it before the first run."""
        self._running: Final[dict[str, Future[Any]]] = {}
        self._handles: Final[set[asyncio.Task[Any]]] = set()
        """The tasks on the engine's loop: a cancelled future is done before its task is."""
        self._looks: Final = WeakValueDictionary[str, Future[Any]]()
        """Looks at ended tasks: calls of one reply share one, which has the task's thread."""
        self._notes: Final[dict[str, list[Note]]] = {}
        """Instructions for the tasks of this process; only the engine's loop uses it."""
        self._tools: Final = tools_for(
            {name: one.description for name, one in agents.items()},
            {
                "start": self.start,
                "check": self.check,
                "update": self.update,
                "list": self.listed,
                "wait": self.wait,
                "cancel": self.cancel,
            },
        )

    def check_caller(self, context: ContextSchema | None) -> None:
        """Refuse an agent that has no context for one of the others."""
        delegate.check_contexts(self._agents, context)

    def tools(self, state: Mapping[str, Any]) -> Sequence[Any]:
        """Return the tools."""
        return self._tools

    async def modify_request(self, request: ModelRequest, ctx: HookContext) -> ModelRequest:
        """Add the status of this conversation's tasks, if there are any.

        It comes last: in the system prompt, each change would invalidate the provider's prompt
        cache.
        """
        found = tasks_in(peek(request.state, "messages") or ())
        if not found:
            return request
        statuses = [(task, await self._status(task)) for task in found]
        return request.append(SystemMessage(block(statuses)))

    @property
    def busy(self) -> bool:
        """Whether this process runs a task."""
        return bool(self._handles)

    def close(self) -> None:
        """Cancel the tasks of this process."""
        self._running.clear()
        if self._handles and not ENGINE_LOOP.is_here():
            ENGINE_LOOP.submit(self._end()).result(_CLOSE_SECONDS)

    async def start(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Start a task; a repeated call finds it started."""
        path = langgraph_config.path_of(ctx.config)
        if len(path) >= self._depth:
            raise ToolError("no deeper delegation is allowed here; do the task yourself")
        task = Task(_id_of(ctx), args["agent"], args["task"], origin=dict(ctx.origin))
        mine = [known for known in _tasks(ctx) if self._runs(known)]
        if len(mine) >= MAX_TASKS:
            raise ToolError(f"{MAX_TASKS} tasks are running, which is the limit; await some")
        await self._keep(task, ctx)
        self._begin(task, self._home(task, ctx), self._given(task, ctx))
        delegate.tell_of_child(ctx, "spawn", task.agent, {"thread": task.id})
        report = {"task_id": task.id, "agent": task.agent, "status": "running"}
        asked = delegate.request(ctx, task.agent, task.text, task.id)
        return _result(report, ctx, {"messages": [asked]})

    async def check(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Report the status of a task, with its output if it has ended."""
        return await self._report(await self._seen(self._find(args["task_id"], ctx), ctx), ctx)

    async def update(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Send further instructions to a running task."""
        task = self._find(args["task_id"], ctx)
        report: dict[str, Any] = {"task_id": task.id, "accepted": False}
        seen = await self._seen(task, ctx)
        if seen["status"] in _ENDS:
            return _result({**report, "reason": f"the task has ended: {seen['status']}"}, ctx, {})
        note = Note(f"{task.id}/{_hash(ctx, 4)}", args["instructions"], dict(ctx.origin))
        if (reason := await self._on_loop(self._post(task, note))) is not None:
            return _result({**report, "reason": reason}, ctx, {})
        await self._keep(replace(task, notes=(*task.notes, note)), ctx)
        return _result({**report, "accepted": True, "update_id": note.id}, ctx, {})

    async def _post(self, task: Task, note: Note) -> str | None:
        """Queue instructions for the task's run, or return why that is impossible."""
        notes = self._notes.get(task.id)
        if notes is None:
            return "another process runs it, or it has just ended"
        if note in notes:
            return None
        if len(notes) > MAX_NOTES:  # the first is the task itself
            return f"it has {MAX_NOTES} instructions already, which is the limit"
        notes.append(note)
        return None

    async def listed(self, args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """Report the status of all tasks of the thread."""
        found = [await self._seen(task, ctx) for task in _tasks(ctx)]
        shown = [{k: one[k] for k in ("task_id", "agent", "status")} for one in found]
        return {"tasks": shown, "count": len(shown)}

    async def wait(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Wait for all tasks, or for the first, and report the ended ones."""
        began, mode = time.monotonic(), args.get("mode", "all")
        known = {task.id: task for task in _tasks(ctx)}
        wanted = list(dict.fromkeys(args["task_ids"]))
        seconds = min(args.get("max_wait_seconds", WAIT_SECONDS), LONGEST_WAIT_SECONDS)
        seen: list[dict[str, Any]] = []
        while True:
            seen = [await self._seen(known[i], ctx) for i in wanted if i in known]
            open_ = [one["task_id"] for one in seen if one["status"] not in _ENDS]
            left = began + seconds - time.monotonic()
            if not open_ or (mode == "any" and len(open_) < len(seen)) or left <= 0:
                break
            await self._any_of(open_, left)
        ended = [one for one in seen if one["status"] in _ENDS]
        report = {
            "completed": ended,
            "still_running": open_,
            "elapsed_seconds": round(time.monotonic() - began, 1),
            "mode": mode,
            "timed_out": bool(open_) and left <= 0,
        }
        if unknown := [i for i in wanted if i not in known]:
            report["unknown_task_ids"] = unknown
        return await self._counted(report, ended, ctx)

    async def cancel(self, args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """Cancel a task."""
        task = self._find(args["task_id"], ctx)
        seen = await self._seen(task, ctx)
        if seen["status"] in _OVER:
            return {"task_id": task.id, "status": seen["status"], "already_terminal": True}
        agent = self._agent(task)
        await self._on_loop(agent.acancel(task.id))
        future = self._running.pop(task.id, None)
        if future is not None and not future.done():
            future.cancel()
        end = TaskEnd(Begun(task, self._home(task, ctx)), "cancelled", CANCELLED)
        await self._on_loop(self._tell(end))
        return {"task_id": task.id, "status": "cancelled"}

    async def take_up(self, begun: Begun) -> None:
        """Go on with a task of a process that has died or was closed; tell the watcher its end."""
        task = begun.task
        if self._runs(task):
            return
        if await self._status(task) == "error":
            await self._on_loop(self._tell(TaskEnd(begun, "error", await self._error_of(task))))
        else:
            context = None
            if (schema := self._agent(task).spec.context) is not None and task.origin:
                with suppress(ConfigError):  # then the task ends with this fault
                    context = schema.of_chat(task.agent, task.origin)
            self._begin(task, begun.home, context)

    async def _keep(self, task: Task, ctx: ToolContext) -> None:
        """Let the watcher keep a task before it starts, so that a crash cannot lose it."""
        if self.watcher is not None:
            await self.watcher.began(Begun(task, self._home(task, ctx)))

    async def _tell(self, end: TaskEnd) -> None:
        """Tell the watcher of an end; what it does not take is found at the next start."""
        if self.watcher is None:
            return
        try:
            await self.watcher.ended(end)
        except Exception as error:
            _log.warning("the end of %s was not announced: %s", end.begun.task.id, error)

    def _home(self, task: Task, ctx: ToolContext) -> Home:
        path = (*langgraph_config.path_of(ctx.config), task.agent)
        return Home(ctx.agent, ctx.thread_id, path, brought(self._agents[task.agent], ctx))

    def _given(self, task: Task, ctx: ToolContext) -> Any:
        """Return the context for a task that begins now; nothing keeps it beyond that."""
        return delegate.handed(self._agent(task), ctx)

    # --- the status of a task --------------------------------------------------------------------

    async def _seen(self, task: Task, ctx: ToolContext) -> dict[str, Any]:
        """Report on a task; continue it if no process runs it."""
        report: dict[str, Any] = {"task_id": task.id, "agent": task.agent, "task": task.text}
        status = await self._status(task)
        if status == "error":
            return {**report, "status": status, "error": await self._error_of(task)}
        if status in ("done", "waiting"):
            return {**report, **_ended(await self._end_of(task, ctx))}
        if status == "running":
            self._begin(task, self._home(task, ctx), self._given(task, ctx))
        return {**report, "status": status}

    async def _error_of(self, task: Task) -> str:
        if task.agent not in self._agents:
            return f"{task.agent} takes no tasks any more"
        info = await self._info(task)
        return (info and info.last_error) or "it failed"

    async def _info(self, task: Task) -> ThreadInfo | None:
        if self._named(task) is None:  # an outline of an agent has only the names of others
            return None
        return await self._store(task).threads.aget(task.id)

    async def _status(self, task: Task) -> str:
        """Return the status of a task; from the store, unless this process runs it."""
        if self._runs(task):
            return "running"
        if task.agent not in self._agents:  # the configuration has changed since
            return "error"
        info = await self._info(task)
        if info is None or info.status not in ("idle", "waiting", "failed"):
            return "done" if task.id in self._looks else "running"
        if info.status == "idle":
            return "cancelled" if info.stopped_because == "cancelled" else "done"
        return "error" if info.status == "failed" else "waiting"

    async def _end_of(self, task: Task, ctx: ToolContext) -> Result | None:
        """Return the result of an ended task; None if further instructions keep it running."""
        home, given = self._home(task, ctx), self._given(task, ctx)
        if task.notes:
            future, seconds = self._begin(task, home, given), _LOOK_SECONDS
        elif (known := self._looks.get(task.id)) is not None:
            future, seconds = known, None
        else:
            work = self._work(task, replace(home, path=()), given)
            future = self._looks[task.id] = Context().run(ENGINE_LOOP.submit, work)
            seconds = None
        done, _ = await asyncio.wait([asyncio.wrap_future(future)], timeout=seconds)
        return future.result() if done else None

    def _begin(self, task: Task, home: Home, given: Any) -> Future[Any]:
        if not self._runs(task):
            work = self._watched(task, home, given)
            # in its own context: it does not end with the run that starts it
            context = Context()
            context.run(PART.set, True)
            self._running[task.id] = context.run(ENGINE_LOOP.submit, self._held(work))
        return self._running[task.id]

    async def _held(self, work: Coroutine[Any, Any, Any]) -> Any:
        me = asyncio.current_task()
        assert me is not None
        self._handles.add(me)
        try:
            return await work
        finally:
            self._handles.discard(me)

    async def _end(self) -> None:
        mine = [*self._handles]
        for one in mine:
            one.cancel()
        if mine:
            await asyncio.wait(mine, timeout=_CLOSE_SECONDS - 1)

    async def _watched(self, task: Task, home: Home, context: Any) -> Result | None:
        """Run a task, and tell the watcher its end.

        A task that is cancelled with its loop tells nothing: the next process goes on with it.
        """
        begun = Begun(task, home)
        try:
            result = await self._work(task, home, context)
        except RunCancelled:
            await self._tell(TaskEnd(begun, "cancelled", CANCELLED))
            raise
        except WickError as error:
            await self._tell(TaskEnd(begun, "error", REDACTOR.text(str(error))))
            raise
        if result is not None:
            await self._tell(_outcome(begun, result))
        return result

    async def _work(self, task: Task, home: Home, context: Any) -> Result | None:
        """Run the child to its end; return the result it already has, if it has ended."""
        agent, parent = self._agent(task), home.thread_id
        config = langgraph_config.with_configurable(
            None, **{langgraph_config.PATH: home.path}, **home.rules
        )
        notes = self._notes[task.id] = [Note(task.id, task.text, task.origin), *task.notes]
        await adopted(agent.store, task.id, parent)
        try:
            for note in notes:  # it may grow meanwhile
                given = delegate.input_of(note.text, note.origin or task.origin)
                result = await agent.ainvoke(
                    given,
                    thread_id=task.id,
                    context=context,
                    config=config,
                    idempotency_key=note.id,
                )
                if result.stopped_because == "interrupted":
                    break
        except ThreadBusyError:
            return None  # another process runs it
        finally:
            self._notes.pop(task.id, None)
        await adopted(agent.store, task.id, parent)
        return result

    def _runs(self, task: Task) -> bool:
        future = self._running.get(task.id)
        if future is not None and future.done():
            del self._running[task.id]
            if not future.cancelled():
                future.exception()  # the store knows it too
            return False
        return future is not None

    async def _any_of(self, ids: Sequence[str], seconds: float) -> None:
        """Wait until one of the tasks has ended; poll those of other processes."""
        mine = [asyncio.wrap_future(self._running[i]) for i in ids if i in self._running]
        pause = seconds if len(mine) == len(ids) else min(seconds, 0.5)
        if not mine:
            await asyncio.sleep(pause)
            return
        shielded = [asyncio.ensure_future(asyncio.shield(one)) for one in mine]
        await asyncio.wait(shielded, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        for one in shielded:
            if one.done() and not one.cancelled():
                one.exception()
            one.cancel()

    async def _on_loop(self, body: Any) -> Any:
        """Run a body on the engine's loop, outside the calling run."""
        return await asyncio.wrap_future(Context().run(ENGINE_LOOP.submit, body))

    def _named(self, task: Task) -> Any:
        given = self._agents[task.agent].agent
        return given if isinstance(given, ChainStep) else given()

    def _agent(self, task: Task) -> Agent:
        agent: Agent = self._named(task)
        if not isinstance(agent.store, SqlSaver):
            raise ToolError(
                f"{task.agent} has a store without a list of threads; give it a database URL"
            )
        return agent

    def _store(self, task: Task) -> SqlSaver:
        store = self._agent(task).store
        assert isinstance(store, SqlSaver)
        return store

    def _find(self, task_id: str, ctx: ToolContext) -> Task:
        found = next((task for task in _tasks(ctx) if task.id == task_id), None)
        if found is None:
            raise ToolError(f"this conversation has started no task {task_id!r:.80}")
        return found

    # --- reports ----------------------------------------------------------------------------------

    async def _report(self, seen: dict[str, Any], ctx: ToolContext) -> ToolResult:
        return await self._counted(dict(seen), [seen], ctx)

    async def _counted(
        self, report: dict[str, Any], ended: Sequence[dict[str, Any]], ctx: ToolContext
    ) -> ToolResult:
        """Return a report; record the end and the usage of each ended task once."""
        update: dict[str, Any] = {}
        news = [made for one in ended if (made := _record_of(one, ctx)) is not None]
        ledger = run_of(ctx.config).ledger
        for one in ended:
            result: Result | None = one.pop("result", None)
            key = f"{one['task_id']}/usage"
            if result is None or ledger is None or result.stopped_because == "interrupted":
                continue
            if await ledger.aclaim(key, START, ctx.key):
                update = counted(result, ctx, update)
        report.pop("result", None)
        if news:
            update["messages"] = news
        return _result(report, ctx, update)


def _result(report: Mapping[str, Any], ctx: ToolContext, update: Mapping[str, Any]) -> ToolResult:
    text = json.dumps(report, ensure_ascii=False)
    kept = ctx.name in (START, UPDATE) and ctx.origin
    return ToolResult(
        tool_call_id=ctx.call_id,
        name=ctx.name,
        output=text,
        update=dict(update) or None,
        artifact={"origin": dict(ctx.origin)} if kept else None,
    )


def _outcome(begun: Begun, result: Result) -> TaskEnd:
    """Return what to tell of a result."""
    why = result.stopped_because
    if why == "interrupted":
        asked = [one.value for one in result.interrupts]
        text = json.dumps(asked, default=str, ensure_ascii=False)
        return TaskEnd(begun, "waiting", text, str(result.interrupts[0].id) if asked else "")
    if why == "cancelled":
        return TaskEnd(begun, "cancelled", CANCELLED)
    text, tokens = result.text, spent_tokens(result, whole=True)
    text = text or f"It gave no answer: it stopped because of {why}."
    return TaskEnd(begun, "done", text, tokens=tokens)


def _record_of(ended: Mapping[str, Any], ctx: ToolContext) -> BaseMessage | None:
    """Build the record of a task's outcome, unless the thread has one."""
    task_id, name = ended["task_id"], ended["agent"]
    known = ctx.state.get("messages") or ()
    if known and position(known, delegate.response_id(task_id)) is not None:
        return None
    if ended["status"] == "error":
        return delegate.failure_record(ctx, name, ended["error"], task_id)
    result: Result | None = ended.get("result")
    if result is None or result.stopped_because == "interrupted":
        return None
    return delegate.response(ctx, name, result.text, task_id, result)


def _tasks(ctx: ToolContext) -> list[Task]:
    return tasks_in(peek(ctx.state, "messages") or ())


def _id_of(ctx: ToolContext) -> str:
    return f"task_{_hash(ctx, 6)}"


def _hash(ctx: ToolContext, size: int) -> str:
    """Return a hash that is the same for the same call."""
    made = f"{ctx.thread_id}\0{ctx.key}".encode("utf-8", "surrogatepass")
    return blake2b(made, digest_size=size).hexdigest()


def _ended(result: Result | None) -> dict[str, Any]:
    if result is None:
        return {"status": "running"}
    if result.stopped_because == "interrupted":
        asked = [one.value for one in result.interrupts]
        return {"status": "waiting", "asks": json.loads(json.dumps(asked, default=str))}
    return {"status": "done", "output": result.text, "result": result}
