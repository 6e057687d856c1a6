"""Run a node without LangGraph's tracing sequence around it, when no callback handler listens.

LangGraph wraps each node and its writers in a traced sequence: a run is opened, two callback
managers and a task are made. With a handler or tracer at work that is wanted, and is what
happens. With none it is a third of a step's cost, for nobody.
"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config

from wick_graph import keys


class Quiet(Runnable[Any, Any]):
    """A node and its writers; traced as LangGraph does it if somebody listens."""

    name: str

    def __init__(self, node: Any) -> None:
        traced = node.node
        self.name = traced.get_name()
        self.traced = traced
        self.bound = node.bound
        self.writers = node.flat_writers

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the node, then its writers."""
        if config is None or _somebody_listens(config):
            return self.traced.invoke(input, config, **kwargs)
        token = var_child_runnable_config.set(config)
        try:
            value = self.bound.invoke(input, config)
        finally:
            var_child_runnable_config.reset(token)
        return self._write(value, config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the node, then its writers, which never wait."""
        if config is None or _somebody_listens(config):
            return await self.traced.ainvoke(input, config, **kwargs)
        token = var_child_runnable_config.set(config)
        try:
            value = await self.bound.ainvoke(input, config)
        finally:
            var_child_runnable_config.reset(token)
        return self._write(value, config)

    def _write(self, value: Any, config: RunnableConfig) -> Any:
        for writer in self.writers:
            value = writer.invoke(value, config)
        return value


def quieten(node: Any) -> None:
    """Put the quiet form in the place where LangGraph's node keeps its sequence."""
    node.__dict__["node"] = Quiet(node)  # a cached property: this is its cache


def _somebody_listens(config: RunnableConfig) -> bool:
    handlers = keys.handlers_of(config)
    return handlers is None or bool(handlers)
