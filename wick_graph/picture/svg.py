"""The picture as SVG: one file without scripts, fonts or other resources.

It follows the reader's colour scheme, and uses more than colour for every meaning: edges that a run
used are thick, decisions are dashed, errors are written out.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from wick_graph.picture.layout import arrange
from wick_graph.picture.layout_rows import Layout, Metrics, Point, Rect, Size
from wick_graph.picture.model import (
    NOTHING,
    Arrow,
    Box,
    Layers,
    Measure,
    Picture,
    RunOverlay,
    Tally,
    ToolMark,
    pixels,
    wrapped,
)

# --- The content of a box, in pixels: its name, facts, hook layers, tools and numbers.


PAD: Final = 12

NAME_SIZE: Final = 14

TEXT_SIZE: Final = 12

SMALL_SIZE: Final = 11

_ROOM: Final = 300
"""Width in pixels at which a text wraps."""

_ROW: Final = 20

_LINE: Final = 16

_GAP: Final = 8
"""Distance between two parts of a box."""

_STEP: Final = 8
"""Indent of a layer inside the one around it."""

_DEEPEST: Final = 64
"""Limit of all indents of an onion together."""

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
    """`end` or `middle` if `x` is not its beginning."""


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
    """The content of a box, and its size."""

    width: int
    height: int
    pieces: tuple[Text | Frame, ...]
    centred: bool = False
    """Whether there is only a name, which is then centred."""


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
    """Writes the parts below each other; with width 0 only to measure the needed width."""

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
        """Write a text in as many lines as it needs."""
        for part in wrapped(text, _ROOM, measure):
            self.need = max(self.need, x + measure(part) + PAD)
            self.pieces.append(Text(x, self.y + high - 4, part, style))
            self.y += high

    def name(self, box: Box) -> None:
        """Write the name, the facts, and the numbers of the run."""
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
        """Draw the hooks of a phase: as an onion, or below each other."""
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
        """Write a tool with its special facts; return the width."""
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


# --- Edges as SVG paths: rounded corners, heads, and shared stretches drawn once.
#
# Edges that share a line would cover each other, and their dashes would fill each other's gaps. So
# an edge leaves out stretches that another one has drawn.


CORNER: Final = 8
"""Largest radius of a rounded corner."""

HEAD: Final = 9
"""Length of an arrow's head."""

Line = tuple[bool, int]
"""Whether it is vertical, and its coordinate."""


