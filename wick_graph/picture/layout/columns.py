"""Where the items of each row stand from left to right, so that long edges run straight.

The method is that of Brandes and Köpf (Fast and simple horizontal coordinate assignment, 2001),
with widths: each item is stacked under the middle one of its neighbours, the stacks are pushed
together, from each of four corners, and the middle of the four answers is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from wick_graph.picture.layout.grid import Grid
from wick_graph.picture.layout.shapes import Metrics

Rows = Sequence[Sequence[int]]
Near = Sequence[Sequence[int]]


def place(grid: Grid, metrics: Metrics) -> None:
    """Give every item its upright line; the leftmost border is at 0."""
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
    """Say how far the upright lines of two items that stand side by side must be apart."""
    made = {}
    for row in grid.rows:
        for a, b in pairwise(row):
            left, right = grid.items[a], grid.items[b]
            free = metrics.line_gap if left.is_line or right.is_line else metrics.box_gap
            made[a, b] = made[b, a] = left.right + free + right.left
    return made


def _crossing(grid: Grid) -> set[tuple[int, int]]:
    """Find the pairs of neighbours whose edge crosses a line that passes: it gives way."""
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
    """Stack items: give each the top one of its stack. `near` looks at the row before."""
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
    """Push the stacks to the left as far as they go, then those with room back to the right."""
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
    """Order the stacks so that each comes after those to the left of it."""
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
    """Shift the four answers over the narrowest one, by the side from which each was pushed."""
    items = range(len(grid.items))
    lefts = [min((xs[i] - grid.items[i].left for i in items), default=0) for xs in answers]
    rights = [max((xs[i] + grid.items[i].right for i in items), default=0) for xs in answers]
    widths = [right - left for left, right in zip(lefts, rights, strict=True)]
    best = widths.index(min(widths))
    for number, xs in enumerate(answers):
        mirrored = number >= 2
        shift = rights[best] - rights[number] if mirrored else lefts[best] - lefts[number]
        xs[:] = [x + shift for x in xs]
