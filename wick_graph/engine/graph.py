"""Compile an agent's specification into a LangGraph graph."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import Annotated, Any, Final, Self

from langchain_core.runnables import Runnable
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.runnables.graph import Graph
from langgraph.channels import BaseChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict, get_type_hints

from wick_graph import langgraph_config
from wick_graph.core.bridge import ASYNC_BRIDGE, ENGINE_LOOP, SYNC_BRIDGE, Bridge, run_to_end
from wick_graph.core.state import AgentInput, AgentOutput, AgentState, folding
from wick_graph.core.stopping import STOPS
from wick_graph.engine import lifecycle, pinned
from wick_graph.engine.answers import with_records
from wick_graph.engine.channels import with_fast_copy
from wick_graph.engine.node_runner import Node, Router, untrace
from wick_graph.engine.thread_turn import keep_messages, lent
from wick_graph.errors import ConfigError, WickError
from wick_graph.machine import hold_interrupt
from wick_graph.nodes.before_agent import before_agent
from wick_graph.nodes.model import model
from wick_graph.nodes.modify_request import modify_request
from wick_graph.nodes.route import END_LABEL, TOOLS, route
from wick_graph.nodes.tools import tools
from wick_graph.runtime.context import AgentSpec

# --- LangGraph's compiled graph with the life cycle of a run around `stream` and `astream`.
#
# LangGraph's `invoke` and `ainvoke` call those two. So all four, called directly or through
# `Agent`, open and close a run in the same way.


class KeptGraph(Graph):
    """A graph for drawing that no default sends to a foreign host."""

    def draw_mermaid_png(self, *, draw_method: Any = None, **options: Any) -> bytes:
        """Draw the graph as LangChain does, if a method is named.

        Raises:
            ConfigError: None is named; LangChain's default sends the graph to a foreign host.
        """
        if draw_method is None:
            raise ConfigError(
                "draw_mermaid_png would send the graph to mermaid.ink; draw it here with "
                "wick_graph.picture.as_svg(picture_of(graph)), or name a draw_method"
            )
        return super().draw_mermaid_png(draw_method=draw_method, **options)


def _kept_here(drawn: Graph) -> Graph:
    drawn.__class__ = KeptGraph
    return drawn


def _reads_last(options: Mapping[str, Any]) -> bool:
    """Return whether these options of `invoke` ask for the last state, and for nothing else."""
    if options.get("stream_mode", "values") != "values" or options.get("version", "v1") != "v1":
        return False
    return not (options.get("print_mode") or options.get("subgraphs"))


def _refuse_engine_loop() -> None:
    if ENGINE_LOOP.is_here():
        raise WickError("invoke and stream would block the engine's own loop; await ainvoke here")


def _out(call: lifecycle.RunCall, chunk: Any) -> Any:
    """Return what leaves the engine: with copies of lists of messages that it keeps."""
    return chunk if call.run.writer.kept is None else lent(chunk)


def _inside(graph: RunGraph, config: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the config and options of an agent's graph inside a task of another graph.

    In an agent's call it has a run of its own. Its context fits its schema, and its long-term store
    serves it, as everywhere; LangGraph gives it those of the graph around, or none.

    Raises:
        ConfigError: The graph around has no context that fits the agent.
    """
    ambient = langgraph_config.configurable(var_child_runnable_config.get())
    around = {**ambient, **langgraph_config.configurable(config)}
    run, runtime = around.get(langgraph_config.RUN), around.get(langgraph_config.RUNTIME)
    spec, own = graph.spec, dict[str, Any]()
    if run is not None:
        own[langgraph_config.RUN] = run.inner(around.get(langgraph_config.CHECKPOINT_NS, ""))
    if runtime is not None and runtime.store is None and graph.store is not None:
        own[langgraph_config.RUNTIME] = runtime.override(store=graph.store)
    if spec.context is not None:
        given = options.get("context")
        if given is None and runtime is not None:
            given = spec.context.own(runtime.context)
        options = {**options, "context": spec.context.read(spec.name, given)}
    return langgraph_config.with_configurable(config, **own) if own else config, options


