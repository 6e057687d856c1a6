"""Sets of tools: of an agent, of a state, and a store that changes at run time."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

from wick_graph.core.request import state_view
from wick_graph.errors import ConfigError, HookError
from wick_graph.tools.bound import BoundTool, bind_tool, bind_tools

# --- The tools of an agent, by name and in order.


class ToolRegistry:
    """Tools in the order of their registration, which the model sees.

    Args:
        tools: The first tools to register.

    Raises:
        ConfigError: They are not a list, one is not a tool, or two have the same name.
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
            ConfigError: It is not a tool, or its name is taken and `override` is false.
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
        """Return the tools in order, in a new list."""
        return [*self._tools.values()]

    def all(self) -> tuple[BoundTool, ...]:
        """Return the tools in order; later registrations do not change the result."""
        return tuple(self._tools.values())

    def schemas(self) -> builtins.list[dict[str, Any]]:
        """Return every tool in OpenAI's function format, in order."""
        return [tool.schema for tool in self._tools.values()]

    def copy(self) -> Self:
        """Return an independent registry with the same tools."""
        made = type(self)()
        made._tools = dict(self._tools)
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[BoundTool]:
        return iter(self.list())


# --- The tools of a state: the agent's own, those of hooks, and others.


Source = tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]
"""A hook's name and its `tools(state)`."""

Beside = Callable[[], Sequence[BoundTool]]
"""Returns the present tools."""


@dataclass(frozen=True, slots=True)
class Unasked:
    """A placeholder for a server in an agent for inspection: it is never asked for its tools."""

    name: str

    def __call__(self) -> Sequence[BoundTool]:
        """Return no tools."""
        return ()


class Offered(dict[str, BoundTool]):
    """The tools of a state by name, in order of registration, and the hooks that add them."""

    __slots__ = ("by",)

    def __init__(self, tools: Mapping[str, BoundTool]) -> None:
        super().__init__(tools)
        self.by: dict[str, str] = {}
        """The hook of each tool by the tool's name, without the agent's own tools."""


class Toolbox:
    """The agent's tools, then its hooks' tools; a hook's tool wins over one of the same name.

    A hook's function is called at every step, since its result may depend on the state; each
    returned tool object is adapted once. `beside` has tools that change at run time (of a store or
    a server); they never replace any of these. No hook's tool may have a `fixed` name.
    """

    def __init__(
        self,
        tools: Sequence[BoundTool],
        sources: Sequence[Source],
        beside: Sequence[Beside] = (),
        output: Sequence[Any] = (),
        fixed: Collection[str] = (),
    ) -> None:
        self.output: Mapping[str, BoundTool] = {made.name: made for made in bind_tools(output)}
        """The output tools; offered here, or added to the request of a model that needs them."""
        self._given: Mapping[str, BoundTool] = {}
        self._own = Offered({tool.name: tool for tool in tools})
        self._sources = tuple(sources)
        self._beside = tuple(beside)
        self._fixed = fixed
        self._bound: dict[int, tuple[Any, BoundTool]] = {}

    def offer_output(self) -> None:
        """Offer the output tools, after all others.

        Raises:
            ConfigError: A tool of the agent has the name of one.
        """
        taken = next((name for name in self.output if name in self._own), None)
        if taken is not None:
            raise ConfigError(
                f"a tool and a type of the output are both called {taken}; rename one of them"
            )
        self._given = self.output
        self._own.update(self.output)

    def at(self, state: Mapping[str, Any]) -> Offered:
        """Return the tools of a state by name, in order of registration.

        Raises:
            HookError: A hook's function raised, or returned something that is not a tool.
        """
        if not self._sources and not self._beside:
            return self._own
        more = [tool for source in self._beside for tool in source()]
        if not self._sources and not more:
            return self._own
        tools = Offered(self._own)
        state = state_view(state)
        for hook, source in self._sources:
            try:
                for tool in source(state):
                    bound = self._bind(tool)
                    if bound.name in self._fixed:
                        raise ConfigError(f"{bound.name} is a handoff; give this tool another name")
                    tools[bound.name] = bound
                    tools.by[bound.name] = hook
            except Exception as error:
                raise HookError(f"hook {hook} tools: {error}") from error
        for tool in more:
            tools.setdefault(tool.name, tool)
        for name, tool in self._given.items():
            tools[name] = tool
            tools.by.pop(name, None)
        return tools

    def _bind(self, tool: Any) -> BoundTool:
        if isinstance(tool, BoundTool):
            return tool
        known = self._bound.get(id(tool))
        if known is not None and known[0] is tool:
            return known[1]
        bound = bind_tool(tool)
        if len(self._bound) > 1_000:  # tools made on each call must not pile up
            self._bound.clear()
        self._bound[id(tool)] = (tool, bound)
        return bound


