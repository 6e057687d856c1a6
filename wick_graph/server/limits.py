"""Limits per caller and tenant: request rate, bytes, concurrent requests.

On PostgreSQL they hold over all servers of the database, without a row that each request writes.
A server that gets requests writes once a second what it has let through, and takes what others have
let through from its own buckets, which may go below empty. So a rate holds in the long run; for a
moment, each further server may let through one bucket more: a sixth of what a minute allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from wick_graph.config import LimitsConfig
from wick_graph.errors import StorageError
from wick_graph.service.options import Problem
from wick_graph.store import SqlSaver

_LIMITERS: Final = 10_000

_EXCHANGE: Final = 1.0
"""Seconds between two exchanges with other servers."""

_WINDOW: Final = 10.0
"""Seconds in which a bucket is full again: what was let through earlier no longer counts."""

_USED: Final = "used/"
"""How the keys of facts begin with what servers have let through."""

CLOSE: Final = {"Connection": "close"}


class RateLimiter:
    """Limit what a caller uses per minute: a bucket that refills over time.

    The last use may overdraw it, so that a body larger than the bucket passes once the bucket is
    full.
    """

    __slots__ = ("_left", "_rate", "_seen", "_size")

    def __init__(self, per_minute: float, now: float) -> None:
        self._size = self._left = max(1.0, per_minute / 6)
        self._rate, self._seen = per_minute / 60, now

    def take(self, now: float, amount: float = 1.0) -> float:
        """Take an amount; return 0, or the seconds until there is enough."""
        self._left = min(self._size, self._left + (now - self._seen) * self._rate)
        self._seen = now
        least = min(amount, self._size)
        if self._left < least:
            return (least - self._left) / self._rate
        self._left -= amount
        return 0.0

    def owe(self, amount: float) -> None:
        """Take what another server has let through, down to a whole empty minute."""
        self._left = max(self._left - amount, -60 * self._rate)

    def give(self, amount: float) -> None:
        """Put back an unused amount."""
        self._left = min(self._size, self._left + amount)


class RateLimiters:
    """The rate limiters of all callers, for one kind of use."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.used: dict[str, float] | None = None
        """What was let through lately, by the name that other servers know; None if none asks."""
        self._found: OrderedDict[tuple[str, float], RateLimiter] = OrderedDict()

    def take(self, who: str, per_minute: float, amount: float = 1.0) -> RateLimiter:
        """Take an amount for a caller or tenant.

        Raises:
            Problem: 429, with the seconds to wait.
        """
        now = time.monotonic()
        limiter = self._found.setdefault((who, per_minute), RateLimiter(per_minute, now))
        self._found.move_to_end((who, per_minute))
        while len(self._found) > _LIMITERS:
            self._found.popitem(last=False)
        if wait := limiter.take(now, amount):
            raise _too_much(self._what, wait)
        if self.used is not None:
            name = self._name(who, per_minute)
            self.used[name] = self.used.get(name, 0.0) + amount
        return limiter

    def _name(self, who: str, per_minute: float) -> str:
        """Return the name of a bucket for other servers, which tells no token's id."""
        whole = f"{self._what}\n{who}\n{per_minute}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(whole, digest_size=8).hexdigest()

    def owe(self, used: Mapping[str, float]) -> None:
        """Take what other servers have let through from the buckets that are known here."""
        for (who, per_minute), limiter in self._found.items():
            if amount := used.get(self._name(who, per_minute)):
                limiter.owe(amount)


class Budgets:
    """What callers and tenants have used of their limits."""

    def __init__(self) -> None:
        self._callers = RateLimiters("requests")
        self._requests = RateLimiters("requests of this tenant")
        self._bytes = RateLimiters("bytes of this tenant")
        self._kinds = (self._callers, self._requests, self._bytes)
        self._now: Counter[str] = Counter()
        self._seen: dict[str, float] = {}
        """By server, until when what it has let through was taken from the buckets here."""

    async def share(self, saver: SqlSaver) -> None:
        """Exchange what was let through with the other servers of a database, until cancelled."""
        if not saver.has_machines:
            return
        box, mine = saver.mailbox, _USED + saver.streams.server
        recent: list[tuple[float, dict[str, float]]] = []
        for one in self._kinds:
            one.used = {}
        try:
            while True:
                await asyncio.sleep(_EXCHANGE)
                if not (used := self._used()):  # an idle server asks nothing
                    continue
                now = saver.clock()
                recent = [(now, used), *(entry for entry in recent if entry[0] > now - _WINDOW)]
                with contextlib.suppress(StorageError):  # the limits hold for this server alone
                    await box.run(box.put_fact, mine, recent)
                    others = await box.run(box.facts, _USED)
                    self._pay(now, {key: said for key, said in others.items() if key != mine})
        finally:
            with contextlib.suppress(StorageError):
                await box.run(box.drop_fact, mine)

    def _used(self) -> dict[str, float]:
        """Return what was let through since the last call."""
        found: dict[str, float] = {}
        for one in self._kinds:
            found |= one.used or {}
            one.used = {}
        return found

    def _pay(self, now: float, others: Mapping[str, Any]) -> None:
        """Take what others have let through since they were asked last from the buckets here."""
        owed: Counter[str] = Counter()
        for server, recent in others.items():
            since = max(self._seen.get(server, 0.0), now - _WINDOW)
            for at, used in recent:
                if at > since:
                    owed.update(used)
                    self._seen[server] = max(at, self._seen.get(server, 0.0))
        for one in self._kinds:
            one.owe(owed)

    def admit(self, caller: str, per_minute: int, tenant: str, limits: LimitsConfig) -> None:
        """Count a request for a caller (a token, or an address) and for its tenant.

        Raises:
            Problem: 429: one of them has sent too many requests.
        """
        self._callers.take(caller, per_minute)
        self._requests.take(tenant, limits.requests_per_minute)

    @contextlib.contextmanager
    def answering(self, tenant: str, limits: LimitsConfig) -> Iterator[None]:
        """Count a request while it is being answered.

        Raises:
            Problem: 429: too many requests are.
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
        """Count the bytes of a body: the declared size first, after reading the real one.

        Yields:
            A list for the body's pieces.

        Raises:
            Problem: 429: the tenant has sent too many.
        """
        limiter = self._bytes.take(tenant, limits.bytes_per_minute, size)
        pieces: list[bytes] = []
        try:
            yield pieces
        finally:
            limiter.give(max(0, size - sum(map(len, pieces))))


def _too_much(what: str, wait: float) -> Problem:
    headers = {"Retry-After": str(int(wait) + 1), **CLOSE}
    return Problem(429, f"too many {what}; wait as long as Retry-After says", headers=headers)
