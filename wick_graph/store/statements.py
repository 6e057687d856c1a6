"""SQL text, made once from SQLAlchemy statements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Float,
    Select,
    Table,
    Update,
    bindparam,
    cast,
    exists,
    func,
    insert,
    literal_column,
    null,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from wick_graph.store.schema import (
    blobs,
    calls,
    checkpoints,
    clock,
    events,
    items,
    leases,
    moments,
    names,
    runs,
    streams,
    threads,
    tokens,
    writes,
)
from wick_graph.store.texts import Prepared, name_texts

# --- The clock that statements read, and the checksums of rows.


class Now(FunctionElement[float]):
    """The database's time, in seconds since 1970: the store's only clock."""

    type = Float()
    inherit_cache = True


POSTGRES_NOW: Final = (
    "coalesce(nullif(current_setting('wick.now', true), '')::float8, "
    "extract(epoch FROM clock_timestamp())::float8)"
)


@compiles(Now, "sqlite")
def _sqlite_now(element: Now, compiler: SQLCompiler, **_: Any) -> str:
    return "wick_now()"


@compiles(Now, "postgresql")
def _postgres_now(element: Now, compiler: SQLCompiler, **_: Any) -> str:
    return POSTGRES_NOW


class Checksum(FunctionElement[int]):
    """The checksum of a row's other columns; NULL if the database checks its own pages."""

    type = BigInteger()
    inherit_cache = True


@compiles(Checksum, "sqlite")
def _sqlite_checksum(element: Checksum, compiler: SQLCompiler, **more: Any) -> str:
    return f"wick_checksum({compiler.process(element.clauses, **more)})"


@compiles(Checksum, "postgresql")
def _postgres_checksum(element: Checksum, compiler: SQLCompiler, **_: Any) -> str:
    return "NULL"


def checked(table: Table, values: Mapping[str, Any], *, new: bool = False) -> dict[str, Any]:
    """Add a row's checksum to the values that are written to it; `new` if there is no row yet."""
    own = [values.get(column.name, null() if new else column) for column in checked_columns(table)]
    typed = [
        cast(value, Float) if isinstance(column.type, Float) else value
        for column, value in zip(checked_columns(table), own, strict=True)
    ]
    return {**values, "checksum": Checksum(*typed)}


def checked_columns(table: Table) -> list[Any]:
    """Return the columns that a row's checksum covers: all but those that the database sets."""
    return [column for column in table.c if column.name not in ("id", "rid", "checksum")]


# --- When the store was used last, by both clocks.


_times: Final[dict[str, Any]] = {
    name: bindparam(name) for name in ("boot", "wall", "steady", "since")
}

_use = upsert(clock).values(rid=bindparam("r"), **checked(clock, _times, new=True))

LAST_USE: Final = Prepared(
    lambda: select(*(clock.c[name] for name in _times)).where(clock.c.rid == bindparam("r")), "r"
)

NOTE_USE: Final = Prepared(
    lambda: _use.on_conflict_do_update(
        index_elements=["rid"], set_={name: _use.excluded[name] for name in (*_times, "checksum")}
    ),
    *("r", *_times),
)

SINCE: Final = func.coalesce(select(clock.c.since).scalar_subquery(), 0.0)
"""The time from which idleness counts."""

LAST_ACCESS: Final = Prepared(lambda: select(func.max(threads.c.last_access)))

# --- Prepared SQL of the path that every step takes.


_b = bindparam

_here = (checkpoints.c.thread == _b("t"), checkpoints.c.ns == _b("n"))

_based = items.alias("based")

