"""How late the event loop is: what holds it up, holds up every caller."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from wick_graph.server.metrics import Histogram
from wick_graph.server.problems import log

BOUNDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the lags that are counted, in seconds."""
_WINDOW: Final = 60.0
"""Seconds over which the worst lag is told."""


class Watchdog:
    """Measure by how much a short sleep ends too late.

    Args:
        every: Seconds between two looks.
        warn: Seconds of lag that are worth a line in the log.
    """

    def __init__(self, every: float = 0.1, warn: float = 1.0) -> None:
        self._every, self._warn = every, warn
        self._lags = Histogram("wick_loop_lag_seconds", BOUNDS)
        self._worst: deque[tuple[float, float]] = deque()
        """When, and how much: each lag that no later one exceeds."""

    @property
    def worst(self) -> float:
        """The largest lag of the last minute, in seconds."""
        return self._worst[0][1] if self._worst else 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(self._every)
            now = time.monotonic()
            self.note(now, max(0.0, now - before - self._every))

    def note(self, now: float, lag: float) -> None:
        """Count a lag."""
        self._lags.note(lag)
        while self._worst and self._worst[-1][1] <= lag:
            self._worst.pop()
        self._worst.append((now, lag))
        while self._worst[0][0] < now - _WINDOW:
            self._worst.popleft()
        if lag >= self._warn:
            log.warning("the event loop was held up for %.2f s; every caller waited", lag)

    def lines(self) -> Iterator[str]:
        """Yield the numbers in the form that Prometheus reads."""
        yield from self._lags.lines()
        yield "# TYPE wick_loop_lag_max_seconds gauge"
        yield f"wick_loop_lag_max_seconds {self.worst:.6f}"
