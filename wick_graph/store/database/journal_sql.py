"""SQL text of the journal's statements, made once; see `wick_graph.store.database.sql`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects.postgresql import insert as upsert

from wick_graph.store.database.compiling import prepared
from wick_graph.store.database.schema import blobs, checkpoints, leases, moments, runs

_b = bindparam
_range = moments.c.rid.between(_b("low"), _b("high"))
PUT_PAGE: Final = prepared(
    upsert(moments).values(rid=_b("r"), body=_b("x")).on_conflict_do_nothing(), "r", "x"
)
HAS_PAGE: Final = prepared(select(moments.c.rid).where(moments.c.rid == _b("r")), "r")
LAST_PAGE: Final = prepared(select(func.max(moments.c.rid)).where(_range), "low", "high")
PAGES_FROM: Final = prepared(
    select(moments.c.rid, moments.c.body)
    .where(_range)
    .order_by(moments.c.rid)
    .limit(_b("n"))
    .offset(_b("o")),
    *("low", "high", "n", "o"),
)
PAGES_TO: Final = prepared(
    select(moments.c.rid, moments.c.body)
    .where(_range)
    .order_by(moments.c.rid.desc())
    .limit(_b("n"))
    .offset(_b("o")),
    *("low", "high", "n", "o"),
)
PAGE_BYTES: Final = prepared(
    select(func.sum(func.length(moments.c.body))).where(_range), "low", "high"
)
_run = upsert(runs).values(
    thread=_b("t"),
    number=_b("n"),
    run=_b("r"),
    branch=_b("b"),
    status=_b("s"),
    started=_b("from"),
    ended=_b("to"),
    body=_b("x"),
)
PUT_RUN: Final = prepared(
    _run.on_conflict_do_update(
        index_elements=["thread", "number"],
        set_={name: _run.excluded[name] for name in ("branch", "status", "ended", "body")},
    ),
    *("t", "n", "r", "b", "s", "from", "to", "x"),
)
_columns = (runs.c.number, runs.c.run, runs.c.branch, runs.c.status, runs.c.started, runs.c.ended)
RUNS: Final = prepared(
    select(*_columns, runs.c.body).where(runs.c.thread == _b("t")).order_by(runs.c.number), "t"
)
LAST_RUN: Final = prepared(
    select(*_columns, runs.c.body)
    .where(runs.c.thread == _b("t"))
    .order_by(runs.c.number.desc())
    .limit(_b("n"))
    .offset(_b("o")),
    *("t", "n", "o"),
)
BLOBS: Final = prepared(
    select(blobs.c.hash, blobs.c.size, blobs.c.body).where(blobs.c.thread == _b("t")), "t"
)
BLOB_BYTES: Final = prepared(
    select(func.sum(func.length(blobs.c.body))).where(blobs.c.thread == _b("t")), "t"
)
HOLDER: Final = prepared(
    select(leases.c.owner, leases.c.until).where(leases.c.thread == _b("t")), "t"
)
PARENT: Final = prepared(
    select(checkpoints.c.parent).where(
        checkpoints.c.thread == _b("t"), checkpoints.c.id == _b("i")
    ),
    *("t", "i"),
)
_latest = select(checkpoints.c.id).where(checkpoints.c.thread == _b("t"))
_first = checkpoints.c.seq.desc()
LAST_OF_RUN: Final = prepared(
    select(
        _latest.where(checkpoints.c.run == _b("r"))
        .order_by(_first)
        .limit(_b("l"))
        .offset(_b("o"))
        .scalar_subquery()
    ),
    *("t", "r", "l", "o"),
)
