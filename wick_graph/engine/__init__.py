"""The engine: the compiled graph, a run's life cycle, streams, `Agent`, `Result`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.engine.graph import AgentGraph, build_graph

__all__ = ["AgentGraph", "build_graph"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__, {"wick_graph.engine.graph": ("AgentGraph", "build_graph")}
    )
