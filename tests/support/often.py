"""How often a property is tried: some times each time, all times by night."""

from __future__ import annotations

import os
from typing import Final

BY_NIGHT: Final = bool(os.environ.get("WICK_NIGHT"))
_FEWER: Final = 5


def often(examples: int) -> int:
    """Return the number of examples to try, of as many by night."""
    return examples if BY_NIGHT else max(examples // _FEWER, 10)
