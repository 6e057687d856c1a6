"""wick_graph: an agent engine with its loop as an explicit LangGraph graph.

    START → before_agent → modify_request → model ─ route: tools → tools → modify_request …
                                                  └ route: end → END

Each name below loads on first use: `import wick_graph` imports no LangChain.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from wick_graph import events
    from wick_graph.core.request import ModelRequest
    from wick_graph.engine.agent import Agent
    from wick_graph.engine.result import Result
    from wick_graph.errors import ToolError, WickError
    from wick_graph.hooks.protocol import BaseHook, HookContext, Verdict
    from wick_graph.loading import Agents, load
    from wick_graph.messages import Messages, ToolCall, ToolResult, ai, human, system, tool_msg
    from wick_graph.server import Server
    from wick_graph.store import SqlSaver
    from wick_graph.tools import FuncTool, Tool, ToolContext, tool

__version__: Final = "0.1.0"

__all__ = (  # noqa: RUF022  # grouped: this is the table of contents
    # run agents
    "load",
    "Agents",
    "Agent",
    "Result",
    "events",
    "Server",
    # keep threads
    "SqlSaver",
    # write tools
    "tool",
    "Tool",
    "FuncTool",
    "ToolContext",
    "ToolCall",
    "ToolResult",
    "ToolError",
    # write hooks
    "BaseHook",
    "HookContext",
    "ModelRequest",
    "Verdict",
    # make messages
    "Messages",
    "human",
    "system",
    "ai",
    "tool_msg",
    # know what went wrong
    "WickError",
    "__version__",
)

_HOME: Final = {
    "load": "loading",
    "Agents": "loading",
    "Agent": "engine.agent",
    "Result": "engine.result",
    "Server": "server",
    "SqlSaver": "store",
    "tool": "tools",
    "Tool": "tools",
    "FuncTool": "tools",
    "ToolContext": "tools",
    "ToolCall": "messages",
    "ToolResult": "messages",
    "ToolError": "errors",
    "BaseHook": "hooks.protocol",
    "HookContext": "hooks.protocol",
    "Verdict": "hooks.protocol",
    "ModelRequest": "core.request",
    "Messages": "messages",
    "human": "messages",
    "system": "messages",
    "ai": "messages",
    "tool_msg": "messages",
    "WickError": "errors",
}


def __getattr__(name: str) -> Any:
    if name == "events":
        return import_module("wick_graph.events")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'wick_graph' has no attribute {name!r}")
    value = getattr(import_module(f"wick_graph.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
