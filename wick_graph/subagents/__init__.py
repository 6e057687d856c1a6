"""Several agents: tasks in child threads, and handoffs of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.engine.handoffs import Handoff
    from wick_graph.subagents.background import Background
    from wick_graph.subagents.delegate import Subagent, delegation

__all__ = ["Background", "Handoff", "Subagent", "delegation"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.engine.handoffs": ("Handoff",),
            "wick_graph.subagents.background": ("Background",),
            "wick_graph.subagents.delegate": ("Subagent", "delegation"),
        },
    )
