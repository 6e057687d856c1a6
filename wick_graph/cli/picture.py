"""The graph of an agent as text, Mermaid, DOT and data: its nodes, edges and hook layers.

What is drawn comes from LangGraph's own picture of the compiled graph and from the compiled
hooks. Names that users chose are escaped, so that they cannot change the drawing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from wick_graph.cli.output import safe

if TYPE_CHECKING:
    from wick_graph.agent import Agent
    from wick_graph.types import Phase

NODE_OF: Final[Mapping[Phase, str]] = {
    "before_agent": "before_agent",
    "modify_request": "modify_request",
    "wrap_model_call": "model",
    "after_model": "model",
    "wrap_tool_call": "tools",
}
"""The node in which a phase's layers run."""
_ENDS: Final = {"__start__": "START", "__end__": "END"}
_ARROW: Final = " → "
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:()→")


@dataclass(frozen=True, slots=True)
class Box:
    """One node, with the hook layers in it."""

    name: str
    layers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Phase and hooks, outermost first."""

    def lines(self) -> list[str]:
        """Say in one line for each phase which hooks run there, outermost first."""
        return [f"{phase}: {_ARROW.join(hooks) or 'no hooks'}" for phase, hooks in self.layers]


@dataclass(frozen=True, slots=True)
class Arrow:
    """One edge; `label` names a decision of the router."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is to draw."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Give plain data."""
        return {
            "agent": self.title,
            "nodes": [
                {"name": box.name, "hooks": {phase: list(hooks) for phase, hooks in box.layers}}
                for box in self.boxes
            ],
            "edges": [
                {"source": a.source, "target": a.target, "label": a.label} for a in self.arrows
            ],
        }


def picture_of(agent: Agent) -> Picture:
    """Read the picture off a compiled agent."""
    drawn = agent.graph.get_graph()
    hooks = agent.spec.hooks
    boxes = []
    for node in drawn.nodes:
        layers = [
            (phase, tuple(_name(layer.hook) for layer in hooks.layers(phase)))
            for phase, home in NODE_OF.items()
            if home == node
        ]
        boxes.append(Box(_ENDS.get(node, node), tuple(layers)))
    order = {node: place for place, node in enumerate(drawn.nodes)}
    arrows = [
        Arrow(_ENDS.get(e.source, e.source), _ENDS.get(e.target, e.target), str(e.data or ""))
        for e in sorted(drawn.edges, key=lambda edge: (order[edge.source], order[edge.target]))
    ]
    return Picture(_name(agent.name), tuple(boxes), tuple(arrows))


def as_mermaid(picture: Picture) -> str:
    """Write a Mermaid flowchart that needs no HTML from its reader but line breaks."""
    lines = ["flowchart TD", f"    %% {_mermaid(picture.title)}"]
    for box in picture.boxes:
        label = "<br/>".join(_mermaid(line) for line in (box.name, *box.lines()))
        shape = ('(["', '"])') if box.name in _ENDS.values() else ('["', '"]')
        lines.append(f"    n_{box.name}{shape[0]}{label}{shape[1]}")
    for arrow in picture.arrows:
        label = f'|"{_mermaid(arrow.label)}"|' if arrow.label else ""
        lines.append(f"    n_{arrow.source} -->{label} n_{arrow.target}")
    return "\n".join(lines)


def as_dot(picture: Picture) -> str:
    """Write a graph for Graphviz."""
    lines = [f"digraph {_dot(picture.title)} {{", "    rankdir=TB;", "    node [shape=box];"]
    for box in picture.boxes:
        label = r"\n".join(_dot_text(line) for line in (box.name, *box.lines()))
        shape = " shape=oval" if box.name in _ENDS.values() else ""
        lines.append(f'    {_dot(box.name)} [label="{label}"{shape}];')
    for arrow in picture.arrows:
        label = f" [label={_dot(arrow.label)}]" if arrow.label else ""
        lines.append(f"    {_dot(arrow.source)} -> {_dot(arrow.target)}{label};")
    return "\n".join([*lines, "}"])


def as_text(picture: Picture) -> str:
    """Draw the loop for a terminal; it always has the same shape, so it is laid out by hand."""
    boxes = {box.name: box for box in picture.boxes}
    to_tools, to_end = (_label(picture, target) for target in ("tools", "END"))
    opened = ["START", "  │", "  ▼", *_frame(boxes["before_agent"]), "  │", "  ▼"]
    request = _frame(boxes["modify_request"])
    tools = [f"  │    {line}" for line in _frame(boxes["tools"])]
    between = [
        "  │",
        "  ▼",
        *_frame(boxes["model"]),
        "  │",
        f"  ├─ {to_tools}",
        "  │    ▼",
    ]
    looped = [*request, *between, *tools]
    rail = max(map(_cells, looped)) + 3
    first, last = 1, len(request) + len(between) + 1
    drawn = [_railed(line, i, first, last, rail) for i, line in enumerate(looped)]
    return "\n".join([*opened, *drawn, "  │", f"  └─ {to_end} ─► END"])


def _railed(line: str, at: int, first: int, last: int, rail: int) -> str:
    """Add the edge that leads back from `tools` to `modify_request` at the right."""
    room = rail - _cells(line)
    if at == first:
        return f"{line} ◄{'─' * (room - 2)}┐"
    if at == last:
        return f"{line} {'─' * (room - 1)}┘"
    return f"{line}{' ' * room}│" if first < at < last else line


def _frame(box: Box) -> list[str]:
    lines = [box.name, *(f"  {line}" for line in box.lines())]
    width = max(map(_cells, lines))
    body = [f"│ {line}{' ' * (width - _cells(line))} │" for line in lines]
    return [f"┌{'─' * (width + 2)}┐", *body, f"└{'─' * (width + 2)}┘"]


def _label(picture: Picture, target: str) -> str:
    found = (a.label for a in picture.arrows if a.source == "model" and a.target == target)
    return next(found, "")


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _name(text: str) -> str:
    """Bring a name that a user chose to one safe line."""
    return " ".join(safe(text).split())[:100]


def _mermaid(text: str) -> str:
    """Escape everything that Mermaid, Markdown or HTML might read as more than a letter."""
    return "".join(c if c in _PLAIN or c.isalnum() else f"#{ord(c)};" for c in text)


def _dot(text: str) -> str:
    return f'"{_dot_text(text)}"'


def _dot_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
