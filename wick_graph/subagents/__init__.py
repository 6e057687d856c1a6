"""Sub-agents: tasks for other agents, each in its own child thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.subagents.background import Background
    from wick_graph.subagents.delegate import Subagent, delegation

__all__ = ["Background", "Subagent", "delegation"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.subagents.background": ("Background",),
            "wick_graph.subagents.delegate": ("Subagent", "delegation"),
        },
    )
