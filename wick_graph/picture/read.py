"""Read the picture from a compiled graph: LangGraph's own drawing, and details of agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from wick_graph.constants import MAX_CONCURRENCY
from wick_graph.engine.graph import AgentGraph
from wick_graph.picture.model import (
    END,
    START,
    Arrow,
    Box,
    Fact,
    Kind,
    Layers,
    Picture,
    ToolMark,
    clean,
    count,
    span,
)
from wick_graph.runtime.context import AgentSpec
from wick_graph.tools.bound import BoundTool, bind_tool
from wick_graph.tools.toolsets import Unasked
from wick_graph.types import Phase

NODE_OF: Final[Mapping[Phase, str]] = {
    "before_agent": "before_agent",
    "modify_request": "modify_request",
    "wrap_model_call": "model",
    "after_model": "model",
    "wrap_tool_call": "tools",
}
"""The node in which a phase's layers run."""

_AROUND: Final[Mapping[Phase, str]] = {
    "wrap_model_call": "model call",
    "wrap_tool_call": "tool call",
}

_ENDS: Final[Mapping[str, tuple[str, Kind]]] = {
    "__start__": (START, "start"),
    "__end__": (END, "end"),
}

CALLER: Final = "tools"
"""The node that delegates tasks."""

_INTERRUPT: Final = "__interrupt"

_TOOLS: Final = "__tools"

_DESCRIPTION: Final = 80
"""Drawn characters of a sub-agent's description."""

_MOST_FACTS: Final = 6
"""Drawn entries of a node's metadata."""


def picture_of(graph: Any, *, xray: int | bool = False, title: str = "") -> Picture:
    """Read the picture from a compiled LangGraph graph.

    Args:
        graph: Anything with `get_graph`; an `AgentGraph` gives more details.
        xray: Depth of subgraphs that are drawn node by node, as for LangGraph's `get_graph`.
        title: The title; the graph's own name by default.
    """
    drawn = graph.get_graph(xray=xray)
    ids = ids_of(drawn.nodes)
    spec = graph.spec if isinstance(graph, AgentGraph) else None
    inside = dict(_inside(spec)) if spec is not None else {}
    boxes = [
        inside.get(key) or _box(key, ids[key], node.data, node.metadata or {})
        for key, node in drawn.nodes.items()
    ]
    boxes = [_with_breakpoints(box, drawn.nodes[key]) for key, box in zip(ids, boxes, strict=True)]
    order = {node: place for place, node in enumerate(drawn.nodes)}
    labels = _labels(graph)
    arrows = [
        Arrow(
            ids[edge.source],
            ids[edge.target],
            _label(labels.get((edge.source, edge.target)), edge.data),
            bool(edge.conditional),
        )
        for edge in sorted(drawn.edges, key=lambda e: (order[e.source], order[e.target]))
    ]
    if spec is not None:
        below = [box for box, _ in subagents_of(spec)]
        boxes += below
        arrows += [Arrow(CALLER, box.id, "", True) for box in below]
    name = title or (spec.name if spec else "") or getattr(graph, "name", "") or "graph"
    return Picture(clean(name), tuple(boxes), tuple(arrows))


def ids_of(nodes: Mapping[str, Any]) -> dict[str, str]:
    """Map LangGraph's node names to the picture's: START and END, unless a node has that name."""
    return {
        key: _ENDS[key][0] if key in _ENDS and _ENDS[key][0] not in nodes else key for key in nodes
    }


def _box(key: str, box_id: str, data: Any, metadata: Mapping[str, Any]) -> Box:
    if key in _ENDS:
        return Box(box_id, _ENDS[key][0], _ENDS[key][1])
    facts: list[Fact] = []
    kind: Kind = "node"
    if isinstance(data, AgentGraph):
        kind = "graph"
        facts.append(Fact("agent", data.spec.name, f"the agent {clean(data.spec.name)}"))
    elif hasattr(data, "get_graph") and hasattr(data, "nodes"):
        kind = "graph"
        inner = [node for node in data.nodes if node not in _ENDS]
        facts.append(Fact("nodes", len(inner), f"a graph of {count(len(inner), 'node')}"))
    if metadata.get("defer"):
        facts.append(Fact("defer", True, "runs when all else is done"))
    for name in [k for k in metadata if not k.startswith("__") and k != "defer"][:_MOST_FACTS]:
        value = metadata[name]
        if isinstance(value, str | int | float | bool) and value != "":
            facts.append(Fact(clean(name), value, f"{clean(name)}: {clean(value)}"))
    tools = tuple(ToolMark(clean(tool)) for tool in metadata.get(_TOOLS) or ())
    return Box(box_id, clean(key), kind, tuple(facts), tools=tools)


def _with_breakpoints(box: Box, node: Any) -> Box:
    """Add the breakpoints at which runs of this graph always stop."""
    places = str((node.metadata or {}).get(_INTERRUPT) or "")
    stops = [place for place in ("before", "after") if place in places]
    if not stops:
        return box
    text = f"interrupt {' and '.join(stops)}"
    fact = Fact("interrupt", ",".join(stops), text)
    return replace(box, facts=(fact, *box.facts))


