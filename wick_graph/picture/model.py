"""What there is to draw, as plain data that every form of the picture is written from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Literal

from wick_graph.picture.layout import Link, Size
from wick_graph.picture.overlay import RunOverlay
from wick_graph.picture.words import clean

Kind = Literal["start", "end", "node", "graph", "agent"]
START: Final = "START"
END: Final = "END"
ARROW: Final = " → "


@dataclass(frozen=True, slots=True)
class Fact:
    """Something worth knowing: a limit, a breakpoint, a setting."""

    name: str
    value: str | int | float | bool | None
    text: str = ""
    """How it is said in a drawing; empty where it is not drawn."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The hooks of one phase in a box."""

    phase: str
    hooks: tuple[str, ...]
    """The outermost or first one first."""
    around: str = ""
    """What the hooks of a wrapping phase enclose; empty where they come one after another."""

    def line(self) -> str:
        """Say in one line which hooks run."""
        return f"{self.phase}: {ARROW.join(self.hooks) or 'no hooks'}"


@dataclass(frozen=True, slots=True)
class ToolMark:
    """A tool that a box can call."""

    name: str
    facts: tuple[Fact, ...] = ()

    def line(self) -> str:
        """Say in one line what is special about it."""
        said = ", ".join(fact.text for fact in self.facts if fact.text)
        return f"{self.name} ({said})" if said else self.name


@dataclass(frozen=True, slots=True)
class Box:
    """One node of the graph, with what is inside it."""

    id: str
    """LangGraph's name for it; START and END for the ends, `agent:NAME` for a sub-agent."""
    name: str
    """The same, safe to draw."""
    kind: Kind = "node"
    facts: tuple[Fact, ...] = ()
    layers: tuple[Layers, ...] = ()
    tools: tuple[ToolMark, ...] = ()
    unknown_tools: tuple[str, ...] = ()
    """The hooks whose tools depend on the thread."""

    @property
    def is_nested(self) -> bool:
        """Whether it stands for a whole graph."""
        return self.kind in ("graph", "agent")

    @property
    def is_end(self) -> bool:
        """Whether it is where the graph begins or ends."""
        return self.kind in ("start", "end")

    def lines(self) -> list[str]:
        """Say in a line each what is inside."""
        said = [fact.text for fact in self.facts if fact.text]
        said += [layers.line() for layers in self.layers]
        if self.tools:
            said.append("tools: " + ", ".join(tool.line() for tool in self.tools))
        if self.unknown_tools:
            said.append("more tools, by thread: " + ", ".join(self.unknown_tools))
        return said


@dataclass(frozen=True, slots=True)
class Arrow:
    """One edge, between the ids of boxes."""

    source: str
    target: str
    label: str = ""
    """What the decision is called that leads this way."""
    conditional: bool = False
    """Whether a decision may also lead another way."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph, and the run that is laid over it."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    run: RunOverlay | None = None

    def with_run(self, run: RunOverlay | None) -> Picture:
        """Return the picture with a run laid over it."""
        return replace(self, run=run and run.cleaned())

    def path(self) -> list[str]:
        """Name the boxes that the run went through; repeated ones are counted."""
        names = {box.id: box.name for box in self.boxes}
        ran = [names.get(step, clean(step)) for step in self.run.path] if self.run else []
        return [
            f"{name} ×{times}" if (times := len(list(same))) > 1 else name
            for name, same in groupby(ran)
        ]

    def lines_of(self, box: Box) -> list[str]:
        """Say in a line each what happened in a box and what is inside."""
        said = []
        if self.run is not None and not box.is_end:
            said = list(filter(None, [self.run.place(box.id), *self.run.node(box.id).parts()]))
        return [", ".join(said), *box.lines()] if said else box.lines()

    def label_of(self, arrow: Arrow) -> str:
        """Say what stands at an edge: its decision, and how often a run took it.

        The count stands only where ways part; elsewhere the boxes tell it.
        """
        taken = self.run.edge(arrow.source, arrow.target).visits if self.run else 0
        times = f"×{taken:,}" if taken and (arrow.conditional or arrow.label) else ""
        return " ".join(filter(None, (arrow.label, times)))

    def links(self, labels: Sequence[Size | None]) -> list[Link]:
        """Give the edges as a layout takes them, with the sizes of their labels."""
        place = {box.id: i for i, box in enumerate(self.boxes)}
        return [
            Link(place[arrow.source], place[arrow.target], label)
            for arrow, label in zip(self.arrows, labels, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Give plain data."""
        made = {
            "agent": self.title,
            "nodes": [_node(box) for box in self.boxes],
            "edges": [
                {
                    "source": arrow.source,
                    "target": arrow.target,
                    "label": arrow.label,
                    "conditional": arrow.conditional,
                }
                for arrow in self.arrows
            ],
        }
        return made if self.run is None else {**made, "run": self.run.to_dict()}


def _node(box: Box) -> dict[str, Any]:
    return {
        "id": box.id,
        "name": box.name,
        "kind": box.kind,
        "facts": {fact.name: fact.value for fact in box.facts},
        "hooks": {layers.phase: list(layers.hooks) for layers in box.layers},
        "tools": [
            {"name": tool.name, **{fact.name: fact.value for fact in tool.facts}}
            for tool in box.tools
        ],
        "tools_by_thread": list(box.unknown_tools),
    }
