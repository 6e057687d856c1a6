"""Changing the key of an encrypted store: everything is sealed anew under the current key.

Rows are taken some at a time, while others go on reading and writing. A row is replaced only if it
is still the one that was read, so nobody's write is lost. The store's own row comes last: until
then the old key is needed, and a rotation that was cut short is simply begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import Column, LargeBinary, Table, func, literal_column, select, update
from sqlalchemy.sql.elements import ColumnElement

from wick_graph.errors import StorageError
from wick_graph.store.checkpoints.core import Core
from wick_graph.store.database import sql
from wick_graph.store.database.compiling import checked, compiled
from wick_graph.store.database.digests import changing
from wick_graph.store.database.schema import (
    LANE_BITS,
    PLACES,
    blobs,
    calls,
    checkpoints,
    events,
    items,
    moments,
    names,
    runs,
    streams,
    threads,
    writes,
)
from wick_graph.store.keeping.ledger import place_of
from wick_graph.store.keeping.upkeep import GONE
from wick_graph.store.saver import SqlSaver
from wick_graph.store.sealed.cipher import Encrypted, new_mark
from wick_graph.store.sealed.keyring import ID_BYTES
from wick_graph.store.sealed.sealing import MARK, NOBODY, Seals
from wick_graph.store.values.blobs import HASH_BYTES, is_text_key
from wick_graph.store.values.rows import Context

_BATCH: Final = 200
"""Rows that one transaction changes at most."""
_PASSES: Final = 3
"""Times that all is gone through, where others still write under an old key."""
_IS_THERE: Final = threads.c.status != GONE
"""What is being deleted needs no key any more."""
Place = Callable[[Seals, int, Sequence[Any]], tuple[Context, ...]]
"""Makes a row's context of its columns, as those do who write it."""


def rotate(saver: SqlSaver) -> int:
    """Seal everything anew that is not under the current key, and return how many rows that were.

    Whoever else has the store open must have been given the new keys before. Afterwards the old
    ones can be taken away.

    Raises:
        StorageError: the store is not encrypted, a row is damaged, or somebody goes on writing
            under an old key; the old keys are needed then as before.
    """
    core: Core = saver._core
    sealing = core.sealing
    if not isinstance(sealing, Encrypted) or sealing.keys is None:
        raise StorageError(f"{core.dialect.name} is not encrypted; there is no key to change")
    total = 0
    for _ in range(_PASSES):
        changed = sum(_thread(core, *named) for named in _named(core)) + _texts(core)
        total += changed
        if not changed:
            break
    else:
        raise StorageError(
            f"somebody still writes to {core.dialect.name} under an old key; give the new keys to "
            "all who have it open, and try again"
        )
    return total + _mark(core, sealing)


def _named(core: Core) -> list[tuple[int, bytes, bytes]]:
    """Return the number, the tenant and the id of all threads, whosever they are."""
    query = select(threads.c.id, threads.c.tenant, threads.c.thread).where(_IS_THERE)
    with core.reading() as db:
        found = db.execute(*compiled(query)).fetchall()
    return [(number, bytes(tenant), bytes(key)) for number, tenant, key in found]


def _thread(core: Core, number: int, tenant: bytes, key: bytes) -> int:
    """Seal a thread's rows anew."""
    changed, seals = 0, core.sealing.of(number, tenant, key)
    for table, columns, place in BY_THREAD:
        changed += _rows(core, seals, number, table, table.c.thread == number, columns, place)
    with core.reading() as db:
        mine = select(names.c.id).where(names.c.thread == number)
        lanes = [row[0] for row in db.execute(*compiled(mine)).fetchall()]
    for table, columns, place in BY_RANGE:
        for owner in lanes if table is items else [number]:
            low = owner << LANE_BITS
            within = table.c.rid.between(low, low | PLACES)
            changed += _rows(core, seals, number, table, within, columns, place)
    return changed


