"""One recorded run of a LangGraph graph: from what its seams tell to the moments of its journal."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, Final, Literal, Protocol, TypeVar, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk
from langchain_core.tools import BaseTool
from langgraph.channels import DeltaChannel
from langgraph.channels.base import BaseChannel
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, Send
from pydantic import BaseModel

from wick_graph import langgraph_config
from wick_graph.core.moments import JournalOptions, Listener, Moment, NodeListener, Place
from wick_graph.core.request import ModelRequest, Section
from wick_graph.core.usage import usage_of
from wick_graph.foreign import copies, seams
from wick_graph.foreign.copies import Copy
from wick_graph.journal.run_start import Begun, Mode
from wick_graph.journal.shared import RunJournal
from wick_graph.langgraph_config import HIDDEN, TO
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.store.row_format import pack_id
from wick_graph.store.saver import SqlSaver
from wick_graph.types import StoppedBecause

M = TypeVar("M", bound=Callable[..., Any])

NAMED: Final = {"__return__": "return", "__end__": "end", "__previous__": "previous"}
"""Channels of the functional API, with the names that people see."""

_EMPTY: Final = (list, dict, str, int, float, bool)
"""Types of values that a channel may have before the first write."""

_SETTINGS: Final = frozenset(
    {"temperature", "max_tokens", "tool_choice", "stop", "top_p", "response_format", "seed"}
)

_PLAIN: Final = (str, int, float, bool, type(None), list, dict)

_PAUSED: Final = ("interrupt_before", "interrupt_after")


class Keeper(Protocol):
    """The recording that a run belongs to."""

    @property
    def holds(self) -> bool:
        """Whether it may hold the run: it is a debugger, and has the methods of `held.Holder`."""

    def keep(self, run: ForeignRun, saver: Any) -> SqlSaver:
        """Return the store of a run with this checkpointer, and list the run."""

    def tell(self, problem: str) -> None:
        """Note that a run could not be recorded."""


def _safely(method: M) -> M:
    """Make a method that stops the recording and returns None where it would raise."""

    @functools.wraps(method)
    def safe(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.journal.problem:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.journal.fail(error)
            return None

    return cast("M", safe)


@dataclass(slots=True, eq=False)
class TaskVisit:
    """One visit of a node."""

    listener: NodeListener
    place: Place
    task: Any
    ns: str
    """The namespace of its checkpoints; no other visit has it."""
    tries: int = 0


class ForeignRun(seams.Heard):
    """Hears one run."""

    mode: Mode | None = None
    """How it began; None if its input says it."""

    def __init__(self, graph: Any, input: Any, config: Any, keeper: Keeper) -> None:
        self.run_id = str(uuid.uuid4())
        named = langgraph_config.thread_of(config) or langgraph_config.thread_of(graph.config)
        self.thread_id = named or f"rec_{uuid.uuid4().hex[:12]}"
        self.name = str(graph.get_name())
        self.base: str | None = None
        """The checkpoint that it began from."""
        self.journal = RunJournal(self._begun, JournalOptions())
        self.listener: Listener = self.journal
        """What gets its moments."""
        self._graph, self._input, self._keeper = graph, input, keeper
        self._config = config
        self._copy: Copy | None = None
        self._loop: Any = None
        self._end: str | None = None
        """The last checkpoint of the outermost loop."""
        self._calls: dict[Any, tuple[TaskVisit, str, str | None]] = {}
        self.stopped: StoppedBecause | Literal[""] = ""
        """Why it ended; empty while it runs."""
        self.left = False
        """Whether a debugger left it, to be continued."""
        self._asked: set[str] = set()
        self._visits: dict[Any, TaskVisit] = {}
        """Visits that go on, by namespace; also by callback, if no seam tells of tasks."""

    def _begun(self) -> tuple[str | None, Begun]:
        return self.base, Begun(
            run_id=self.run_id,
            mode=self.mode or _mode_of(self._input),
            about={
                "agent": self.name,
                "model": "",
                "hooks": list(dict.fromkeys(_layers_in(self._graph))),
                "graph": "",
                "code": "",
                "versions": {},
                "shape": shape_of(self._graph),
            },
            model=None,
            started_ns=self.journal.started_ns,
        )

    # --- the run ---------------------------------------------------------------------------------

    @_safely
    def begin(self) -> None:
        """Record how the run began; where, its loop knows."""
        given, resume = self._input, None
        if isinstance(given, Command):
            resume = given.resume
            given = dict(given._update_as_tuples()) or None
        shown = given if given is None or isinstance(given, Mapping) else {"input": given}
        self.listener.record(Moment("run", "enter", self.name, {"input": shown}))
        if "checkpoints" in seams.SEAMS.lacks:  # no loop will tell where
            self._open(saver_of(self._graph, self._config))
        if resume is not None:
            self.listener.record(Moment("interrupt", "answer", "", {"answer": resume}))

    async def abegin(self) -> None:
        """Do `begin`: it waits for nothing."""
        self.begin()

    @_safely
    def loop_begins(self, loop: Any) -> None:
        """Choose the store when the outermost loop is known, and copy what it has read."""
        if self._loop is None:
            self._loop = loop
            known = langgraph_config.configurable(loop.checkpoint_config)
            self.base = self._end = known.get(langgraph_config.CHECKPOINT_ID) or None
            kept = loop.durability != "exit"  # else its store has the end only
            self._open(loop.checkpointer if kept else None)
        if self._copy is not None:
            self._copy.begin(loop)

    def _open(self, saver: Any) -> None:
        self.store = store = self._keeper.keep(self, saver)
        if not isinstance(saver, SqlSaver):
            self._copy = Copy(store, self.thread_id, self.run_id)
        self.journal.open(store, self.thread_id)

    @_safely
    def checkpoint(self, loop: Any) -> None:
        """Copy a checkpoint that another saver keeps."""
        if loop is self._loop:
            self._end = loop.checkpoint["id"]
        if self._copy is not None:
            self._copy.checkpoint(loop)

    @_safely
    def wrote(self, loop: Any, task_id: str, writes: Any, *, cached: bool) -> None:
        """Copy a task's writes; those from the cache are a visit of their own."""
        task = vars(loop).get("tasks", {}).get(task_id)
        if self._copy is not None:
            self._copy.writes(loop, task_id, writes, "" if task is None else str(task.path))
        if cached and task is not None:
            visit = self._entered(task)
            visit.listener.record(Moment("node", "cached", visit.place.node))
            self._left(visit)

    def end(self, error: BaseException | None) -> None:
        """Record how the run ended, and commit it."""
        self._ended(error)
        self.journal.close()
        self._told()

    async def aend(self, error: BaseException | None) -> None:
        """Do `end` without blocking the loop."""
        self._ended(error)
        await self.journal.aclose()
        self._told()

    @_safely
    def _ended(self, error: BaseException | None) -> None:
        if not self.journal.is_open:  # it failed before its first step
            self._open(None)
        paused = self._loop is not None and self._loop.status in _PAUSED
        self.stopped = "interrupted" if self._asked or paused or self.left else "done"
        if error is not None:
            self.stopped = "failed" if isinstance(error, Exception) else "cancelled"
        about = {} if self._end is None else {"end": pack_id(self._end)}
        data = {"stopped_because": self.stopped, "error": error, "about": about}
        self.listener.record(Moment("run", "exit" if error is None else "error", "", data))

    def _told(self) -> None:
        if self.journal.problem:
            self._keeper.tell(self.journal.problem)

    # --- its tasks -------------------------------------------------------------------------------

    @_safely
    def enter(self, task: Any) -> TaskVisit | None:
        """Record that a node is entered."""
        return None if task.name == "__start__" else self._entered(task)

    def _entered(self, task: Any) -> TaskVisit:
        config, outer = task.config, seams.VISIT.get()
        ns = str(langgraph_config.configurable(config).get(langgraph_config.CHECKPOINT_NS) or "")
        names = [part.partition(":")[0] for part in ns.split("|") if part and not part.isdigit()]
        step = (config.get("metadata") or {}).get(langgraph_config.STEP)
        place = Place(
            node="/".join(names) or task.name,
            task=task.id,
            checkpoint=langgraph_config.began_from(config),
            superstep=step if isinstance(step, int) else 0,
            within="" if outer is None else outer.place.task,
        )
        visit = TaskVisit(NodeListener(self.listener, place), place, task, ns)
        self._visits[ns] = visit
        visit.listener.record(Moment("node", "enter", place.node, {"input": task.input}))
        return visit

    @_safely
    def leave(self, visit: TaskVisit | None, error: BaseException | None) -> None:
        """Record that it is left: its writes, and where it leads; or its error."""
        if visit is None:
            return
        self._visits.pop(visit.ns, None)
        if error is None:
            self._left(visit)
            return
        if isinstance(error, GraphInterrupt):
            asked = tuple(error.args[0]) if error.args and error.args[0] else ()
            new = [one for one in asked if one.id not in self._asked]
            self._asked.update(one.id for one in asked)
            if new:
                data = {"interrupts": new}
                visit.listener.record(Moment("interrupt", "raise", visit.place.node, data))
        visit.listener.record(Moment("node", "error", visit.place.node, {"error": error}))

    def _left(self, visit: TaskVisit) -> None:
        writes, goto, sent = [], [], []
        for channel, value in list(visit.task.writes):
            if channel.startswith(TO):
                goto.append(channel.removeprefix(TO))
            elif channel == langgraph_config.TASKS:
                sent += [one.node for one in (value if isinstance(value, list) else [value])]
            elif channel in NAMED or not channel.startswith(HIDDEN):
                writes.append((NAMED.get(channel, channel), value))
        data = {"writes": writes, "goto": goto, "sends": sent}
        visit.listener.record(Moment("node", "exit", visit.place.node, data))

    @_safely
    def retry(self, visit: TaskVisit | None, policy: Any, error: Exception) -> None:
        """Record that a failed node is tried again, unless that was the last attempt."""
        if visit is None:
            return
        visit.tries += 1
        if visit.tries < policy.max_attempts:
            data = {"error": error, "delay": float(policy.initial_interval)}
            visit.listener.record(Moment("node", "retry", visit.place.node, data))

    @_safely
    def branch(self, visit: TaskVisit | None, branch: Any, result: Any) -> None:
        """Record what a conditional edge chose, and of what."""
        if visit is None:
            return
        listed = list(result) if isinstance(result, list | tuple) else [result]
        ends = branch.ends or {}
        said = [one.node if isinstance(one, Send) else one for one in listed]
        name = str(branch.path.get_name())
        rules = [[str(label), f"{name}() == {label!r}", label in said, []] for label in ends]
        data = {
            "chosen": list(dict.fromkeys(str(ends.get(one, one)) for one in said)),
            "reason": f"{name} returned {said if len(said) != 1 else said[0]!r}",
            "rules": rules,
            "count": len(listed),
        }
        visit.listener.record(Moment("route", "taken", name, data))

    def layer(self, visit: TaskVisit, phase: str, name: str, given: Any) -> Callable[[Any], object]:
        """Record that a middleware's layer is entered; return what records that it is left."""
        asked = getattr(given, "tool_call", None) if phase == "wrap_tool_call" else None
        call = asked.get("id") if isinstance(asked, Mapping) else None

        def ended(made: Any) -> None:
            fails = isinstance(made, BaseException)
            self._layer(visit, name, ("error" if fails else "exit", phase, call), made)

        self._layer(visit, name, ("enter", phase, call), given)
        return ended

    @_safely
    def _layer(self, visit: TaskVisit, name: str, what: tuple[str, str, Any], value: Any) -> None:
        how, phase, call = what
        if how == "enter":
            make = of_layer if phase == "wrap_model_call" else call_of
            value = make(value)
        elif how == "exit":
            value = reply_of(value) if call is None else result_of(value, name, call)
        moment = Moment("hook", how, name, {"phase": phase, "value": value}, call_id=call)
        visit.listener.record(moment)

    # --- LangChain's callbacks: models and tools -------------------------------------------------

    def _visit(self, metadata: Any) -> TaskVisit | None:
        """Return the visit of the running node, unless another run is heard here.

        A thread that a node starts has no context; what it calls has the node's config.
        """
        heard, found = seams.HEARD.get(), seams.VISIT.get()
        if found is None:
            found = self._visits.get((metadata or {}).get("langgraph_checkpoint_ns"))
        return found if heard in (self, None) else None

    @_safely
    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: Any, metadata: Any = None, **kwargs: Any
    ) -> None:
        """Record that a node is entered, if no seam tells of tasks."""
        known = metadata or {}
        node, ns = known.get("langgraph_node"), known.get("langgraph_checkpoint_ns")
        if "tasks" not in seams.SEAMS.lacks or not ns or kwargs.get("name") != node:
            return
        at = {langgraph_config.CHECKPOINT_NS: ns}
        config = {"metadata": known, langgraph_config.CONFIGURABLE: at}
        path = (langgraph_config.PULL,)
        task = SimpleNamespace(config=config, id=ns, name=node, input=inputs, path=path, writes=[])
        self._visits[run_id] = self._entered(task)

    @_safely
    def on_chain_end(self, outputs: Any, *, run_id: Any, **_: Any) -> None:
        """Record that such a node is left, and what it returned."""
        if (visit := self._visits.pop(run_id, None)) is not None:
            visit.task.writes = list(outputs.items()) if isinstance(outputs, dict) else []
            self._left(visit)

    @_safely
    def on_chain_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        """Record that such a node failed."""
        if (visit := self._visits.pop(run_id, None)) is not None:
            visit.listener.record(Moment("node", "error", visit.place.node, {"error": error}))

    def on_llm_start(self, serialized: Any, prompts: list[str], **kwargs: Any) -> None:
        """Record what a model of texts is asked, which is no chat."""
        self.on_chat_model_start(serialized, [[HumanMessage(prompts[0])]], **kwargs)

    @_safely
    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: Any, metadata: Any = None, **kwargs: Any
    ) -> None:
        """Record a request."""
        visit = self._visit(metadata)
        if visit is None:
            return
        params = kwargs.get("invocation_params") or {}
        name = model_name(metadata or {}, params)
        self._calls[run_id] = visit, name, None
        pulled = visit.task.path[:1] == (langgraph_config.PULL,)  # a `Send` brings its own state
        given = visit.task.input if pulled else None
        data = sent(list(messages[0]), given, params)
        visit.listener.record(Moment("model", "request", name, data))

    @_safely
    def on_llm_new_token(self, token: Any, *, run_id: Any, chunk: Any = None, **_: Any) -> None:
        """Count a piece of a streamed reply."""
        held = self._calls.get(run_id)
        if held is not None and isinstance(chunk, ChatGenerationChunk):
            held[0].listener.record(Moment("model", "chunk", held[1], {"chunk": chunk.message}))

    @_safely
    def on_llm_end(self, response: Any, *, run_id: Any, **_: Any) -> None:
        """Record a reply."""
        held = self._calls.pop(run_id, None)
        if held is None:
            return
        made = response.generations[0][0]
        reply = made.message if isinstance(made, ChatGeneration) else None
        reply = reply if isinstance(reply, AIMessage) else AIMessage(made.text)
        data = {"reply": reply, "usage": usage_of(reply)}
        held[0].listener.record(Moment("model", "response", held[1], data))

    @_safely
    def on_llm_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        """Record that a model failed."""
        if (held := self._calls.pop(run_id, None)) is not None:
            held[0].listener.record(Moment("model", "error", held[1], {"error": error}))

    @_safely
    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: Any, inputs: Any = None, **kwargs: Any
    ) -> None:
        """Record a call of a tool, with the arguments that the model gave."""
        visit = self._visit(kwargs.get("metadata"))
        if visit is None:
            return
        name = str((serialized or {}).get("name") or kwargs.get("name") or "tool")
        call = str(kwargs.get("tool_call_id") or run_id)
        asked, given = args_of(visit.task.input, call), inputs or {"input": input_str}
        args = plain_args(given) if asked is None else {k: given.get(k, asked[k]) for k in asked}
        self._calls[run_id] = visit, name, call
        visit.listener.record(Moment("tool", "enter", name, {"args": args, "own": True}, call))

    @_safely
    def on_tool_end(self, output: Any, *, run_id: Any, **_: Any) -> None:
        """Record its result."""
        if (held := self._calls.pop(run_id, None)) is None:
            return
        visit, name, call = held
        data: dict[str, Any] = {"result": result_of(output, name, call or "")}
        if not isinstance(output, ToolMessage):  # no message answers it
            data["own"] = data["result"].output
        visit.listener.record(Moment("tool", "exit", name, data, call))

    @_safely
    def on_tool_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        """Record that it raised; its node may still answer the call."""
        if (held := self._calls.pop(run_id, None)) is not None:
            visit, name, call = held
            visit.listener.record(Moment("tool", "error", name, {"error": error}, call))


