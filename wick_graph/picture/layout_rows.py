"""The rows of a layout: ranks, order and columns of boxes."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

# --- Input and output of a layout: integers in any unit, pixels or cells.


Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Size:
    """A size."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Link:
    """One edge to draw, between boxes by their index in the list."""

    source: int
    target: int
    label: Size | None = None


@dataclass(frozen=True, slots=True)
class Rect:
    """A placed box or label; its border is on the four lines."""

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
        """Return a moved copy."""
        return Rect(self.x + dx, self.y + dy, self.width, self.height)


@dataclass(frozen=True, slots=True)
class Route:
    """One placed edge: horizontal and vertical stretches between borders, and its label."""

    points: tuple[Point, ...]
    """From the source to the target; the last stretch gives the arrow's direction."""
    label: Rect | None = None
    """On the edge, with the line beneath it; beside the edge if that is a loop."""

    def moved(self, dx: int, dy: int) -> Route:
        """Return a moved copy."""
        points = tuple((x + dx, y + dy) for x, y in self.points)
        return Route(points, self.label and self.label.moved(dx, dy))


@dataclass(frozen=True, slots=True)
class Layout:
    """All placed parts, in order of input; nothing is left of or above 0."""

    width: int
    height: int
    boxes: tuple[Rect, ...]
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The distances in a layout."""

    box_gap: int
    """Between two boxes side by side."""
    line_gap: int
    """Between a vertical line and its neighbour."""
    track_gap: int
    """Between two horizontal lines in the same channel."""
    tail: int
    """Between a box and the first horizontal line below it."""
    head: int
    """Between a horizontal line and the box below it: room for an arrow's head."""
    row_gap: int
    """Between two rows of boxes, at least."""
    port_gap: int
    """Between two lines at the upper or lower side of a box."""
    side_gap: int
    """The same, at a box's left and right side."""
    inset: int
    """Between a box's corner and the first line."""
    loop: int
    """Width and height of an edge from a box to itself."""
    wrap: int
    """The width at which a row of many boxes wraps."""


@dataclass(slots=True)
class Item:
    """One item of a row: a box, a passing line, or a line with its label."""

    row: int
    left: int
    """Room to the left of its vertical line."""
    right: int
    height: int
    is_line: bool
    side: int = 0
    """How far a box's right border is from its middle; loops take room beyond it."""
    x: int = 0
    """Its vertical line; for a box, its middle."""


# --- Ranks of boxes: cycles are opened, and every box gets a rank.


Edges = Sequence[tuple[int, Link]]
"""Links with their numbers."""