class _Latest:
    """What `invoke` returns: the last state, with the interrupts of the run."""

    __slots__ = ("call", "interrupts", "state")

    def __init__(self, call: lifecycle.RunCall) -> None:
        self.call = call
        self.state: Any = None
        self.interrupts: list[Any] = []

    def take(self, chunks: Iterable[tuple[str, Any]]) -> None:
        """Note what chunks tell."""
        for chunk in chunks:
            mode, data = _out(self.call, chunk)
            if mode == "values":
                self.state = data
            elif isinstance(data, dict):
                self.interrupts += data.get(INTERRUPT) or ()

    def result(self) -> Any:
        """Return it as LangGraph does."""
        if not self.interrupts:
            return self.state
        state = self.state if isinstance(self.state, dict) else {}
        return {**state, INTERRUPT: self.interrupts}


class _Ending:
    """Closes a run at the end of its block, and decides which error leaves it.

    A first Ctrl-C waits until the run is closed. It may also come before the closing begins, at
    the first step of `__aexit__`: so the sync doors enter one ending twice, and it closes once.
    """

    __slots__ = ("_bridge", "_call", "_has_begun", "_in_coroutine")

    def __init__(
        self, call: lifecycle.RunCall, bridge: Bridge, *, in_coroutine: bool = False
    ) -> None:
        self._call, self._bridge, self._in_coroutine = call, bridge, in_coroutine
        self._has_begun = False

    async def __aenter__(self) -> None:
        """Begin."""

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Close the run; return whether its end is no error for its caller."""
        if self._has_begun:
            return False
        lease, store = self._call.run.writer.lease, self._call.store
        held = None
        try:
            if self._bridge is SYNC_BRIDGE:
                # In a loop, Ctrl-C cancels a task, and others run while this one awaits.
                held = hold_interrupt()
            self._has_begun = True
            return await self._close(error)
        except BaseException:
            if lease is not None and store is not None and lease in store.leases.held():
                store.leases.give_up(lease, lease.charges)  # Ctrl-C came twice
            raise
        finally:
            if held is not None:
                held.end()

    async def _close(self, error: BaseException | None) -> bool:
        bridge = self._bridge
        if error is None:
            await lifecycle.finish_run(self._call, bridge)
            return False
        if self._in_coroutine and isinstance(error, GeneratorExit):
            bridge = SYNC_BRIDGE  # a coroutine that is closed awaits nothing
        problem = await lifecycle.fail_run(self._call, bridge, error)
        if problem is None or problem is error:
            return problem is None
        raise problem from error

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *left: Any) -> bool:
        """Do as the async form."""
        return run_to_end(self.__aexit__(*left))


class RunGraph(CompiledStateGraph):  # type: ignore[type-arg]  # any state: LangGraph's own four parameters
    """A `CompiledStateGraph` with the life cycle of wick_graph around its runs."""

    spec: AgentSpec
    ttl: float | str | None
    """TTL of idle threads in seconds; None keeps them forever, `store` uses the store's TTL."""

    @classmethod
    def adopt(cls, compiled: CompiledStateGraph[Any, Any, Any, Any], spec: AgentSpec) -> Self:
        """Turn a freshly compiled graph into one of this class."""
        compiled.__class__ = cls
        graph: Any = compiled
        graph.spec = spec
        graph.ttl = None
        return graph  # type: ignore[no-any-return]  # the class was set two lines above

    def copy(self, update: dict[str, Any] | None = None) -> Self:
        """Copy the graph, as `with_config` does; the copy shares nodes, channels and saver."""
        made = object.__new__(type(self))
        made.__dict__ = {**self.__dict__, **(update or {})}
        return made

    def get_graph(self, config: Any = None, *, xray: int | bool = False) -> Graph:
        """Return the graph for drawing, as LangGraph does."""
        return _kept_here(super().get_graph(config, xray=xray))

    async def aget_graph(self, config: Any = None, *, xray: int | bool = False) -> Graph:
        """Return the graph for drawing, as LangGraph does."""
        return _kept_here(await super().aget_graph(config, xray=xray))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Show the graph in a notebook; LangGraph's own method sends it to a foreign host."""
        picture = import_module("wick_graph.picture")  # loaded by a notebook alone, if at all
        drawn = picture.as_svg(picture.picture_of(self))
        return {"text/plain": repr(self), "image/svg+xml": drawn}

    def stream(self, input: Any, config: Any = None, **kwargs: Any) -> Iterator[Any]:
        """Stream as LangGraph does, as one run of the agent.

        Raises:
            MessageError: The input holds an invalid message; nothing is stored.
            ThreadBusyError: Another run uses this thread.
        """
        if lifecycle.is_nested(config):
            config, kwargs = _inside(self, config, kwargs)
            yield from super().stream(input, config, **kwargs)
            return
        _refuse_engine_loop()
        call = lifecycle.prepare(self, self.spec, self.ttl, input, config, kwargs)
        with (ending := _Ending(call, SYNC_BRIDGE)), ending:
            run_to_end(lifecycle.open_run(call, SYNC_BRIDGE))
            if call.previous is not None:
                yield from call.previous.chunks(call.kwargs)
                return
            self._keep(call)
            with closing(self._chunks(call)) as chunks:
                for chunk in chunks:
                    yield _out(call, chunk)

    async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Stream as LangGraph does, as one run of the agent; raises as `stream` does."""
        if lifecycle.is_nested(config):
            config, kwargs = _inside(self, config, kwargs)
            async for chunk in super().astream(input, config, **kwargs):
                yield chunk
            return
        call = lifecycle.prepare(self, self.spec, self.ttl, input, config, kwargs)
        async with _Ending(call, ASYNC_BRIDGE):
            await lifecycle.open_run(call, ASYNC_BRIDGE)
            if call.previous is not None:
                for chunk in call.previous.chunks(call.kwargs):
                    yield chunk
                return
            self._keep(call)
            async for chunk in self._achunks(call):
                yield _out(call, chunk)

    def _keep(self, call: lifecycle.RunCall) -> None:
        """Let the run read messages that are kept between runs; the state of a guest is its own."""

    def _chunks(self, call: lifecycle.RunCall) -> Generator[Any, None, None]:
        """Run LangGraph's loop."""
        run: Any = super().stream
        return run(call.input, call.config, **call.kwargs)  # type: ignore[no-any-return]  # one of its overloads

    def _achunks(self, call: lifecycle.RunCall) -> AsyncIterator[Any]:
        """Run LangGraph's loop."""
        run: Any = super().astream
        return run(call.input, call.config, **call.kwargs)  # type: ignore[no-any-return]  # one of its overloads


