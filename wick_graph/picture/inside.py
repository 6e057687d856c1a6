"""What stands inside a box, in pixels: its name, facts, hook layers, tools and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from wick_graph.picture.model import Box, Layers, ToolMark
from wick_graph.picture.overlay import NOTHING, RunOverlay, Tally
from wick_graph.picture.words import Measure, pixels, wrapped

PAD: Final = 12
NAME_SIZE: Final = 14
TEXT_SIZE: Final = 12
SMALL_SIZE: Final = 11
_ROOM: Final = 300
"""Pixels after which a text goes on in the next line."""
_ROW: Final = 20
_LINE: Final = 16
_GAP: Final = 8
"""Between two parts of a box."""
_STEP: Final = 8
"""How far a layer stands inside the one around it."""
_DEEPEST: Final = 64
"""All steps of an onion together."""
_COLUMN: Final = 8
"""Tools in one column."""

of_name: Measure = partial(pixels, size=NAME_SIZE, bold=True)
of_text: Measure = partial(pixels, size=TEXT_SIZE)
of_small: Measure = partial(pixels, size=SMALL_SIZE)


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text; `y` is its base line."""

    x: int
    y: int
    text: str
    style: str
    anchor: str = ""
    """`end` or `middle` where `x` is not where it begins."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A rectangle with rounded corners."""

    x: int
    y: int
    width: int
    height: int
    style: str


@dataclass(frozen=True, slots=True)
class Inside:
    """The content of a box, and the room that it takes."""

    width: int
    height: int
    pieces: tuple[Text | Frame, ...]
    centred: bool = False
    """There is only a name, which stands in the middle of the box."""


def inside(box: Box, run: RunOverlay | None) -> Inside:
    """Compose the content of a box, as wide as its widest part."""
    narrow = _Pen(box, run, 0)
    if box.is_end:
        return _only_name(box, max(narrow.need, 64), 32)
    made = _Pen(box, run, max(narrow.need, 100)).result()
    if all(piece.style == "name" for piece in made.pieces):
        return _only_name(box, made.width, made.height)
    return made


