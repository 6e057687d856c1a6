"""Make a LangGraph node of a body: one object with a sync and an async door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphInterrupt
from langgraph.types import Command

from wick_graph.drive import ASYNC_LEAVES, SYNC_LEAVES, Leaves, run_to_end
from wick_graph.moments import Moment, NodePort
from wick_graph.nodes.route import explain
from wick_graph.runtime import AgentSpec, NodeContext, place_of, run_of

Writes = list[tuple[str, Any]]
Body = Callable[[Mapping[str, Any], NodeContext], Awaitable[Writes]]


class Node(Runnable[Any, Any]):
    """A body of `wick_graph.nodes` with the agent it works for."""

    name: str

    def __init__(self, name: str, body: Body, spec: AgentSpec) -> None:
        self.name = name
        self.body = body
        self.spec = spec

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Drive the body to its end in this thread."""
        return run_to_end(self._run(input, config or {}, SYNC_LEAVES))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the body in the caller's loop."""
        return await self._run(input, config or {}, ASYNC_LEAVES)

    async def _run(self, input: Any, config: RunnableConfig, io: Leaves) -> Any:
        run = run_of(config)
        run.ran = True
        if not run.port.active:
            return packed(await self.body(input, NodeContext(self.spec, run, io, config)))
        port = NodePort(run.port, place_of(self.name, config))
        ctx = NodeContext(self.spec, run, io, config, port)
        port.record(Moment("node", "enter", self.name, {"input": input, "task": ctx.task_id}))
        try:
            writes = await self.body(input, ctx)
        except BaseException as error:  # cancellation and interrupts are moments too
            if isinstance(error, GraphInterrupt):
                asked = tuple(error.args[0]) if error.args else ()
                port.record(Moment("interrupt", "raise", self.name, {"interrupts": asked}))
            port.record(Moment("node", "error", self.name, {"error": error}))
            raise
        port.record(Moment("node", "exit", self.name, {"writes": writes}))
        return packed(writes)


class Router(Runnable[Any, Any]):
    """The conditional edges of `model`: untraced, and without a thread hop in either door."""

    name: str

    def __init__(self, name: str, decide: Callable[[Mapping[str, Any]], Any]) -> None:
        self.name = name
        self._decide = decide

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Decide, and tell the run."""
        target = self._decide(input)
        run = run_of(config or {})
        run.ended = isinstance(target, str)
        run.stopped = (input.get("stop_reason") or "done") if run.ended else ""
        run.ledgered = not run.ended and run.ledger is not None
        if run.port.active:
            data = {"target": target, "state": input, "explain": lambda: explain(input)}
            port = NodePort(run.port, place_of("model", config or {}))
            port.record(Moment("route", "taken", self.name, data))
        return target

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Decide, and tell the run."""
        return self.invoke(input, config)


def packed(writes: Writes) -> Any:
    """Give LangGraph a dict, or, where a channel is written twice, the list in order."""
    update = dict(writes)
    return update if len(update) == len(writes) else Command(update=writes)
