"""How long runs wait for a worker: a simulation of arrivals, tenants, workers and placements.

    python benchmarks/queueing.py [--quick]

It prints a table. Runs arrive at random, from tenants of very different size. Most take seconds,
some take minutes to an hour. A free slot takes the next run: the oldest of all (`first come`), or
the oldest of the tenant with the fewest runs at work (`fair`), as workers get them.
"""

from __future__ import annotations

import argparse
import heapq
import random
from bisect import bisect
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

TENANTS: Final = 2_000

BURSTING: Final = TENANTS
"""The tenant that brings many runs at once; it has no others."""

BURST_AT: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is simulated."""

    workers: int = 100
    slots: int = 50
    load: float = 0.85
    """The part of the slots that are busy on average, without the burst."""
    fair: bool = True
    cap: int | None = None
    """The most runs of one tenant at work."""
    burst: int = 0
    threads: int = 0
    """Conversations, each with one run at a time; 0 for as many as runs."""

    @property
    def name(self) -> str:
        """The case in a word or two."""
        how = "fair" if self.fair else "first come"
        return how if self.cap is None else f"{how}, {self.cap} each"


@dataclass(slots=True)
class Waits:
    """The seconds that runs have waited."""

    others: list[float] = field(default_factory=list)
    burst: list[float] = field(default_factory=list)
    longest_queue: int = 0


def duration(chance: random.Random) -> float:
    """Return how long a run takes, in seconds: about 8 in most cases, up to an hour in a few."""
    if chance.random() < 0.97:
        return chance.lognormvariate(1.6, 1.0)
    return min(60 * chance.paretovariate(1.5), 3_600.0)


class Placement:
    """The runs that wait, and which comes next."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._waiting: dict[int, deque[tuple[float, int]]] = {}
        self._ready: list[tuple[int, float, int]] = []
        """At work, arrival, tenant: the entries of an earlier state are passed over."""
        self.at_work: Counter[int] = Counter()
        self._busy: set[int] = set()
        self._behind: dict[int, deque[tuple[float, int]]] = {}
        """By thread, the runs that wait for an earlier one of it."""
        self.length = 0

    def add(self, arrived: float, tenant: int, thread: int) -> None:
        """Let a run wait; behind another one of its thread."""
        self.length += 1
        if thread in self._busy:
            self._behind.setdefault(thread, deque()).append((arrived, tenant))
            return
        self._busy.add(thread)
        self._queue(arrived, tenant, thread)

    def _queue(self, arrived: float, tenant: int, thread: int) -> None:
        self._waiting.setdefault(tenant, deque()).append((arrived, thread))
        self._offer(tenant)

    def _offer(self, tenant: int) -> None:
        if waiting := self._waiting.get(tenant):
            rank = self.at_work[tenant] if self._case.fair else 0
            heapq.heappush(self._ready, (rank, waiting[0][0], tenant))

    def take(self) -> tuple[float, int, int] | None:
        """Return arrival, tenant and thread of the next run; None if none may start."""
        cap = self._case.cap
        while self._ready:
            rank, arrived, tenant = heapq.heappop(self._ready)
            waiting, now = self._waiting.get(tenant), self.at_work[tenant]
            stale = not waiting or waiting[0][0] != arrived or (self._case.fair and rank != now)
            if stale or (cap is not None and now >= cap):
                continue
            assert waiting is not None
            _, thread = waiting.popleft()
            self.at_work[tenant] += 1
            self.length -= 1
            self._offer(tenant)
            return arrived, tenant, thread
        return None

    def end(self, tenant: int, thread: int) -> None:
        """Note that a run has ended."""
        self.at_work[tenant] -= 1
        if behind := self._behind.get(thread):
            self._queue(*behind.popleft(), thread)
        else:
            self._busy.discard(thread)
        self._offer(tenant)


def simulate(case: Case, seconds: float, seed: int = 1) -> Waits:
    """Return the waits of the runs that arrive in some seconds."""
    chance = random.Random(seed)
    mean = sum(duration(chance) for _ in range(50_000)) / 50_000
    rate = case.load * case.workers * case.slots / mean
    share = [*accumulate(1 / (number + 1) ** 0.9 for number in range(TENANTS))]
    events: list[tuple[float, int, int, int]] = []  # when, kind, tenant, thread
    now = chance.expovariate(rate)
    while now < seconds:
        tenant = bisect(share, chance.random() * share[-1])
        thread = chance.randrange(case.threads) if case.threads else len(events)
        events.append((now, 0, tenant, thread))
        now += chance.expovariate(rate)
    events += [(BURST_AT, 0, BURSTING, -1 - number) for number in range(case.burst)]
    heapq.heapify(events)
    free, placement, waits = case.workers * case.slots, Placement(case), Waits()
    while events:
        now, kind, tenant, thread = heapq.heappop(events)
        if kind:
            free += 1
            placement.end(tenant, thread)
        else:
            placement.add(now, tenant, thread)
        while free and (found := placement.take()) is not None:
            arrived, owner, its = found
            free -= 1
            (waits.burst if owner == BURSTING else waits.others).append(now - arrived)
            heapq.heappush(events, (now + duration(chance), 1, owner, its))
        waits.longest_queue = max(waits.longest_queue, placement.length)
    return waits


def at(waits: list[float], part: float) -> str:
    """Return the seconds that a part of the runs waits at most."""
    if not waits:
        return "–"
    return f"{sorted(waits)[min(int(len(waits) * part), len(waits) - 1)]:.2f}"


CASES: Final = (
    *(Case(workers=1, load=load) for load in (0.5, 0.7, 0.85)),
    *(Case(workers=10, load=load) for load in (0.7, 0.85, 0.95)),
    *(Case(load=load) for load in (0.85, 0.95)),
    Case(load=0.7, fair=False, burst=20_000),
    Case(load=0.7, burst=20_000),
    Case(load=0.7, burst=20_000, cap=100),
    Case(load=0.7, burst=20_000, cap=500),
    Case(load=0.95, burst=20_000, cap=500),
    Case(load=0.85, threads=2_000),
)


def main() -> None:
    """Print a table of all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, for a test")
    seconds = 400.0 if parser.parse_args().quick else 1_800.0
    heads = "workers × slots, load, placement, burst, threads, p50, p99, most, burst p99, queue"
    print(f"| {' | '.join(heads.split(', '))} |")
    print(f"|{'---|' * 10}")
    for case in CASES:
        waits = simulate(case, seconds)
        cells = (
            *(f"{case.workers} × {case.slots}", f"{case.load:.0%}", case.name, f"{case.burst:,}"),
            *(
                f"{case.threads:,}" if case.threads else "–",
                at(waits.others, 0.5),
                at(waits.others, 0.99),
            ),
            *(at(waits.others, 1.0), at(waits.burst, 0.99), f"{waits.longest_queue:,}"),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
