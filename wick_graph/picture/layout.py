"""Place the boxes and edges of any graph in rows, with edges leading down; deterministic.

    ranks      cycles are opened, boxes get ranks    grid      rows of boxes, labels and lines
    order      few crossings                         lanes     edges that lead upwards
    columns    from left to right                    ports     where lines meet a box
    channels   level lines between two rows          group     all of it for connected boxes

No box overlaps another one, no edge passes through a box, and a label is on its edge. All numbers
are integers, in any unit: the same layout serves pixels and terminal cells.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from wick_graph.picture import layout_rows
from wick_graph.picture.layout_rows import (
    Chain,
    Edges,
    Grid,
    Item,
    Key,
    Layout,
    Link,
    Metrics,
    Point,
    Rect,
    Route,
    Size,
    between,
    build,
    components,
)

# --- Positions of lines at the upper and lower sides of boxes.


Ports = dict[tuple[int, Key], int]
"""The position of a line at one side of a box, by item and line."""

Ends = dict[tuple[int, Key], list[int]]
"""The items at the other end of a line."""


class Pins:
    """Finds the vertical line on which an edge enters a channel."""

    def __init__(self, grid: Grid, metrics: Metrics) -> None:
        self._items = grid.items
        self._metrics = metrics
        self._lower: Ports = {}
        self._upper: Ports = {}

    def set_lower(self, ends: Ends) -> None:
        """Spread the lines at the lower sides of boxes, straight above their targets."""
        seen = {pin: [self._items[i].x for i in others] for pin, others in ends.items()}
        self._lower = self._spread(seen)

    def set_upper(self, ends: Ends) -> None:
        """Spread the lines at the upper sides, straight below their sources."""
        seen = {
            (box, key): [self.below(i, key) for i in others] for (box, key), others in ends.items()
        }
        self._upper = self._spread(seen)

    def below(self, item: int, key: Key) -> int:
        """Return where a line leaves an item downwards."""
        return self._lower.get((item, key), self._items[item].x)

    def above(self, item: int, key: Key) -> int:
        """Return where a line reaches an item from above."""
        return self._upper.get((item, key), self._items[item].x)

    def _spread(self, seen: Mapping[tuple[int, Key], Sequence[int]]) -> Ports:
        by_box: dict[int, list[tuple[int, Key]]] = {}
        for (box, key), others in seen.items():
            by_box.setdefault(box, []).append((sum(others) // len(others), key))
        made: Ports = {}
        for box, lines in by_box.items():
            lines.sort()
            item = self._items[box]
            begin, end = item.x - item.left, item.x + item.side
            places = spread([x for x, _ in lines], begin, end, self._metrics)
            for (_, key), place in zip(lines, places, strict=True):
                made[box, key] = place
        return made


def spread(wanted: Sequence[int], begin: int, end: int, metrics: Metrics) -> list[int]:
    """Place lines between two corners, in order, straight if possible.

    Args:
        wanted: Straight position of each line, ascending.
        begin: The left corner.
        end: The right corner.
        metrics: The distances to keep; they shrink if there is no room for them.
    """
    inset = min(metrics.inset, (end - begin) // 2)
    low, high = begin + inset, end - inset
    count = len(wanted)
    gap = min(metrics.port_gap, (high - low) // (count - 1)) if count > 1 else 0
    even = [begin + (end - begin) * (i + 1) // (count + 1) for i in range(count)]
    fixed: dict[int, int] = {}
    last_place, last = low, -1
    for i, x in enumerate(wanted):
        first_free = last_place + gap * (i - last) if last >= 0 else low + gap * i
        if first_free <= x <= high - gap * (count - 1 - i):
            fixed[i] = last_place = x
            last = i
    return _between(even, fixed, low, high, gap)


def _between(
    even: Sequence[int], fixed: Mapping[int, int], low: int, high: int, gap: int
) -> list[int]:
    """Keep the fixed positions, and put the others as near to even ones as the gap allows."""
    count = len(even)
    most = [high] * count
    room = high
    for i in range(count - 1, -1, -1):
        most[i] = room = fixed.get(i, min(room, high - gap * (count - 1 - i)))
        room -= gap
    made: list[int] = []
    for i, x in enumerate(even):
        least = made[-1] + gap if made else low
        made.append(fixed[i] if i in fixed else max(least, min(x, most[i])))
    return made


def collect(pairs: Iterable[tuple[int, Key, int]]) -> Ends:
    """Group (box, line, other end) by box and line."""
    ends: Ends = {}
    for box, key, other in pairs:
        ends.setdefault((box, key), []).append(other)
    return ends


# --- Edges that lead upwards: each runs in a lane, a column of its own beside its boxes.
#
# A lane reaches from the row of the upper box to the row of its lowest source. If it is right
# beside the box, the line enters or leaves the box at its side. Elsewhere it goes round the box,
# through the channel above or below the row.


@dataclass(slots=True)
class Sides:
    """The lanes right beside a box, the nearest first."""

    left: list[tuple[Key, bool]] = field(default_factory=list)
    """A lane's line, and whether it leads into the box."""
    right: list[tuple[Key, bool]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Option:
    """A row with the end of a lane beside a box."""

    row: list[int]
    box: int
    on_right: bool


class Lanes:
    """Opens the lanes of a grid with ordered rows."""

    def __init__(self, grid: Grid, metrics: Metrics) -> None:
        self.grid = grid
        self.metrics = metrics
        self.sides: dict[int, Sides] = {}
        """The lanes beside a box, by item."""
        self._taken: dict[tuple[int, bool], int] = {}
        """Number of lanes at a side of a box, including those that pass it."""
        self._looped = {grid.boxes[node] for node in grid.loops}

    def open(self) -> dict[int, Sides]:
        """Place each lane beside its boxes; a short one is nearer than a long one."""
        by_key: dict[Key, list[Chain]] = {}
        for chain in self.grid.chains:
            if chain.back:
                by_key.setdefault(chain.keys[0], []).append(chain)
        for chains in by_key.values():
            for upper, lower in sorted({pair for c in chains for pair in _end_pairs(c)}):
                self.grid.down[upper].remove(lower)
                self.grid.up[lower].remove(upper)
        for key in sorted(by_key, key=lambda key: (max(map(self._depth, by_key[key])), key)):
            self._open(key, by_key[key])
        return self.sides

    def _row(self, item: int) -> int:
        return self.grid.items[item].row

    def _depth(self, chain: Chain) -> int:
        return self._row(chain.items[-1]) - self._row(chain.items[0])

    def _open(self, key: Key, chains: list[Chain]) -> None:
        grid = self.grid
        lane = {self._row(i): i for chain in chains for i in chain.items[1:-1]}
        target = chains[0].items[0]
        top, last = self._row(target), max(self._row(chain.items[-1]) for chain in chains)
        sources = sorted({c.items[-1] for c in chains if self._row(c.items[-1]) == last})
        lane[top], lane[last] = self._end(top), self._end(last)
        grid.tie(lane[top], lane[top + 1])
        if last > top + 1:
            grid.tie(lane[last - 1], lane[last])
        upper, lower = self._options(lane[top], [target]), self._options(lane[last], sources)
        one, other = self._best(upper, lower, top, last)
        self._stand(key, one, top, into=True, alone=True)
        self._stand(key, other, last, into=False, alone=len(sources) == 1)
        for chain in chains:
            chain.items = [lane[row] for row in range(top, self._row(chain.items[-1]) + 1)]
            chain.keys = [key] * len(chain.items)

    def _end(self, row: int) -> int:
        """Make an item without a position in its row."""
        end = self.grid.add(Item(row, 0, 0, 0, is_line=True))
        self.grid.rows[row].pop()
        return end

    def _options(self, end: int, boxes: list[int]) -> list[_Option]:
        """List the ways to put the end of a lane beside boxes: at the right, or at the left."""
        row = self.grid.rows[self._row(boxes[0])]
        places = sorted(row.index(box) for box in boxes)
        made = []
        for on_right in (True, False):
            box = row[places[-1 if on_right else 0]]
            taken = self._taken.get((box, on_right), 0)
            at = row.index(box) + 1 + taken if on_right else row.index(box) - taken
            made.append(_Option([*row[:at], end, *row[at:]], box, on_right))
        return made

    def _best(
        self, upper: list[_Option], lower: list[_Option], top: int, last: int
    ) -> tuple[_Option, _Option]:
        """Choose the sides on which the lane crosses the fewest edges."""
        rows, down = self.grid.rows, self.grid.down
        pairs = [(one, other) for one in upper for other in lower]
        if last == top + 1:
            return min(pairs, key=lambda pair: between(pair[0].row, pair[1].row, down))
        return (
            min(upper, key=lambda option: between(option.row, rows[top + 1], down)),
            min(lower, key=lambda option: between(rows[last - 1], option.row, down)),
        )

    def _stand(self, key: Key, chosen: _Option, row: int, *, into: bool, alone: bool) -> None:
        self.grid.rows[row] = chosen.row
        place = chosen.box, chosen.on_right
        taken = self._taken[place] = self._taken.get(place, 0) + 1
        sides = self.sides.setdefault(chosen.box, Sides())
        side = sides.right if chosen.on_right else sides.left
        looped = chosen.on_right and chosen.box in self._looped
        room = max(1, self.grid.items[chosen.box].height // self.metrics.side_gap - 1)
        if alone and not looped and len(side) == taken - 1 < room:
            side.append((key, into))


def _end_pairs(chain: Chain) -> set[tuple[int, int]]:
    """List a lane's ties to its boxes, which only serve the order of the rows."""
    items = chain.items
    return {(items[0], items[1]), (items[-2], items[-1])}


# --- The horizontal lines between two rows: each gets a track, so that lines never coincide.
#
# A line has pins at the upper and at the lower edge of its channel. If the upper pin of one line is
# right above the lower pin of another one, the first must be higher, or their vertical parts would
# coincide. In a cycle of such demands, a line is broken in two.


@dataclass(slots=True)
class Wire:
    """One line in one channel."""

    key: Key
    tops: list[int] = field(default_factory=list)
    """Its pins at the upper edge, ascending."""
    bottoms: list[int] = field(default_factory=list)
    lower: Wire | None = None
    """The part that reaches the lower edge, if the line was broken."""
    joint: int = 0
    """The position at which its two parts meet."""
    low: int = 0
    high: int = 0
    track: int = 0

    def settle(self) -> bool:
        """Sort the pins; return whether the line has a horizontal part."""
        self.tops, self.bottoms = sorted(set(self.tops)), sorted(set(self.bottoms))
        pins = [*self.tops, *self.bottoms]
        self.low, self.high = min(pins), max(pins)
        return self.low < self.high


class Channel:
    """All lines between two rows."""

    def __init__(self) -> None:
        self.wires: dict[Key, Wire] = {}
        self.count = 0
        """Number of tracks."""

    def wire(self, key: Key) -> Wire:
        """Return the line with this name, a new one if there is none."""
        return self.wires.setdefault(key, Wire(key))

    def assign(self, gap: int) -> None:
        """Assign every line a track, the topmost first; lines of one track are `gap` apart."""
        level = [wire for wire in self.wires.values() if wire.settle()]
        free = _FreePlaces(self.wires.values())
        while circle := _circle(level):
            level.append(_broken(circle, free))
        ends: list[tuple[int, int, int]] = []
        for wire in _from_above(level):
            meets = [
                t for low, high, t in ends if low - gap <= wire.high and wire.low <= high + gap
            ]
            wire.track = max(meets, default=-1) + 1
            ends.append((wire.low, wire.high, wire.track))
            self.count = max(self.count, wire.track + 1)

    def down(self, key: Key, x: int, to: int, tracks: Sequence[int]) -> list[Point]:
        """Return the corners of a route from the upper edge to the lower one."""
        wire = self.wires[key]
        if wire.low == wire.high:
            return []
        if wire.lower is None:
            y = tracks[wire.track]
            return [(x, y), (to, y)]
        first, second = tracks[wire.track], tracks[wire.lower.track]
        return [(x, first), (wire.joint, first), (wire.joint, second), (to, second)]

    def beneath(self, key: Key, x: int, to: int, tracks: Sequence[int]) -> list[Point]:
        """Return the corners of a route from the upper edge back to the upper edge."""
        y = tracks[self.wires[key].track]
        return [(x, y), (to, y)]

    def over(self, key: Key, x: int, to: int, tracks: Sequence[int]) -> list[Point]:
        """Return the corners of a route from the lower edge back to the lower edge."""
        wire = self.wires[key]
        y = tracks[(wire.lower or wire).track]
        return [(x, y), (to, y)]


def _must_lie_higher(wires: Sequence[Wire]) -> list[list[int]]:
    """List for each line the others that must be below it."""
    with_bottom: dict[int, list[int]] = {}
    number = {}
    for i, wire in enumerate(wires):
        number[id(wire)] = i
        for x in wire.bottoms:
            with_bottom.setdefault(x, []).append(i)
    made = []
    for i, wire in enumerate(wires):
        below = {other for x in wire.tops for other in with_bottom.get(x, ()) if other != i}
        if wire.lower is not None:
            below.add(number[id(wire.lower)])
        made.append(sorted(below))
    return made


def _circle(wires: Sequence[Wire]) -> Wire | None:
    """Find a line in a cycle of demands; it has pins at both edges."""
    below = _must_lie_higher(wires)
    above: list[set[int]] = [set() for _ in wires]
    for i, others in enumerate(below):
        for other in others:
            above[other].add(i)
    ready = [i for i, others in enumerate(above) if not others]
    for i in ready:
        for other in below[i]:
            above[other].discard(i)
            if not above[other]:
                ready.append(other)
    at = next((i for i, others in enumerate(above) if others), None)
    if at is None:
        return None
    seen: set[int] = set()
    while at not in seen:  # upwards from a remaining one: this must reach a cycle
        seen.add(at)
        at = min(above[at])
    return wires[at]


def _from_above(wires: Sequence[Wire]) -> list[Wire]:
    """Order lines so that few cross, and each comes before those that must be below it."""
    below = _must_lie_higher(wires)
    waits = [0] * len(wires)
    for others in below:
        for other in others:
            waits[other] += 1
    worse = _worse_above(wires)
    cost = [sum(others.values()) for others in worse]
    left = dict.fromkeys(range(len(wires)))
    order = []
    while left:
        best = min((i for i in left if not waits[i]), key=cost.__getitem__)
        del left[best]
        order.append(wires[best])
        for other in below[best]:
            waits[other] -= 1
        for other, difference in worse[best].items():
            cost[other] += difference
    return order


def _worse_above(wires: Sequence[Wire]) -> list[dict[int, int]]:
    """Return for each line how many more crossings it has above another one than below."""
    made: list[dict[int, int]] = [{} for _ in wires]
    order = sorted(range(len(wires)), key=lambda i: wires[i].low)
    for place, i in enumerate(order):
        wire = wires[i]
        for j in order[place + 1 :]:
            other = wires[j]
            if other.low > wire.high:
                break
            difference = (
                _inside(other.tops, wire)
                + _inside(wire.bottoms, other)
                - _inside(wire.tops, other)
                - _inside(other.bottoms, wire)
            )
            if difference:
                made[i][j] = difference
                made[j][i] = -difference
    return made


def _inside(pins: Sequence[int], wire: Wire) -> int:
    return bisect_left(pins, wire.high) - bisect_right(pins, wire.low)


class _FreePlaces:
    """Vertical lines without a pin of a channel."""

    def __init__(self, wires: Iterable[Wire]) -> None:
        found = {x for wire in wires for x in (*wire.tops, *wire.bottoms)}
        self._taken = sorted(found)

    def near(self, low: int, high: int) -> int:
        """Return the middle of the widest gap between two positions, else one right of all."""
        inside = self._taken[bisect_left(self._taken, low) : bisect_right(self._taken, high)]
        gaps = [(b - a, -a) for a, b in pairwise(inside)]
        width, begin = max(gaps, default=(0, 0))
        place = -begin + width // 2 if width >= 2 else self._taken[-1] + 1
        self._taken.insert(bisect_left(self._taken, place), place)
        return place


def _broken(wire: Wire, free: _FreePlaces) -> Wire:
    """Break a line in two, and return the part that reaches the lower edge."""
    wire.joint = free.near(wire.low, wire.high)
    lower = Wire(wire.key, [], wire.bottoms)
    wire.bottoms = []
    wire.lower = lower
    for part in (wire, lower):
        pins = [*part.tops, *part.bottoms, wire.joint]
        part.low, part.high = min(pins), max(pins)
    return lower


# --- The placement of one group of connected boxes: rows from above, and routes of edges.


class Group:
    """Places one group; `boxes` and `routes` hold the result by number, `width` and `height`."""

    def __init__(
        self, nodes: Sequence[int], edges: Edges, sizes: Sequence[Size], metrics: Metrics
    ) -> None:
        self._sizes = sizes
        self._metrics = metrics
        self._grid = build(nodes, edges, sizes, metrics)
        layout_rows.arrange(self._grid)
        self._sides = Lanes(self._grid, metrics).open()
        layout_rows.place(self._grid, metrics)
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
        """Return the side of each lane's line at a box, and its distance from the upper border."""
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
        """Collect the lines of each channel; channel 0 is above the first row."""
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
        """Set the positions of each channel's horizontal lines, and of each row's upper edge."""
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
        """Return the beginning of the row after a channel."""
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
        """Return the corners in the channels between a chain's items, from above."""
        points: list[Point] = []
        for (upper, lower), key in zip(_pairs(chain), chain.keys, strict=False):
            row = self._grid.items[lower].row
            begin, end = self._pins.below(upper, key), self._pins.above(lower, key)
            points += self._channels[row].down(key, begin, end, self._tracks[row])
        return points

    def _lane(self, chain: Chain) -> list[Point]:
        """Return the route of an edge that leads upwards, from its source."""
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
        """Route edges from a box to itself at its right side; they share one line."""
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
    """Remove points that are not corners."""
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


def arrange(boxes: Sequence[Size], links: Sequence[Link], metrics: Metrics) -> Layout:
    """Place boxes and links; a box with an edge to itself may become higher than requested.

    Unconnected groups are side by side, in lines as wide as `metrics.wrap`.
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
