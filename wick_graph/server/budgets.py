"""What one caller may ask for, so that the others are served: rate, bytes, requests at once."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Final

from wick_graph.config import LimitsConfig
from wick_graph.server.problems import Problem

_BUCKETS: Final = 10_000
CLOSE: Final = {"Connection": "close"}


class Bucket:
    """Count what somebody asks for; it fills again as time goes by.

    It may be overdrawn by the last thing that is taken, so that a body larger than the bucket
    passes once the bucket is full.
    """

    __slots__ = ("_left", "_rate", "_seen", "_size")

    def __init__(self, per_minute: float, now: float) -> None:
        self._size = self._left = max(1.0, per_minute / 6)
        self._rate, self._seen = per_minute / 60, now

    def take(self, now: float, amount: float = 1.0) -> float:
        """Take some; return 0, or the seconds until that can be done."""
        self._left = min(self._size, self._left + (now - self._seen) * self._rate)
        self._seen = now
        least = min(amount, self._size)
        if self._left < least:
            return (least - self._left) / self._rate
        self._left -= amount
        return 0.0

    def give(self, amount: float) -> None:
        """Put back what was not used after all."""
        self._left = min(self._size, self._left + amount)


class Buckets:
    """The buckets of those who ask, for one thing that is counted."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._found: OrderedDict[tuple[str, float], Bucket] = OrderedDict()

    def take(self, who: str, per_minute: float, amount: float = 1.0) -> Bucket:
        """Take some for somebody.

        Raises:
            Problem: 429, with the seconds to wait.
        """
        now = time.monotonic()
        bucket = self._found.setdefault((who, per_minute), Bucket(per_minute, now))
        self._found.move_to_end((who, per_minute))
        while len(self._found) > _BUCKETS:
            self._found.popitem(last=False)
        if wait := bucket.take(now, amount):
            raise _too_much(self._what, wait)
        return bucket


class Budgets:
    """What the tenants of a server have taken."""

    def __init__(self) -> None:
        self._callers = Buckets("requests")
        self._requests = Buckets("requests of this tenant")
        self._bytes = Buckets("bytes of this tenant")
        self._now: Counter[str] = Counter()

    def admit(self, caller: str, per_minute: int, tenant: str, limits: LimitsConfig) -> None:
        """Count a request for a caller (a token, or an address) and for its tenant.

        Raises:
            Problem: 429: one of them has asked too often.
        """
        self._callers.take(caller, per_minute)
        self._requests.take(tenant, limits.requests_per_minute)

    @contextlib.contextmanager
    def answering(self, tenant: str, limits: LimitsConfig) -> Iterator[None]:
        """Count a request as long as it is answered.

        Raises:
            Problem: 429: too many are.
        """
        if self._now[tenant] >= limits.requests_at_once:
            raise _too_much("requests of this tenant at once", 1)
        self._now[tenant] += 1
        try:
            yield
        finally:
            self._now[tenant] -= 1
            if not self._now[tenant]:
                del self._now[tenant]

    @contextlib.contextmanager
    def reading(self, tenant: str, limits: LimitsConfig, size: int) -> Iterator[list[bytes]]:
        """Count the bytes of a body: all that it may have before it is read, then what it had.

        Yields:
            A list for the body's pieces.

        Raises:
            Problem: 429: the tenant has sent too many.
        """
        bucket = self._bytes.take(tenant, limits.bytes_per_minute, size)
        pieces: list[bytes] = []
        try:
            yield pieces
        finally:
            bucket.give(max(0, size - sum(map(len, pieces))))


def _too_much(what: str, wait: float) -> Problem:
    headers = {"Retry-After": str(int(wait) + 1), **CLOSE}
    return Problem(429, f"too many {what}; wait as long as Retry-After says", headers=headers)