def _labels(graph: Any) -> dict[tuple[str, str], list[str]]:
    """List all decisions between each two nodes: LangGraph draws only one."""
    found: dict[tuple[str, str], list[str]] = {}
    branches = getattr(getattr(graph, "builder", None), "branches", None) or {}
    for source, by_name in branches.items():
        for branch in by_name.values():
            for label, target in (getattr(branch, "ends", None) or {}).items():
                if label != target:
                    found.setdefault((source, target), []).append(str(label))
    return found


def _label(known: list[str] | None, drawn: Any) -> str:
    if known and (drawn is None or str(drawn) in known):
        return clean(" | ".join(dict.fromkeys(known)))
    return "" if drawn is None else clean(drawn)


# --- agents ---------------------------------------------------------------------------------------


def _inside(spec: AgentSpec) -> Iterator[tuple[str, Box]]:
    """Describe the four nodes of an agent."""
    layers: dict[str, list[Layers]] = {}
    for phase, node in NODE_OF.items():
        hooks = tuple(clean(layer.hook) for layer in spec.hooks.layers(phase))
        layers.setdefault(node, []).append(Layers(phase, hooks, _AROUND.get(phase, "")))
    tools, unknown = _tools(spec)
    servers = tuple(_servers(spec))
    some = tools or unknown or servers
    facts = {"model": _model_facts(spec), "tools": _tool_facts(spec) + servers if some else ()}
    for node, found in layers.items():
        own = (tools, unknown) if node == "tools" else ((), ())
        yield node, Box(node, node, "node", facts.get(node, ()), tuple(found), *own)


def _model_facts(spec: AgentSpec) -> tuple[Fact, ...]:
    most = spec.max_iterations
    return (
        Fact("model", spec.model.name, clean(spec.model.name)),
        Fact("max_iterations", most, f"at most {count(most, 'call')} in a run"),
    )


def _tool_facts(spec: AgentSpec) -> tuple[Fact, ...]:
    limit = spec.tool_timeout
    said = "no time limit" if limit is None else f"{span(limit)} for each call"
    return (
        Fact("tool_timeout", limit, said),
        Fact("max_concurrency", MAX_CONCURRENCY, f"at most {MAX_CONCURRENCY} calls at once"),
    )


def subagents_of(spec: AgentSpec) -> list[tuple[Box, tuple[str, ...]]]:
    """List the sub-agents of an agent, each with the tools that delegate to it."""
    found: dict[str, dict[str, str]] = {}
    for tool in [*spec.tools, *(tool for _, tools in _brought(spec) for tool in tools or ())]:
        for name, description in (getattr(tool.source, "agents", None) or {}).items():
            found.setdefault(name, {})[tool.name] = description
    made = []
    for name, tools in found.items():
        by = ", ".join(clean(tool) for tool in tools)
        facts = (
            Fact("sub_agent_by", by, f"sub-agent, by {by}"),
            *(
                Fact("description", text, clean(text, _DESCRIPTION))
                for text in dict.fromkeys(tools.values())
            ),
        )
        made.append((Box(f"agent:{name}", clean(name), "agent", facts), tuple(tools)))
    return made


def _brought(spec: AgentSpec) -> Iterator[tuple[str, list[BoundTool] | None]]:
    """Yield each hook with its tools for an empty thread; None if they need a real one."""
    for hook, source in spec.hooks.tool_sources:
        try:
            yield hook, [bind_tool(tool) for tool in source({})]
        except Exception:  # a user's function that needs a thread
            yield hook, None


def _tools(spec: AgentSpec) -> tuple[tuple[ToolMark, ...], tuple[str, ...]]:
    """List the tools for an empty thread, and the hooks with tools that need a real one."""
    marks = {tool.name: ToolMark(clean(tool.name), tuple(_facts_of(tool))) for tool in spec.tools}
    unknown = []
    for hook, brought in _brought(spec):
        if brought is None:
            unknown.append(clean(hook))
            continue
        origin = Fact("hook", clean(hook), f"from {clean(hook)}")
        for tool in brought:
            marks[tool.name] = ToolMark(clean(tool.name), (origin, *_facts_of(tool)))
    for listed in spec.beside:
        server = clean(getattr(getattr(listed, "__self__", None), "name", ""))
        said = (Fact("server", server, f"from {server}"),) if server else ()
        for tool in listed():
            mark = ToolMark(clean(tool.name), (*said, *_facts_of(tool)))
            marks.setdefault(tool.name, mark)
    return tuple(marks.values()), tuple(unknown)


def _servers(spec: AgentSpec) -> Iterator[Fact]:
    """Return the servers with tools that have not been fetched yet."""
    for listed in spec.beside:
        if isinstance(listed, Unasked):
            name = clean(listed.name)
            yield Fact("mcp_server", name, f"and the tools of the MCP server {name}")


def _facts_of(tool: BoundTool) -> Iterator[Fact]:
    """Return a tool's unusual settings."""
    repeat = {"safe": "repeatable", "key": "repeatable by key"}.get(tool.replay, "")
    yield Fact("replay", tool.replay, repeat)
    if isinstance(tool.timeout, int | float) or tool.timeout is None:
        said = "no time limit" if tool.timeout is None else span(tool.timeout)
        yield Fact("timeout", tool.timeout, said)
    if tool.retries:
        yield Fact("retries", tool.retries, count(tool.retries, "retry", "retries"))
    if tool.concurrency:
        yield Fact("concurrency", tool.concurrency, f"{tool.concurrency} at once")