# --- Tools that are added and removed at run time, for all agents or for one.


RESERVED: Final = frozenset(
    {
        *("ls", "read_file", "write_file", "edit_file", "glob", "grep", "execute", "write_todos"),
        *("calculate", "add", "internet_search", "request_user_input", "delegate_to_agent"),
        *("start_async_task", "check_async_task", "update_async_task", "list_async_tasks"),
        *("await_async_tasks", "cancel_async_task"),
        *("list_skills", "activate_skill", "deactivate_skill"),
    }
)
"""Names of built-in tools: models must be able to rely on what they do."""

_Tools = Mapping[str, BoundTool]


def check_free(name: str) -> None:
    """Check that a name is not that of a built-in tool, in any case.

    Raises:
        ConfigError: It is one.
    """
    if name.lower() in RESERVED:
        raise ConfigError(f"{name} is the name of a built-in tool; choose another")


class ToolStore:
    """Tools of every kind by scope: for all agents, or for one agent by name.

    A registered tool is offered from the next model call on, also in running runs. An agent's tool
    precedes one of the same name for all. The agent's and its hooks' own tools are never replaced.
    All methods are safe to call from any thread.

    Args:
        common: More tools to offer, after these; one of the same name as a tool here is not.
    """

    def __init__(self, common: ToolStore | None = None) -> None:
        self._common = common
        self._lock = threading.Lock()
        self._scopes: Mapping[str | None, _Tools] = MappingProxyType({})

    def register(self, tool: Any, *, agent: str | None = None, override: bool = False) -> BoundTool:
        """Add a tool, for one agent or for all.

        Raises:
            ConfigError: It is not a tool, has the name of a built-in tool, or its name is taken in
                this scope and `override` is false.
        """
        bound = bind_tool(tool)
        check_free(bound.name)
        with self._lock:
            held = self._scopes.get(agent, {})
            if bound.name in held and not override:
                raise ConfigError(
                    f"a tool called {bound.name} is registered already; "
                    "deregister it, or register this one with override=True"
                )
            self._put(agent, {**held, bound.name: bound})
        return bound

    def deregister(self, name: str, *, agent: str | None = None) -> bool:
        """Remove a tool from a scope; return False if it was not there.

        Running calls of the tool continue; later ones get the answer for an unknown tool.
        """
        with self._lock:
            held = self._scopes.get(agent, {})
            self._put(agent, {key: tool for key, tool in held.items() if key != name})
        return name in held

    def at(self, agent: str) -> tuple[BoundTool, ...]:
        """Return the tools for an agent, in order of registration; common ones last."""
        common = () if self._common is None else self._common.at(agent)
        if not self._scopes:
            return common
        mine = {**self._scopes.get(None, {}), **self._scopes.get(agent, {})}
        return (*mine.values(), *(tool for tool in common if tool.name not in mine))

    @property
    def agents(self) -> builtins.list[str]:
        """The agents that have tools of their own."""
        return [agent for agent in self._scopes if agent is not None]

    def list(self, agent: str | None = None) -> builtins.list[BoundTool]:
        """Return the tools of one scope: of one agent, or those for all."""
        return [*self._scopes.get(agent, {}).values()]

    def _put(self, agent: str | None, tools: _Tools) -> None:
        """Publish the new table atomically; readers take no lock."""
        scopes = {**self._scopes, agent: tools}
        self._scopes = MappingProxyType({key: held for key, held in scopes.items() if held})