_STREAMS: Final = RunGraph.stream, RunGraph.astream

_STREAM_NAMES: Final = frozenset({"stream", "astream"})


class AgentGraph(RunGraph):
    """The graph of an agent."""

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        """Run as LangGraph does, as one run of the agent; raises as `stream` does."""
        if not self._serves(config, kwargs):
            return super().invoke(input, config, **kwargs)
        _refuse_engine_loop()
        return run_to_end(self._last(input, config, kwargs, SYNC_BRIDGE))

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        """Run as LangGraph does, as one run of the agent; raises as `stream` does."""
        if not self._serves(config, kwargs):
            return await super().ainvoke(input, config, **kwargs)
        return await self._last(input, config, kwargs, ASYNC_BRIDGE)

    def _serves(self, config: Any, options: Mapping[str, Any]) -> bool:
        """Return whether `_last` does the same as LangGraph's `invoke` on this graph's `stream`."""
        if not _reads_last(options) or lifecycle.is_nested(config):
            return False
        kind = type(self)
        if (kind.stream, kind.astream) != _STREAMS or not _STREAM_NAMES.isdisjoint(self.__dict__):
            return False
        return pinned.serves_invoke(RunGraph.invoke, RunGraph.ainvoke)

    def _asked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what LangGraph's `invoke` asks its `stream` for."""
        keys = options.get("output_keys")
        keys = self.output_channels if keys is None else keys
        return {**options, "stream_mode": ["updates", "values"], "output_keys": keys}

    async def _last(
        self, input: Any, config: Any, options: Mapping[str, Any], bridge: Bridge
    ) -> Any:
        """Run as LangGraph's `invoke` does, without a generator that asks for what is not read."""
        call = lifecycle.prepare(self, self.spec, self.ttl, input, config, self._asked(options))
        call.last_only, latest = True, _Latest(call)
        ending = _Ending(call, bridge, in_coroutine=bridge is ASYNC_BRIDGE)
        async with ending, ending:
            await lifecycle.open_run(call, bridge)
            if call.previous is not None:
                latest.take(call.previous.chunks(call.kwargs))
                return latest.result()
            self._keep(call)
            try:
                if bridge is SYNC_BRIDGE:
                    with closing(self._chunks(call)) as chunks:
                        latest.take(chunks)
                else:
                    async for chunk in self._achunks(call):
                        latest.take((chunk,))
            except STOPS:  # before the run is closed: another run may add to its lists then
                latest.take(call.run.untold)
                raise
        return latest.result()

    def _keep(self, call: lifecycle.RunCall) -> None:
        keep_messages(self, call.run, call.config, call.kwargs)

    def _chunks(self, call: lifecycle.RunCall) -> Generator[Any, None, None]:
        """Run LangGraph's loop, with shorter parts if it is a run that they are made for."""
        lean = pinned.lean_for(self, call.config, call.kwargs)
        if lean is None:
            return super()._chunks(call)
        run = lean.last if call.last_only else lean.stream
        return run(self, call.input, call.config, **call.kwargs)  # type: ignore[no-any-return]  # as below

    def _achunks(self, call: lifecycle.RunCall) -> AsyncIterator[Any]:
        """Run LangGraph's loop, with shorter parts if it is a run that they are made for."""
        lean = pinned.lean_for(self, call.config, call.kwargs)
        if lean is None:
            lean = pinned.lean_for_messages(call.kwargs)
            if lean is None:
                return super()._achunks(call)
            return lean.astream_messages(self, call.input, call.config, **call.kwargs)  # type: ignore[no-any-return]  # as below
        run = lean.alast if call.last_only else lean.astream
        return run(self, call.input, call.config, **call.kwargs)  # type: ignore[no-any-return]  # as below

    def bulk_update_state(self, config: Any, supersteps: Sequence[Sequence[Any]]) -> Any:
        """Update as LangGraph does; keep the records beside the thread's head."""
        saver = self._holds_records(config)
        if saver is not None:
            supersteps = with_records(saver.get_tuple(config), supersteps)
        return super().bulk_update_state(config, supersteps)

    async def abulk_update_state(self, config: Any, supersteps: Sequence[Sequence[Any]]) -> Any:
        """Update as LangGraph does; keep the records beside the thread's head."""
        saver = self._holds_records(config)
        if saver is not None:
            supersteps = with_records(await saver.aget_tuple(config), supersteps)
        return await super().abulk_update_state(config, supersteps)

    def _holds_records(self, config: Any) -> Any:
        """Return the saver if the update is of a thread's head; only a head has records."""
        named = langgraph_config.configurable(config)
        if not named.get(langgraph_config.THREAD_ID) or named.get(langgraph_config.CHECKPOINT_ID):
            return None
        saver = named.get(langgraph_config.CHECKPOINTER, self.checkpointer)
        inner = named.get(langgraph_config.CHECKPOINT_NS) or not isinstance(
            saver, BaseCheckpointSaver
        )
        return None if inner else saver


