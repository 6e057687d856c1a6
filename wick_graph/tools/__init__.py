"""Tools: their protocol, how to make, adapt and check them, and the built-in ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.tools.bound import BoundTool, bind_tool, bind_tools
    from wick_graph.tools.builtin_tools import BUILTINS, ToolSetting, builtin, calculate
    from wick_graph.tools.function_tool import FuncTool, tool
    from wick_graph.tools.http import HTTPTool
    from wick_graph.tools.limiter import Limiter
    from wick_graph.tools.protocol import UNSET, Tool, ToolContext, ToolOptions
    from wick_graph.tools.result import cap, failure, normalise
    from wick_graph.tools.toolsets import ToolRegistry, ToolStore

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
    "calculate",
    "cap",
    "failure",
    "normalise",
    "tool",
]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.tools.bound": ("BoundTool", "bind_tool", "bind_tools"),
            "wick_graph.tools.builtin_tools": ("BUILTINS", "ToolSetting", "builtin", "calculate"),
            "wick_graph.tools.function_tool": ("FuncTool", "tool"),
            "wick_graph.tools.http": ("HTTPTool",),
            "wick_graph.tools.limiter": ("Limiter",),
            "wick_graph.tools.protocol": ("Tool", "ToolContext", "ToolOptions", "UNSET"),
            "wick_graph.tools.result": ("cap", "failure", "normalise"),
            "wick_graph.tools.toolsets": ("ToolRegistry", "ToolStore"),
        },
    )