def result_of(output: Any, name: str, call: str) -> ToolResult:
    """Return what a tool gave in the engine's form."""
    if isinstance(output, ToolMessage):
        text = output.content if isinstance(output.content, str) else output.text
        failed = text if output.status == "error" else None
        return ToolResult(call, output.name or name, text, error=failed, artifact=output.artifact)
    if isinstance(output, Command):
        update = dict(output._update_as_tuples()) if output.update else None
        return ToolResult(call, name, "Command", update=update)
    return ToolResult(call, name, output if isinstance(output, str) else repr(output))


def shape_of(graph: Any) -> dict[str, Any]:
    """Describe a graph: its own channels, each with how writes combine, its nodes, what lacks."""
    nodes = [name for name in graph.nodes if name != "__start__"]
    own = {
        name: kind_of(channel)
        for name, channel in graph.channels.items()
        if isinstance(channel, BaseChannel) and not name.startswith(HIDDEN) and name not in nodes
    }
    empty = {name: graph.channels[name].from_checkpoint(copies.MISSING) for name in own}
    empty = {name: one.get() for name, one in empty.items() if one.is_available()}
    empty = {name: value for name, value in empty.items() if type(value) in _EMPTY}
    own |= {shown: "LastValue" for name, shown in NAMED.items() if name in graph.channels}
    lacks = {"lacks": list(seams.SEAMS.lacks)} if seams.SEAMS.lacks else {}
    return {"channels": own, "empty": empty, "nodes": nodes, **lacks}


