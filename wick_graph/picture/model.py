"""The picture as plain data: boxes, edges, safe names, and the counts of a run."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, Literal

from wick_graph.constants import TURNING
from wick_graph.picture.layout_rows import Link, Size

# --- Safe forms of users' names; widths of text in cells and pixels; numbers as text.


NAME_CHARS: Final = 100
"""Drawn characters of a name; a longer one ends in an ellipsis."""

_BAD: Final = "\ufffd"

_VISIBLE: Final[Mapping[int, str]] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\v\f\r"},
    0x7F: "\u2421",
    **dict.fromkeys([*range(0x80, 0x85), *range(0x86, 0xA0)], _BAD),
    **{code: f"\\u{code:04x}" for code in TURNING},
    **dict.fromkeys(range(0xD800, 0xE000), _BAD),
    **dict.fromkeys([0xFFFE, 0xFFFF, *range(0xFDD0, 0xFDF0)], _BAD),
}
"""Control characters as their pictures, signs that turn the reading direction as escapes, and
characters that XML refuses as the replacement character."""


def clean(text: object, limit: int = NAME_CHARS) -> str:
    """Return a name as one line without active characters."""
    line = " ".join(str(text)[: limit * 8].translate(_VISIBLE).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def cells(text: str) -> int:
    """Count the cells of a terminal that a text takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


# Advance widths of printable ASCII in thousandths of the font size, from DejaVu Sans and its bold:
# no wider sans-serif font is in common use, so text set in another one fits too.
_PLAIN: Final = (
    *(318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337),
    *(636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531),
    *(1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787),
    *(603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500),
    *(500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612),
    *(635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838),
)

_BOLD: Final = (
    *(348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365),
    *(696, 696, 696, 696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 580),
    *(1000, 774, 762, 734, 830, 683, 683, 821, 837, 372, 372, 775, 637, 995, 837, 850),
    *(733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725, 457, 365, 457, 838, 500),
    *(500, 675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665, 343, 1042, 712, 687),
    *(716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838),
)

_PUNCTUATION: Final = {"…": 1000, "·": 400, "→": 838, "↓": 838, "×": 838, "≤": 838, "–": 500}

_WIDE: Final = 1300
"""Emoji and signs of unknown fonts, at their greatest width."""


