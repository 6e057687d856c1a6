"""Which tools exist in a state: the agent's own, over them what hooks bring, the rest beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wick_graph.errors import HookError
from wick_graph.tools.bound import BoundTool, bind_tool
from wick_graph.views import state_view

Source = tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]
"""A hook's name and its `tools(state)`."""
Beside = Callable[[], Sequence[BoundTool]]
"""Gives the tools that there are at the moment."""


@dataclass(frozen=True, slots=True)
class Unasked:
    """Stand for a server in an agent that is only looked at: nobody asks it for its tools."""

    name: str

    def __call__(self) -> Sequence[BoundTool]:
        """Give none."""
        return ()


class Offered(dict[str, BoundTool]):
    """The tools of a state by name, in order of registration, and who brings them."""

    __slots__ = ("by",)

    def __init__(self, tools: Mapping[str, BoundTool]) -> None:
        super().__init__(tools)
        self.by: dict[str, str] = {}
        """The hook that brings a tool, by the tool's name; nothing of the agent's own tools."""


class Toolbox:
    """The agent's tools, then its hooks' tools; a hook's tool wins over one of the same name.

    A hook's function is asked at every step, since its answer may depend on the state; each tool
    object that it returns is adapted once. `beside` are tools that come and go with others (a
    store, a server); they never take the place of any of these.
    """

    def __init__(
        self,
        tools: Sequence[BoundTool],
        sources: Sequence[Source],
        beside: Sequence[Beside] = (),
    ) -> None:
        self._own = Offered({tool.name: tool for tool in tools})
        self._sources = tuple(sources)
        self._beside = tuple(beside)
        self._bound: dict[int, tuple[Any, BoundTool]] = {}

    def at(self, state: Mapping[str, Any]) -> Offered:
        """Return the tools of a state by name, in order of registration.

        Raises:
            HookError: A hook's function raised, or returned something that is no tool.
        """
        more = [tool for source in self._beside for tool in source()]
        if not self._sources and not more:
            return self._own
        tools = Offered(self._own)
        state = state_view(state)
        for hook, source in self._sources:
            try:
                for tool in source(state):
                    bound = self._bind(tool)
                    tools[bound.name] = bound
                    tools.by[bound.name] = hook
            except Exception as error:
                raise HookError(f"hook {hook} tools: {error}") from error
        for tool in more:
            tools.setdefault(tool.name, tool)
        return tools

    def _bind(self, tool: Any) -> BoundTool:
        if isinstance(tool, BoundTool):
            return tool
        known = self._bound.get(id(tool))
        if known is not None and known[0] is tool:
            return known[1]
        bound = bind_tool(tool)
        if len(self._bound) > 1_000:  # tools made anew on each call must not pile up
            self._bound.clear()
        self._bound[id(tool)] = (tool, bound)
        return bound
