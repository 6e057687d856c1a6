"""The tools that can be named in a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from wick_graph.backends import Root
from wick_graph.config import SearchConfig
from wick_graph.errors import ConfigError, did_you_mean
from wick_graph.tools.bound import BoundTool, bind_tool
from wick_graph.tools.calculate import calculate
from wick_graph.tools.files import ls_tool
from wick_graph.tools.question import question_tool
from wick_graph.tools.samples import add
from wick_graph.tools.search import search_tool

SEARCH_NEEDED: Final = (
    "internet_search needs an endpoint to ask; add search: {url: https://…} to the agent"
)


@dataclass(frozen=True)
class ToolSetting:
    """What a built-in tool may need to know."""

    root_dir: Path
    """The directory that file tools are confined to."""
    search: SearchConfig | None = None
    """The endpoint that `internet_search` asks."""

    @cached_property
    def root(self) -> Root:
        """The directory, opened when the first tool asks for it and shared by all of them."""
        return Root(self.root_dir)


BUILTINS: Final[Mapping[str, Callable[[ToolSetting], BoundTool]]] = MappingProxyType(
    {
        "calculate": lambda setting: bind_tool(calculate),
        "add": lambda setting: bind_tool(add),
        "ls": lambda setting: bind_tool(ls_tool(setting.root)),
        "internet_search": lambda setting: bind_tool(_search(setting.search)),
        "request_user_input": lambda setting: bind_tool(question_tool()),
    }
)


def builtin(
    names: Iterable[str], root_dir: Path, *, search: SearchConfig | None = None
) -> list[BoundTool]:
    """Make the built-in tools of these names, in this order.

    Raises:
        ConfigError: A name is unknown, or there twice, the directory cannot be opened, or
            `internet_search` has no endpoint.
    """
    setting = ToolSetting(root_dir, search)
    made: dict[str, BoundTool] = {}
    for name in names:
        if name in made:
            raise ConfigError(f"the tool {name} is named twice; name it once")
        if name not in BUILTINS:
            hint = did_you_mean(name, BUILTINS)
            known = ", ".join(BUILTINS)
            raise ConfigError(f"there is no built-in tool {name!r}{hint}; known are {known}")
        made[name] = BUILTINS[name](setting)
    return list(made.values())


def _search(search: SearchConfig | None) -> Any:
    if search is None:
        raise ConfigError(SEARCH_NEEDED)
    return search_tool(search)
