"""The tools of an agent, by name and in order."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from typing import Any, Self

from wick_graph.errors import ConfigError
from wick_graph.tools.bound import BoundTool, bind_tool


class ToolRegistry:
    """Hold tools in the order of their registration, which is the order the model sees.

    Args:
        tools: What to register first.

    Raises:
        ConfigError: They are no list, one of them is no tool, or two have one name.
    """

    def __init__(self, tools: Iterable[Any] = ()) -> None:
        if isinstance(tools, str) or not isinstance(tools, Iterable):
            raise ConfigError(f"tools must be a list of tools, not {tools!r:.80}")
        self._tools: dict[str, BoundTool] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: Any, *, override: bool = False) -> BoundTool:
        """Adapt a tool and add it; one that overrides another takes its place in the order.

        Raises:
            ConfigError: It is no tool, or its name is taken and `override` is false.
        """
        bound = bind_tool(tool)
        if bound.name in self._tools and not override:
            raise ConfigError(
                f"two tools are called {bound.name}; rename one, or register it with override=True"
            )
        self._tools[bound.name] = bound
        return bound

    def get(self, name: str) -> BoundTool | None:
        """Return the tool of this name, or None."""
        return self._tools.get(name)

    def names(self) -> tuple[str, ...]:
        """Return the names in order."""
        return tuple(self._tools)

    def list(self) -> builtins.list[BoundTool]:
        """Return the tools in order, in a list of the caller's own."""
        return [*self._tools.values()]

    def all(self) -> tuple[BoundTool, ...]:
        """Return the tools in order, as what does not change when the registry does."""
        return tuple(self._tools.values())

    def schemas(self) -> builtins.list[dict[str, Any]]:
        """Return every tool in OpenAI's function form, in order."""
        return [tool.schema for tool in self._tools.values()]

    def copy(self) -> Self:
        """Return a registry with the same tools, which can grow by itself."""
        made = type(self)()
        made._tools = dict(self._tools)
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[BoundTool]:
        return iter(self.list())
