"""Tools: what one is, how it is made, adapted and checked, and the ones that come along."""

from __future__ import annotations

from wick_graph.tools.bound import BoundTool, bind_tool, bind_tools
from wick_graph.tools.builtin_tools import BUILTINS, ToolSetting, builtin
from wick_graph.tools.func import FuncTool, tool
from wick_graph.tools.http import HTTPTool
from wick_graph.tools.limiter import Limiter
from wick_graph.tools.options import ToolOptions
from wick_graph.tools.protocol import UNSET, Tool, ToolContext
from wick_graph.tools.registry import ToolRegistry
from wick_graph.tools.result import cap, failure, normalise
from wick_graph.tools.store import ToolStore

__all__ = [
    "BUILTINS",
    "UNSET",
    "BoundTool",
    "FuncTool",
    "HTTPTool",
    "Limiter",
    "Tool",
    "ToolContext",
    "ToolOptions",
    "ToolRegistry",
    "ToolSetting",
    "ToolStore",
    "bind_tool",
    "bind_tools",
    "builtin",
    "cap",
    "failure",
    "normalise",
    "tool",
]
