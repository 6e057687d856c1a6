"""How a step's time and bytes grow with the number of steps before it."""

from __future__ import annotations

import statistics
import time
from typing import Any

from contenders import ALL, ON_OURS, OURS, PEER, RAW
from rows_count import per_step, size_after

NAMES = (OURS, PEER, RAW, ON_OURS)
_WINDOW = 10


async def growth(turns: int) -> dict[str, Any]:
    """Measure CPU milliseconds per turn, smoothed, and bytes after some numbers of turns."""
    at = sorted({max(turns * part // 8, 2) for part in (1, 2, 4, 6, 8)})
    made: dict[str, Any] = {"turns": turns, "cpu_ms": {}, "bytes": {}}
    for name in NAMES:
        assert name in ALL
        steps = await per_step(name, turns, time.process_time)
        made["cpu_ms"][name] = [
            [i, statistics.median(steps[i : i + _WINDOW]) * 1e3]
            for i in range(0, len(steps), _WINDOW)
        ]
        made["bytes"][name] = [[n, await size_after(name, n)] for n in at]
    return made
