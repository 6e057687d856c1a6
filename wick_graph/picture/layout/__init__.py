"""Place the boxes and edges of any graph in rows, edges leading down, always in the same way.

    ranks      cycles are opened, boxes get ranks    grid      rows of boxes, labels and lines
    order      few crossings                         lanes     edges that lead upwards
    columns    from left to right                    ports     where lines meet a box
    channels   level lines between two rows          group     all of it for connected boxes

No box overlaps another one, no edge passes through a box, and a label lies on its edge. All
numbers are whole, in any unit: the same layout serves pixels and the cells of a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

from wick_graph.picture.layout.group import Group
from wick_graph.picture.layout.ranks import components
from wick_graph.picture.layout.shapes import Layout, Link, Metrics, Point, Rect, Route, Size

__all__ = ["Layout", "Link", "Metrics", "Point", "Rect", "Route", "Size", "arrange"]


def arrange(boxes: Sequence[Size], links: Sequence[Link], metrics: Metrics) -> Layout:
    """Place boxes and links; a box that has an edge to itself may come out higher than asked.

    Groups that no link connects stand side by side, in lines as wide as `metrics.wrap`.
    """
    home: dict[int, int] = {}
    groups = components(len(boxes), links)
    for number, nodes in enumerate(groups):
        home |= dict.fromkeys(nodes, number)
    edges: list[list[tuple[int, Link]]] = [[] for _ in groups]
    for number, link in enumerate(links):
        edges[home[link.source]].append((number, link))
    rects: dict[int, Rect] = {}
    routes: dict[int, Route] = {}
    x = y = width = height = 0
    for nodes, own in zip(groups, edges, strict=True):
        group = Group(nodes, own, boxes, metrics)
        if x and x + group.width > metrics.wrap:
            x, y = 0, height + metrics.row_gap
        rects |= {node: rect.moved(x, y) for node, rect in group.boxes.items()}
        routes |= {i: route.moved(x, y) for i, route in group.routes.items()}
        width, height = max(width, x + group.width), max(height, y + group.height)
        x += group.width + metrics.box_gap
    return Layout(
        width,
        height,
        tuple(rects[i] for i in range(len(boxes))),
        tuple(routes[i] for i in range(len(links))),
    )
