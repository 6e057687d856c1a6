"""What a layout is given and what it gives: whole numbers in any unit, pixels or cells."""

from __future__ import annotations

from dataclasses import dataclass

Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Size:
    """How much room something takes."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Link:
    """One edge to draw, between boxes by their place in the list."""

    source: int
    target: int
    label: Size | None = None


@dataclass(frozen=True, slots=True)
class Rect:
    """A placed box or label; its border lies on the four lines."""

    x: int
    y: int
    width: int
    height: int

    @property
    def right(self) -> int:
        """The line of the right border."""
        return self.x + self.width

    @property
    def bottom(self) -> int:
        """The line of the lower border."""
        return self.y + self.height

    def moved(self, dx: int, dy: int) -> Rect:
        """Return it at another place."""
        return Rect(self.x + dx, self.y + dy, self.width, self.height)


@dataclass(frozen=True, slots=True)
class Route:
    """One placed edge: level and upright stretches from border to border, and its label."""

    points: tuple[Point, ...]
    """From the source to the target; the last stretch shows where the arrow points."""
    label: Rect | None = None
    """Lies on the edge, whose line passes beneath, or beside it where the edge is a loop."""

    def moved(self, dx: int, dy: int) -> Route:
        """Return it at another place."""
        points = tuple((x + dx, y + dy) for x, y in self.points)
        return Route(points, self.label and self.label.moved(dx, dy))


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything placed, in the order in which it was given; nothing is left of or above 0."""

    width: int
    height: int
    boxes: tuple[Rect, ...]
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The distances that a layout keeps."""

    box_gap: int
    """Between two boxes that stand side by side."""
    line_gap: int
    """Between an upright line and what stands beside it."""
    track_gap: int
    """Between two level lines in the same channel."""
    tail: int
    """Between a box and the first level line under it."""
    head: int
    """Between a level line and the box under it: room for an arrow's head."""
    row_gap: int
    """Between two rows of boxes, at least."""
    port_gap: int
    """Between two lines at the upper or lower side of a box."""
    side_gap: int
    """The same, at a box's left and right side."""
    inset: int
    """Between a box's corner and the first line."""
    loop: int
    """How far an edge from a box to itself reaches out, and how high it is."""
    wrap: int
    """The width at which a row of many boxes goes on in a further row."""


@dataclass(slots=True)
class Item:
    """What takes a place in a row: a box, a line that passes, or a line with its label."""

    row: int
    left: int
    """Room to the left of its upright line."""
    right: int
    height: int
    is_line: bool
    side: int = 0
    """How far a box's right border is from its middle; loops take room beyond it."""
    x: int = 0
    """Its upright line; for a box, its middle."""
