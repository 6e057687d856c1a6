"""Tools of MCP servers: programs on this machine, and servers behind HTTP."""

from __future__ import annotations

from wick_graph.mcp.server import McpServer, Target

__all__ = ["McpServer", "Target"]
