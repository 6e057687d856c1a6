"""The statements about runs that wait for workers."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import bindparam, func, select, update

from wick_graph.store.schema import streams
from wick_graph.store.texts import Prepared

BEHIND: Final = 1 << 31
"""A queued run has no events: in place of the number of its first one it has this much more than
its place among the thread's queued runs."""

_b = bindparam

_open = streams.c.ended.is_(None)

OPEN_RUNS: Final = Prepared(
    lambda: select(func.count(), func.max(streams.c.first)).where(
        streams.c.thread == _b("t"), _open
    ),
    "t",
)

WAITING_RUNS: Final = Prepared(
    lambda: (
        select(func.count())
        .select_from(streams)
        .where(streams.c.tenant == _b("tenant"), _open, streams.c.status == _b("s"))
    ),
    *("tenant", "s"),
)

MARK_RUN: Final = Prepared(
    lambda: (
        update(streams)
        .values(status=_b("s"), first=_b("f"))
        .where(streams.c.thread == _b("t"), streams.c.run == _b("r"))
    ),
    *("s", "f", "t", "r"),
)


def _earlier() -> Any:
    own = streams.alias()
    rid = select(own.c.rid).where(own.c.thread == _b("t"), own.c.run == _b("r")).scalar_subquery()
    return (
        select(func.count())
        .select_from(streams)
        .where(streams.c.thread == _b("t2"), _open, streams.c.rid < rid)
    )


EARLIER_RUNS: Final = Prepared(_earlier, *("t2", "t", "r"))


def _next() -> Any:
    own = streams.alias()
    first = select(func.min(own.c.rid)).where(own.c.thread == _b("t"), own.c.ended.is_(None))
    mine = (streams.c.thread == _b("t2"), streams.c.rid == first.scalar_subquery())
    queued = (streams.c.tenant.is_not(None), streams.c.placed.is_(None))
    return update(streams).values(placed=_b("p")).where(*mine, *queued)


NEXT_RUN: Final = Prepared(_next, *("p", "t2", "t"))
"""Let the oldest unfinished run of a thread begin, if it is queued."""
