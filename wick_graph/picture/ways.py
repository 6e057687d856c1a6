"""Edges as SVG paths: rounded corners, heads, and shared stretches drawn once.

Edges that share a line would be drawn on top of each other. Dashes of several would fill each
other's gaps, so what one edge has drawn the next one leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from wick_graph.picture.layout import Point

CORNER: Final = 8
"""Radius of a rounded corner, at most."""
HEAD: Final = 9
"""Length of an arrow's head."""

Line = tuple[bool, int]
"""Whether it is upright, and where."""


class Ways:
    """Writes the paths of edges that look the same, one after another."""

    def __init__(self) -> None:
        self._drawn: dict[Line, list[tuple[int, int]]] = {}
        self._bent: set[tuple[Point, Point, Point]] = set()

    def path(self, points: Sequence[Point]) -> str:
        """Write what is still to be drawn of an edge; it ends inside of its arrow's head."""
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
        """Give each piece with its two ends; straight ones without what has been drawn."""
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
    """Take away from a stretch what others cover, and return what is left."""
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
