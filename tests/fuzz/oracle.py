"""What must hold of everything that a stranger can send: its answer, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

STEP = 0.1
"""Seconds of a thread's own processor time that one check may take."""
AGAIN = 3
"""Times that a slow check is done: only what is slow each time is a finding."""


def quick(check: Callable[[], T], *refusals: type[Exception], most: float = STEP) -> T | None:
    """Do what must not hold a thread; return what it gives, or None if it is refused.

    Raises:
        AssertionError: It took too long, each time.
        Exception: It failed otherwise than by a refusal.
    """
    took: list[float] = []
    while True:
        before, found = time.thread_time(), None
        with suppress(*refusals):
            found = check()
        took.append(time.thread_time() - before)
        if took[-1] <= most:
            return found
        assert len(took) < AGAIN, f"took {min(took):.3f} s of processor time"
