"""Edges that lead upwards: each runs in a lane, a column of its own beside the boxes that it joins.

A lane reaches from the row of the upper box to the row of the lowest box that it comes from. Where
a lane stands right beside a box, the line enters it or leaves it at the side; everywhere else it
goes round the box, through the channel above or below the row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wick_graph.picture.layout.grid import Chain, Grid, Key
from wick_graph.picture.layout.order import between
from wick_graph.picture.layout.shapes import Item


@dataclass(slots=True)
class Sides:
    """The lanes that stand right beside a box, the nearest first."""

    left: list[tuple[Key, bool]] = field(default_factory=list)
    """The lane's line, and whether it leads into the box."""
    right: list[tuple[Key, bool]] = field(default_factory=list)


def open_lanes(grid: Grid) -> dict[int, Sides]:
    """Give each lane its places in the rows of the boxes that it joins.

    Returns:
        By item, what stands beside a box.
    """
    by_key: dict[Key, list[Chain]] = {}
    for chain in grid.chains:
        if chain.back:
            by_key.setdefault(chain.key, []).append(chain)
    for chains in by_key.values():
        _untie(grid, chains)
    sides: dict[int, Sides] = {}
    lengths = {key: max(_depth(grid, chain) for chain in found) for key, found in by_key.items()}
    for key in sorted(by_key, key=lambda key: (lengths[key], key)):
        _open(grid, key, by_key[key], sides)
    return sides


def _depth(grid: Grid, chain: Chain) -> int:
    return grid.items[chain.items[-1]].row - grid.items[chain.items[0]].row


def _untie(grid: Grid, chains: list[Chain]) -> None:
    """Take away the neighbourhood with the boxes, which only helped to find the order."""
    for pair in {p for chain in chains for p in _end_pairs(chain)}:
        upper, lower = pair
        if lower in grid.down[upper]:
            grid.down[upper].remove(lower)
            grid.up[lower].remove(upper)


def _end_pairs(chain: Chain) -> tuple[tuple[int, int], tuple[int, int]]:
    return (chain.items[0], chain.items[1]), (chain.items[-2], chain.items[-1])


def _open(grid: Grid, key: Key, chains: list[Chain], sides: dict[int, Sides]) -> None:
    lane: dict[int, int] = {}
    for chain in chains:
        lane |= {grid.items[item].row: item for item in chain.items[1:-1]}
    target = chains[0].items[0]
    top = grid.items[target].row
    last = max(grid.items[chain.items[-1]].row for chain in chains)
    lowest = [c.items[-1] for c in chains if grid.items[c.items[-1]].row == last]
    lane[top] = _insert(grid, key, [target], lane.get(top + 1), sides, into=True)
    if last > top + 1:
        grid.tie(lane[top], lane[top + 1])
    lane[last] = _insert(grid, key, lowest, lane[last - 1], sides, into=False)
    if last > top + 1 or True:
        _tie_once(grid, lane[last - 1], lane[last])
    for row in range(top, last):
        _tie_once(grid, lane[row], lane[row + 1])
    for chain in chains:
        depth = grid.items[chain.items[-1]].row
        chain.items = [lane[row] for row in range(top, depth + 1)]
        chain.keys = [key] * max(len(chain.items) - 1, 1)
