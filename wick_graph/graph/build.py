"""Build an agent's graph. The topology is always the same, whatever hooks and tools there are.

So a thread resumes under any configuration, and adding a hook adds no step and no checkpoint.
"""

from __future__ import annotations

from typing import Annotated, Any

from langgraph.channels import BaseChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict, get_type_hints

from wick_graph.graph.agent_graph import AgentGraph
from wick_graph.graph.channels import quick
from wick_graph.graph.node import Node, Router
from wick_graph.graph.quiet import quieten
from wick_graph.nodes.before_agent import before_agent
from wick_graph.nodes.model import model
from wick_graph.nodes.modify_request import modify_request
from wick_graph.nodes.route import END_LABEL, TOOLS, route
from wick_graph.nodes.tools import tools
from wick_graph.reducers import folding
from wick_graph.runtime import AgentSpec
from wick_graph.state import AgentInput, AgentOutput, AgentState


def build_graph(spec: AgentSpec, saver: BaseCheckpointSaver[Any] | None = None) -> AgentGraph:
    """Compile an agent into LangGraph's graph with our life cycle around each run."""
    graph = StateGraph(_schema(spec), input_schema=AgentInput, output_schema=AgentOutput)
    for name, body, phases in (
        ("before_agent", before_agent, ("before_agent",)),
        ("modify_request", modify_request, ("modify_request",)),
        ("model", model, ("wrap_model_call", "after_model")),
        ("tools", tools, ("wrap_tool_call",)),
    ):
        graph.add_node(name, Node(name, body, spec), metadata=_metadata(spec, phases))
    graph.add_edge(START, "before_agent")
    graph.add_edge("before_agent", "modify_request")
    graph.add_edge("modify_request", "model")
    graph.add_conditional_edges(
        "model", Router("route", route, spec), {TOOLS: "tools", END_LABEL: END}
    )
    graph.add_edge("tools", "modify_request")
    compiled = graph.compile(checkpointer=saver, name=spec.name)
    for name in graph.nodes:
        quieten(compiled.nodes[name])
    for name, channel in compiled.channels.items():
        if isinstance(channel, BaseChannel):
            compiled.channels[name] = quick(channel)
    return AgentGraph.adopt(compiled, spec)


def _schema(spec: AgentSpec) -> Any:
    """Return the state's schema; only how writes to one channel combine depends on the hooks."""
    if not spec.hooks.reducers:
        return AgentState
    channel = Annotated[dict[str, Any], folding(spec.hooks.reducers)]
    channels = {**get_type_hints(AgentState, include_extras=True), "middleware": channel}
    return TypedDict("AgentState", channels, total=False)  # type: ignore[operator]  # made by name


def _metadata(spec: AgentSpec, phases: tuple[Any, ...]) -> dict[str, Any]:
    """Name the hook layers inside a node; LangGraph's own pictures show this."""
    layers = [layer.hook for phase in phases for layer in spec.hooks.layers(phase)]
    return {"hooks": ", ".join(dict.fromkeys(layers))} if layers else {}