def _only_name(box: Box, width: int, height: int) -> Inside:
    lines = wrapped(box.name, _ROOM, of_name)
    first = (height - 20 * len(lines)) // 2 + 15
    pieces = [
        Text(width // 2, first + 20 * number, line, "name", "middle")
        for number, line in enumerate(lines)
    ]
    return Inside(width, max(height, 20 * len(lines)), tuple(pieces), centred=True)


class _Pen:
    """Writes part under part; with width 0 only to learn how wide all of it must be."""

    def __init__(self, box: Box, run: RunOverlay | None, width: int) -> None:
        self.run = run
        self.width = width
        self.need = 0
        self.y = PAD - 2
        self.pieces: list[Text | Frame] = []
        self.name(box)
        if box.is_end:
            self.need += 8
            return
        for layers in box.layers:
            self.layers(layers)
        self.tools(box.tools, box.unknown_tools)
        self.y += PAD - 2

    def result(self) -> Inside:
        return Inside(self.width, self.y, tuple(self.pieces))

    def line(
        self, text: str, measure: Measure, style: str, x: int = PAD, high: int = _LINE
    ) -> None:
        """Write a text in as many lines as it takes."""
        for part in wrapped(text, _ROOM, measure):
            self.need = max(self.need, x + measure(part) + PAD)
            self.pieces.append(Text(x, self.y + high - 4, part, style))
            self.y += high

    def name(self, box: Box) -> None:
        """Write the name, what always holds, and what happened in the run."""
        self.line(box.name, of_name, "name", high=20)
        for fact in box.facts:
            if fact.text:
                self.line(fact.text, of_small, "fact")
        if self.run is None or box.is_end:
            return
        if place := self.run.place(box.id):
            self.line(f"▶ {place}", of_small, "place")
        tally = self.run.node(box.id)
        *good, last = [*tally.parts(), ""] if not tally.errors else tally.parts()
        if good:
            self.line(" · ".join(good), of_small, "stat")
        if last:
            self.line(f"✕ {last}", of_small, "bad")

    def layers(self, layers: Layers) -> None:
        """Draw the hooks of a phase: as an onion, or one under the other."""
        self.y += _GAP
        if not layers.hooks:
            self.line(f"{layers.phase}: no hooks", of_small, "fact")
            return
        self.line(layers.phase, of_small, "fact")
        self.y += 2
        tallies = [self.run.layer(layers.phase, h) if self.run else NOTHING for h in layers.hooks]
        if layers.around:
            self.onion(layers, tallies)
            return
        for hook, tally in zip(layers.hooks, tallies, strict=True):
            self.frame(hook, tally, PAD, "layer")
            self.y += 4
        self.y -= 4

    def onion(self, layers: Layers, tallies: Sequence[Tally]) -> None:
        """Draw each hook's frame around those of the hooks inside it."""
        step = min(_STEP, _DEEPEST // len(layers.hooks) or 1)
        opened = []
        for depth, (hook, tally) in enumerate(zip(layers.hooks, tallies, strict=True)):
            opened.append((len(self.pieces), self.y))
            self.frame(hook, tally, PAD + depth * step, "")
        core = PAD + len(opened) * step
        self.frame(layers.around, NOTHING, core, "core")
        for depth in range(len(opened) - 1, -1, -1):
            self.y += max(step - 2, 3)
            at, begin = opened[depth]
            x = PAD + depth * step
            frame = Frame(x, begin, self.width - 2 * x, self.y - begin, "layer")
            self.pieces.insert(at, frame)

    def frame(self, name: str, tally: Tally, x: int, style: str) -> None:
        """Write a name, with its numbers at the right, in a frame of its own if it has a style."""
        begin, at = self.y, len(self.pieces)
        room = max(_ROOM - 2 * (x - PAD), 120)
        said = tally.short()
        extra = of_small(said) + 16 if said else 0
        for number, part in enumerate(wrapped(name, room, of_text)):
            wide = of_text(part) + (extra if number == 0 else 0)
            self.need = max(self.need, 2 * x + 16 + wide)
            self.pieces.append(
                Text(x + 8, self.y + 14, part, "hook" if style != "core" else "fact")
            )
            self.y += _ROW if number == 0 else _LINE
        if said:
            look = "bad" if tally.errors else "stat"
            self.pieces.append(Text(self.width - x - 8, begin + 14, said, look, "end"))
        if style:
            frame = Frame(x, begin, self.width - 2 * x, self.y - begin, style)
            self.pieces.insert(at, frame)

    def tools(self, tools: Sequence[ToolMark], unknown: Sequence[str]) -> None:
        """List the tools in columns."""
        if not tools and not unknown:
            return
        self.y += _GAP
        self.line("tools", of_small, "fact")
        columns = min(-(-len(tools) // _COLUMN), 4) or 1
        rows = -(-len(tools) // columns)
        begin, x, lowest = self.y, PAD, self.y
        for first in range(0, len(tools), max(rows, 1)):
            self.y = begin
            width = max(self.tool(tool, x) for tool in tools[first : first + rows])
            self.need = max(self.need, x + width + PAD)
            x += width + 20
            lowest = max(lowest, self.y)
        self.y = lowest
        for hook in unknown:
            self.line(f"more by thread, from {hook}", of_small, "fact")

    def tool(self, tool: ToolMark, x: int) -> int:
        """Write a tool with what is special about it; return how wide that is."""
        tally = self.run.tool(tool.name) if self.run else NOTHING
        notes = [fact.text for fact in tool.facts if fact.text]
        widest = 0
        for number, part in enumerate(wrapped(tool.name, _ROOM, of_text)):
            self.pieces.append(Text(x, self.y + 13, part, "hook"))
            width = of_text(part)
            said = [(", ".join(notes), "fact"), (tally.short(), "bad" if tally.errors else "stat")]
            for text, style in said if number == 0 else ():
                if text:
                    self.pieces.append(Text(x + width + 8, self.y + 13, text, style))
                    width += 8 + of_small(text)
            widest = max(widest, width)
            self.y += 18
        return widest
