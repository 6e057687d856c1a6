"""Make a LangGraph node from a body: one object for sync and async calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Command

from wick_graph import langgraph_config
from wick_graph.core.bridge import ASYNC_BRIDGE, SYNC_BRIDGE, Bridge, run_to_end
from wick_graph.core.moments import Moment, NodeListener, Replace, notify
from wick_graph.core.request import position
from wick_graph.hooks.protocol import Tripwire
from wick_graph.messages.base import MARK_KEY, dated
from wick_graph.nodes.route import explain
from wick_graph.runtime import durability
from wick_graph.runtime.context import ACTIVE, AgentSpec, NodeContext, Run, place_of, run_of
from wick_graph.types import GUARDRAIL

# --- Run a node without LangGraph's tracing sequence, if there is no callback handler.
#
# LangGraph wraps each node and its writers in a traced sequence, which opens a run and makes two
# callback managers and a task. A handler or tracer needs that. Without one it is wasted, and it is
# a third of a step's cost.


class UntracedNode(Runnable[Any, Any]):
    """A node and its writers; traced by LangGraph only if there is a handler."""

    name: str

    def __init__(self, node: Any) -> None:
        traced = node.node
        self.name = traced.get_name()
        self.traced = traced
        self.bound = node.bound
        self.writers = node.flat_writers
        self.writing: Any = None
        """What `lean` has found out about the writers."""

    def invoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        write: Callable[[Any, Any], Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the node, then its writers, or what writes in their place."""
        if config is None or _has_handlers(config):
            return self.traced.invoke(input, config, **kwargs)
        token = var_child_runnable_config.set(config)
        try:
            value = self.bound.invoke(input, config)
        finally:
            var_child_runnable_config.reset(token)
        return (write or self.write)(value, config)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        write: Callable[[Any, Any], Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the node, then its writers, which never wait."""
        if config is None or _has_handlers(config):
            return await self.traced.ainvoke(input, config, **kwargs)
        token = var_child_runnable_config.set(config)
        try:
            value = await self.bound.ainvoke(input, config)
        finally:
            var_child_runnable_config.reset(token)
        return (write or self.write)(value, config)

    def write(self, value: Any, config: RunnableConfig) -> Any:
        """Hand what the node has returned to LangGraph's writers."""
        for writer in self.writers:
            value = writer.invoke(value, config)
        return value


def untrace(node: Any) -> None:
    """Replace the traced sequence of LangGraph's node by the untraced form."""
    node.__dict__["node"] = UntracedNode(node)  # a cached property: this sets its cache


def _has_handlers(config: RunnableConfig) -> bool:
    handlers = langgraph_config.handlers_of(config)
    return handlers is None or bool(handlers)


# --- Make a LangGraph node from a body: one object for sync and async calls.


Writes = list[tuple[str, Any]]

_RESET: Final = frozenset({"iteration", "stop_reason", "output"})
"""Channels that `before_agent` resets for every input; a crash resets them again."""

_SKIPPED: Final = ("modify_request", "model")
"""Nodes between a guardrail that has ended the run, and the end."""

_ACTIVE: Final = (ACTIVE,)

Body = Callable[[Mapping[str, Any], NodeContext], Awaitable[Writes]]


class Node(Runnable[Any, Any]):
    """A body of `wick_graph.nodes` with its agent."""

    name: str

    def __init__(self, name: str, body: Body, spec: AgentSpec) -> None:
        self.name = name
        self.body = body
        self.spec = spec

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Drive the body to its end in this thread."""
        return run_to_end(self._run(input, config or {}, SYNC_BRIDGE))

    def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Run the body in the caller's loop; each frame between would wait with it."""
        return self._run(input, config or {}, ASYNC_BRIDGE)

    def _run(self, input: Any, config: RunnableConfig, bridge: Bridge) -> Coroutine[Any, Any, Any]:
        run = run_of(config)
        run.stop.check()
        run.ran = True
        return bridge.until(run.stop, self._visit(input, config, run, bridge))

    async def _visit(self, input: Any, config: RunnableConfig, run: Run, bridge: Bridge) -> Any:
        spec = self.spec
        if spec.parts:  # a call has the state that its reply was made in
            in_call = self.name == "tools"
            spec = spec.active(langgraph_config.read_state(config, _ACTIVE) if in_call else input)
        if not run.listener.active:
            made = await self._made(input, NodeContext(spec, run, bridge, config))
            return packed(timed(made, input))
        place = place_of(self.name, config)
        listener = NodeListener(run.listener, place)
        ctx = NodeContext(spec, run, bridge, config, listener)
        await notify(
            listener, Moment("node", "enter", self.name, {"input": input, "task": place.task})
        )
        try:
            writes = timed(await self._made(input, ctx), input)
        except BaseException as error:  # cancellation and interrupts are moments too
            if isinstance(error, GraphInterrupt):
                asked = tuple(error.args[0]) if error.args else ()
                listener.record(Moment("interrupt", "raise", self.name, {"interrupts": asked}))
            listener.record(Moment("node", "error", self.name, {"error": error}))
            raise
        said = await notify(listener, Moment("node", "exit", self.name, {"writes": writes}))
        return packed(said.value if isinstance(said, Replace) else writes)

    async def _made(self, input: Any, ctx: NodeContext) -> Writes:
        """Run the body, unless a guardrail has ended the run, and set its commit policy.

        The router sets that of `model`.
        """
        run, writer, policy = ctx.run, ctx.run.writer, ctx.run.writer.policy
        began_from = langgraph_config.began_from(ctx.config)
        if self.name == "tools":
            policy = writer.policy = durability.during_tools(began_from, policy)
        made: Writes = []
        if self.name not in _SKIPPED or input.get("stop_reason") != GUARDRAIL:
            try:
                made = await self.body(input, ctx)
            except Tripwire as trip:
                made = _tripped(trip, ctx)
        if run.within:  # agents that a call or a hook has run
            place = langgraph_config.configurable(ctx.config).get(langgraph_config.CHECKPOINT_NS)
            made = [*made, *run.used_within(place or "")]
        if self.name == "tools":
            writer.policy = policy  # a graph inside the call has set its own
        elif self.name == "before_agent":
            writer.policy = durability.after_before_agent(
                began_from,
                observed=run.observed,
                repaired=len(made) > 2 and any(channel not in _RESET for channel, _ in made),
                has_hooks=bool(ctx.spec.hooks.before_agent),
            )
        elif self.name == "modify_request":
            writer.policy = durability.after_modify_request(
                began_from, observed=run.observed, updates=len(made) > 1
            )
        return made


def _tripped(trip: Tripwire, ctx: NodeContext) -> Writes:
    """End the run as a guardrail says."""
    ctx.run.reason = trip.reason
    answer = AIMessage(
        trip.answer,
        id=f"{ctx.run.run_id}/{GUARDRAIL}",  # one answer, even of several calls
        name=ctx.spec.name,
        response_metadata={MARK_KEY: {"own": True}},
    )
    said: Writes = [("messages", [answer])] if trip.answer else []
    return [*trip.writes, *said, ("stop_reason", GUARDRAIL)]


class Router(Runnable[Any, Any]):
    """The conditional edges of `model`: untraced, and always in the caller's thread."""

    name: str

    def __init__(
        self, name: str, decide: Callable[[Mapping[str, Any]], Any], spec: AgentSpec
    ) -> None:
        self.name = name
        self._decide = decide
        self._spec = spec

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Decide, and set the outcome in the run."""
        target = self._decide(input)
        run = run_of(config or {})
        run.ended = isinstance(target, str)
        run.stopped = (input.get("stop_reason") or "done") if run.ended else ""
        run.withdrawn = run.stopped == GUARDRAIL and not input.get("iteration")
        spec = self._spec.active(input) if self._spec.parts else self._spec
        # An output is durable before the run ends: a crash in between must not ask for it again.
        gives = run.ended and spec.output is not None
        run.writer.policy = durability.after_route(
            langgraph_config.began_from(config),
            observed=run.observed or gives,
            sent=() if run.ended else [sent.arg.get("name", "") for sent in target],
            ledger=run.ledger is not None,
            in_place=all(layer.in_place for layer in spec.hooks.wrap_tool_call),
            tools=partial(spec.toolbox.at, input),
        )
        if run.listener.active:
            data = {"target": target, "state": input, "explain": partial(explain, input)}
            place = place_of("model", config or {})
            run.listener.record(Moment("route", "taken", self.name, data, place=place))
        return target

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Decide, and set the outcome in the run."""
        return self.invoke(input, config)


def timed(writes: Writes, state: Mapping[str, Any]) -> Writes:
    """Give each new message its creation time, before anything is recorded.

    The store keeps a step's writes before it applies them, so a run that continues after a crash
    finds the time there. The reducer dates a message that may replace another one.
    """
    held = state.get("messages") or ()
    for at, (channel, value) in enumerate(writes):
        if channel == "messages" and type(value) is list:
            writes[at] = channel, [_timed(message, held) for message in value]
    return writes


def _timed(message: Any, held: Sequence[BaseMessage]) -> Any:
    if not isinstance(message, BaseMessage):
        return message
    if message.id is not None and (not held or position(held, message.id) is not None):
        return message
    return dated(message)


def packed(writes: Writes) -> Any:
    """Return a dict for LangGraph, or the ordered list if a channel is written twice."""
    update = dict(writes)
    return update if len(update) == len(writes) else Command(update=writes)
