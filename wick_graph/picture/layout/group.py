"""One group of connected boxes, placed: rows from above, and the ways of the edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wick_graph.picture.layout import columns, order
from wick_graph.picture.layout.channels import Channel
from wick_graph.picture.layout.grid import Chain, Key, build
from wick_graph.picture.layout.lanes import Lanes
from wick_graph.picture.layout.ports import Pins, collect
from wick_graph.picture.layout.ranks import Edges
from wick_graph.picture.layout.shapes import Link, Metrics, Point, Rect, Route, Size


class Group:
    """Places one group; `boxes` and `routes` hold the result by number, `width` and `height`."""

    def __init__(
        self, nodes: Sequence[int], edges: Edges, sizes: Sequence[Size], metrics: Metrics
    ) -> None:
        self._sizes = sizes
        self._metrics = metrics
        self._grid = build(nodes, edges, sizes, metrics)
        order.arrange(self._grid)
        self._sides = Lanes(self._grid, metrics).open()
        columns.place(self._grid, metrics)
        self._node = {item: node for node, item in self._grid.boxes.items()}
        self._beside = self._levels()
        self._pins = self._set_pins()
        self._channels = self._wire()
        self._tracks, tops = self._set_rows()
        self.boxes = {node: self._rect(node, tops) for node in nodes}
        self.routes = dict(self._routes(tops))
        self.width = self._width()

    # --- lines ------------------------------------------------------------------------------------

    def _levels(self) -> dict[tuple[int, Key], tuple[bool, int]]:
        """Say for lines at a box's side on which one, and how far below its upper border."""
        found = {}
        for item, sides in self._sides.items():
            height = self._grid.items[item].height
            for on_right, lanes in ((True, sides.right), (False, sides.left)):
                out = [key for key, into in lanes if not into]
                into_box = [key for key, into in reversed(lanes) if into]
                for i, key in enumerate([*out, *into_box]):
                    found[item, key] = (on_right, height * (i + 1) // (len(lanes) + 1))
        return found

    def _set_pins(self) -> Pins:
        pins = Pins(self._grid, self._metrics)
        lower, upper = [], []
        for chain in self._grid.chains:
            if chain.back:
                top, bottom = self._ends(chain)
                if (top, chain.keys[0]) not in self._beside:
                    upper.append((top, chain.keys[0], chain.items[0]))
                if (bottom, chain.keys[0]) not in self._beside:
                    lower.append((bottom, chain.keys[0], chain.items[-1]))
                continue
            lower.append((chain.items[0], chain.keys[0], chain.items[1]))
            upper.append((chain.items[-1], chain.keys[-1], chain.items[-2]))
        pins.set_lower(collect(lower))
        pins.set_upper(collect(upper))
        return pins

    def _ends(self, chain: Chain) -> tuple[int, int]:
        """Return the boxes at a lane's ends, the upper one first."""
        return self._grid.boxes[chain.link.target], self._grid.boxes[chain.link.source]

    def _wire(self) -> list[Channel]:
        """Gather the lines of each channel; channel 0 lies above the first row."""
        grid, pins = self._grid, self._pins
        channels = [Channel() for _ in range(len(grid.rows) + 1)]
        for chain in grid.chains:
            for (upper, lower), key in zip(_pairs(chain), chain.keys, strict=False):
                wire = channels[grid.items[lower].row].wire(key)
                wire.tops.append(pins.below(upper, key))
                wire.bottoms.append(pins.above(lower, key))
            if chain.back:
                self._wire_ends(chain, channels)
        for channel in channels:
            channel.assign(self._metrics.track_gap)
        return channels

    def _wire_ends(self, chain: Chain, channels: Sequence[Channel]) -> None:
        grid, pins, key = self._grid, self._pins, chain.keys[0]
        top, bottom = self._ends(chain)
        if (top, key) not in self._beside:
            wire = channels[grid.items[top].row].wire(key)
            wire.bottoms += pins.above(top, key), grid.items[chain.items[0]].x
        if (bottom, key) not in self._beside:
            wire = channels[grid.items[bottom].row + 1].wire(key)
            wire.tops += pins.below(bottom, key), grid.items[chain.items[-1]].x

    # --- heights ----------------------------------------------------------------------------------

    def _set_rows(self) -> tuple[list[list[int]], list[int]]:
        """Give the level lines of each channel, and the upper edge of each row."""
        grid, metrics = self._grid, self._metrics
        tracks, tops = [], []
        y = 0
        for number, channel in enumerate(self._channels):
            first = y if number == 0 else y + metrics.tail
            tracks.append([first + i * metrics.track_gap for i in range(channel.count)])
            if number == len(grid.rows):
                y = tracks[-1][-1] if channel.count else y
                break
            y = self._row_top(number, y, tracks[-1])
            tops.append(y)
            y += max((grid.items[i].height for i in grid.rows[number]), default=0)
        self.height = y
        return tracks, tops

    def _row_top(self, number: int, y: int, tracks: Sequence[int]) -> int:
        """Say where a row begins that comes after a channel."""
        metrics, labels = self._metrics, self._grid.label_rows
        if number == 0:
            return tracks[-1] + metrics.head if tracks else 0
        to_box = number not in labels
        plain = metrics.row_gap if to_box and number - 1 not in labels else metrics.head
        if not tracks:
            return y + plain
        return max(y + plain, tracks[-1] + (metrics.head if to_box else metrics.tail))

    def _rect(self, node: int, tops: Sequence[int]) -> Rect:
        item = self._grid.items[self._grid.boxes[node]]
        return Rect(item.x - item.left, tops[item.row], self._sizes[node].width, item.height)

    # --- ways -------------------------------------------------------------------------------------

    def _routes(self, tops: Sequence[int]) -> Iterator[tuple[int, Route]]:
        for chain in self._grid.chains:
            points = self._lane(chain) if chain.back else self._way(chain)
            yield chain.number, Route(simplified(points), self._label(chain, tops))
        for node, loops in self._grid.loops.items():
            yield from self._loops(self.boxes[node], loops)

    def _way(self, chain: Chain) -> list[Point]:
        pins, rect = self._pins, self.boxes
        points = [(pins.below(chain.items[0], chain.keys[0]), rect[chain.link.source].bottom)]
        points += self._between(chain)
        points.append((pins.above(chain.items[-1], chain.keys[-1]), rect[chain.link.target].y))
        return points

    def _between(self, chain: Chain) -> list[Point]:
        """Give the corners in the channels between a chain's items, from above."""
        points: list[Point] = []
        for (upper, lower), key in zip(_pairs(chain), chain.keys, strict=False):
            row = self._grid.items[lower].row
            begin, end = self._pins.below(upper, key), self._pins.above(lower, key)
            points += self._channels[row].down(key, begin, end, self._tracks[row])
        return points

    def _lane(self, chain: Chain) -> list[Point]:
        """Give the way of an edge that leads upwards, from its source on."""
        items, key = self._grid.items, chain.keys[0]
        top, bottom = self._ends(chain)
        first, last = items[chain.items[-1]].x, items[chain.items[0]].x
        points = self._at_side(bottom, key, first)
        if not points:
            row, x = items[bottom].row + 1, self._pins.below(bottom, key)
            turn = self._channels[row].beneath(key, x, first, self._tracks[row])
            points = [(x, self.boxes[self._node[bottom]].bottom), *turn]
        points += reversed(self._between(chain))
        end = self._at_side(top, key, last)
        if end:
            return [*points, *reversed(end)]
        row, x = items[top].row, self._pins.above(top, key)
        turn = self._channels[row].over(key, last, x, self._tracks[row])
        return [*points, *turn, (x, self.boxes[self._node[top]].y)]

    def _at_side(self, item: int, key: Key, lane: int) -> list[Point]:
        if (item, key) not in self._beside:
            return []
        on_right, below = self._beside[item, key]
        rect = self.boxes[self._node[item]]
        y = rect.y + below
        return [(rect.right if on_right else rect.x, y), (lane, y)]

    def _label(self, chain: Chain, tops: Sequence[int]) -> Rect | None:
        grid, size = self._grid, chain.link.label
        if size is None or chain.label is None:
            return None
        item = grid.items[chain.label]
        tall = max(grid.items[i].height for i in grid.rows[item.row])
        y = tops[item.row] + (tall - item.height) // 2
        return Rect(item.x - item.left, y, size.width, size.height)

    def _loops(self, box: Rect, loops: Sequence[tuple[int, Link]]) -> Iterator[tuple[int, Route]]:
        """Lead edges from a box to itself out and in at its right side; they share one line."""
        reach = self._metrics.loop
        upper = box.y + (box.height - reach) // 2
        x, lower = box.right + reach, upper + reach
        points = ((box.right, lower), (x, lower), (x, upper), (box.right, upper))
        labels = [link.label.height for _, link in loops if link.label]
        y = box.y + (box.height - sum(labels)) // 2
        for number, link in loops:
            label = None
            if link.label:
                left = x + self._metrics.line_gap // 2
                label = Rect(left, y, link.label.width, link.label.height)
                y += link.label.height
            yield number, Route(points, label)

    def _width(self) -> int:
        rects = [*self.boxes.values(), *(r.label for r in self.routes.values() if r.label)]
        xs = [x for route in self.routes.values() for x, _ in route.points]
        return max([*(rect.right for rect in rects), *xs])


def _pairs(chain: Chain) -> Iterator[tuple[int, int]]:
    return zip(chain.items, chain.items[1:], strict=False)


def simplified(points: Sequence[Point]) -> tuple[Point, ...]:
    """Leave out points that are no corner."""
    made: list[Point] = []
    for point in points:
        if made and made[-1] == point:
            continue
        while len(made) >= 2 and _straight(made[-2], made[-1], point):
            made.pop()
        made.append(point)
    return tuple(made)


def _straight(a: Point, b: Point, c: Point) -> bool:
    return a[0] == b[0] == c[0] or a[1] == b[1] == c[1]
