"""The graph: an agent's specification made LangGraph's compiled graph, and a run's life cycle."""

from wick_graph.graph.agent_graph import AgentGraph
from wick_graph.graph.build import build_graph

__all__ = ("AgentGraph", "build_graph")
