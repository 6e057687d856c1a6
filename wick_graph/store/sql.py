"""SQL text made once from SQLAlchemy Core statements, for the path that every step takes."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import bindparam, delete, func, insert, literal_column, null, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.sql import Executable
from sqlalchemy.sql.compiler import SQLCompiler

from wick_graph.store.schema import blobs, calls, checkpoints, items, leases, names, threads, writes

_DIALECT: Final = sqlite.dialect(paramstyle="qmark")


def compiled(statement: Executable) -> tuple[str, list[Any]]:
    """Return the text of a statement and the values of its parameters, in order."""
    made = statement.compile(  # type: ignore[attr-defined]  # Executable lacks it in the stubs
        dialect=_DIALECT, compile_kwargs={"render_postcompile": True}
    )
    assert isinstance(made, SQLCompiler)
    values = made.params
    return str(made), [values[name] for name in made.positiontup or ()]


def _text(statement: Executable, *order: str) -> str:
    """Return the text of a statement whose parameters stand in the given order."""
    made = statement.compile(dialect=_DIALECT)  # type: ignore[attr-defined]  # as above
    assert isinstance(made, SQLCompiler)
    assert made.positiontup == list(order), (made.positiontup, order)
    return str(made)


_b = bindparam
_here = (checkpoints.c.thread == _b("t"), checkpoints.c.ns == _b("n"))
_based = items.alias("based")

THREAD: Final = _text(
    select(threads.c.id, threads.c.generation, threads.c.last_access, threads.c.ttl).where(
        threads.c.tenant == _b("tenant"), threads.c.thread == _b("key")
    ),
    "tenant",
    "key",
)
NEW_THREAD: Final = _text(
    insert(threads)
    .values(
        tenant=_b("tenant"),
        thread=_b("key"),
        status=_b("state"),
        pinned=_b("pin"),
        created=_b("created"),
        last_access=_b("seen"),
        ttl=_b("life"),
        expires_at=_b("until"),
        generation=_b("gen"),
    )
    .returning(threads.c.id),
    *("tenant", "key", "state", "pin", "created", "seen", "life", "until", "gen"),
)
SEEN: Final = _text(
    update(threads)
    .values(last_access=_b("now"), expires_at=_b("until"))
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
INFO: Final = _text(
    select(*THREAD_COLUMNS).where(threads.c.tenant == _b("tenant"), threads.c.thread == _b("key")),
    "tenant",
    "key",
)
_opened = {
    "agent": _b("name"),
    "status": _b("state"),
    "title": func.coalesce(_b("named"), threads.c.title),
    "run": _b("r"),
    "last_access": _b("now"),
    "ttl": _b("life"),
    "expires_at": _b("until"),
    "stopped_because": null(),
    "last_error": null(),
}
OPEN: Final = _text(
    update(threads)
    .values(**_opened)
    .where(threads.c.tenant == _b("tenant"), threads.c.thread == _b("key")),
    *("name", "state", "named", "now", "life", "until", "r", "tenant", "key"),
)
CLOSE: Final = _text(
    update(threads)
    .values(
        status=_b("state"),
        last_access=_b("now"),
        expires_at=_b("at") + threads.c.ttl,
        stopped_because=_b("because"),
        last_error=_b("error"),
    )
    .where(threads.c.tenant == _b("tenant"), threads.c.thread == _b("key")),
    *("state", "now", "at", "because", "error", "tenant", "key"),
)
GENERATION: Final = _text(
    update(threads)
    .values(generation=threads.c.generation + _b("one"))
    .where(threads.c.id == _b("t")),
    "one",
    "t",
)
NAMES: Final = _text(
    select(names.c.id, names.c.scope, names.c.text).where(names.c.thread == _b("t")), "t"
)
NEW_NAME: Final = _text(
    insert(names).values(thread=_b("t"), scope=_b("s"), text=_b("x")).returning(names.c.id),
    "t",
    "s",
    "x",
)
LAST_ITEM: Final = _text(
    select(func.max(items.c.rid)).where(items.c.rid.between(_b("low"), _b("high"))),
    "low",
    "high",
)
NEW_ITEM: Final = _text(
    insert(items).values(rid=_b("r"), base=_b("s"), body=_b("x")), "r", "s", "x"
)
ITEMS: Final = _text(
    select(items.c.rid, items.c.base, items.c.body, _based.c.body)
    .select_from(items.outerjoin(_based, _based.c.rid == items.c.base))
    .where(items.c.rid.between(_b("low"), _b("high")))
    .order_by(items.c.rid),
    "low",
    "high",
)
NEW_BLOB: Final = _text(
    upsert(blobs)
    .values(thread=_b("t"), hash=_b("h"), size=_b("s"), body=_b("x"))
    .on_conflict_do_nothing(),
    *("t", "h", "s", "x"),
)
BLOB: Final = _text(
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
)
PUT: Final = _text(
    _put.on_conflict_do_update(
        index_elements=["thread", "ns", "id"],
        set_={
            name: _put.excluded[name]
            for name in ("parent", "source", "step", "run", "hidden", "meta", "body")
        },
    ),
    *("t", "n", "i", "p", "src", "stp", "r", "h", "m", "x"),
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
)
"""What `reading.Row` holds, in its order."""
LATEST: Final = _text(
    select(*COLUMNS)
    .where(*_here, checkpoints.c.hidden == _b("h"))
    .order_by(checkpoints.c.id.desc())
    .limit(_b("l"))
    .offset(_b("o")),
    *("t", "n", "h", "l", "o"),
)
HEAD: Final = _text(
    select(checkpoints.c.id)
    .where(*_here, checkpoints.c.hidden == _b("h"))
    .order_by(checkpoints.c.id.desc())
    .limit(_b("l"))
    .offset(_b("o")),
    *("t", "n", "h", "l", "o"),
)
EXACT: Final = _text(
    select(*COLUMNS).where(*_here, checkpoints.c.id == _b("i"), checkpoints.c.hidden <= _b("h")),
    "t",
    "n",
    "i",
    "h",
)
WRITES: Final = _text(
    select(writes.c.task, writes.c.path, writes.c.body).where(
        writes.c.thread == _b("t"), writes.c.ns == _b("n"), writes.c.checkpoint == _b("i")
    ),
    "t",
    "n",
    "i",
)
TASK: Final = _text(
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
NEW_WRITES: Final = _text(insert(writes).values(**_written), "t", "n", "i", "k", "p", "x")
_write = upsert(writes).values(**_written)
PUT_WRITES: Final = _text(
    _write.on_conflict_do_update(
        index_elements=["thread", "ns", "checkpoint", "task"],
        set_={"path": _write.excluded.path, "body": _write.excluded.body},
    ),
    *("t", "n", "i", "k", "p", "x"),
)
DELETE_ITEMS: Final = _text(
    delete(items).where(items.c.rid.between(_b("low"), _b("high"))), "low", "high"
)
COUNT_STEPS: Final = _text(
    select(func.count())
    .select_from(checkpoints)
    .where(checkpoints.c.thread == _b("t"), checkpoints.c.hidden == _b("h")),
    "t",
    "h",
)

_call = (calls.c.thread == _b("t"), calls.c.key == _b("k"))

CALL: Final = _text(
    select(calls.c.args, calls.c.state, calls.c.tries, calls.c.body).where(*_call), "t", "k"
)
CALL_STATE: Final = _text(
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
PUT_CALL: Final = _text(
    _call_row.on_conflict_do_update(
        index_elements=[calls.c.thread, calls.c.key],
        set_={
            name: _call_row.excluded[name]
            for name in ("args", "state", "epoch", "tries", "ended", "body")
        },
    ),
    *("t", "k", "name", "a", "s", "e", "n", "from", "to", "b"),
)
EPOCH: Final = _text(select(leases.c.epoch).where(leases.c.thread == _b("t")), "t")
