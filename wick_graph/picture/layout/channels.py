"""The level lines between two rows: each gets a track, so that lines cross but never coincide.

A line has pins at the upper and at the lower edge of its channel. Where the upper pin of one line
stands right above the lower pin of another one, the first must lie higher, or their upright parts
would coincide. Lines that demand this of each other in a circle are broken in two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from wick_graph.picture.layout.grid import Key
from wick_graph.picture.layout.shapes import Point


@dataclass(slots=True)
class Wire:
    """One line in one channel."""

    key: Key
    tops: list[int] = field(default_factory=list)
    """Where it meets the upper edge, in rising order."""
    bottoms: list[int] = field(default_factory=list)
    lower: Wire | None = None
    """The part that reaches the lower edge, if the line had to be broken."""
    joint: int = 0
    """Where its two parts meet."""
    low: int = 0
    high: int = 0
    track: int = 0

    def settle(self) -> bool:
        """Sort the pins; say whether the line has a level part at all."""
        self.tops, self.bottoms = sorted(set(self.tops)), sorted(set(self.bottoms))
        pins = [*self.tops, *self.bottoms]
        self.low, self.high = min(pins), max(pins)
        return self.low < self.high


class Channel:
    """All lines between two rows."""

    def __init__(self) -> None:
        self.wires: dict[Key, Wire] = {}
        self.count = 0
        """How many tracks there are."""

    def wire(self, key: Key) -> Wire:
        """Return the line of this name, a new one if there is none."""
        return self.wires.setdefault(key, Wire(key))

    def assign(self, gap: int) -> None:
        """Give every line its track, the topmost first; in one track they keep `gap` apart."""
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
        """Give the corners of a way from the upper edge to the lower one."""
        wire = self.wires[key]
        if wire.low == wire.high:
            return []
        if wire.lower is None:
            y = tracks[wire.track]
            return [(x, y), (to, y)]
        first, second = tracks[wire.track], tracks[wire.lower.track]
        return [(x, first), (wire.joint, first), (wire.joint, second), (to, second)]

    def beneath(self, key: Key, x: int, to: int, tracks: Sequence[int]) -> list[Point]:
        """Give the corners of a way from the upper edge back to the upper edge."""
        y = tracks[self.wires[key].track]
        return [(x, y), (to, y)]

    def over(self, key: Key, x: int, to: int, tracks: Sequence[int]) -> list[Point]:
        """Give the corners of a way from the lower edge back to the lower edge."""
        wire = self.wires[key]
        y = tracks[(wire.lower or wire).track]
        return [(x, y), (to, y)]


def _must_lie_higher(wires: Sequence[Wire]) -> list[list[int]]:
    """List for each line the others above which it must lie."""
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
    """Find a line that would have to lie above itself; it has pins at both edges."""
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
    while at not in seen:  # upwards from one that is left over: there a circle must come
        seen.add(at)
        at = min(above[at])
    return wires[at]


def _from_above(wires: Sequence[Wire]) -> list[Wire]:
    """Order lines so that few cross, and each stands before those above which it must lie."""
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
    """Say for each line how many more crossings it has above another one than below it."""
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
    """Upright lines on which no pin of a channel stands."""

    def __init__(self, wires: Iterable[Wire]) -> None:
        found = {x for wire in wires for x in (*wire.tops, *wire.bottoms)}
        self._taken = sorted(found)

    def near(self, low: int, high: int) -> int:
        """Take the middle of the widest gap between two places, else one at the right of all."""
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