def components(count: int, links: Sequence[Link]) -> list[list[int]]:
    """Split boxes into unconnected groups, in order of their first boxes."""
    parent = list(range(count))

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    for link in links:
        a, b = find(link.source), find(link.target)
        parent[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = {}
    for node in range(count):
        groups.setdefault(find(node), []).append(node)
    return list(groups.values())


def returning(nodes: Sequence[int], edges: Edges) -> set[int]:
    """Find the links that lead back to a box on the path to them.

    Without them, and without links from a box to itself, there is no cycle. Paths start at boxes
    that no link reaches, and at the first box of a cycle, in order of input.
    """
    follow: dict[int, list[tuple[int, int]]] = {node: [] for node in nodes}
    reached = set()
    for number, link in edges:
        follow[link.source].append((number, link.target))
        if link.source != link.target:
            reached.add(link.target)
    back: set[int] = set()
    done: set[int] = set()
    for root in sorted(nodes, key=lambda node: node in reached):
        if root not in done:
            _walk(root, follow, done, back)
    return back


def _walk(
    root: int, follow: dict[int, list[tuple[int, int]]], done: set[int], back: set[int]
) -> None:
    open_nodes = {root}
    stack: list[tuple[int, Iterator[tuple[int, int]]]] = [(root, iter(follow[root]))]
    while stack:
        node, ways = stack[-1]
        for number, target in ways:
            if target in open_nodes:
                back.add(number)
            elif target not in done:
                open_nodes.add(target)
                stack.append((target, iter(follow[target])))
                break
        else:
            stack.pop()
            open_nodes.discard(node)
            done.add(node)


def rank(nodes: Sequence[int], edges: Edges) -> dict[int, int]:
    """Return for each box the number of links on the longest path to it; `edges` have no cycle.

    A box that more links leave than reach is moved down to where these lead.
    """
    below: dict[int, list[int]] = {node: [] for node in nodes}
    above: dict[int, list[int]] = {node: [] for node in nodes}
    for _, link in edges:
        below[link.source].append(link.target)
        above[link.target].append(link.source)
    missing = {node: len(above[node]) for node in nodes}
    order = [node for node in nodes if not missing[node]]
    ranks = dict.fromkeys(nodes, 0)
    for node in order:
        for target in below[node]:
            ranks[target] = max(ranks[target], ranks[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                order.append(target)
    for node in reversed(order):
        if len(below[node]) > len(above[node]):
            ranks[node] = min(ranks[target] for target in below[node]) - 1
    return ranks


def wrapped(
    ranks: Mapping[int, int], widths: Mapping[int, int], fixed: Collection[int], limit: int
) -> dict[int, int]:
    """Spread the boxes of a rank that is wider than `limit` over several.

    That helps only if one line leads to all of them; a rank with a `fixed` box stays whole.
    """
    members: dict[int, list[int]] = {}
    for node in sorted(ranks):
        members.setdefault(ranks[node], []).append(node)
    made: dict[int, int] = {}
    row = 0
    for number in sorted(members):
        nodes = members[number]
        width = sum(widths[node] for node in nodes)
        whole = any(node in fixed for node in nodes)
        parts = 1 if whole else min(-(-width // max(limit, 1)), len(nodes))
        for place, node in enumerate(nodes):
            made[node] = row + place * parts // len(nodes)
        row = made[nodes[-1]] + 1
    return made


# --- Rows of items: boxes, and one item in each row that an edge passes, so that it meets no box.


Key = tuple[str, int]
"""Key of a line: of one edge (`link`), or shared by several (`out`, `in`, `back`)."""


@dataclass(slots=True)
class Chain:
    """The items that an edge passes, from top to bottom, and its line between each two."""

    number: int
    link: Link
    items: list[int]
    keys: list[Key]
    back: bool
    """The edge leads upwards: its items become a lane, without the boxes at its ends."""
    label: int | None
    """The item that holds the label."""


@dataclass(slots=True)
class Grid:
    """All items of one group of connected boxes."""

    items: list[Item] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    up: list[list[int]] = field(default_factory=list)
    """An item's neighbours in the row above."""
    down: list[list[int]] = field(default_factory=list)
    boxes: dict[int, int] = field(default_factory=dict)
    """Items by box."""
    chains: list[Chain] = field(default_factory=list)
    loops: dict[int, list[tuple[int, Link]]] = field(default_factory=dict)
    """Links from a box to itself, by box."""
    label_rows: set[int] = field(default_factory=set)

    def add(self, item: Item) -> int:
        """Put an item at the end of its row."""
        number = len(self.items)
        self.items.append(item)
        self.rows[item.row].append(number)
        self.up.append([])
        self.down.append([])
        return number

    def tie(self, upper: int, lower: int) -> None:
        """Connect two items of neighbouring rows."""
        self.down[upper].append(lower)
        self.up[lower].append(upper)


def build(nodes: Sequence[int], edges: Edges, sizes: Sequence[Size], metrics: Metrics) -> Grid:
    """Rank the boxes of one group and fill the rows, in an initial order."""
    grid = Grid()
    for number, link in edges:
        if link.source == link.target:
            grid.loops.setdefault(link.source, []).append((number, link))
    real = [(number, link) for number, link in edges if link.source != link.target]
    back = returning(nodes, real)
    forward = [(number, link) for number, link in real if number not in back]
    room = {node: sizes[node].width + metrics.box_gap for node in nodes}
    for node, width in _labels_above(forward, metrics).items():
        room[node] = max(room[node], width)
    lines = _Lines(forward, sizes, metrics)
    plain = rank(nodes, forward)
    ranks = wrapped(plain, room, lines.fixed, metrics.wrap)
    rows = _Rows(ranks, real, back, lines)
    grid.rows = [[] for _ in range(rows.count)]
    grid.label_rows = set(rows.after.values())
    for node in nodes:
        grid.boxes[node] = grid.add(_box(sizes[node], rows.of[ranks[node]], grid, node, metrics))
    weaver = _Weaver(grid, rows, lines, ranks)
    for number, link in real:
        weaver.weave(number, link, number in back)
    if ranks != plain:
        weaver.square()
    return grid


def _labels_above(forward: Edges, metrics: Metrics) -> Counter[int]:
    found: Counter[int] = Counter()
    for _, link in forward:
        if link.label:
            found[link.target] += link.label.width + metrics.line_gap
    return found


def _box(size: Size, row: int, grid: Grid, node: int, metrics: Metrics) -> Item:
    left, height, extra = size.width // 2, size.height, 0
    if loops := grid.loops.get(node):
        labels = [link.label for _, link in loops if link.label]
        tall = sum(label.height for label in labels)
        wide = max((label.width + metrics.line_gap for label in labels), default=0)
        extra, height = metrics.loop + wide, max(height, metrics.loop + metrics.side_gap * 2, tall)
    side = size.width - left
    return Item(row, left, side + extra, height, is_line=False, side=side)


class _Lines:
    """Decides which edges share a line: many from or to one box are drawn as a tree."""

    def __init__(self, forward: Edges, sizes: Sequence[Size], metrics: Metrics) -> None:
        def full(node: int, count: int) -> bool:
            return count > max(3, sizes[node].width // metrics.port_gap - 1)

        leaving = Counter(link.source for _, link in forward)
        self.out = {node for node, count in leaving.items() if full(node, count)}
        reaching = Counter(link.target for _, link in forward if link.source not in self.out)
        self.into = {node for node, count in reaching.items() if full(node, count)}
        self.fixed = {link.target for _, link in forward if link.source not in self.out}
        """Boxes with lines of their own to them."""

    def key(self, number: int, link: Link) -> Key:
        """Return the key of a downward link's line."""
        if link.source in self.out:
            return "out", link.source
        return ("in", link.target) if link.target in self.into else ("link", number)


class _Rows:
    """Rows by rank; labels have rows of their own."""

    def __init__(
        self, ranks: Mapping[int, int], real: Edges, back: set[int], lines: _Lines
    ) -> None:
        wanted = set()
        for number, link in real:
            if link.label:
                wanted.add(label_rank(number, link, ranks, number in back, lines))
        self.of: dict[int, int] = {}
        self.after: dict[int, int] = {}
        row = 0
        for number in range(max(ranks.values(), default=-1) + 1):
            self.of[number] = row
            row += 1
            if number in wanted:
                self.after[number] = row
                row += 1
        self.count = row


def label_rank(number: int, link: Link, ranks: Mapping[int, int], back: bool, lines: _Lines) -> int:
    """Return the rank before a link's label: near the unshared part of its line."""
    if back:
        return ranks[link.source] - 1
    if lines.key(number, link)[0] == "out":
        return ranks[link.target] - 1
    return ranks[link.source]


class _Weaver:
    """Puts an item into every row that an edge passes; edges that share a line share the items."""

    def __init__(self, grid: Grid, rows: _Rows, lines: _Lines, ranks: Mapping[int, int]) -> None:
        self.grid = grid
        self.rows = rows
        self.lines = lines
        self.ranks = ranks
        self._shared: dict[tuple[Key, int], int] = {}
        self._tied: set[tuple[Key, int, int]] = set()

    def weave(self, number: int, link: Link, back: bool) -> None:
        """Add one link that is no loop."""
        upper, lower = (link.target, link.source) if back else (link.source, link.target)
        top, bottom = (self.rows.of[self.ranks[node]] for node in (upper, lower))
        label_row = -1
        if link.label:
            after = label_rank(number, link, self.ranks, back, self.lines)
            label_row = self.rows.after[after]
        if back:
            key: Key = ("link", number) if link.label else ("back", link.target)
        else:
            key = self.lines.key(number, link)
        ends = self.grid.boxes[upper], self.grid.boxes[lower]
        inner = [
            self._label(row, link.label)
            if link.label and row == label_row
            else self._line(key, row)
            for row in range(top + 1, bottom)
        ]
        items = [ends[0], *inner, ends[1]]
        keys = [key] * (len(items) - 1)
        if link.label and not back:
            keys = _own_part(keys, key, ("link", number), label_row - top)
        for upper_item, lower_item in pairwise(items):
            self._tie(key, upper_item, lower_item)
        label = items[label_row - top] if link.label else None
        self.grid.chains.append(Chain(number, link, items, keys, back, label))

    def _tie(self, key: Key, upper: int, lower: int) -> None:
        """Connect two items once for each line between them."""
        if (key, upper, lower) not in self._tied:
            self._tied.add((key, upper, lower))
            self.grid.tie(upper, lower)

    def square(self) -> None:
        """Keep the column of a shared line free in its first or last row.

        Then all rows of a spread rank have the same form.
        """
        for (kind, node), line_rows in self._by_line().items():
            top, bottom = min(line_rows), max(line_rows)
            if kind == "out":
                ends = [c.link.target for c in self.grid.chains if c.link.source == node]
                last = max(self.rows.of[self.ranks[end]] for end in ends)
                for row in range(bottom + 1, last + 1):
                    self._tie((kind, node), line_rows[row - 1], self._line((kind, node), row))
                    line_rows[row] = self._line((kind, node), row)
            else:
                ends = [c.link.source for c in self.grid.chains if c.link.target == node]
                first = min(self.rows.of[self.ranks[end]] for end in ends)
                for row in range(top - 1, first - 1, -1):
                    line_rows[row] = self._line((kind, node), row)
                    self._tie((kind, node), line_rows[row], line_rows[row + 1])

    def _by_line(self) -> dict[Key, dict[int, int]]:
        found: dict[Key, dict[int, int]] = {}
        for (key, row), item in self._shared.items():
            if key[0] in ("out", "in"):
                found.setdefault(key, {})[row] = item
        return found

    def _line(self, key: Key, row: int) -> int:
        known = self._shared.get((key, row))
        if known is None:
            known = self.grid.add(Item(row, 0, 0, 0, is_line=True))
            self._shared[key, row] = known
        return known

    def _label(self, row: int, size: Size) -> int:
        left = size.width // 2
        return self.grid.add(Item(row, left, size.width - left, size.height, is_line=True))


def _own_part(keys: list[Key], shared: Key, own: Key, label: int) -> list[Key]:
    """Make a line that is shared at one end the edge's own beyond its label."""
    if shared[0] == "out":
        return [*keys[:label], *[own] * (len(keys) - label)]
    if shared[0] == "in":
        return [*[own] * label, *keys[label:]]
    return keys


# --- The order within the rows: few crossings, by sweeps that put each item near its
# neighbours.


SWEEPS: Final = 12

_PATIENCE: Final = 4
"""Limit of sweeps without a gain."""


def arrange(grid: Grid) -> None:
    """Order the rows of a grid so that few edges cross."""
    rows = _first_order(grid)
    best, fewest = rows, crossings(rows, grid.down)
    idle = 0
    for sweep in range(SWEEPS):
        if fewest == 0 or idle >= _PATIENCE:
            break
        rows = _sweep(rows, grid, downwards=sweep % 2 == 0, turn=sweep % 4 >= 2)
        found = crossings(rows, grid.down)
        idle += 1
        if found < fewest:
            best, fewest, idle = rows, found, 0
    grid.rows = _swapped(best, grid) if fewest else best


def crossings(rows: Sequence[Sequence[int]], down: Sequence[Sequence[int]]) -> int:
    """Count the pairs of edges that cross between neighbouring rows."""
    return sum(between(upper, lower, down) for upper, lower in pairwise(rows))


def between(upper: Sequence[int], lower: Sequence[int], down: Sequence[Sequence[int]]) -> int:
    """Count the pairs of edges that cross between two rows."""
    place = {item: i for i, item in enumerate(lower)}
    seen: list[int] = []
    count = 0
    for item in upper:
        ends = [place[below] for below in down[item]]
        for end in ends:
            count += len(seen) - bisect_right(seen, end)
        for end in ends:
            insort(seen, end)
    return count


def _first_order(grid: Grid) -> list[list[int]]:
    """Order items depth-first, so that a tree gets no crossing."""
    rows: list[list[int]] = [[] for _ in grid.rows]
    seen = [False] * len(grid.items)
    every = [item for row in grid.rows for item in row]
    kept_free = [item for item in every if grid.items[item].is_line and not grid.up[item]]
    for start in [*kept_free, *every]:
        stack = [start]
        while stack:
            item = stack.pop()
            if not seen[item]:
                seen[item] = True
                rows[grid.items[item].row].append(item)
                stack.extend(reversed(grid.down[item]))
    return rows


def _sweep(rows: list[list[int]], grid: Grid, *, downwards: bool, turn: bool) -> list[list[int]]:
    """Order each row by the mean place of its neighbours in the row before it."""
    made = list(rows)
    near = grid.up if downwards else grid.down
    numbers = range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1)
    before = rows[0] if downwards else rows[-1]
    for number in numbers:
        place = {item: i for i, item in enumerate(before)}
        before = made[number] = _by_mean(rows[number], near, place, turn)
    return made


def _by_mean(
    row: list[int], near: Sequence[Sequence[int]], place: dict[int, int], turn: bool
) -> list[int]:
    """Sort the items with neighbours; the others keep their positions."""
    mean = {item: sum(place[n] for n in near[item]) / len(near[item]) for item in row if near[item]}
    movable = [item for item in row if item in mean]
    if turn:  # lets items with the same mean change places
        movable.reverse()
    movable.sort(key=mean.__getitem__)
    queue = iter(movable)
    return [next(queue) if item in mean else item for item in row]


def _swapped(rows: list[list[int]], grid: Grid) -> list[list[int]]:
    """Swap neighbours in a row as long as that removes a crossing."""
    made = [list(row) for row in rows]
    places = [{item: i for i, item in enumerate(row)} for row in made]
    for _ in range(2):
        gained = False
        for number, row in enumerate(made):
            above = places[number - 1] if number else {}
            below = places[number + 1] if number + 1 < len(made) else {}
            for i in range(len(row) - 1):
                a, b = row[i], row[i + 1]
                gain = _gain(grid.up[a], grid.up[b], above) + _gain(
                    grid.down[a], grid.down[b], below
                )
                if gain > 0:
                    row[i], row[i + 1] = b, a
                    places[number][a], places[number][b] = i + 1, i
                    gained = True
        if not gained:
            break
    return made


def _gain(left: Sequence[int], right: Sequence[int], place: dict[int, int]) -> int:
    """Return how many crossings a swap of two items removes."""
    total = 0
    for a in left:
        at = place[a]
        for b in right:
            other = place[b]
            total += (at > other) - (at < other)
    return total


# --- Horizontal positions of the items of each row, so that long edges run straight.
#
# The method is that of Brandes and Köpf (Fast and simple horizontal coordinate assignment, 2001),
# with widths: each item is stacked under the middle one of its neighbours, the stacks are pushed
# together, from each of four corners, and the middle of the four answers is taken.


Rows = Sequence[Sequence[int]]

Near = Sequence[Sequence[int]]


def place(grid: Grid, metrics: Metrics) -> None:
    """Set every item's vertical line; the leftmost border is at 0."""
    items = grid.items
    crossing = _crossing(grid)
    up = _worth_following(grid, grid.up, grid.down)
    down = _worth_following(grid, grid.down, grid.up)
    gaps = _gaps(grid, metrics)
    answers = []
    for mirrored in (False, True):
        for upwards in (False, True):
            rows = [row[::-1] if mirrored else row for row in grid.rows]
            near = down if upwards else up
            order = rows[::-1] if upwards else rows
            xs = _pushed(rows, _stacks(order, near, crossing, len(items)), gaps)
            answers.append([-x for x in xs] if mirrored else xs)
    _line_up(answers, grid)
    for number, item in enumerate(items):
        _, low, high, _ = sorted(xs[number] for xs in answers)
        item.x = (low + high) // 2
    least = min((item.x - item.left for item in items), default=0)
    for item in items:
        item.x -= least


def _worth_following(grid: Grid, near: Near, back: Near) -> Near:
    """Let lines stay straight: a line looks at lines only, and nothing at a line that goes on."""
    plain = [item.is_line and not item.right for item in grid.items]
    goes_on = [any(plain[n] for n in found) for found in back]
    made = []
    for number, found in enumerate(near):
        if plain[number]:
            chosen = [n for n in found if plain[n]] or found
        else:
            chosen = [n for n in found if not (plain[n] and goes_on[n])]
        made.append(list(dict.fromkeys(chosen)))
    return made


def _gaps(grid: Grid, metrics: Metrics) -> dict[tuple[int, int], int]:
    """Return the least distance between the vertical lines of two neighbouring items."""
    made = {}
    for row in grid.rows:
        for a, b in pairwise(row):
            left, right = grid.items[a], grid.items[b]
            free = metrics.line_gap if left.is_line or right.is_line else metrics.box_gap
            made[a, b] = made[b, a] = left.right + free + right.left
    return made


def _crossing(grid: Grid) -> set[tuple[int, int]]:
    """Find the pairs of neighbours with an edge across a passing line: the edge gives way."""
    found: set[tuple[int, int]] = set()
    items = grid.items
    for upper, lower in zip(grid.rows, grid.rows[1:], strict=False):
        at = {item: i for i, item in enumerate(upper)}
        begin, first = 0, 0
        for place_, item in enumerate(lower):
            line = _line_above(grid, item)
            if line is None and place_ < len(lower) - 1:
                continue
            end = len(upper) if line is None else at[line]
            for other in lower[first : place_ + 1]:
                for above in grid.up[other]:
                    both = items[above].is_line and items[other].is_line
                    if not both and not begin <= at[above] <= end:
                        found.add((above, other))
                        found.add((other, above))
            begin, first = end if line is not None else begin, place_ + 1
    return found


def _line_above(grid: Grid, item: int) -> int | None:
    if not grid.items[item].is_line:
        return None
    return next((n for n in grid.up[item] if grid.items[n].is_line), None)


def _stacks(rows: Rows, near: Near, crossing: set[tuple[int, int]], count: int) -> list[int]:
    """Stack items: return for each the top one of its stack. `near` reads the row before."""
    root = list(range(count))
    at: dict[int, int] = {}
    for row in rows:
        last = -1
        for item in row:
            found = sorted((at[n], n) for n in near[item])
            middle = (len(found) - 1) // 2, len(found) // 2
            for i in dict.fromkeys(middle) if found else ():
                place_, other = found[i]
                if place_ > last and (other, item) not in crossing:
                    root[item] = root[other]
                    last = place_
                    break
        at = {item: i for i, item in enumerate(row)}
    return root


def _pushed(rows: Rows, root: list[int], gaps: dict[tuple[int, int], int]) -> list[int]:
    """Push the stacks as far left as possible, then those with room back to the right."""
    before: dict[int, list[tuple[int, int]]] = {}
    behind: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        for a, b in pairwise(row):
            gap = gaps[a, b]
            before.setdefault(root[b], []).append((root[a], gap))
            behind.setdefault(root[a], []).append((root[b], gap))
    order = _sorted(rows, root, before, behind)
    xs = [0] * len(root)
    for stack in order:
        xs[stack] = max((xs[left] + gap for left, gap in before.get(stack, ())), default=0)
    for stack in reversed(order):
        if stack in behind:
            xs[stack] = max(xs[stack], min(xs[right] - gap for right, gap in behind[stack]))
    return [xs[stack] for stack in root]


def _sorted(
    rows: Rows,
    root: list[int],
    before: dict[int, list[tuple[int, int]]],
    behind: dict[int, list[tuple[int, int]]],
) -> list[int]:
    """Order the stacks so that each comes after those to its left."""
    stacks = list(dict.fromkeys(root[item] for row in rows for item in row))
    missing = {stack: len(before.get(stack, ())) for stack in stacks}
    order = [stack for stack in stacks if not missing[stack]]
    for stack in order:
        for right, _ in behind.get(stack, ()):
            missing[right] -= 1
            if not missing[right]:
                order.append(right)
    return order


def _line_up(answers: list[list[int]], grid: Grid) -> None:
    """Align the four results with the narrowest one, each at the side it was pushed to."""
    items = range(len(grid.items))
    lefts = [min((xs[i] - grid.items[i].left for i in items), default=0) for xs in answers]
    rights = [max((xs[i] + grid.items[i].right for i in items), default=0) for xs in answers]
    widths = [right - left for left, right in zip(lefts, rights, strict=True)]
    best = widths.index(min(widths))
    for number, xs in enumerate(answers):
        mirrored = number >= 2
        shift = rights[best] - rights[number] if mirrored else lefts[best] - lefts[number]
        xs[:] = [x + shift for x in xs]
