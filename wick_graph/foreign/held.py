"""One run of a LangGraph graph that a debugger holds: it answers and changes the run's calls."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Protocol, cast

from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.errors import GraphInterrupt
from langgraph.types import Command

from wick_graph import langgraph_config
from wick_graph.core.bridge import ENGINE_LOOP, Bridge
from wick_graph.core.moments import PASSES, Directive, Moment, Replace, Skip
from wick_graph.core.request import ModelRequest, shown
from wick_graph.errors import DebugError
from wick_graph.foreign import seams
from wick_graph.foreign.copies import values_of
from wick_graph.foreign.run import NAMED, ForeignRun, Keeper, TaskVisit, saver_of
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.runtime.context import Run
from wick_graph.store.saver import SqlSaver

Call = Callable[..., Any]


class Gate(Protocol):
    """Where a debugger holds a run."""

    run: Run

    def record(self, moment: Moment) -> None:
        """Pass a moment to the journal and to the debugger."""

    async def at(self, moment: Moment, bridge: Bridge | None = None) -> Directive:
        """Wait as long as the debugger wants, and return how to continue."""

    def passed(self, moment: Moment) -> None:
        """Refuse a streamed request that a recording should answer, before it is sent."""


class Holder(Keeper, Protocol):
    """The debugger that a run belongs to."""

    def gate(self, run: HeldRun, store: SqlSaver) -> Gate | None:
        """Return the gate of a run; None if the debugger holds another one."""

    def saw(self, checkpoint: str, values: Mapping[str, Any]) -> None:
        """Note the values of a checkpoint, which may not be stored yet."""


class HeldRun(ForeignRun):
    """Hears one run, and holds it where its debugger wants to."""

    holds = True
    active = True
    tokens = False
    raise_error = True

    def __init__(self, graph: Any, input: Any, config: Any, keeper: Any) -> None:
        super().__init__(graph, input, config, keeper)
        self.listener = self
        self.has_saver = bool(saver_of(graph, config))
        self._holder: Holder = keeper
        self._gate: Gate | None = None
        self._early: list[Moment] = []
        self._here = threading.local()
        self._requests: dict[Any, Moment] = {}

    # --- what comes ------------------------------------------------------------------------------

    def record(self, moment: Moment) -> None:
        """Pass a moment on; the first ones wait for the store."""
        if getattr(self._here, "passes", False):
            moment.data = {**moment.data, PASSES: True}
        self._here.moment = moment
        if self._gate is not None:
            self._gate.record(moment)
        elif self.journal.is_open:
            self.journal.record(moment)
        else:
            self._early.append(moment)

    async def at(self, moment: Moment) -> Directive:
        """Continue: `hold` waits."""
        return None

    def _open(self, saver: Any) -> None:
        super()._open(saver)
        self._gate = self._holder.gate(self, self.store)
        early, self._early = self._early, []
        for moment in early:
            self.record(moment)

    def loop_begins(self, loop: Any) -> None:
        """Note the values that it begins with, too."""
        super().loop_begins(loop)
        known = langgraph_config.configurable(loop.checkpoint_config)
        if known.get(langgraph_config.CHECKPOINT_ID):
            self._holder.saw(loop.checkpoint["id"], values_of(loop))

    def checkpoint(self, loop: Any) -> None:
        """Note its values, too."""
        super().checkpoint(loop)
        self._holder.saw(loop.checkpoint["id"], values_of(loop))

    def end(self, error: BaseException | None) -> None:
        """Tell the debugger how it ended, too."""
        super().end(error)
        self._tell_end()

    async def aend(self, error: BaseException | None) -> None:
        """Do `end` without blocking the loop."""
        await super().aend(error)
        self._tell_end()

    def _tell_end(self) -> None:
        if self._gate is not None:
            self._gate.run.stopped = self.stopped

    def on_chat_model_start(self, *given: Any, run_id: Any, **more: Any) -> None:
        """Keep the moment of the request, too, at which `asked` holds."""
        self._here.passes = streamed = seams.is_streamed()
        try:
            super().on_chat_model_start(*given, run_id=run_id, **more)
        finally:
            self._here.passes = False
        if run_id in self._calls and not streamed:
            self._requests[run_id] = self._here.moment
        elif run_id in self._calls and self._gate is not None:
            self._gate.passed(self._here.moment)

    def on_llm_end(self, response: Any, *, run_id: Any, **more: Any) -> None:
        """Tell of a reply that was streamed; `asked` tells of the others."""
        self._here.passes = True
        try:
            super().on_llm_end(response, run_id=run_id, **more)
        finally:
            self._here.passes = False

    def on_tool_start(self, *_: Any, **__: Any) -> None:
        """Do nothing: `used` tells of it."""

    on_tool_end = on_tool_error = on_tool_start

    # --- where it is held ------------------------------------------------------------------------

    async def hold(self, visit: TaskVisit | None, bridge: Bridge, given: Any = None) -> Any:
        """Hold the run at the moment that this code told last."""
        moment = getattr(self._here, "moment", None)
        if visit is None or moment is None or moment.place is not visit.place:
            return given
        said = await self._at(moment, bridge)
        if isinstance(said, Replace) and (moment.kind, moment.phase) == ("node", "exit"):
            _rewrite(visit.task.writes, said.value)
        elif isinstance(said, Replace) and given is not None:
            return _given(given, said.value)
        return given

    @property
    def _told_last(self) -> Moment | None:
        """The moment that this thread told last; None in a new one that tells nothing."""
        return getattr(self._here, "moment", None)

    async def _at(self, moment: Moment | None, bridge: Bridge) -> Directive:
        if moment is None or self._gate is None or self.journal.problem:
            return None
        self._gate.run.stop.check()
        try:
            return await self._gate.at(moment, bridge)
        except GraphInterrupt:
            self.left = True
            raise

    async def asked(self, visit: Any, bridge: Bridge, call: Call, *given: Any) -> Any:
        """Call a model, or answer for it."""
        messages, manager, options = given
        run_id = getattr(manager, "run_id", None)
        moment = self._requests.pop(run_id, None)
        said = None if moment is None else await self._at(moment, bridge)
        if isinstance(said, Replace):
            messages, options = _sent(said.value, options)
        if isinstance(said, Skip):
            made = _answer(said.value)
        else:
            reached = functools.partial(call, messages, options)
            made = await bridge.call(reached, reached)
        if moment is None:  # callbacks told of no request
            return made
        super().on_llm_end(SimpleNamespace(generations=[made.generations]), run_id=run_id)
        said = await self._at(self._told_last, bridge)
        return _answer(said.value) if isinstance(said, Replace) else made

    async def used(self, visit: Any, bridge: Bridge, call: Call, *given: Any) -> Any:
        """Call a tool, or answer for it."""
        tool, args, more = given
        key, call_id = object(), more.get("tool_call_id")
        plain = seams.plain_input(tool, args) if isinstance(args, dict) else None
        named = {"name": tool.name}
        super().on_tool_start(named, str(args), run_id=key, inputs=plain, tool_call_id=call_id)
        said = await self._at(self._told_last, bridge)
        if isinstance(said, Skip):
            output = _message(said.value, call_id)
        else:
            if isinstance(said, Replace) and isinstance(args, dict):
                args = {**args, **said.value}
            try:
                output = await bridge.call(lambda: call(args), lambda: call(args))
            except BaseException as error:
                super().on_tool_error(error, run_id=key)
                raise
        super().on_tool_end(output, run_id=key)
        said = await self._at(self._told_last, bridge)
        return _message(said.value, call_id) if isinstance(said, Replace) else output


def _rewrite(writes: Any, wanted: list[tuple[str, Any]]) -> None:
    """Replace a task's writes to channels; where it leads stays."""
    inner = {shown_as: name for name, shown_as in NAMED.items()}
    made = [(inner.get(name, name), value) for name, value in wanted]
    names = {name for name, _ in made}
    kept = [(name, value) for name, value in writes if name not in names]
    writes.clear()
    writes.extend([*made, *kept])


