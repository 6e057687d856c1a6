"""The picture as a drawing for terminals, in box characters or in ASCII alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from wick_graph.picture.layout import arrange
from wick_graph.picture.layout_rows import Layout, Metrics, Point, Rect, Size
from wick_graph.picture.model import ARROW, NOTHING, Arrow, Box, Picture, Tally, cells, wrapped

METRICS: Final = Metrics(
    box_gap=3,
    line_gap=2,
    track_gap=1,
    tail=1,
    head=2,
    row_gap=3,
    port_gap=3,
    side_gap=1,
    inset=2,
    loop=2,
    wrap=110,
)

_ROOM: Final = 44
"""Width in cells at which a text in a box wraps."""

_LABEL_ROOM: Final = 28

_UP, _RIGHT, _DOWN, _LEFT = 1, 2, 4, 8

_LIGHT: Final = " ╵╶└╷│┌├╴┘─┴┐┤┬┼"

_HEAVY: Final = " ╹╺┗╻┃┏┣╸┛━┻┓┫┳╋"

_DOTTED: Final = {"│": "┆", "─": "┄", "┃": "┇", "━": "┅"}

_HEADS: Final = {_DOWN: "▼", _UP: "▲", _LEFT: "◄", _RIGHT: "►"}

_PLAIN_HEADS: Final = {_DOWN: "v", _UP: "^", _LEFT: "<", _RIGHT: ">"}

_SQUARE: Final = "┌┐└┘─│"

_ROUND: Final = "╭╮╰╯─│"

_DOUBLE: Final = "╔╗╚╝═║"

_PLAIN_FRAME: Final = "++++-|"

_WORDS: Final = {"→": "->", "×": "x", "·": "-", "…": "...", "✕": "x", "▶": ">", "–": "-"}


def as_text(picture: Picture, *, ascii_only: bool = False, width: int | None = None) -> str:
    """Draw the picture; as a list of boxes and edges if it were wider than `width` cells.

    Args:
        picture: The picture.
        ascii_only: Use only ASCII characters; others in names become question marks.
        width: The cells of a line; None for no limit.
    """
    drawing = _Drawing(picture, ascii_only)
    fits = width is None or drawing.layout.width < width
    room = 10_000 if width is None else max(width - 1, 20)
    lines = [
        *_headline(picture, room),
        *(drawing.lines() if fits else _outline(picture, width or 0)),
    ]
    text = "\n".join(line.rstrip() for line in lines)
    return _to_ascii(text) if ascii_only else text


def _headline(picture: Picture, room: int) -> list[str]:
    run = picture.run
    if run is None:
        return []
    lines = [" · ".join(run.headline()), *(f"({note})" for note in run.notes)]
    return [*(part for line in lines for part in wrapped(line, room, cells)), ""]


def _outline(picture: Picture, width: int) -> Iterator[str]:
    """List the content of a drawing."""
    names = {box.id: box.name for box in picture.boxes}
    for box in picture.boxes:
        yield box.name
        for line in content_of(box, picture)[1:]:
            for number, part in enumerate(wrapped(line.strip(), max(width - 6, 20), cells)):
                yield f"  {part}" if number == 0 else f"    {part}"
        for arrow in picture.arrows:
            if arrow.source == box.id:
                label = picture.label_of(arrow)
                yield f"  → {names[arrow.target]}" + (f"  ({label})" if label else "")


def content_of(box: Box, picture: Picture) -> list[str]:
    """Return the lines inside a box."""
    made = wrapped(box.name, _ROOM, cells)
    if box.is_end:
        return made
    if picture.run is not None:
        if place := picture.run.place(box.id):
            made.append(f"  ▶ {place}")
        if parts := picture.run.node(box.id).parts():
            made += _indented(", ".join(parts))
    for fact in box.facts:
        made += _indented(fact.text) if fact.text else []
    for layers in box.layers:
        made += _indented(_with_numbers(layers.line(), picture, layers.phase, layers.hooks))
    if box.tools:
        run = picture.run
        names = [numbered(t.name, run.tool(t.name) if run else NOTHING) for t in box.tools]
        made += _indented("tools: " + ", ".join(names))
    if box.unknown_tools:
        made += _indented("more tools, by thread: " + ", ".join(box.unknown_tools))
    return made


def _with_numbers(line: str, picture: Picture, phase: str, hooks: Sequence[str]) -> str:
    run = picture.run
    if run is None or not hooks:
        return line
    return f"{phase}: " + ARROW.join(numbered(hook, run.layer(phase, hook)) for hook in hooks)


def numbered(name: str, tally: Tally) -> str:
    """Return a name followed by its numbers."""
    said = tally.short()
    if " · " in said:
        return f"{name} ({said.replace(' · ', ', ')})"
    return f"{name} {said}" if said else name


def _indented(text: str) -> list[str]:
    first, *more = wrapped(text, _ROOM - 4, cells)
    return [f"  {first}", *(f"    {line}" for line in more)]


@dataclass(slots=True)
class _Cell:
    """The lines through a cell: the directions in which they leave it, by edge."""

    light: int = 0
    heavy: int = 0
    ways: list[int] = field(default_factory=list)
    dotted: bool = True


class _Drawing:
    def __init__(self, picture: Picture, ascii_only: bool) -> None:
        self.picture = picture
        self.ascii_only = ascii_only
        self.contents = [content_of(box, picture) for box in picture.boxes]
        if ascii_only:
            self.contents = [[_to_ascii(line) for line in lines] for lines in self.contents]
        self.labels = [self._label(arrow) for arrow in picture.arrows]
        sizes = [size_of(lines) for lines in self.contents]
        links = picture.links([_size(lines) for lines in self.labels])
        self.layout: Layout = arrange(sizes, links, METRICS)
        self.canvas = [[" "] * (self.layout.width + 1) for _ in range(self.layout.height + 1)]

    def lines(self) -> list[str]:
        """Draw lines, then boxes over their ends, then labels on lines."""
        self._draw_lines()
        for box, rect, lines in zip(
            self.picture.boxes, self.layout.boxes, self.contents, strict=True
        ):
            self._draw_box(box, rect, lines)
        for route in self.layout.routes:
            self._draw_ends(route.points)
        for lines, route in zip(self.labels, self.layout.routes, strict=True):
            if route.label is not None:
                for number, text in enumerate(lines):
                    room = route.label.width + 1 - cells(text)
                    self._write(route.label.x + room // 2, route.label.y + number, text)
        return ["".join(row) for row in self.canvas]

    def _label(self, arrow: Arrow) -> list[str]:
        text = self.picture.label_of(arrow)
        lines = wrapped(text, _LABEL_ROOM, cells) if text else []
        return [_to_ascii(line) for line in lines] if self.ascii_only else lines

    def _draw_lines(self) -> None:
        run = self.picture.run
        found: dict[Point, _Cell] = {}
        for arrow, route in zip(self.picture.arrows, self.layout.routes, strict=True):
            taken = run is not None and run.edge(arrow.source, arrow.target).visits > 0
            for point, ways in _trail(route.points):
                cell = found.setdefault(point, _Cell())
                cell.ways.append(ways)
                if taken:
                    cell.heavy |= ways
                else:
                    cell.light |= ways
                cell.dotted = cell.dotted and arrow.conditional
        for (x, y), cell in found.items():
            self.canvas[y][x] = self._sign(cell)

    def _sign(self, cell: _Cell) -> str:
        ways = cell.light | cell.heavy
        if ways == 15 and set(cell.ways) == {_UP | _DOWN, _LEFT | _RIGHT}:
            ways = _UP | _DOWN  # lines that only cross: the vertical one is on top
        if self.ascii_only:
            return _PLAIN_SIGNS[ways]
        sign = (_HEAVY if cell.heavy & ways else _LIGHT)[ways]
        return _DOTTED.get(sign, sign) if cell.dotted else sign

    def _draw_box(self, box: Box, rect: Rect, lines: Sequence[str]) -> None:
        frame = _ROUND if box.is_end else _DOUBLE if box.is_nested else _SQUARE
        if self.ascii_only:
            frame = _PLAIN_FRAME
        inner = rect.width - 1
        self._write(rect.x, rect.y, f"{frame[0]}{frame[4] * inner}{frame[1]}")
        for number in range(rect.height - 1):
            text = lines[number] if number < len(lines) else ""
            filled = f" {text}{' ' * (inner - 1 - cells(text))}"
            self._write(rect.x, rect.y + 1 + number, f"{frame[5]}{filled}{frame[5]}")
        self._write(rect.x, rect.bottom, f"{frame[2]}{frame[4] * inner}{frame[3]}")

    def _draw_ends(self, points: Sequence[Point]) -> None:
        """Connect an edge to its source's border, and draw its head."""
        (x, y), after = points[0], points[1]
        leaves = _direction((x, y), after)
        if not self.ascii_only and self.canvas[y][x] in "─│":
            self.canvas[y][x] = {_DOWN: "┬", _UP: "┴", _RIGHT: "├", _LEFT: "┤"}[leaves]
        elif self.ascii_only:
            self.canvas[y][x] = "+"
        (x, y), before = points[-1], points[-2]
        back = _direction((x, y), before)
        dx, dy = _STEPS[back]
        heads = _PLAIN_HEADS if self.ascii_only else _HEADS
        self.canvas[y + dy][x + dx] = heads[_OPPOSITE[back]]

    def _write(self, x: int, y: int, text: str) -> None:
        """Put a text on the canvas; a wide character takes two cells."""
        row = self.canvas[y]
        for char in text:
            wide = cells(char)
            if wide == 0:
                row[x - 1] += char
                continue
            row[x] = char
            if wide == 2:
                row[x + 1] = ""
            x += wide


