"""The order within the rows: few crossings, by sweeps that put each item near its neighbours."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from wick_graph.picture.layout.grid import Grid

SWEEPS: Final = 12
_PATIENCE: Final = 4
"""Sweeps without a gain after which the best order so far is taken."""


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
    """Follow each way down to its end before the next one: a tree gets no crossing."""
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
    """Sort those that have neighbours; the others keep their places."""
    mean = {item: sum(place[n] for n in near[item]) / len(near[item]) for item in row if near[item]}
    movable = [item for item in row if item in mean]
    if turn:  # lets items with the same mean change places
        movable.reverse()
    movable.sort(key=mean.__getitem__)
    queue = iter(movable)
    return [next(queue) if item in mean else item for item in row]


def _swapped(rows: list[list[int]], grid: Grid) -> list[list[int]]:
    """Exchange neighbours in a row as long as that takes a crossing away."""
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
    """Say how many crossings fewer there are if two items change places."""
    total = 0
    for a in left:
        at = place[a]
        for b in right:
            other = place[b]
            total += (at > other) - (at < other)
    return total
