"""Tools that come and go while a program runs: for all agents, or for one."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from wick_graph.errors import ConfigError
from wick_graph.tools.bound import BoundTool, bind_tool

RESERVED: Final = frozenset(
    {
        *("ls", "read_file", "write_file", "edit_file", "glob", "grep", "execute", "write_todos"),
        *("calculate", "add", "internet_search", "request_user_input", "delegate_to_agent"),
        *("start_async_task", "check_async_task", "update_async_task", "list_async_tasks"),
        *("await_async_tasks", "cancel_async_task"),
        *("list_skills", "activate_skill", "deactivate_skill"),
    }
)
"""Names of tools that come along: a model must be able to rely on what they do."""

_Tools = Mapping[str, BoundTool]


def check_free(name: str) -> None:
    """Refuse the name of a built-in tool, in whatever case.

    Raises:
        ConfigError: It is one.
    """
    if name.lower() in RESERVED:
        raise ConfigError(f"{name} is the name of a built-in tool; take another one")


class ToolStore:
    """Hold tools of every kind, by scope: all agents, or one agent by its name.

    What is registered is offered from the next model call on, also in runs under way. An agent's
    tool goes before one of the same name for all. Tools that an agent or its hooks have by
    themselves are never replaced. All methods can be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scopes: Mapping[str | None, _Tools] = MappingProxyType({})

    def register(self, tool: Any, *, agent: str | None = None, override: bool = False) -> BoundTool:
        """Add a tool, for one agent or for all.

        Raises:
            ConfigError: It is no tool, has the name of a built-in one, or its name is taken in
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
        """Take a tool away from a scope; false if it was not there.

        A call of it that is under way goes on; a later one is answered as one of no tool.
        """
        with self._lock:
            held = self._scopes.get(agent, {})
            self._put(agent, {key: tool for key, tool in held.items() if key != name})
        return name in held

    def at(self, agent: str) -> tuple[BoundTool, ...]:
        """Return the tools that an agent is offered, in order of registration."""
        if not self._scopes:
            return ()
        everywhere, own = self._scopes.get(None, {}), self._scopes.get(agent, {})
        return tuple({**everywhere, **own}.values())

    def list(self, agent: str | None = None) -> builtins.list[BoundTool]:
        """Return the tools of one scope: of an agent by itself, or those for all."""
        return [*self._scopes.get(agent, {}).values()]

    def _put(self, agent: str | None, tools: _Tools) -> None:
        """Show readers the new table at once and whole; they take no lock."""
        scopes = {**self._scopes, agent: tools}
        self._scopes = MappingProxyType({key: held for key, held in scopes.items() if held})