class Ways:
    """Writes the paths of edges with the same look, one after another."""

    def __init__(self) -> None:
        self._drawn: dict[Line, list[tuple[int, int]]] = {}
        self._bent: set[tuple[Point, Point, Point]] = set()

    def path(self, points: Sequence[Point]) -> str:
        """Write the undrawn part of an edge; it ends inside its arrow's head."""
        (ax, ay), (bx, by) = points[-2:]
        shorter = (bx - _sign(bx - ax) * (HEAD - 2), by - _sign(by - ay) * (HEAD - 2))
        line = [*points[:-1], shorter]
        pen: Point | None = None
        parts = []
        for begin, end in self._pieces(line):
            if pen != begin[0]:
                parts.append(f"M{begin[0][0]} {begin[0][1]}")
            parts.append(end)
            pen = begin[1]
        return "".join(parts)

    def _pieces(self, line: Sequence[Point]) -> Iterator[tuple[tuple[Point, Point], str]]:
        """Yield each piece with its two ends, straight ones without drawn stretches."""
        at = line[0]
        for before, corner, after in zip(line, line[1:], line[2:], strict=False):
            half = min(CORNER, _far(before, corner) // 2, _far(corner, after) // 2)
            into, out = _toward(corner, before, half), _toward(corner, after, half)
            yield from self._straight(at, into)
            if (into, corner, out) not in self._bent:
                self._bent |= {(into, corner, out), (out, corner, into)}
                yield (into, out), f"Q{corner[0]} {corner[1]} {out[0]} {out[1]}"
            at = out
        yield from self._straight(at, line[-1])

    def _straight(self, a: Point, b: Point) -> Iterator[tuple[tuple[Point, Point], str]]:
        if a == b:
            return
        upright = a[0] == b[0]
        drawn = self._drawn.setdefault((upright, a[not upright]), [])
        low, high = sorted((a[upright], b[upright]))
        left = _without(low, high, drawn)
        drawn.append((low, high))
        for begin, end in left if a[upright] < b[upright] else [(h, g) for g, h in left[::-1]]:
            ends = [(a[0], place) if upright else (place, a[1]) for place in (begin, end)]
            yield (ends[0], ends[1]), f"L{ends[1][0]} {ends[1][1]}"


def head(points: Sequence[Point]) -> str:
    """Write an arrow's head."""
    (ax, ay), (x, y) = points[-2:]
    dx, dy = _sign(x - ax), _sign(y - ay)
    back_x, back_y = x - dx * HEAD, y - dy * HEAD
    wide = HEAD // 2 + 1
    return (
        f"M{x} {y}L{back_x - dy * wide} {back_y - dx * wide}"
        f"L{back_x + dy * wide} {back_y + dx * wide}Z"
    )


def _without(low: int, high: int, drawn: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a stretch that others do not cover."""
    left = []
    for begin, end in [*sorted(drawn), (high, high)]:
        if begin > low and low < min(begin, high):
            left.append((low, min(begin, high)))
        low = max(low, end)
    return left


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def _far(a: Point, b: Point) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def _toward(a: Point, b: Point, distance: int) -> Point:
    return a[0] + _sign(b[0] - a[0]) * distance, a[1] + _sign(b[1] - a[1]) * distance


METRICS: Final = Metrics(
    box_gap=32,
    line_gap=18,
    track_gap=14,
    tail=18,
    head=26,
    row_gap=44,
    port_gap=22,
    side_gap=16,
    inset=14,
    loop=24,
    wrap=1400,
)

MARGIN: Final = 24

_LABEL_ROOM: Final = 200

_LABEL_LINE: Final = 15

_TITLE_SIZE: Final = 17

STYLE: Final = """\
.wick{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.wick text{font-size:12px;fill:#1f2328;white-space:pre;direction:ltr;unicode-bidi:isolate}
.wick .paper{fill:#fff}
.wick .title{font-size:17px;font-weight:600}
.wick .name{font-size:14px;font-weight:600}
.wick .fact{font-size:11px;fill:#59636e}
.wick .stat{font-size:11px;fill:#0550ae}
.wick .place{font-size:11px;font-weight:600;fill:#0550ae}
.wick .bad{font-size:11px;fill:#b31d28}
.wick .label text{font-size:11px}
.wick .box{fill:#f6f8fa;stroke:#59636e;stroke-width:1.25}
.wick .end .box{fill:#e7ebf0}
.wick .idle .box{stroke-dasharray:2 3}
.wick .ran .box{stroke:#0550ae;stroke-width:2.5}
.wick .broke .box{stroke:#b31d28;stroke-width:2.5}
.wick .layer{fill:#fff;stroke:#8c959f;stroke-width:1}
.wick .core{fill:#e7ebf0;stroke:none}
.wick .way{fill:none;stroke:#59636e;stroke-width:1.5;stroke-linejoin:round}
.wick .head{fill:#59636e}
.wick .maybe .way{stroke-dasharray:6 4}
.wick .taken .way{stroke:#0550ae;stroke-width:3.25}
.wick .taken .head{fill:#0550ae}
@media (prefers-color-scheme:dark){
.wick text{fill:#e6edf3}
.wick .paper{fill:#0d1117}
.wick .fact{fill:#9ba5b0}
.wick .stat,.wick .place{fill:#79b8ff}
.wick .bad{fill:#ff8a80}
.wick .box{fill:#161b22;stroke:#9ba5b0}
.wick .end .box,.wick .core{fill:#262d36}
.wick .ran .box{stroke:#79b8ff}
.wick .broke .box{stroke:#ff8a80}
.wick .layer{fill:#0d1117;stroke:#6b7683}
.wick .way{stroke:#9ba5b0}
.wick .head{fill:#9ba5b0}
.wick .taken .way{stroke:#79b8ff}
.wick .taken .head{fill:#79b8ff}
}
"""


def as_svg(picture: Picture, *, heading: bool = True) -> str:
    """Draw the picture as an SVG document.

    Args:
        picture: The picture.
        heading: Write the title and the run's identity above the drawing.
    """
    return _Drawing(picture, heading).document()


def placed(picture: Picture) -> Layout:
    """Return the positions of boxes and edges in the SVG, without its margin."""
    return _Drawing(picture).layout


class _Drawing:
    def __init__(self, picture: Picture, heading: bool = True) -> None:
        self.picture = picture
        self.insides = [inside(box, picture.run) for box in picture.boxes]
        self.labels = [label_lines(picture.label_of(arrow)) for arrow in picture.arrows]
        sizes = [Size(content.width, content.height) for content in self.insides]
        links = picture.links([label_size(lines) for lines in self.labels])
        self.layout: Layout = arrange(sizes, links, METRICS)
        self.head = self._headings() if heading else []
        self.key = self._legend()
        widest = max([self.layout.width, *(width for _, width in self.head), self.key[1]])
        self.width = widest + 2 * MARGIN
        self.left = MARGIN + (widest - self.layout.width) // 2
        self.top = MARGIN + 24 * len(self.head) + (8 if self.head else 0)
        self.bottom = self.top + self.layout.height + (34 if self.key[0] else 0)
        self.height = self.bottom + MARGIN

    def document(self) -> str:
        """Write the document; upper parts come later."""
        title, about = _text(self.picture.title), _text(described(self.picture))
        size = f'width="{self.width}" height="{self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="wick" role="img" {size} '
                f'viewBox="0 0 {self.width} {self.height}" '
                'aria-labelledby="wick-title" aria-describedby="wick-about">',
                f'<title id="wick-title">{title}</title>',
                f'<desc id="wick-about">{about}</desc>',
                f"<style>\n{STYLE}</style>",
                f'<rect class="paper" {size}/>',
                *self._head_lines(),
                f'<g transform="translate({self.left} {self.top})">',
                *self._ways(),
                *self._boxes(),
                *self._labels(),
                "</g>",
                *self._legend_lines(),
                "</svg>",
                "",
            ]
        )

    def _headings(self) -> list[tuple[str, int]]:
        title = self.picture.title
        made = [(title, pixels(title, _TITLE_SIZE, bold=True))]
        if self.picture.run is not None:
            text = " · ".join(self.picture.run.headline())
            made.append((text, pixels(text, TEXT_SIZE)))
        return made

    def _head_lines(self) -> Iterator[str]:
        for number, (text, _) in enumerate(self.head):
            style = "" if number else ' class="title"'
            y = MARGIN + 14 + 24 * number
            yield f'<text{style} x="{MARGIN}" y="{y}">{_text(text)}</text>'

    def _legend(self) -> tuple[list[tuple[str, str]], int]:
        """List the kinds of lines for the legend: look and text."""
        found = []
        if any(arrow.conditional for arrow in self.picture.arrows):
            found.append(("maybe", "where a decision leads"))
        if self.picture.run is not None:
            found.append(("taken", "taken in this thread"))
        return found, sum(of_small(text) + 64 for _, text in found)

    def _legend_lines(self) -> Iterator[str]:
        x, y = MARGIN, self.bottom - 4
        for style, text in self.key[0]:
            yield (
                f'<g class="{style}"><path class="way" d="M{x} {y - 4}h32"/>'
                f'<text class="fact" x="{x + 40}" y="{y}">{_text(text)}</text></g>'
            )
            x += of_small(text) + 64

    def _ways(self) -> Iterator[str]:
        """Draw the edges, the used ones above the others."""
        found = []
        for arrow, route in zip(self.picture.arrows, self.layout.routes, strict=True):
            styles = ["edge", *(["maybe"] if arrow.conditional else [])]
            found.append((self._taken(arrow), [*styles, "taken"], styles, arrow, route))
        pens: dict[str, Ways] = {}
        for taken, thick, thin, arrow, route in sorted(found, key=lambda each: each[0]):
            style = " ".join(thick if taken else thin)
            path = pens.setdefault(style, Ways()).path(route.points)
            yield (
                f'<g class="{style}"><title>{_text(_said(arrow, self.picture))}</title>'
                f'<path class="way" d="{path}"/><path class="head" d="{head(route.points)}"/></g>'
            )

    def _taken(self, arrow: Arrow) -> bool:
        run = self.picture.run
        return run is not None and run.edge(arrow.source, arrow.target).visits > 0

    def _boxes(self) -> Iterator[str]:
        for box, rect, content in zip(
            self.picture.boxes, self.layout.boxes, self.insides, strict=True
        ):
            styles = " ".join(["node", *self._styles(box)])
            round_ = 16 if box.is_end else 8
            said = _text("; ".join([box.name, *box.lines()]))
            yield f'<g class="{styles}" transform="translate({rect.x} {rect.y})">'
            yield f"<title>{said}</title>"
            size = f'width="{rect.width}" height="{rect.height}"'
            yield f'<rect class="box" {size} rx="{round_}"/>'
            if box.is_nested:
                inner = f'x="4" y="4" width="{rect.width - 8}" height="{rect.height - 8}"'
                yield f'<rect class="box" {inner} rx="5"/>'
            down = (rect.height - content.height) // 2 if content.centred else 0
            yield from _pieces(content, down)
            yield "</g>"

    def _styles(self, box: Box) -> list[str]:
        styles = ["end"] if box.is_end else []
        if self.picture.run is not None:
            tally = self.picture.run.node(box.id)
            reached = tally.visits or box.id in self.picture.run.at
            styles.append("broke" if tally.errors else "ran" if reached else "idle")
        return styles

    def _labels(self) -> Iterator[str]:
        for lines, route in zip(self.labels, self.layout.routes, strict=True):
            if route.label is not None:
                yield from _label(lines, route.label)


def described(picture: Picture) -> str:
    """Describe the whole picture in sentences, for screen readers."""
    said = [f"{box.name}: {', '.join(box.lines())}." for box in picture.boxes if box.lines()]
    said += [f"{_said(arrow, picture)}." for arrow in picture.arrows]
    if picture.run is not None:
        said.insert(0, f"{', '.join(picture.run.headline())}.")
        said += [
            f"{box.name}: {', '.join(parts)}."
            for box in picture.boxes
            if (parts := picture.run.node(box.id).parts())
        ]
    return " ".join(said)


def _said(arrow: Arrow, picture: Picture) -> str:
    names = {box.id: box.name for box in picture.boxes}
    label = f" ({picture.label_of(arrow)})" if picture.label_of(arrow) else ""
    return f"{names[arrow.source]} to {names[arrow.target]}{label}"


def label_lines(text: str) -> list[str]:
    """Break a label into lines."""
    return wrapped(text, _LABEL_ROOM, of_small) if text else []


def label_size(lines: Sequence[str]) -> Size | None:
    """Return the size of a label in pixels; None without lines."""
    if not lines:
        return None
    return Size(max(map(of_small, lines)) + 10, _LABEL_LINE * len(lines) + 5)


def _label(lines: Sequence[str], rect: Rect) -> Iterator[str]:
    place = f'x="{rect.x}" y="{rect.y}" width="{rect.width}" height="{rect.height}"'
    yield f'<g class="label"><rect class="paper" {place} rx="4"/>'
    for number, text in enumerate(lines):
        x, y = rect.x + rect.width // 2, rect.y + 14 + number * _LABEL_LINE
        yield f'<text x="{x}" y="{y}" text-anchor="middle">{_text(text)}</text>'
    yield "</g>"


def _pieces(content: Inside, down: int) -> Iterator[str]:
    for piece in content.pieces:
        y = piece.y + down
        if isinstance(piece, Frame):
            size = f'width="{piece.width}" height="{piece.height}"'
            yield f'<rect class="{piece.style}" x="{piece.x}" y="{y}" {size} rx="5"/>'
        else:
            end = f' text-anchor="{piece.anchor}"' if piece.anchor else ""
            place = f'x="{piece.x}" y="{y}"{end}'
            yield f'<text class="{piece.style}" {place}>{_text(piece.text)}</text>'


def _text(text: str) -> str:
    return html.escape(text, quote=True)