_STEPS: Final = {_UP: (0, -1), _RIGHT: (1, 0), _DOWN: (0, 1), _LEFT: (-1, 0)}

_OPPOSITE: Final = {_UP: _DOWN, _DOWN: _UP, _LEFT: _RIGHT, _RIGHT: _LEFT}

_PLAIN_SIGNS: Final = " |-+||++-+-+++++"


def _direction(a: Point, b: Point) -> int:
    if a[0] == b[0]:
        return _DOWN if b[1] > a[1] else _UP
    return _RIGHT if b[0] > a[0] else _LEFT


def _trail(points: Sequence[Point]) -> Iterator[tuple[Point, int]]:
    """Yield every cell of a line, with the directions in which the line leaves it."""
    ways: dict[Point, int] = {}
    for a, b in pairwise(points):
        way = _direction(a, b)
        dx, dy = _STEPS[way]
        x, y = a
        while (x, y) != b:
            ways[x, y] = ways.get((x, y), 0) | way
            x, y = x + dx, y + dy
            ways[x, y] = ways.get((x, y), 0) | _OPPOSITE[way]
    yield from ways.items()


def size_of(lines: Sequence[str]) -> Size:
    """Return the size of a box around lines, borders included."""
    return Size(max(map(cells, lines)) + 3, len(lines) + 1)


def _size(lines: Sequence[str]) -> Size | None:
    return Size(max(map(cells, lines)) - 1, len(lines) - 1) if lines else None


def _to_ascii(text: str) -> str:
    for sign, plain in _WORDS.items():
        text = text.replace(sign, plain)
    return "".join(c if c.isascii() else "?" * cells(c) for c in text)
