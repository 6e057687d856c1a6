"""Sub-agents: a task for another agent, in a child thread of its own."""

from __future__ import annotations

from wick_graph.subagents.background import Background
from wick_graph.subagents.delegate import Subagent, delegation

__all__ = ["Background", "Subagent", "delegation"]