def _sent(request: ModelRequest, options: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the messages and options that a changed request means."""
    system = "\n\n".join(section.text for section in request.system)
    first = [SystemMessage(system)] if system else []
    settings = {key: value for key, value in request.settings.items() if key != "stop"}
    return [*first, *shown(request)], {**options, **settings}  # stop words go on their own


def _given(request: Any, wanted: Any) -> Any:
    """Return what a middleware's layer gets, after an edit of its request or its call."""
    if isinstance(wanted, ToolCall):
        return request.override(tool_call={**request.tool_call, "args": dict(wanted.args)})
    system, told = "\n\n".join(section.text for section in wanted.system), request.system_message
    changed: dict[str, Any] = {"messages": list(shown(wanted))}
    if system != ("" if told is None else told.text):
        changed["system_message"] = SystemMessage(system) if system else None
    return request.override(**changed, model_settings=dict(wanted.settings))


def _answer(reply: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=reply.model_copy())])


def _message(result: ToolResult, call_id: str | None) -> Any:
    """Return a given result as the tool would: a message if a call asked for it."""
    if result.update is not None:
        return Command(update=result.update)
    text = result.error if result.error is not None else result.output
    if call_id is None:
        return text
    status: Any = "error" if result.error is not None else "success"
    content: Any = result.content if result.content is not None else text
    return ToolMessage(
        content, tool_call_id=call_id, name=result.name, status=status, artifact=result.artifact
    )


# --- how a debugger calls a graph -----------------------------------------------------------------


def way_of(graph: Any, config: Any, door: str) -> Call:
    """Return what runs a graph to its end, on the event loop that its checkpointer belongs to.

    Raises:
        DebugError: That loop runs this code, so a sync run would wait for it forever.
    """
    saver: Any = saver_of(graph, config)
    loop, here = getattr(saver, "loop", None), None
    with suppress(RuntimeError):
        here = asyncio.get_running_loop()
    if door == "sync" and loop is not None and loop is here:
        raise DebugError(
            "the graph's checkpointer needs the event loop of this code, which waits for the run; "
            'pass door="async", or call it in another thread, as with asyncio.to_thread'
        )
    if door == "sync":
        return cast("Call", graph.invoke)
    owner = loop if isinstance(loop, asyncio.AbstractEventLoop) and loop is not here else None

    def call(value: Any, config: Any, **more: Any) -> Any:
        made = graph.ainvoke(value, config, **more)
        if owner is not None and owner.is_running():
            return asyncio.run_coroutine_threadsafe(made, owner).result()
        return ENGINE_LOOP.submit(made).result()

    return call
