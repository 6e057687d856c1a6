"""Rows of items: boxes, and a place in each row that an edge passes, so that none meets a box."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from wick_graph.picture.layout.ranks import Edges, rank, returning, wrapped
from wick_graph.picture.layout.shapes import Item, Link, Metrics, Size

Key = tuple[str, int]
"""Names a line: an edge of its own (`link`), or one that several share (`out`, `in`, `back`)."""


@dataclass(slots=True)
class Chain:
    """The items that an edge passes, from above to below, and its line between each two."""

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
    """Everything that one group of connected boxes has to place."""

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
        """Note that two items of neighbouring rows belong together."""
        self.down[upper].append(lower)
        self.up[lower].append(upper)


def build(nodes: Sequence[int], edges: Edges, sizes: Sequence[Size], metrics: Metrics) -> Grid:
    """Rank the boxes of one group and lay out the rows, in a first order."""
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
    """Which edges share a line: many that leave one box, or that reach one, are drawn as a tree."""

    def __init__(self, forward: Edges, sizes: Sequence[Size], metrics: Metrics) -> None:
        def full(node: int, count: int) -> bool:
            return count > max(3, sizes[node].width // metrics.port_gap - 1)

        leaving = Counter(link.source for _, link in forward)
        self.out = {node for node, count in leaving.items() if full(node, count)}
        reaching = Counter(link.target for _, link in forward if link.source not in self.out)
        self.into = {node for node, count in reaching.items() if full(node, count)}
        self.fixed = {link.target for _, link in forward if link.source not in self.out}
        """Boxes that lines of their own lead to."""

    def key(self, number: int, link: Link) -> Key:
        """Name the line of a link that leads downwards."""
        if link.source in self.out:
            return "out", link.source
        return ("in", link.target) if link.target in self.into else ("link", number)


class _Rows:
    """Rows by rank; where labels are, they have a row of their own."""

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
    """Say after which rank a link's label stands: near the place where its line is its own."""
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
        """Tie two items once for each line that joins them."""
        if (key, upper, lower) not in self._tied:
            self._tied.add((key, upper, lower))
            self.grid.tie(upper, lower)

    def square(self) -> None:
        """Keep the column of a shared line free in the first or last row that the line serves.

        Then all rows over which a wide rank is spread have the same form.
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
    """Let a line that is shared at one end be the edge's own on the other side of its label."""
    if shared[0] == "out":
        return [*keys[:label], *[own] * (len(keys) - label)]
    if shared[0] == "in":
        return [*[own] * label, *keys[label:]]
    return keys
