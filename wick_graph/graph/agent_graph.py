"""LangGraph's compiled graph with the life cycle of a run around `stream` and `astream`.

LangGraph's `invoke` and `ainvoke` call those two, so both doors, used directly or through
`Agent`, open and close a run in the same way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph

from wick_graph import keys
from wick_graph.drive import ASYNC_LEAVES, ENGINE_LOOP, SYNC_LEAVES, run_to_end
from wick_graph.errors import WickError
from wick_graph.graph import lifecycle
from wick_graph.graph.pending_writes import with_records
from wick_graph.runtime import AgentSpec


class AgentGraph(CompiledStateGraph):  # type: ignore[type-arg]  # any state: LangGraph's own four parameters
    """A `CompiledStateGraph` whose runs are opened, supplied and closed by wick_graph."""

    spec: AgentSpec
    ttl: float | str | None
    """Seconds that an idle thread of this agent is kept; None for ever, `store` as that says."""

    @classmethod
    def adopt(cls, compiled: CompiledStateGraph[Any, Any, Any, Any], spec: AgentSpec) -> AgentGraph:
        """Give a freshly compiled graph this class."""
        compiled.__class__ = cls
        graph: Any = compiled
        graph.spec = spec
        graph.ttl = None
        return graph  # type: ignore[no-any-return]  # the class was set two lines above

    def copy(self, update: dict[str, Any] | None = None) -> AgentGraph:
        """Copy the graph, as `with_config` does; the copy shares nodes, channels and saver."""
        made = object.__new__(type(self))
        made.__dict__ = {**self.__dict__, **(update or {})}
        return made

    def stream(self, input: Any, config: Any = None, **kwargs: Any) -> Iterator[Any]:
        """Stream as LangGraph does, as one run of the agent.

        Raises:
            MessageError: The input holds a message that breaks a rule; nothing is stored.
            ThreadBusyError: Another run goes on in this thread.
        """
        if lifecycle.is_nested(config):
            yield from super().stream(input, config, **kwargs)
            return
        if ENGINE_LOOP.is_here():
            raise WickError(
                "invoke and stream would block the engine's own loop; await ainvoke here"
            )
        call = lifecycle.prepare(self, self.spec, self.ttl, input, config, kwargs)
        try:
            run_to_end(lifecycle.open_run(call, SYNC_LEAVES))
            if call.previous is not None:
                yield from call.previous.chunks(call.kwargs)
            else:
                run: Any = super().stream
                yield from run(call.input, call.config, **call.kwargs)
        except BaseException as error:
            told = run_to_end(lifecycle.fail_run(call, SYNC_LEAVES, error))
            if told is error:
                raise
            if told is not None:
                raise told from error
        else:
            run_to_end(lifecycle.finish_run(call, SYNC_LEAVES))

    async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Stream as LangGraph does, as one run of the agent; raises as `stream` does."""
        if lifecycle.is_nested(config):
            async for chunk in super().astream(input, config, **kwargs):
                yield chunk
            return
        call = lifecycle.prepare(self, self.spec, self.ttl, input, config, kwargs)
        try:
            await lifecycle.open_run(call, ASYNC_LEAVES)
            if call.previous is not None:
                for chunk in call.previous.chunks(call.kwargs):
                    yield chunk
            else:
                run: Any = super().astream
                async for chunk in run(call.input, call.config, **call.kwargs):
                    yield chunk
        except BaseException as error:
            told = await lifecycle.fail_run(call, ASYNC_LEAVES, error)
            if told is error:
                raise
            if told is not None:
                raise told from error
        else:
            await lifecycle.finish_run(call, ASYNC_LEAVES)

    def bulk_update_state(self, config: Any, supersteps: Sequence[Sequence[Any]]) -> Any:
        """Update as LangGraph does; records that lie beside the thread's head stay in it."""
        saver = self._holds_records(config)
        if saver is not None:
            supersteps = with_records(saver.get_tuple(config), supersteps)
        return super().bulk_update_state(config, supersteps)

    async def abulk_update_state(self, config: Any, supersteps: Sequence[Sequence[Any]]) -> Any:
        """Update as LangGraph does; records that lie beside the thread's head stay in it."""
        saver = self._holds_records(config)
        if saver is not None:
            supersteps = with_records(await saver.aget_tuple(config), supersteps)
        return await super().abulk_update_state(config, supersteps)

    def _holds_records(self, config: Any) -> Any:
        """Return the saver of a thread whose head is updated; a named checkpoint has no records."""
        named = keys.configurable(config)
        if not named.get(keys.THREAD_ID) or named.get(keys.CHECKPOINT_ID):
            return None
        saver = named.get(keys.CHECKPOINTER, self.checkpointer)
        inner = named.get(keys.CHECKPOINT_NS) or not isinstance(saver, BaseCheckpointSaver)
        return None if inner else saver