# --- LangChain's habits at an agent: it is a step of a chain, with a state in and a state out.


class ChainStep:
    """An object that LangChain and LangGraph use as its graph.

    It is callable: this class tells an agent from a function that makes one, `callable` does not.
    """

    @property
    def graph(self) -> RunGraph:
        """The graph that runs."""
        raise NotImplementedError

    def batch(self, inputs: list[Any], config: Any = None, **options: Any) -> list[Any]:
        """Run the graph on several states at once, as LangChain does; return the states."""
        return self.graph.batch(inputs, config, **options)

    async def abatch(self, inputs: list[Any], config: Any = None, **options: Any) -> list[Any]:
        """Run the graph on several states at once; see `batch`."""
        return await self.graph.abatch(inputs, config, **options)

    def with_config(self, config: Any = None, **options: Any) -> RunGraph:
        """Return the graph with a LangChain config, such as tags, for all its runs."""
        return self.graph.with_config(config, **options)

    def __or__(self, other: Any) -> Runnable[Any, Any]:
        return self.graph | (other.graph if isinstance(other, ChainStep) else other)

    def __ror__(self, other: Any) -> Runnable[Any, Any]:
        return self.graph.__ror__(other)

    def __call__(self, state: Any) -> RunGraph:
        """Return the graph. LangChain and LangGraph, which take functions as steps, then run it."""
        return self.graph

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Show the graph in a notebook."""
        return {**self.graph._repr_mimebundle_(), "text/plain": repr(self)}


# --- Build an agent's graph. The topology does not depend on hooks and tools.
#
# So a thread resumes under any configuration, and a hook adds no step and no checkpoint.


def build_graph(spec: AgentSpec, saver: BaseCheckpointSaver[Any] | None = None) -> AgentGraph:
    """Compile an agent into a LangGraph graph with our life cycle around each run."""
    graph = _without_nodes(spec)
    for name, body, phases in (
        ("before_agent", before_agent, ("before_agent",)),
        ("modify_request", modify_request, ("modify_request",)),
        ("model", model, ("wrap_model_call", "after_model")),
        ("tools", tools, ("wrap_tool_call",)),
    ):
        graph.add_node(name, Node(name, body, spec), metadata=_metadata(spec, phases))
    graph.add_edge(START, "before_agent")
    graph.add_edge("before_agent", "modify_request")
    graph.add_edge("modify_request", "model")
    graph.add_conditional_edges(
        "model", Router("route", route, spec), {TOOLS: "tools", END_LABEL: END}
    )
    graph.add_edge("tools", "modify_request")
    compiled = graph.compile(checkpointer=saver, store=spec.long_term, name=spec.name)
    for name in graph.nodes:
        untrace(compiled.nodes[name])
    for name, channel in compiled.channels.items():
        if isinstance(channel, BaseChannel):
            compiled.channels[name] = with_fast_copy(channel)
    return AgentGraph.adopt(compiled, spec)


def _without_nodes(spec: AgentSpec) -> StateGraph[Any, Any, Any, Any]:
    schema = _schema(spec)
    if schema is AgentState and spec.context is None:
        return _fresh(_plain())
    return StateGraph(
        schema,
        context_schema=None if spec.context is None else spec.context.schema,
        input_schema=spec.state.over(AgentInput),
        output_schema=spec.state.over(AgentOutput),
    )


@cache
def _plain() -> StateGraph[Any, Any, Any, Any]:
    """Return the graph of an agent with a state and a context like most; it gets no nodes.

    To read the channels from their types takes LangGraph a third of the time of the whole graph.
    """
    return StateGraph(AgentState, input_schema=AgentInput, output_schema=AgentOutput)


def _fresh(graph: StateGraph[Any, Any, Any, Any]) -> StateGraph[Any, Any, Any, Any]:
    """Return a copy that shares nothing which can be changed."""
    made, copies = copy(graph), dict[int, Any]()

    def own(value: Any) -> Any:
        if not isinstance(value, dict):
            return copies.setdefault(id(value), copy(value))
        again = value.copy()
        for key, inner in value.items():
            again[key] = own(inner)
        return again

    for name, value in vars(graph).items():
        setattr(made, name, own(value))
    return made


def _schema(spec: AgentSpec) -> Any:
    """Return the state's schema; only the reducer of one channel depends on the hooks."""
    if not spec.hooks.reducers:
        return spec.state.over(AgentState)
    channel = Annotated[dict[str, Any], folding(spec.hooks.reducers)]
    channels = {**get_type_hints(AgentState, include_extras=True), "middleware": channel}
    channels |= spec.state.hints
    return TypedDict("AgentState", channels, total=False)  # type: ignore[operator]  # made by name


def _metadata(spec: AgentSpec, phases: tuple[Any, ...]) -> dict[str, Any]:
    """Return the hook layers of a node as metadata, which LangGraph's pictures show."""
    layers = [layer.hook for phase in phases for layer in spec.hooks.layers(phase)]
    return {"hooks": ", ".join(dict.fromkeys(layers))} if layers else {}