def pixels(text: str, size: int, *, bold: bool = False) -> int:
    """Return the width of a text in pixels, rounded up, never too narrow."""
    table = _BOLD if bold else _PLAIN
    total = sum(table[ord(c) - 32] if " " <= c <= "~" else _width_of(c, table) for c in text)
    return -(-total * size // 1000)


def _width_of(char: str, table: tuple[int, ...]) -> int:
    if char in _PUNCTUATION:
        return _PUNCTUATION[char]
    kind = unicodedata.category(char)
    if kind in ("Mn", "Me"):
        return 0
    if unicodedata.east_asian_width(char) in "WF":
        return _WIDE if kind == "So" else 1000
    base = unicodedata.normalize("NFD", char)[0]
    if " " <= base <= "~":
        return table[ord(base) - 32]
    return 850 if kind[0] in "LN" and ord(char) < 0x600 else _WIDE


Measure = Callable[[str], int]


def wrapped(text: str, room: int, measure: Measure) -> list[str]:
    """Break a text into lines that fit, between words if possible."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if measure(longer) <= room:
            line = longer
            continue
        if line:
            lines.append(line)
        while measure(word) > room and len(word) > 1:
            cut = _fitting(word, room, measure)
            lines.append(word[:cut])
            word = word[cut:]
        line = word
    return [*lines, line] if line or not lines else lines


def _fitting(word: str, room: int, measure: Measure) -> int:
    """Return how many characters of a word fit, at least one; prefer a near underscore."""
    cut = 1
    while cut < len(word) and measure(word[: cut + 1]) <= room:
        cut += 1
    for at in range(cut, cut // 2, -1):
        if word[at - 1] in "_-.:/":
            return at
    return cut


def span(seconds: float) -> str:
    """Format a duration."""
    if seconds < 0.001:
        return "0 ms" if seconds <= 0 else "<1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")


def count(number: int, one: str, many: str = "") -> str:
    """Format a number with its word in singular or plural."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


# --- A run over the picture of its graph: counts, times, tokens and errors, as plain data.
#
# The module `history` fills it in. Boxes are named as in `Picture`: START and END for the ends.


Edge = tuple[str, str]
"""Source and target; edges between the same two boxes share their numbers."""

LayerKey = tuple[str, str]
"""Phase and hook."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of one place."""

    visits: int = 0
    seconds: float | None = None
    """Sum over all visits; None if not measured."""
    input_tokens: int = 0
    output_tokens: int = 0
    errors: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Add two tallies; an unknown time adds nothing."""
        times = [t for t in (self.seconds, other.seconds) if t is not None]
        return Tally(
            self.visits + other.visits,
            sum(times) if times else None,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.errors + other.errors,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        seconds = None if self.seconds is None else round(self.seconds, 6)
        return {
            "visits": self.visits,
            "seconds": seconds,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "errors": self.errors,
        }

    def parts(self, word: str = "visit") -> list[str]:
        """Return short texts, the errors last; none if nothing happened."""
        said = [count(self.visits, word)] if self.visits and word else []
        if self.seconds is not None:
            said.append(span(self.seconds))
        if self.input_tokens or self.output_tokens:
            said.append(f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out")
        if self.errors:
            said.append(count(self.errors, "error"))
        return said

    def short(self) -> str:
        """Return a short text for beside a name: count, time, errors."""
        said = [f"×{self.visits:,}"] if self.visits else []
        return " · ".join([*said, *self.parts("")])


NOTHING: Final = Tally()


@dataclass(frozen=True, slots=True)
class RunOverlay:
    """A run, or all runs of a thread, laid over the graph."""

    thread_id: str
    status: str = ""
    """Why it stopped, or its status: `done`, `limit`, `interrupted`, `failed`, …"""
    total: Tally = NOTHING
    """The total; `visits` counts supersteps."""
    nodes: Mapping[str, Tally] = field(default_factory=dict)
    """By box; `visits` counts tasks, so each of several parallel calls."""
    edges: Mapping[Edge, Tally] = field(default_factory=dict)
    """By edge; `visits` counts its uses, once for parallel tasks."""
    layers: Mapping[LayerKey, Tally] = field(default_factory=dict)
    """By phase and hook."""
    tools: Mapping[str, Tally] = field(default_factory=dict)
    """By tool name; `visits` counts calls."""
    path: tuple[str, ...] = ()
    """The boxes in order of execution; tasks of one superstep follow each other."""
    at: tuple[str, ...] = ()
    """The boxes that come next, if the thread has not reached its end."""
    notes: tuple[str, ...] = ()
    """Notes on the numbers, one sentence each."""

    def cleaned(self) -> RunOverlay:
        """Return a copy with safe names of hooks, tools and the thread."""
        return replace(
            self,
            thread_id=clean(self.thread_id, 128),
            status=clean(self.status),
            layers={(phase, clean(hook)): tally for (phase, hook), tally in self.layers.items()},
            tools={clean(name): tally for name, tally in self.tools.items()},
            notes=tuple(clean(note, 300) for note in self.notes),
        )

    def node(self, name: str) -> Tally:
        """Return the numbers of a box."""
        return self.nodes.get(name, NOTHING)

    def edge(self, source: str, target: str) -> Tally:
        """Return the numbers of an edge."""
        return self.edges.get((source, target), NOTHING)

    def layer(self, phase: str, hook: str) -> Tally:
        """Return the numbers of a hook in a phase."""
        return self.layers.get((phase, hook), NOTHING)

    def tool(self, name: str) -> Tally:
        """Return the numbers of a tool."""
        return self.tools.get(name, NOTHING)

    def place(self, box: str) -> str:
        """Return why the thread is held at a box, if it is there."""
        if box not in self.at:
            return ""
        return {"interrupted": "waits here", "failed": "failed here"}.get(self.status, "comes next")

    def headline(self) -> list[str]:
        """Identify the run in short texts."""
        return [f"thread {self.thread_id}", *filter(None, [self.status]), *self.total.parts("step")]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; pairs become lists of objects, in order."""
        return {
            "thread_id": self.thread_id,
            "status": self.status,
            "total": self.total.to_dict(),
            "nodes": {name: tally.to_dict() for name, tally in self.nodes.items()},
            "edges": [
                {"source": source, "target": target, **tally.to_dict()}
                for (source, target), tally in self.edges.items()
            ],
            "layers": [
                {"phase": phase, "hook": hook, **tally.to_dict()}
                for (phase, hook), tally in self.layers.items()
            ],
            "tools": {name: tally.to_dict() for name, tally in self.tools.items()},
            "path": list(self.path),
            "at": list(self.at),
            "notes": list(self.notes),
        }


# --- The content of the picture, as plain data for every form.


Kind = Literal["start", "end", "node", "graph", "agent"]

START: Final = "START"

END: Final = "END"

ARROW: Final = " → "


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about a box: a limit, a breakpoint, a setting."""

    name: str
    value: str | int | float | bool | None
    text: str = ""
    """Its text in a drawing; empty if it is not drawn."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The hooks of one phase in a box."""

    phase: str
    hooks: tuple[str, ...]
    """The outermost or first one first."""
    around: str = ""
    """The core that the hooks of a wrapping phase enclose; empty if they run in sequence."""

    def line(self) -> str:
        """Return the hooks as one line."""
        return f"{self.phase}: {ARROW.join(self.hooks) or 'no hooks'}"


@dataclass(frozen=True, slots=True)
class ToolMark:
    """A tool that a box can call."""

    name: str
    facts: tuple[Fact, ...] = ()

    def line(self) -> str:
        """Return its special facts as one line."""
        said = ", ".join(fact.text for fact in self.facts if fact.text)
        return f"{self.name} ({said})" if said else self.name


@dataclass(frozen=True, slots=True)
class Box:
    """One node of the graph, with what is inside it."""

    id: str
    """LangGraph's name for it; START and END for the ends, `agent:NAME` for a sub-agent."""
    name: str
    """The name, safe to draw."""
    kind: Kind = "node"
    facts: tuple[Fact, ...] = ()
    layers: tuple[Layers, ...] = ()
    tools: tuple[ToolMark, ...] = ()
    unknown_tools: tuple[str, ...] = ()
    """Hooks with tools that depend on the thread."""

    @property
    def is_nested(self) -> bool:
        """Whether it contains a whole graph."""
        return self.kind in ("graph", "agent")

    @property
    def is_end(self) -> bool:
        """Whether the graph begins or ends here."""
        return self.kind in ("start", "end")

    def lines(self) -> list[str]:
        """Return its content, one line each."""
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
    """Label of the decision for this edge."""
    conditional: bool = False
    """Whether a decision may also choose another edge."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph, and the overlaid run."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    run: RunOverlay | None = None

    def with_run(self, run: RunOverlay | None) -> Picture:
        """Return the picture with a run laid over it."""
        return replace(self, run=run and run.cleaned())

    def path(self) -> list[str]:
        """Return the boxes on the run's path, repeated ones with a count."""
        names = {box.id: box.name for box in self.boxes}
        ran = [names.get(step, clean(step)) for step in self.run.path] if self.run else []
        return [
            f"{name} ×{times}" if (times := len(list(same))) > 1 else name
            for name, same in groupby(ran)
        ]

    def lines_of(self, box: Box) -> list[str]:
        """Return the run's numbers and the content of a box, one line each."""
        said = []
        if self.run is not None and not box.is_end:
            said = list(filter(None, [self.run.place(box.id), *self.run.node(box.id).parts()]))
        return [", ".join(said), *box.lines()] if said else box.lines()

    def label_of(self, arrow: Arrow) -> str:
        """Return the label of an edge: its decision, and how often a run used it.

        Only edges of a decision have a count; elsewhere the boxes show it.
        """
        taken = self.run.edge(arrow.source, arrow.target).visits if self.run else 0
        times = f"×{taken:,}" if taken and (arrow.conditional or arrow.label) else ""
        return " ".join(filter(None, (arrow.label, times)))

    def links(self, labels: Sequence[Size | None]) -> list[Link]:
        """Return the edges for a layout, with the sizes of their labels."""
        place = {box.id: i for i, box in enumerate(self.boxes)}
        return [
            Link(place[arrow.source], place[arrow.target], label)
            for arrow, label in zip(self.arrows, labels, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
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
