"""What is new in a list since the last look, at the speed of C."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count
from operator import is_not
from typing import Any


def changed(seen: Sequence[Any], now: Sequence[Any]) -> list[int]:
    """Return the positions in `now` that do not hold the very object that `seen` holds there.

    Messages are taken to be unchanged while they are the same object: a chain grows by
    appending, and who changes a message makes a copy.
    """
    replaced = list(compress(count(), map(is_not, seen, now)))
    replaced.extend(range(len(seen), len(now)))
    return replaced