def saver_of(graph: Any, config: Any) -> Any:
    """Return the checkpointer of a graph's runs with a config."""
    known = {**langgraph_config.configurable(graph.config), **langgraph_config.configurable(config)}
    return known.get(langgraph_config.CHECKPOINTER) or graph.checkpointer


def kind_of(channel: BaseChannel[Any, Any, Any]) -> str:
    """Name how writes to a channel combine: its reducer, else its class."""
    reduce = getattr(channel, "operator", None) or getattr(channel, "reducer", None)
    name = getattr(reduce, "__name__", "") if reduce is not None else type(channel).__name__
    return f"delta:{name}" if isinstance(channel, DeltaChannel) else str(name)


def _layers_in(graph: Any) -> Sequence[str]:
    try:
        return [seams.name_of_layer(fn) for _, fn, _, _ in seams.layers_of(graph)]
    except Exception:  # a release with other closures
        return []


def _mode_of(given: Any) -> Mode:
    if given is None:
        return "resume"
    return "answer" if isinstance(given, Command) and given.resume is not None else "input"


# --- Requests and calls of other agents in the form that the journal records.


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Offered:
    """A tool that the model was offered."""

    name: str
    schema: dict[str, Any]


def sent(messages: list[BaseMessage], given: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a request from what the model got and what its node was given."""
    tools = [_offered(tool) for tool in params.get("tools") or () if isinstance(tool, dict)]
    settings = {key: params[key] for key in _SETTINGS if params.get(key) is not None}
    base = _messages_in(given)
    system, rest = _apart(messages, base)
    request = _made(base, system, rest, [tool.name for tool in tools], settings)
    return {"request": request, "tools": tools, "brought": {}, "messages": messages}


def of_layer(request: Any) -> ModelRequest:
    """Return the request that a middleware's layer gets."""
    found = request.system_message
    system = (Section(found.text, "agent"),) if found is not None else ()
    tools = [_name(tool) for tool in request.tools or ()]
    base = _messages_in(request.state)
    return _made(base, system, list(request.messages), tools, dict(request.model_settings or {}))


def call_of(request: Any) -> ToolCall:
    """Return the call that a middleware's layer gets."""
    call = request.tool_call
    return ToolCall(str(call["id"]), call["name"], dict(call["args"]))


def reply_of(made: Any) -> Any:
    """Return the reply in what a layer gives back."""
    for _ in range(2):  # a response with a command holds one, which holds messages
        if isinstance(made, BaseMessage):
            break
        made = vars(made).get("model_response") or (vars(made).get("result") or [made])[0]
    return made


def model_name(metadata: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Return the name of a model."""
    named = (metadata.get("ls_model_name"), params.get("model"), params.get("model_name"))
    return str(next((name for name in (*named, params.get("_type")) if name), "model"))


def args_of(given: Any, call: str) -> dict[str, Any] | None:
    """Return the arguments of a call as the model made it; None if the node was not given it."""
    if isinstance(given, list) and all(isinstance(one, Mapping) for one in given):
        asked = given
    elif isinstance(given, Mapping) and isinstance(given.get("tool_call"), Mapping):
        asked = [given["tool_call"]]
    else:
        messages = given if isinstance(given, list) else _messages_in(given)
        asked = [c for m in reversed(messages) if isinstance(m, AIMessage) for c in m.tool_calls]
    return next((dict(one["args"]) for one in asked if one.get("id") == call), None)


def plain_args(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain ones of a tool's arguments: not the state or the run that it is given."""
    return {name: value for name, value in inputs.items() if isinstance(value, _PLAIN)}


def _made(
    base: list[BaseMessage],
    system: tuple[Section, ...],
    messages: list[BaseMessage],
    tools: Sequence[str],
    settings: Mapping[str, Any],
) -> ModelRequest:
    request = ModelRequest(
        _base=base, segments=(), system=system, tools=tuple(tools), settings=settings, state={}
    )
    if len(messages) <= len(base) and all(a is b for a, b in zip(messages, base, strict=False)):
        return replace(request, segments=((0, len(messages)),) if messages else ())
    known = {message.id: message for message in base if message.id}
    same = []
    for message in messages:
        held = known.get(message.id or "", message)
        same.append(held if held is message or held == message else message)
    return request.with_messages(same)


def _apart(
    messages: list[BaseMessage], base: list[BaseMessage]
) -> tuple[tuple[Section, ...], list[BaseMessage]]:
    """Part a system prompt of plain text from the other messages."""
    first = messages[0] if messages else None
    if not isinstance(first, SystemMessage) or not isinstance(first.content, str):
        return (), messages
    if not first.content or first.name or (base and first == base[0]):
        return (), messages
    return (Section(first.content, "agent"),), messages[1:]


def _messages_in(given: Any) -> list[BaseMessage]:
    held = given.get("messages") if isinstance(given, Mapping) else None
    if is_dataclass(given) or isinstance(given, BaseModel):
        held = vars(given).get("messages")
    if not isinstance(held, list) or not held:
        return []
    return held if isinstance(held[0], BaseMessage) and isinstance(held[-1], BaseMessage) else []


def _offered(tool: Mapping[str, Any]) -> Offered:
    form = tool.get("function") or tool
    name = str(form.get("name", "tool"))
    return Offered(name, {"type": "function", "function": {**form, "name": name}})


def _name(tool: Any) -> str:
    if isinstance(tool, Mapping):
        return _offered(tool).name
    return tool.name if isinstance(tool, BaseTool) else str(getattr(tool, "__name__", "tool"))
