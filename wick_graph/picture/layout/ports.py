"""Where lines meet the upper and lower sides of boxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from wick_graph.picture.layout.grid import Grid, Key
from wick_graph.picture.layout.shapes import Metrics

Ports = dict[tuple[int, Key], int]
"""The place of a line at one side of a box, by item and line."""
Ends = dict[tuple[int, Key], list[int]]
"""The items at the other end of a line."""


class Pins:
    """Finds the upright line on which an edge enters a channel."""

    def __init__(self, grid: Grid, metrics: Metrics) -> None:
        self._items = grid.items
        self._metrics = metrics
        self._lower: Ports = {}
        self._upper: Ports = {}

    def set_lower(self, ends: Ends) -> None:
        """Spread the lines at the lower sides of boxes, straight above what they lead to."""
        seen = {pin: [self._items[i].x for i in others] for pin, others in ends.items()}
        self._lower = self._spread(seen)

    def set_upper(self, ends: Ends) -> None:
        """Spread the lines at the upper sides, straight below where they come from."""
        seen = {
            (box, key): [self.below(i, key) for i in others] for (box, key), others in ends.items()
        }
        self._upper = self._spread(seen)

    def below(self, item: int, key: Key) -> int:
        """Say where a line leaves an item downwards."""
        return self._lower.get((item, key), self._items[item].x)

    def above(self, item: int, key: Key) -> int:
        """Say where a line reaches an item from above."""
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
    """Give lines places between two corners, in their order, straight where that is possible.

    Args:
        wanted: Where each line would be straight, in rising order.
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
    """Keep the fixed places, and put the others as near to the even ones as the gap allows."""
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
    """Gather (box, line, other end) by box and line."""
    ends: Ends = {}
    for box, key, other in pairs:
        ends.setdefault((box, key), []).append(other)
    return ends
