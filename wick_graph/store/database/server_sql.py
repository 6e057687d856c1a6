"""SQL text of what a server does for every request, made once; see the module `sql`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, func, insert, select, update

from wick_graph.store.database.compiling import prepared
from wick_graph.store.database.schema import events, streams, threads, tokens

_b = bindparam
_range = events.c.rid.between(_b("low"), _b("high"))
PUT_EVENTS: Final = prepared(insert(events).values(rid=_b("r"), body=_b("x")), "r", "x")
LAST_EVENT: Final = prepared(select(func.max(events.c.rid)).where(_range), "low", "high")
EVENTS: Final = prepared(
    select(events.c.rid, events.c.body)
    .where(_range)
    .order_by(events.c.rid)
    .limit(_b("n"))
    .offset(_b("o")),
    *("low", "high", "n", "o"),
)
RUN_COLUMNS: Final = (
    *(threads.c.thread, streams.c.run, streams.c.status, streams.c.started, streams.c.ended),
    *(streams.c.first, streams.c.thread, streams.c.body),
)
RUNS: Final = (
    select(*RUN_COLUMNS)
    .join(threads, threads.c.id == streams.c.thread)
    .where(threads.c.tenant == _b("tenant"))
)
RUN: Final = prepared(RUNS.where(streams.c.run == _b("r")), "tenant", "r")
RUN_OF_KEY: Final = prepared(RUNS.where(streams.c.key == _b("k")), "tenant", "k")
RUNS_IN: Final = prepared(
    RUNS.where(streams.c.thread == _b("t"), streams.c.status == _b("s")), "tenant", "t", "s"
)
PUT_RUN: Final = prepared(
    insert(streams).values(
        thread=_b("t"),
        run=_b("r"),
        status=_b("s"),
        started=_b("at"),
        first=_b("f"),
        key=_b("k"),
        body=_b("x"),
    ),
    *("t", "r", "s", "at", "f", "k", "x"),
)
END_RUN: Final = prepared(
    update(streams)
    .values(status=_b("s"), ended=_b("at"))
    .where(streams.c.thread == _b("t"), streams.c.run == _b("r")),
    *("s", "at", "t", "r"),
)
STATE: Final = prepared(
    select(streams.c.thread, streams.c.status)
    .join(threads, threads.c.id == streams.c.thread)
    .where(threads.c.tenant == _b("tenant"), threads.c.thread == _b("k"), streams.c.run == _b("r")),
    *("tenant", "k", "r"),
)
PUT_BODY: Final = prepared(
    update(streams)
    .values(body=_b("x"))
    .where(streams.c.thread == _b("t"), streams.c.run == _b("r")),
    *("x", "t", "r"),
)
THREADS: Final = prepared(
    select(func.count()).select_from(threads).where(threads.c.tenant == _b("tenant")), "tenant"
)
TOKEN_COLUMNS: Final = (
    *(tokens.c.token, tokens.c.tenant, tokens.c.name, tokens.c.scopes),
    *(tokens.c.created, tokens.c.expires, tokens.c.revoked, tokens.c.hash),
)
TOKEN: Final = prepared(select(*TOKEN_COLUMNS).where(tokens.c.token == _b("k")), "k")
