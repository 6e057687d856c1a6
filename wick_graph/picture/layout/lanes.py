"""Edges that lead upwards: each runs in a lane, a column of its own beside the boxes that it joins.

A lane reaches from the row of the upper box to the row of the lowest box that it comes from. Where
it stands right beside the box, the line enters or leaves the box at its side; everywhere else it
goes round the box, through the channel above or below the row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wick_graph.picture.layout.grid import Chain, Grid, Key
from wick_graph.picture.layout.order import between
from wick_graph.picture.layout.shapes import Item, Metrics


@dataclass(slots=True)
class Sides:
    """The lanes that stand right beside a box, the nearest first."""

    left: list[tuple[Key, bool]] = field(default_factory=list)
    """A lane's line, and whether it leads into the box."""
    right: list[tuple[Key, bool]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Option:
    """A row with the end of a lane in it, beside a box."""

    row: list[int]
    box: int
    on_right: bool


class Lanes:
    """Opens the lanes of a grid whose rows are in order."""

    def __init__(self, grid: Grid, metrics: Metrics) -> None:
        self.grid = grid
        self.metrics = metrics
        self.sides: dict[int, Sides] = {}
        """What stands beside a box, by item."""
        self._taken: dict[tuple[int, bool], int] = {}
        """Lanes at a side of a box, whether their lines meet the box there or not."""
        self._looped = {grid.boxes[node] for node in grid.loops}

    def open(self) -> dict[int, Sides]:
        """Give each lane its places beside the boxes; a short one stands nearer than a long one."""
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
        """Make an item that has no place in its row yet."""
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
    """List where a lane is tied to its boxes; that only helped to order the rows."""
    items = chain.items
    return {(items[0], items[1]), (items[-2], items[-1])}
