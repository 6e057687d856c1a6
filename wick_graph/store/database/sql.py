"""SQL text made once from SQLAlchemy Core statements, for the path that every step takes."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import bindparam, func, insert, literal_column, null, select, update
from sqlalchemy.dialects.postgresql import insert as upsert  # it compiles for SQLite too

from wick_graph.store.database.compiling import checked, prepared
from wick_graph.store.database.schema import (
    blobs,
    calls,
    checkpoints,
    items,
    leases,
    names,
    threads,
    writes,
)

_b = bindparam
_here = (checkpoints.c.thread == _b("t"), checkpoints.c.ns == _b("n"))
_based = items.alias("based")

THREAD: Final = prepared(
    select(threads.c.id, threads.c.generation, threads.c.last_access, threads.c.ttl).where(
        threads.c.tenant == _b("tenant"), threads.c.thread == _b("key")
    ),
    "tenant",
    "key",
)
_born: Final[dict[str, Any]] = {
    "tenant": _b("tenant"),
    "thread": _b("key"),
    "status": _b("state"),
    "pinned": _b("pin"),
    "created": _b("created"),
    "last_access": _b("seen"),
    "ttl": _b("life"),
    "expires_at": _b("until"),
    "generation": _b("gen"),
}
_new_thread = upsert(threads).values(**checked(threads, _born, new=True))
_in_order = ("tenant", "key", "state", "pin", "created", "seen", "life", "until", "gen")
NEW_THREAD: Final = prepared(_new_thread.returning(threads.c.id), *_in_order)
NEW_THREAD_OR_NONE: Final = prepared(
    _new_thread.on_conflict_do_nothing().returning(threads.c.id), *_in_order
)
SEEN: Final = prepared(
    update(threads)
    .values(**checked(threads, {"last_access": _b("now"), "expires_at": _b("until")}))
    .where(threads.c.id == _b("t")),
    "now",
    "until",
    "t",
)
_of_thread = select(func.count()).where(checkpoints.c.thread == threads.c.id)
_hidden = _of_thread.where(checkpoints.c.hidden == literal_column("1"))
THREAD_COLUMNS: Final = (
    threads.c.thread,
    threads.c.agent,
    threads.c.status,
    threads.c.title,
    threads.c.parent,
    threads.c.created,
    threads.c.last_access,
    threads.c.expires_at,
    threads.c.pinned,
    threads.c.stopped_because,
    threads.c.last_error,
    _of_thread.scalar_subquery() - _hidden.scalar_subquery(),
)
"""What `threads.ThreadInfo` is made of; both counts are read from an index alone."""
INFO: Final = prepared(
    select(*THREAD_COLUMNS).where(threads.c.tenant == _b("tenant"), threads.c.thread == _b("key")),
    "tenant",
    "key",
)
_opened = {
    "agent": _b("name"),
    "status": _b("state"),
    "title": func.coalesce(threads.c.title, _b("named")),
    "run": _b("r"),
    "last_access": _b("now"),
    "ttl": _b("life"),
    "expires_at": _b("until"),
    "stopped_because": null(),
    "last_error": null(),
}
OPEN: Final = prepared(
    update(threads)
    .values(**checked(threads, _opened))
    .where(threads.c.tenant == _b("tenant"), threads.c.thread == _b("key")),
    *("name", "state", "named", "now", "life", "until", "r", "tenant", "key"),
)
_closed: Final[dict[str, Any]] = {
    "status": _b("state"),
    "last_access": _b("now"),
    "expires_at": _b("at") + threads.c.ttl,
    "stopped_because": _b("because"),
    "last_error": _b("error"),
}
CLOSE: Final = prepared(
    update(threads)
    .values(**checked(threads, _closed))
    .where(threads.c.tenant == _b("tenant"), threads.c.thread == _b("key")),
    *("state", "now", "at", "because", "error", "tenant", "key"),
)
GENERATION: Final = prepared(
    update(threads)
    .values(**checked(threads, {"generation": threads.c.generation + _b("one")}))
    .where(threads.c.id == _b("t")),
    "one",
    "t",
)
NAMES: Final = prepared(
    select(names.c.id, names.c.scope, names.c.text).where(names.c.thread == _b("t")), "t"
)
NEW_NAME: Final = prepared(
    insert(names).values(thread=_b("t"), scope=_b("s"), text=_b("x")).returning(names.c.id),
    "t",
    "s",
    "x",
)
LAST_ITEM: Final = prepared(
    select(func.max(items.c.rid)).where(items.c.rid.between(_b("low"), _b("high"))),
    "low",
    "high",
)
NEW_ITEM: Final = prepared(
    insert(items).values(rid=_b("r"), base=_b("s"), body=_b("x")), "r", "s", "x"
)
ITEMS: Final = prepared(
    select(items.c.rid, items.c.base, items.c.body, _based.c.body)
    .select_from(items.outerjoin(_based, _based.c.rid == items.c.base))
    .where(items.c.rid.between(_b("low"), _b("high")))
    .order_by(items.c.rid),
    "low",
    "high",
)
NEW_BLOB: Final = prepared(
    upsert(blobs)
    .values(thread=_b("t"), hash=_b("h"), size=_b("s"), body=_b("x"))
    .on_conflict_do_nothing(),
    *("t", "h", "s", "x"),
)
BLOB: Final = prepared(
    select(blobs.c.body).where(blobs.c.thread == _b("t"), blobs.c.hash == _b("h")), "t", "h"
)
_put = upsert(checkpoints).values(
    thread=_b("t"),
    ns=_b("n"),
    id=_b("i"),
    parent=_b("p"),
    source=_b("src"),
    step=_b("stp"),
    run=_b("r"),
    hidden=_b("h"),
    meta=_b("m"),
    body=_b("x"),
    seq=_b("q"),
)
_put_in_order = ("t", "n", "i", "p", "src", "stp", "r", "h", "m", "x", "q")
PUT: Final = prepared(
    _put.on_conflict_do_nothing(index_elements=["thread", "ns", "id"]), *_put_in_order
)
REPLACE: Final = prepared(
    _put.on_conflict_do_update(
        index_elements=["thread", "ns", "id"],
        set_={
            name: _put.excluded[name]
            for name in ("parent", "source", "step", "run", "hidden", "meta", "body")
        },
    ),
    *_put_in_order,
)
"""One that replaces another has its number."""
LAST_SEQ: Final = prepared(
    select(func.max(checkpoints.c.seq)).where(checkpoints.c.thread == _b("t")), "t"
)
SEQ: Final = prepared(
    select(checkpoints.c.seq).where(*_here, checkpoints.c.id == _b("i")), "t", "n", "i"
)
COLUMNS: Final = (
    checkpoints.c.rid,
    checkpoints.c.thread,
    checkpoints.c.ns,
    checkpoints.c.id,
    checkpoints.c.parent,
    checkpoints.c.source,
    checkpoints.c.step,
    checkpoints.c.run,
    checkpoints.c.meta,
    checkpoints.c.body,
    checkpoints.c.seq,
)
"""What `reading.Row` holds, in its order."""
LATEST: Final = prepared(
    select(*COLUMNS)
    .where(*_here, checkpoints.c.hidden == _b("h"))
    .order_by(checkpoints.c.seq.desc())
    .limit(_b("l"))
    .offset(_b("o")),
    *("t", "n", "h", "l", "o"),
)
HEAD: Final = prepared(
    select(checkpoints.c.id, checkpoints.c.seq)
    .where(*_here, checkpoints.c.hidden == _b("h"))
    .order_by(checkpoints.c.seq.desc())
    .limit(_b("l"))
    .offset(_b("o")),
    *("t", "n", "h", "l", "o"),
)
EXACT: Final = prepared(
    select(*COLUMNS).where(*_here, checkpoints.c.id == _b("i"), checkpoints.c.hidden <= _b("h")),
    "t",
    "n",
    "i",
    "h",
)
WRITES: Final = prepared(
    select(writes.c.task, writes.c.path, writes.c.body).where(
        writes.c.thread == _b("t"), writes.c.ns == _b("n"), writes.c.checkpoint == _b("i")
    ),
    "t",
    "n",
    "i",
)
TASK: Final = prepared(
    select(writes.c.path, writes.c.body).where(
        writes.c.thread == _b("t"),
        writes.c.ns == _b("n"),
        writes.c.checkpoint == _b("i"),
        writes.c.task == _b("k"),
    ),
    "t",
    "n",
    "i",
    "k",
)
_written: Final[dict[str, Any]] = {
    "thread": _b("t"),
    "ns": _b("n"),
    "checkpoint": _b("i"),
    "task": _b("k"),
    "path": _b("p"),
    "body": _b("x"),
}
_write = upsert(writes).values(**_written)
NEW_WRITES: Final = prepared(_write.on_conflict_do_nothing(), "t", "n", "i", "k", "p", "x")
PUT_WRITES: Final = prepared(
    _write.on_conflict_do_update(
        index_elements=["thread", "ns", "checkpoint", "task"],
        set_={"path": _write.excluded.path, "body": _write.excluded.body},
    ),
    *("t", "n", "i", "k", "p", "x"),
)
COUNT_STEPS: Final = prepared(
    select(func.count())
    .select_from(checkpoints)
    .where(checkpoints.c.thread == _b("t"), checkpoints.c.hidden == _b("h")),
    "t",
    "h",
)

_call = (calls.c.thread == _b("t"), calls.c.key == _b("k"))

CALL: Final = prepared(
    select(calls.c.args, calls.c.state, calls.c.tries, calls.c.body).where(*_call), "t", "k"
)
CALLS_IN: Final = prepared(
    select(calls.c.key, calls.c.args, calls.c.state, calls.c.tries, calls.c.body)
    .where(calls.c.thread == _b("t"), calls.c.state == _b("s"))
    .order_by(calls.c.rid),
    *("t", "s"),
)
CALL_STATE: Final = prepared(
    update(calls).values(state=_b("s"), tries=_b("n"), epoch=_b("e")).where(*_call),
    *("s", "e", "n", "t", "k"),
)
_call_row = upsert(calls).values(
    thread=_b("t"),
    key=_b("k"),
    name=_b("name"),
    args=_b("a"),
    state=_b("s"),
    epoch=_b("e"),
    tries=_b("n"),
    started=_b("from"),
    ended=_b("to"),
    body=_b("b"),
)
PUT_CALL: Final = prepared(
    _call_row.on_conflict_do_update(
        index_elements=[calls.c.thread, calls.c.key],
        set_={
            name: _call_row.excluded[name]
            for name in ("name", "args", "state", "epoch", "tries", "started", "ended", "body")
        },
    ),
    *("t", "k", "name", "a", "s", "e", "n", "from", "to", "b"),
)
HEAD_OF_ALL: Final = prepared(
    select(
        select(checkpoints.c.id)
        .where(checkpoints.c.thread == _b("t"))
        .order_by(checkpoints.c.seq.desc())
        .limit(_b("l"))
        .offset(_b("o"))
        .scalar_subquery()
    ),
    *("t", "l", "o"),
)
"""The latest checkpoint of any namespace, in one row."""
LOCK_NUMBER: Final = prepared(
    select(threads.c.id).where(threads.c.id == _b("t")).with_for_update(), "t"
)
"""Waits for a thread's row; SQLite has one writer at a time and locks nothing here."""
HOLDER: Final = prepared(
    select(leases.c.owner, leases.c.until).where(leases.c.thread == _b("t")), "t"
)
EPOCH: Final = prepared(select(leases.c.epoch).where(leases.c.thread == _b("t")), "t")
_lease: Final[dict[str, Any]] = {
    name: _b(name) for name in ("owner", "epoch", "until", "tries", "head")
}
LEASE: Final = prepared(
    select(leases.c.owner, leases.c.epoch, leases.c.until, leases.c.tries, leases.c.head).where(
        leases.c.thread == _b("t")
    ),
    "t",
)
_lease_values = checked(leases, {"thread": _b("t"), **_lease}, new=True)
_lease_row = upsert(leases).values(**_lease_values)
PUT_LEASE: Final = prepared(
    _lease_row.on_conflict_do_update(
        index_elements=[leases.c.thread],
        set_={name: _lease_row.excluded[name] for name in (*_lease, "checksum")},
    ),
    *("t", "owner", "epoch", "until", "tries", "head"),
)
_held = (leases.c.thread == _b("t"), leases.c.epoch == _b("e"))
RENEW_LEASE: Final = prepared(
    update(leases)
    .values(**checked(leases, {"until": _b("u")}))
    .where(*_held, leases.c.until > literal_column("0")),
    *("u", "t", "e"),
)
"""One that was given back meanwhile stays given back."""
SPARE_LEASE: Final = prepared(
    update(leases)
    .values(**checked(leases, {"tries": _b("n")}))
    .where(*_held, leases.c.until > literal_column("0")),
    *("n", "t", "e"),
)
END_LEASE: Final = prepared(
    update(leases).values(**checked(leases, {"until": _b("u"), "tries": _b("n")})).where(*_held),
    *("u", "n", "t", "e"),
)
