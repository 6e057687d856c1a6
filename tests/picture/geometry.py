"""What every layout must keep, checked by arithmetic on the placed boxes, edges and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from wick_graph.picture.layout_rows import Layout, Link, Point, Rect

Stretch = tuple[Point, Point]


def faults(layout: Layout, links: Sequence[Link]) -> list[str]:
    """List everything that is wrong with a layout."""
    return [
        *_boxes(layout),
        *_edges(layout, links),
        *_labels(layout, links),
        *_coinciding(layout, links),
        *_outside(layout),
    ]


def stretches(points: Sequence[Point]) -> list[Stretch]:
    return list(pairwise(points))


def overlap(a: Rect, b: Rect) -> bool:
    return a.x <= b.right and b.x <= a.right and a.y <= b.bottom and b.y <= a.bottom


def _boxes(layout: Layout) -> Iterator[str]:
    for (i, a), (j, b) in combinations(enumerate(layout.boxes), 2):
        if overlap(a, b):
            yield f"box {i} {a} overlaps box {j} {b}"


def _edges(layout: Layout, links: Sequence[Link]) -> Iterator[str]:
    for number, (route, link) in enumerate(zip(layout.routes, links, strict=True)):
        where = f"edge {number} {link.source}->{link.target} {route.points}"
        if len(route.points) < 2:
            yield f"{where} is no line"
            continue
        ends = ((link.source, route.points[0]), (link.target, route.points[-1]))
        for box, point in ends:
            if not _on_border(layout.boxes[box], point):
                yield f"{where} does not end at the border of box {box} {layout.boxes[box]}"
        for a, b in stretches(route.points):
            if (a[0] != b[0]) == (a[1] != b[1]):
                yield f"{where}: {a}-{b} is neither level nor upright"
            for i, rect in enumerate(layout.boxes):
                if _enters(rect, a, b, own=i in (link.source, link.target)):
                    yield f"{where}: {a}-{b} passes through box {i} {rect}"
        yield from _arrow(layout.boxes[link.target], route.points, where)


def _arrow(box: Rect, points: Sequence[Point], where: str) -> Iterator[str]:
    """The last stretch has room for a head and comes from outside."""
    (ax, ay), (bx, by) = points[-2:]
    if abs(ax - bx) + abs(ay - by) < 2:
        yield f"{where}: no room for the arrow's head"
    if box.x < ax < box.right and box.y < ay < box.bottom:
        yield f"{where}: the arrow comes from inside"


def _on_border(rect: Rect, point: Point) -> bool:
    x, y = point
    level = y in (rect.y, rect.bottom) and rect.x < x < rect.right
    return level or (x in (rect.x, rect.right) and rect.y < y < rect.bottom)


def _enters(rect: Rect, a: Point, b: Point, *, own: bool) -> bool:
    """Say whether a stretch meets a box; it may touch the border of its own one, at its end."""
    low_x, high_x = sorted((a[0], b[0]))
    low_y, high_y = sorted((a[1], b[1]))
    if own:
        inside_x = low_x < rect.right and rect.x < high_x
        inside_y = low_y < rect.bottom and rect.y < high_y
        if a[0] == b[0]:
            return rect.x <= a[0] <= rect.right and inside_y
        return rect.y <= a[1] <= rect.bottom and inside_x
    return low_x <= rect.right and rect.x <= high_x and low_y <= rect.bottom and rect.y <= high_y


def _labels(layout: Layout, links: Sequence[Link]) -> Iterator[str]:
    placed = [(i, r.label) for i, r in enumerate(layout.routes) if r.label is not None]
    for i, rect in placed:
        size = links[i].label
        if size is None or (size.width, size.height) != (rect.width, rect.height):
            yield f"label {i} has another size"
        for box, other in enumerate(layout.boxes):
            if overlap(rect, other):
                yield f"label {i} {rect} lies on box {box} {other}"
        for j, route in enumerate(layout.routes):
            own = i == j
            meets = any(_enters(rect, a, b, own=False) for a, b in stretches(route.points))
            if meets and not own:
                yield f"label {i} {rect} lies on edge {j} {route.points}"
            if own and not meets and not _beside(rect, route.points, layout):
                yield f"label {i} {rect} is not at its edge"
    for (i, a), (j, b) in combinations(placed, 2):
        if overlap(a, b) and not _stacked(a, b, links[i], links[j]):
            yield f"label {i} {a} overlaps label {j} {b}"
    for i, link in enumerate(links):
        if (link.label is None) != (layout.routes[i].label is None):
            yield f"edge {i} has lost or found a label"


def _stacked(a: Rect, b: Rect, one: Link, other: Link) -> bool:
    """The labels of two edges from a box to itself stand under each other without a gap."""
    same = one.source == one.target == other.source == other.target
    return same and (a.bottom == b.y or b.bottom == a.y)


def _beside(rect: Rect, points: Sequence[Point], layout: Layout) -> bool:
    return min(abs(rect.x - x) for x, _ in points) <= 20


def _coinciding(layout: Layout, links: Sequence[Link]) -> Iterator[str]:
    """Two edges never run on top of each other, unless they have an end in common."""
    lines: dict[tuple[bool, int], list[tuple[int, int, int]]] = {}
    for number, route in enumerate(layout.routes):
        for a, b in stretches(route.points):
            upright = a[0] == b[0]
            low, high = sorted((a[upright], b[upright]))
            lines.setdefault((upright, a[not upright]), []).append((low, high, number))
    for where, found in lines.items():
        for (a_low, a_high, i), (b_low, b_high, j) in combinations(found, 2):
            if min(a_high, b_high) > max(a_low, b_low) and not _related(links[i], links[j]):
                yield f"edges {i} and {j} coincide at {where} {a_low}-{a_high} {b_low}-{b_high}"


def _related(a: Link, b: Link) -> bool:
    return a.source == b.source or a.target == b.target


def _outside(layout: Layout) -> Iterator[str]:
    rects = [*layout.boxes, *(r.label for r in layout.routes if r.label)]
    xs = [x for rect in rects for x in (rect.x, rect.right)]
    ys = [y for rect in rects for y in (rect.y, rect.bottom)]
    for route in layout.routes:
        xs += [x for x, _ in route.points]
        ys += [y for _, y in route.points]
    if xs and (min(xs) < 0 or max(xs) > layout.width or min(ys) < 0 or max(ys) > layout.height):
        yield f"{min(xs)}-{max(xs)}, {min(ys)}-{max(ys)} leaves {layout.width} by {layout.height}"