THREAD: Final = Prepared(
    lambda: (
        select(
            threads.c.id, threads.c.generation, threads.c.last_access, threads.c.ttl, leases.c.epoch
        )
        .select_from(threads.outerjoin(leases, leases.c.thread == threads.c.id))
        .where(threads.c.tenant == _b("tenant"), threads.c.thread == _b("key"))
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

NEW_THREAD: Final = Prepared(lambda: _new_thread.returning(threads.c.id), *_in_order)

NEW_THREAD_OR_NONE: Final = Prepared(
    lambda: _new_thread.on_conflict_do_nothing().returning(threads.c.id), *_in_order
)


def _changed(values: dict[str, Any]) -> Update:
    return update(threads).values(**checked(threads, values))


def _changed_by_name(values: dict[str, Any]) -> Update:
    mine = (threads.c.tenant == _b("tenant"), threads.c.thread == _b("key"))
    return _changed(values).where(*mine)


_seen: Final[dict[str, Any]] = {"last_access": _b("now"), "expires_at": _b("until")}

SEEN: Final = Prepared(lambda: _changed(_seen).where(threads.c.id == _b("t")), "now", "until", "t")

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
"""The columns of `threads.ThreadInfo`; both counts are read from an index alone."""

INFO: Final = Prepared(
    lambda: select(*THREAD_COLUMNS).where(
        threads.c.tenant == _b("tenant"), threads.c.thread == _b("key")
    ),
    "tenant",
    "key",
)

_touched: Final[dict[str, Any]] = {"last_access": _b("now"), "expires_at": _b("at") + threads.c.ttl}

TOUCH: Final = Prepared(lambda: _changed_by_name(_touched), *("now", "at", "tenant", "key"))


def listed(*filters: str) -> Select[Any]:
    """Return the query of a list of threads, the most recently used first."""
    own = threads.c
    same = [own[name] == _b(name) for name in ("tenant", *filters)]
    query = select(*THREAD_COLUMNS).where(*same, own.last_access < _b("until"))
    query = query.order_by(own.last_access.desc(), own.id.desc())
    return query.limit(_b("most")).offset(literal_column("0"))


LIST: Final = Prepared(listed, "tenant", "until", "most")

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

OPEN: Final = Prepared(
    lambda: _changed_by_name(_opened),
    *("name", "state", "named", "now", "life", "until", "r", "tenant", "key"),
)

_closed: Final[dict[str, Any]] = {
    "status": _b("state"),
    **_touched,
    "stopped_because": _b("because"),
    "last_error": _b("error"),
}

CLOSE: Final = Prepared(
    lambda: _changed_by_name(_closed),
    *("state", "now", "at", "because", "error", "tenant", "key"),
)

_ended: Final[dict[str, Any]] = {"status": _b("state"), "stopped_because": _b("because")}

END_WAITING: Final = Prepared(
    lambda: _changed(_ended).where(threads.c.id == _b("t"), threads.c.status == _b("was")),
    *("state", "because", "t", "was"),
)

_next_generation: Final = {"generation": threads.c.generation + _b("one")}

GENERATION: Final = Prepared(
    lambda: _changed(_next_generation).where(threads.c.id == _b("t")), "one", "t"
)

NAMES: Final = Prepared(
    lambda: select(names.c.id, names.c.scope, names.c.text).where(names.c.thread == _b("t")), "t"
)

NEW_NAME: Final = Prepared(
    lambda: insert(names).values(thread=_b("t"), scope=_b("s"), text=_b("x")).returning(names.c.id),
    "t",
    "s",
    "x",
)

ADD_NAME: Final = Prepared(
    lambda: insert(names).values(thread=_b("t"), scope=_b("s"), text=_b("x")), "t", "s", "x"
)

LAST_ITEM: Final = Prepared(
    lambda: select(func.max(items.c.rid)).where(items.c.rid.between(_b("low"), _b("high"))),
    "low",
    "high",
)

NEW_ITEM: Final = Prepared(
    lambda: insert(items).values(rid=_b("r"), base=_b("s"), body=_b("x")), "r", "s", "x"
)

ITEMS: Final = Prepared(
    lambda: (
        select(items.c.rid, items.c.base, items.c.body, _based.c.body)
        .select_from(items.outerjoin(_based, _based.c.rid == items.c.base))
        .where(items.c.rid.between(_b("low"), _b("high")))
        .order_by(items.c.rid)
    ),
    "low",
    "high",
)

NEW_BLOB: Final = Prepared(
    lambda: (
        upsert(blobs)
        .values(thread=_b("t"), hash=_b("h"), size=_b("s"), body=_b("x"))
        .on_conflict_do_nothing()
    ),
    *("t", "h", "s", "x"),
)

BLOB: Final = Prepared(
    lambda: select(blobs.c.body).where(blobs.c.thread == _b("t"), blobs.c.hash == _b("h")), "t", "h"
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

PUT: Final = Prepared(
    lambda: _put.on_conflict_do_nothing(index_elements=["thread", "ns", "id"]), *_put_in_order
)

REPLACE: Final = Prepared(
    lambda: _put.on_conflict_do_update(
        index_elements=["thread", "ns", "id"],
        set_={
            name: _put.excluded[name]
            for name in ("parent", "source", "step", "run", "hidden", "meta", "body")
        },
    ),
    *_put_in_order,
)
"""A checkpoint that replaces another has its number."""

LAST_SEQ: Final = Prepared(
    lambda: select(func.max(checkpoints.c.seq)).where(checkpoints.c.thread == _b("t")), "t"
)

_anywhere = (checkpoints.c.thread == _b("t"), checkpoints.c.id == _b("i"))

NAMESPACE: Final = Prepared(lambda: select(checkpoints.c.ns).where(*_anywhere), "t", "i")

SEQ: Final = Prepared(
    lambda: select(checkpoints.c.seq).where(*_here, checkpoints.c.id == _b("i")), "t", "n", "i"
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
"""The columns of `checkpoint_read.Row`, in its order."""

LATEST: Final = Prepared(
    lambda: (
        select(*COLUMNS)
        .where(*_here, checkpoints.c.hidden == _b("h"))
        .order_by(checkpoints.c.seq.desc())
        .limit(_b("l"))
        .offset(_b("o"))
    ),
    *("t", "n", "h", "l", "o"),
)

HEAD: Final = Prepared(
    lambda: (
        select(checkpoints.c.id, checkpoints.c.seq)
        .where(*_here, checkpoints.c.hidden == _b("h"))
        .order_by(checkpoints.c.seq.desc())
        .limit(_b("l"))
        .offset(_b("o"))
    ),
    *("t", "n", "h", "l", "o"),
)

EXACT: Final = Prepared(
    lambda: select(*COLUMNS).where(
        *_here, checkpoints.c.id == _b("i"), checkpoints.c.hidden <= _b("h")
    ),
    "t",
    "n",
    "i",
    "h",
)

WRITES: Final = Prepared(
    lambda: select(writes.c.task, writes.c.path, writes.c.body).where(
        writes.c.thread == _b("t"), writes.c.ns == _b("n"), writes.c.checkpoint == _b("i")
    ),
    "t",
    "n",
    "i",
)

TASK: Final = Prepared(
    lambda: select(writes.c.path, writes.c.body).where(
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

_stored = exists().where(
    checkpoints.c.thread == writes.c.thread,
    checkpoints.c.ns == writes.c.ns,
    checkpoints.c.id == writes.c.checkpoint,
)

STRAY: Final = Prepared(
    lambda: select(writes.c.rid).where(
        *(writes.c.thread == _b("t"), writes.c.ns == _b("n"), writes.c.checkpoint == _b("i")),
        ~_stored,
    ),
    *("t", "n", "i"),
)
"""A write under a checkpoint that is not stored."""

_write = upsert(writes).values(**_written)

NEW_WRITES: Final = Prepared(lambda: _write.on_conflict_do_nothing(), "t", "n", "i", "k", "p", "x")

PUT_WRITES: Final = Prepared(
    lambda: _write.on_conflict_do_update(
        index_elements=["thread", "ns", "checkpoint", "task"],
        set_={"path": _write.excluded.path, "body": _write.excluded.body},
    ),
    *("t", "n", "i", "k", "p", "x"),
)

COUNT_STEPS: Final = Prepared(
    lambda: (
        select(func.count())
        .select_from(checkpoints)
        .where(checkpoints.c.thread == _b("t"), checkpoints.c.hidden == _b("h"))
    ),
    "t",
    "h",
)

_call = (calls.c.thread == _b("t"), calls.c.key == _b("k"))

CALL: Final = Prepared(
    lambda: select(calls.c.args, calls.c.state, calls.c.tries, calls.c.body).where(*_call), "t", "k"
)

CALLS_IN: Final = Prepared(
    lambda: (
        select(calls.c.key, calls.c.args, calls.c.state, calls.c.tries, calls.c.body)
        .where(calls.c.thread == _b("t"), calls.c.state == _b("s"))
        .order_by(calls.c.rid)
    ),
    *("t", "s"),
)

CALL_STATE: Final = Prepared(
    lambda: update(calls).values(state=_b("s"), tries=_b("n"), epoch=_b("e")).where(*_call),
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

PUT_CALL: Final = Prepared(
    lambda: _call_row.on_conflict_do_update(
        index_elements=[calls.c.thread, calls.c.key],
        set_={
            name: _call_row.excluded[name]
            for name in ("name", "args", "state", "epoch", "tries", "started", "ended", "body")
        },
    ),
    *("t", "k", "name", "a", "s", "e", "n", "from", "to", "b"),
)

HEAD_OF_ALL: Final = Prepared(
    lambda: select(
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

LOCK_NUMBER: Final = Prepared(
    lambda: select(threads.c.id).where(threads.c.id == _b("t")).with_for_update(), "t"
)
"""Waits for a thread's row; SQLite has one writer at a time and locks nothing here."""

HOLDER: Final = Prepared(
    lambda: select(leases.c.owner, leases.c.until).where(leases.c.thread == _b("t")), "t"
)

EPOCH: Final = Prepared(lambda: select(leases.c.epoch).where(leases.c.thread == _b("t")), "t")

_lease: Final[dict[str, Any]] = {
    name: _b(name) for name in ("owner", "epoch", "until", "tries", "head")
}

LEASE: Final = Prepared(
    lambda: select(
        leases.c.owner, leases.c.epoch, leases.c.until, leases.c.tries, leases.c.head
    ).where(leases.c.thread == _b("t")),
    "t",
)

_lease_values = checked(leases, {"thread": _b("t"), **_lease}, new=True)

_lease_row = upsert(leases).values(**_lease_values)

PUT_LEASE: Final = Prepared(
    lambda: _lease_row.on_conflict_do_update(
        index_elements=[leases.c.thread],
        set_={name: _lease_row.excluded[name] for name in (*_lease, "checksum")},
    ),
    *("t", "owner", "epoch", "until", "tries", "head"),
)

_held = (leases.c.thread == _b("t"), leases.c.epoch == _b("e"))


def _changed_lease(values: dict[str, Any]) -> Update:
    return update(leases).values(**checked(leases, values))


SPARE_LEASE: Final = Prepared(
    lambda: _changed_lease({"tries": _b("n")}).where(*_held, leases.c.until > literal_column("0")),
    *("n", "t", "e"),
)

END_LEASE: Final = Prepared(
    lambda: _changed_lease({"until": _b("u"), "tries": _b("n")}).where(*_held),
    *("u", "n", "t", "e"),
)


# --- Prepared SQL of the journal.


_moment_range = moments.c.rid.between(_b("low"), _b("high"))

PUT_PAGE: Final = Prepared(
    lambda: upsert(moments).values(rid=_b("r"), body=_b("x")).on_conflict_do_nothing(), "r", "x"
)

LAST_PAGE: Final = Prepared(
    lambda: select(func.max(moments.c.rid)).where(_moment_range), "low", "high"
)

PAGES_FROM: Final = Prepared(
    lambda: (
        select(moments.c.rid, moments.c.body)
        .where(_moment_range)
        .order_by(moments.c.rid)
        .limit(_b("n"))
        .offset(_b("o"))
    ),
    *("low", "high", "n", "o"),
)

PAGES_TO: Final = Prepared(
    lambda: (
        select(moments.c.rid, moments.c.body)
        .where(_moment_range)
        .order_by(moments.c.rid.desc())
        .limit(_b("n"))
        .offset(_b("o"))
    ),
    *("low", "high", "n", "o"),
)

PAGE_BYTES: Final = Prepared(
    lambda: select(func.sum(func.length(moments.c.body))).where(_moment_range), "low", "high"
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

PUT_JOURNAL_RUN: Final = Prepared(
    lambda: _run.on_conflict_do_update(
        index_elements=["thread", "number"],
        set_={name: _run.excluded[name] for name in ("branch", "status", "ended", "body")},
    ),
    *("t", "n", "r", "b", "s", "from", "to", "x"),
)

_columns = (runs.c.number, runs.c.run, runs.c.branch, runs.c.status, runs.c.started, runs.c.ended)

JOURNAL_RUNS: Final = Prepared(
    lambda: select(*_columns, runs.c.body).where(runs.c.thread == _b("t")).order_by(runs.c.number),
    "t",
)

LAST_RUN: Final = Prepared(
    lambda: (
        select(*_columns, runs.c.body)
        .where(runs.c.thread == _b("t"))
        .order_by(runs.c.number.desc())
        .limit(_b("n"))
        .offset(_b("o"))
    ),
    *("t", "n", "o"),
)

BLOBS: Final = Prepared(
    lambda: select(blobs.c.hash, blobs.c.size, blobs.c.body).where(blobs.c.thread == _b("t")), "t"
)

BLOB_BYTES: Final = Prepared(
    lambda: select(func.sum(func.length(blobs.c.body))).where(blobs.c.thread == _b("t")), "t"
)

PARENT: Final = Prepared(lambda: select(checkpoints.c.parent).where(*_anywhere), "t", "i")

_latest = select(checkpoints.c.id).where(checkpoints.c.thread == _b("t"))

_first = checkpoints.c.seq.desc()

LAST_OF_RUN: Final = Prepared(
    lambda: select(
        _latest.where(checkpoints.c.run == _b("r"))
        .order_by(_first)
        .limit(_b("l"))
        .offset(_b("o"))
        .scalar_subquery()
    ),
    *("t", "r", "l", "o"),
)


# --- Prepared SQL of a server's requests.


_event_range = events.c.rid.between(_b("low"), _b("high"))

PUT_EVENTS: Final = Prepared(lambda: insert(events).values(rid=_b("r"), body=_b("x")), "r", "x")

LAST_EVENT: Final = Prepared(
    lambda: select(func.max(events.c.rid)).where(_event_range), "low", "high"
)

EVENTS: Final = Prepared(
    lambda: (
        select(events.c.rid, events.c.body)
        .where(_event_range)
        .order_by(events.c.rid)
        .limit(_b("n"))
        .offset(_b("o"))
    ),
    *("low", "high", "n", "o"),
)

RUN_COLUMNS: Final = (
    *(threads.c.thread, streams.c.run, streams.c.status, streams.c.started, streams.c.ended),
    *(streams.c.first, streams.c.thread, streams.c.body),
)


def server_runs(tenant: Any) -> Select[Any]:
    """Return the query of a tenant's runs."""
    own = select(*RUN_COLUMNS).join(threads, threads.c.id == streams.c.thread)
    return own.where(threads.c.tenant == tenant)


SERVER_RUNS: Final = server_runs(_b("tenant"))

RUN: Final = Prepared(lambda: SERVER_RUNS.where(streams.c.run == _b("r")), "tenant", "r")

RUN_OF_KEY: Final = Prepared(lambda: SERVER_RUNS.where(streams.c.key == _b("k")), "tenant", "k")

RUNS_IN: Final = Prepared(
    lambda: SERVER_RUNS.where(streams.c.thread == _b("t"), streams.c.status == _b("s")),
    "tenant",
    "t",
    "s",
)

PUT_SERVER_RUN: Final = Prepared(
    lambda: insert(streams).values(
        thread=_b("t"),
        run=_b("r"),
        status=_b("s"),
        started=_b("at"),
        first=_b("f"),
        key=_b("k"),
        body=_b("x"),
        tenant=_b("tenant"),
        placed=_b("p"),
    ),
    *("t", "r", "s", "at", "f", "k", "x", "tenant", "p"),
)

END_RUN: Final = Prepared(
    lambda: (
        update(streams)
        .values(status=_b("s"), ended=_b("at"))
        .where(streams.c.thread == _b("t"), streams.c.run == _b("r"))
    ),
    *("s", "at", "t", "r"),
)

STATE: Final = Prepared(
    lambda: (
        select(streams.c.thread, streams.c.status)
        .join(threads, threads.c.id == streams.c.thread)
        .where(
            threads.c.tenant == _b("tenant"), threads.c.thread == _b("k"), streams.c.run == _b("r")
        )
    ),
    *("tenant", "k", "r"),
)

PUT_BODY: Final = Prepared(
    lambda: (
        update(streams)
        .values(body=_b("x"))
        .where(streams.c.thread == _b("t"), streams.c.run == _b("r"))
    ),
    *("x", "t", "r"),
)

THREADS: Final = Prepared(
    lambda: select(func.count()).select_from(threads).where(threads.c.tenant == _b("tenant")),
    "tenant",
)

TOKEN_COLUMNS: Final = (
    *(tokens.c.token, tokens.c.tenant, tokens.c.name, tokens.c.scopes),
    *(tokens.c.created, tokens.c.expires, tokens.c.revoked, tokens.c.hash),
)

TOKEN: Final = Prepared(lambda: select(*TOKEN_COLUMNS).where(tokens.c.token == _b("k")), "k")

name_texts(__name__, globals())