def _rows(
    core: Core,
    seals: Seals,
    number: int,
    table: Table,
    mine: ColumnElement[bool],
    columns: Sequence[Column[Any]],
    place: Place,
) -> int:
    what, changed = f"table {table.name}", 0
    query = select(table.c.rid, table.c.body, *columns)
    query = query.where(mine, _is_old(core, table.c.body)).order_by(table.c.rid).limit(_BATCH)
    last = -1
    while True:
        with core.writing(alone=True) as db:
            db.execute(sql.LOCK_NUMBER, (number,))
            found = db.execute(*compiled(query.where(table.c.rid > last))).fetchall()
            for rid, body, *rest in found:
                context = place(seals, rid, rest)
                made = seals.seal(seals.unseal(body, what, *context), *context)
                same = (table.c.rid == rid, table.c.body == body)
                with changing(db, table, number, table.c.rid == rid):
                    db.execute(*compiled(update(table).where(*same).values(body=made)))
        changed += len(found)
        if len(found) < _BATCH:
            return changed
        last = found[-1][0]


def _texts(core: Core) -> int:
    """Seal the texts anew that stand in the rows of `threads`."""
    changed = 0
    for column in (threads.c.title, threads.c.last_error):
        query = select(threads.c.id, threads.c.tenant, threads.c.thread, column)
        query = query.where(_IS_THERE, column.is_not(None), _is_old(core, column)).limit(_BATCH)
        while True:
            with core.writing(alone=True) as db:
                found = db.execute(*compiled(query)).fetchall()
                for number, tenant, key, body in found:
                    context = (bytes(tenant), bytes(key), column.name)
                    text = core.sealing.open_text(body, *context)
                    same = (threads.c.id == number, column == body)
                    made = update(threads).where(*same)
                    closed = core.sealing.close_text(text, *context)
                    made = made.values(**checked(threads, {column.name: closed}))
                    db.execute(*compiled(made))
            changed += len(found)
            if len(found) < _BATCH:
                break
    return changed


def _mark(core: Core, sealing: Encrypted) -> int:
    assert sealing.keys is not None
    own = (blobs.c.thread == literal_column(str(NOBODY)), blobs.c.hash == MARK)
    with core.writing(alone=True) as db:
        old = select(blobs.c.body).where(*own, _is_old(core, blobs.c.body))
        if not db.execute(*compiled(old)).fetchall():
            return 0
        made = update(blobs).where(*own).values(body=new_mark(sealing.keys, sealing))
        db.execute(*compiled(made))
    return 1


def _is_old(core: Core, column: Column[Any]) -> ColumnElement[bool]:
    keys = core.sealing.keys
    assert keys is not None
    held = func.substr(
        column, literal_column("2"), literal_column(str(ID_BYTES)), type_=LargeBinary()
    )
    condition: ColumnElement[bool] = held != keys.current
    return condition


def _plainly(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return (*row,)


def _call(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return place_of(seals, *row)


def _stream(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return ("stream", *row)


def _blob(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    thread, key = row
    return ("blobs", key[-HASH_BYTES:]) if is_text_key(key) else (thread, key)


def _item(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return (rid, *row)


def _moment(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return ("moments", rid)


def _event(seals: Seals, rid: int, row: Sequence[Any]) -> tuple[Context, ...]:
    return ("events", rid)


_w = writes.c
BY_THREAD: Final[tuple[tuple[Table, tuple[Column[Any], ...], Place], ...]] = (
    (checkpoints, sql.COLUMNS[1:9], _plainly),
    (
        writes,
        (_w.thread, _w.ns, _w.checkpoint, _w.task, _w.path),
        _plainly,
    ),
    (calls, (calls.c.thread, calls.c.key, calls.c.args), _call),
    (runs, (runs.c.thread, runs.c.number), _plainly),
    (streams, (streams.c.thread, streams.c.run), _stream),
    (blobs, (blobs.c.thread, blobs.c.hash), _blob),
)
BY_RANGE: Final[tuple[tuple[Table, tuple[Column[Any], ...], Place], ...]] = (
    (items, (items.c.base,), _item),
    (moments, (), _moment),
    (events, (), _event),
)
