"""Wait for what another thread or process does."""

from __future__ import annotations

import time
from typing import Any, Final

SECONDS: Final = 120.0


def until(seen: Any, what: str, seconds: float = SECONDS) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end, what
        time.sleep(0.02)
