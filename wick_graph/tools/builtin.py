"""The tools that can be named in a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final

from wick_graph.backends import Root
from wick_graph.config.nearest import did_you_mean
from wick_graph.errors import ConfigError
from wick_graph.tools.bound import BoundTool, bind_tool
from wick_graph.tools.calculate import calculate
from wick_graph.tools.files import ls_tool
from wick_graph.tools.samples import add


@dataclass(frozen=True)
class ToolSetting:
    """What a built-in tool may need to know."""

    root_dir: Path
    """The directory that file tools are confined to."""

    @cached_property
    def root(self) -> Root:
        """The directory, opened when the first tool asks for it and shared by all of them."""
        return Root(self.root_dir)


BUILTINS: Final[Mapping[str, Callable[[ToolSetting], BoundTool]]] = MappingProxyType(
    {
        "calculate": lambda setting: bind_tool(calculate),
        "add": lambda setting: bind_tool(add),
        "ls": lambda setting: bind_tool(ls_tool(setting.root)),
    }
)
_LATER: Final = frozenset({"internet_search"})


def builtin(names: Iterable[str], root_dir: Path) -> list[BoundTool]:
    """Make the built-in tools of these names, in this order.

    Raises:
        ConfigError: A name is unknown, or there twice, or the directory cannot be opened.
    """
    setting = ToolSetting(root_dir)
    made: dict[str, BoundTool] = {}
    for name in names:
        if name in made:
            raise ConfigError(f"the tool {name} is named twice; name it once")
        if name in _LATER:
            raise ConfigError(
                f"the tool {name} is not part of this version; take it out of `tools`"
            )
        if name not in BUILTINS:
            hint = did_you_mean(name, BUILTINS)
            known = ", ".join(BUILTINS)
            raise ConfigError(f"there is no built-in tool {name!r}{hint}; known are {known}")
        made[name] = BUILTINS[name](setting)
    return list(made.values())
