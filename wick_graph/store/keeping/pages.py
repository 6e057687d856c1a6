"""Pages of a thread's events, inside a transaction: which there are, and what they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import func, select

from wick_graph.store.database import server_sql
from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.digests import EVENTS, erase
from wick_graph.store.database.schema import LANE_BITS, PLACES, events, streams

_PAGES: Final = 32
"""Pages that are read at once."""

Event = Mapping[str, Any]


def last(db: Any, thread: int) -> int:
    """Return the number of a thread's last event, 0 if it has none."""
    low = thread << LANE_BITS
    row = db.execute(server_sql.LAST_EVENT, (low, low | PLACES)).fetchone()
    return 0 if row is None or row[0] is None else row[0] & PLACES


def bound(db: Any, thread: int, first: int) -> int:
    """Return the highest number that an event of the run which begins with this one may have."""
    later = (streams.c.thread == thread, streams.c.first > first)
    row = db.execute(*compiled(select(func.min(streams.c.first)).where(*later))).fetchone()
    return PLACES if row is None or row[0] is None else row[0] - 1


def behind(db: Any, thread: int, after: int, high: int, seals: Any) -> list[tuple[int, Event]]:
    """Return events behind a number, at most some pages of them, with their numbers.

    Raises:
        StorageError: A page is damaged.
    """
    low, found = thread << LANE_BITS, list[tuple[int, Event]]()
    wanted = (low + after + 1, low | high, _PAGES, 0)
    for rid, body in db.execute(server_sql.EVENTS, wanted).fetchall():
        page = json.loads(seals.unseal(body, "a page of events", "events", rid))
        start = (rid & PLACES) - len(page) + 1
        found += [(start + i, event) for i, event in enumerate(page) if start + i > after]
    return found


def add(db: Any, thread: int, rid: int, sealed: bytes) -> None:
    """Write a page."""
    db.execute(server_sql.PUT_EVENTS, (rid, sealed))
    db.account.add_body(EVENTS, thread, sealed)


def forget(db: Any, thread: int, keep: int) -> None:
    """Forget the events of all but the last runs of a thread."""
    begins = select(streams.c.first).where(streams.c.thread == thread)
    oldest = begins.order_by(streams.c.first.desc()).limit(1).offset(keep - 1)
    row = db.execute(*compiled(oldest)).fetchone()
    if row is not None:
        low = thread << LANE_BITS
        old = events.c.rid.between(low, low | (row[0] - 1))
        erase(db, events, thread, old)
