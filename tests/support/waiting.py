"""Wait for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

SECONDS: Final = 120.0


def until(seen: Any, what: str | Callable[[], str], seconds: float = SECONDS) -> None:
    """Wait until something is so; `what` is, or makes then, what is said if it does not come."""
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.02)
